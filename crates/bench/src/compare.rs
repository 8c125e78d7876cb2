//! Runs the same works with every tool, in turns: from a tree and tools to a [`Report`].
//!
//! Each tool has a copy of the tree. All copies get the same changes, so they are equal at every moment.
//! Dirty data is written back before each measurement. The first tool changes with each repetition.

mod alone;
mod tree;

use crate::args::Compare;
use crate::failure::{Failure, Result};
use crate::generate;
use crate::ground::Ground;
use crate::image::Image;
use crate::machine::Machine;
use crate::measure::{Took, measure_all, settle};
use crate::numbers::Series;
use crate::report::{self, Check, Figures, Report, StoreSize, ToolFacts, ToolFigures, WorkResult};
use crate::tools::{self, Found, Place, Tool, Wanted};
use crate::works::Work;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs `compare`.
pub(crate) fn run(args: &Compare) -> Result<ExitCode> {
    let ground = Ground::new(args.work.as_deref())?;
    let found = find_tools(args)?;
    let mut run = Run::new(args, &ground, found)?;
    let (name, source) = source_tree(args, &ground)?;
    let facts = run.in_the_tree(&name, &source)?;
    for work in [Work::Big, Work::Tiny] {
        if run.wants(work) {
            run.alone(work)?;
        }
    }
    let report = run.report(facts, Machine::this(ground.path())?);
    tell(args, &report)?;
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find_tools(args: &Compare) -> Result<Vec<Found>> {
    let given = args.safepoint.iter().map(|path| ("safepoint".to_owned(), path.clone()));
    let programs: Vec<_> = args.programs.iter().cloned().chain(given).collect();
    tools::find(&Wanted { names: &args.tools, programs: &programs })
}

fn source_tree(args: &Compare, ground: &Ground) -> Result<(String, PathBuf)> {
    match (&args.tree, args.generate) {
        (Some(tree), _) => {
            if !tree.is_dir() {
                return Err(Failure::new(format!("--tree {}: not a folder", tree.display())));
            }
            let name = tree.file_name().map(|name| name.to_string_lossy().into_owned());
            Ok((name.unwrap_or_else(|| tree.display().to_string()), tree.clone()))
        }
        (None, Some(shape)) => {
            let dir = ground.path().join("generated");
            generate::make(shape, &dir, 1)?;
            Ok((format!("{shape:?}, generated").to_lowercase(), dir))
        }
        (None, None) => Err(Failure::new("no tree: use --tree DIR or --generate SHAPE")),
    }
}

fn tell(args: &Compare, report: &Report) -> Result<()> {
    let (heading, tables) = (report::table::heading(report), report::table::tables(report));
    println!("{}\n", heading.join("\n"));
    for table in &tables {
        println!("{}", table.text());
    }
    if let Some(path) = &args.outputs.json {
        report::write_json(path, report)?;
    }
    if let Some(path) = &args.outputs.markdown {
        report::markdown::write(path, &heading, &tables)?;
    }
    if let Some(dir) = &args.outputs.svg {
        report::svg::write_bars(dir, report)?;
    }
    Ok(())
}

/// Tool in the run.
struct Contender {
    tool: Box<dyn Tool>,
    version: String,
    place: Place,
    /// Number of the last checkpoint.
    number: u64,
    /// Reason for its elimination.
    failed: Option<String>,
    sizes: StoreSize,
}

impl Contender {
    fn name(&self) -> &'static str {
        self.tool.name()
    }

    fn checkpoint(&mut self) -> Result<Took> {
        self.number += 1;
        measure_all(&self.tool.checkpoint(&self.place, self.number))
    }

    fn back(&mut self) -> Result<Took> {
        measure_all(&self.tool.back(&self.place, self.number))
    }

    fn store_bytes(&self) -> u64 {
        self.tool.kept_in(&self.place).iter().map(|path| crate::ground::disk_bytes(path)).sum()
    }

    fn facts(&self) -> ToolFacts {
        let shown = |commands: Vec<crate::measure::Cmd>| {
            commands.iter().map(crate::measure::Cmd::shown).collect::<Vec<_>>().join("; ")
        };
        ToolFacts {
            name: self.name().into(),
            version: self.version.clone(),
            checkpoint: shown(self.tool.checkpoint(&self.place, 1)),
            back: shown(self.tool.back(&self.place, 1)),
            lacks: self.tool.lacks().into(),
            failed: self.failed.clone(),
        }
    }
}

/// Measurements of one work.
#[derive(Default)]
struct Measured {
    limit: Series,
    tools: Vec<(Series, u64)>,
}

impl Measured {
    fn new(tools: usize) -> Self {
        Self { limit: Series::default(), tools: vec![(Series::default(), 0); tools] }
    }

    fn add(&mut self, tool: usize, took: Took) {
        let (series, peak_bytes) = &mut self.tools[tool];
        series.push(took.seconds);
        *peak_bytes = (*peak_bytes).max(took.peak_bytes);
    }
}

/// Run of works.
struct Run<'a> {
    args: &'a Compare,
    ground: &'a Path,
    contenders: Vec<Contender>,
    works: Vec<WorkResult>,
    checks: Vec<Check>,
    flushes: Option<report::Flushes>,
    /// Bytes that the bare program writes for the first checkpoint.
    limit_bytes: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(args: &'a Compare, ground: &'a Ground, found: Vec<Found>) -> Result<Self> {
        if found.is_empty() {
            return Err(Failure::new("no tool to measure"));
        }
        let contender = |Found { tool, program, version }: Found| {
            let place = Place::new(&program, ground.path(), tool.name());
            let sizes = StoreSize {
                tool: tool.name().into(),
                first_bytes: None,
                end_bytes: None,
                big_growth_bytes: None,
            };
            Contender { tool, version, place, number: 0, failed: None, sizes }
        };
        let contenders = found.into_iter().map(contender).collect();
        let (works, checks) = (Vec::new(), Vec::new());
        Ok(Self { args, ground: ground.path(), contenders, works, checks, flushes: None, limit_bytes: None })
    }

    fn wants(&self, work: Work) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&work)
    }

    /// Calls `act` for each remaining tool, in the order of this repetition. A tool that fails is eliminated.
    fn each(&mut self, repetition: u32, mut act: impl FnMut(usize, &mut Contender) -> Result<()>) {
        let count = self.contenders.len();
        for turn in 0..count {
            let at = (turn + repetition as usize) % count;
            let contender = &mut self.contenders[at];
            if contender.failed.is_some() {
                continue;
            }
            if let Err(failure) = act(at, contender) {
                eprintln!("{} is eliminated: {failure}", contender.name());
                contender.failed = Some(failure.to_string());
            }
        }
    }

    /// Measures one command of each tool.
    fn measure(
        &mut self,
        repetition: u32,
        measured: &mut Measured,
        act: impl Fn(&mut Contender) -> Result<Took>,
    ) {
        let ground = self.ground;
        self.each(repetition, |at, contender| {
            settle(ground)?;
            measured.add(at, act(contender)?);
            Ok(())
        });
    }

    /// Compares every tree with the expected one.
    fn check(&mut self, work: Work, repetition: u32, expected: &Image) {
        let mut found = Vec::new();
        self.each(repetition, |_, contender| {
            let lines = expected.difference(&Image::read(&contender.place.tree)?);
            let (tool, differences) = (contender.name().to_owned(), lines.len());
            if differences > 0 {
                eprintln!("{tool} did not restore the tree: {differences} paths differ, {}", lines[0]);
            }
            let examples = lines.into_iter().take(5).collect();
            found.push(Check { tool, work, repetition, differences, examples });
            Ok(())
        });
        self.checks.append(&mut found);
    }

    fn keep(&mut self, work: Work, title: String, measured: &Measured) {
        let limit = Figures::of(&measured.limit);
        let tools =
            self.contenders.iter().zip(&measured.tools).filter_map(|(contender, (series, peak_bytes))| {
                let figures = Figures::of(series)?;
                let ratio_to_limit = limit.as_ref().map(|limit| figures.median / limit.median);
                let tool = contender.name().to_owned();
                Some(ToolFigures { tool, figures, peak_bytes: *peak_bytes, ratio_to_limit })
            });
        let tools = tools.collect();
        eprintln!("done: {title}");
        self.works.push(WorkResult { work, title, limit_is: work.limit().into(), limit, tools });
    }

    fn report(self, tree: report::TreeFacts, machine: Machine) -> Report {
        let limit = self.limit_bytes.map(|bytes| StoreSize {
            tool: "limit".into(),
            first_bytes: Some(bytes),
            end_bytes: None,
            big_growth_bytes: None,
        });
        Report {
            machine,
            tree,
            repeat: self.args.repeat,
            tools: self.contenders.iter().map(Contender::facts).collect(),
            works: self.works,
            stores: limit.into_iter().chain(self.contenders.into_iter().map(|it| it.sizes)).collect(),
            checks: self.checks,
            flushes: self.flushes,
        }
    }
}
