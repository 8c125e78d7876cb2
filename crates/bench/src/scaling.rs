//! Growth of Safepoint's cost with files, changes and checkpoints. Whole processes are measured.
//!
//! Input: sizes. Output: points, each a median, and the exponent of the fitted curve; 0 is constant, 1 is
//! linear.

use crate::args::Scaling;
use crate::edits;
use crate::failure::{Result, Tried};
use crate::fit::{Fit, fit};
use crate::generate;
use crate::ground::{Ground, remove};
use crate::image::Image;
use crate::machine::Machine;
use crate::measure::{Cmd, settle};
use crate::numbers::{Series, seconds};
use crate::report::svg::{Curve, write_curves};
use crate::report::table::Table;
use crate::report::{self, Figures};
use crate::tools::{self, Found, Place, Wanted};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Sizes to measure.
struct Sizes {
    /// Numbers of files, with 10 edits.
    files: &'static [u64],
    /// Numbers of edits.
    changes: &'static [u64],
    /// Files in the tree of these edits.
    changed_in: u64,
    /// Numbers of checkpoints.
    checkpoints: &'static [u64],
    /// Files in the workspace with many checkpoints.
    checkpointed: u64,
}

const FULL: Sizes = Sizes {
    files: &[1_000, 3_000, 10_000, 30_000, 100_000],
    changes: &[1, 3, 10, 30, 100, 300, 1_000, 3_000],
    changed_in: 30_000,
    checkpoints: &[10, 30, 100, 300, 1_000, 3_000, 10_000],
    checkpointed: 1_000,
};

const QUICK: Sizes = Sizes {
    files: &[100, 200, 400, 800],
    changes: &[1, 10, 100],
    changed_in: 400,
    checkpoints: &[5, 10, 20],
    checkpointed: 100,
};

/// All results; also their JSON form.
#[derive(Debug, Serialize)]
struct Growth {
    machine: Machine,
    safepoint: String,
    repeat: u32,
    against: Vec<Against>,
}

/// Costs against one growing quantity.
#[derive(Debug, Serialize)]
struct Against {
    name: &'static str,
    /// Growing quantity and the constant ones.
    title: String,
    curves: Vec<Grown>,
}

/// Growth of one cost.
#[derive(Debug, Serialize)]
struct Grown {
    name: &'static str,
    points: Vec<Point>,
    fit: Option<Fit>,
}

/// Cost at one size.
#[derive(Debug, Serialize)]
struct Point {
    n: u64,
    #[serde(flatten)]
    figures: Figures,
    peak_bytes: u64,
}

/// Runs `scaling`.
pub(crate) fn run(args: &Scaling) -> Result<ExitCode> {
    let sizes = if args.quick { QUICK } else { FULL };
    let ground = Ground::new(args.work.as_deref())?;
    let programs: Vec<_> = args.safepoint.iter().map(|path| ("safepoint".to_owned(), path.clone())).collect();
    let names = ["safepoint".to_owned()];
    let Found { tool, program, version } =
        tools::find(&Wanted { names: &names, programs: &programs })?.swap_remove(0);
    let place = Place::new(&program, ground.path(), tool.name());
    let bench =
        Bench { found: Found { tool, program, version: version.clone() }, place, repeat: args.repeat };
    let against = vec![bench.files(&sizes)?, bench.changes(&sizes)?, bench.checkpoints(&sizes)?];
    let growth =
        Growth { machine: Machine::this(ground.path())?, safepoint: version, repeat: args.repeat, against };
    tell(args, &growth)?;
    Ok(ExitCode::SUCCESS)
}

/// Place and repetitions of the measurements.
struct Bench {
    found: Found,
    place: Place,
    repeat: u32,
}

/// Points of one cost.
struct Gathered {
    name: &'static str,
    points: Vec<Point>,
}

impl Gathered {
    fn new(name: &'static str) -> Self {
        Self { name, points: Vec::new() }
    }

    fn add(&mut self, n: u64, series: &Series, peak_bytes: u64) {
        self.points.extend(Figures::of(series).map(|figures| Point { n, figures, peak_bytes }));
    }

    fn fitted(self) -> Grown {
        let points: Vec<_> = self.points.iter().map(|point| (point.n as f64, point.figures.median)).collect();
        Grown { name: self.name, points: self.points, fit: fit(&points) }
    }
}

impl Bench {
    /// Creates a tree of `files` files with one checkpoint; returns the files.
    fn lay_out(&self, files: u64) -> Result<Vec<PathBuf>> {
        remove(&self.place.tree)?;
        generate::make_files(files, &self.place.tree, 1)?;
        self.place.renew(self.found.tool.as_ref())?;
        let files = Image::read(&self.place.tree)?.files();
        self.create().output()?;
        Ok(files)
    }

    fn command(&self, args: &[&str]) -> Cmd {
        self.place.command(args).env("SAFEPOINT_HOME", &self.place.store)
    }

    fn create(&self) -> Cmd {
        self.command(&["create", "-q"])
    }

    /// Measures a command repeatedly, each time after `edited` edits.
    fn measure(&self, command: &Cmd, files: &[PathBuf], edited: u64, seed: u64) -> Result<(Series, u64)> {
        let (mut series, mut peak_bytes) = (Series::default(), 0);
        for repetition in 0..u64::from(self.repeat) {
            let seed = seed * 1_000 + repetition;
            let chosen = edits::choose(files, edited as usize, seed);
            edits::append(&self.place.tree, &chosen, seed)?;
            settle(&self.place.tree)?;
            let took = command.measure()?;
            series.push(took.seconds);
            peak_bytes = peak_bytes.max(took.peak_bytes);
        }
        Ok((series, peak_bytes))
    }

    fn files(&self, sizes: &Sizes) -> Result<Against> {
        let (mut edited, mut unchanged) = (Gathered::new("10 edits"), Gathered::new("nothing changed"));
        for &n in sizes.files {
            let files = self.lay_out(n)?;
            for (gathered, edits) in [(&mut edited, 10), (&mut unchanged, 0)] {
                let (series, peak) = self.measure(&self.create(), &files, edits, n)?;
                gathered.add(n, &series, peak);
            }
            eprintln!("done: {n} files");
        }
        let curves = vec![edited.fitted(), unchanged.fitted()];
        Ok(Against { name: "files", title: "A checkpoint, against files in the workspace".into(), curves })
    }

    fn changes(&self, sizes: &Sizes) -> Result<Against> {
        let mut gathered = Gathered::new("checkpoint");
        let files = self.lay_out(sizes.changed_in)?;
        for &n in sizes.changes {
            let (series, peak) = self.measure(&self.create(), &files, n, n)?;
            gathered.add(n, &series, peak);
            eprintln!("done: {n} changes");
        }
        let title = format!("A checkpoint of {} files, against files edited", sizes.changed_in);
        Ok(Against { name: "changes", title, curves: vec![gathered.fitted()] })
    }

    fn checkpoints(&self, sizes: &Sizes) -> Result<Against> {
        let mut create = Gathered::new("create, 10 edits");
        let looks: [(&str, &[&str]); 4] = [
            ("list -n 10", &["list", "-n", "10"]),
            ("show @", &["show", "@"]),
            ("diff @~1 @", &["diff", "@~1", "@", "--stat"]),
            ("status", &["status"]),
        ];
        let mut looked: Vec<Gathered> = looks.iter().map(|(name, _)| Gathered::new(name)).collect();
        let files = self.lay_out(sizes.checkpointed)?;
        let mut there = 1;
        for &n in sizes.checkpoints {
            // The measured checkpoints count too: the last of them is the n-th.
            while there + u64::from(self.repeat) < n {
                let chosen = edits::choose(&files, 10, there);
                edits::append(&self.place.tree, &chosen, there)?;
                self.create().output()?;
                there += 1;
            }
            let (series, peak) = self.measure(&self.create(), &files, 10, 1_000_000 + n)?;
            there += u64::from(self.repeat);
            create.add(n, &series, peak);
            for ((_, args), gathered) in looks.iter().zip(&mut looked) {
                let (series, peak) = self.measure(&self.command(args), &files, 0, n)?;
                gathered.add(n, &series, peak);
            }
            eprintln!("done: {n} checkpoints");
        }
        let curves = std::iter::once(create).chain(looked).map(Gathered::fitted).collect();
        let title = format!("Against checkpoints in the store, {} files", sizes.checkpointed);
        Ok(Against { name: "checkpoints", title, curves })
    }
}

fn tables(growth: &Growth) -> Vec<Table> {
    let table = |against: &Against| {
        let sizes: Vec<String> = against.curves[0].points.iter().map(|point| point.n.to_string()).collect();
        let heads: Vec<&str> = std::iter::once(against.name)
            .chain(sizes.iter().map(String::as_str))
            .chain(["exponent", "beyond the constant"])
            .collect();
        let mut table = Table::new(against.title.clone(), &heads);
        for curve in &against.curves {
            let mut row = vec![curve.name.to_owned()];
            row.extend(curve.points.iter().map(|point| seconds(point.figures.median)));
            row.push(curve.fit.map_or_else(|| "n/a".into(), |fit| format!("{:.2}", fit.exponent)));
            let beyond = curve.fit.and_then(|fit| Some((fit.beyond_constant?, fit.constant?)));
            row.push(beyond.map_or_else(
                || "n/a".into(),
                |(exponent, constant)| format!("{exponent:.2} above {}", seconds(constant)),
            ));
            table.rows.push(row);
        }
        table
    };
    growth.against.iter().map(table).collect()
}

fn tell(args: &Scaling, growth: &Growth) -> Result<()> {
    let heading = vec![
        format!("Machine: {}", growth.machine.words()),
        format!("{}; whole processes, median of {}", growth.safepoint, growth.repeat),
    ];
    let tables = tables(growth);
    println!("{}\n", heading.join("\n"));
    for table in &tables {
        println!("{}", table.text());
    }
    if let Some(path) = &args.outputs.json {
        report::write_json(path, growth)?;
    }
    if let Some(path) = &args.outputs.markdown {
        report::markdown::write(path, &heading, &tables)?;
    }
    if let Some(dir) = &args.outputs.svg {
        std::fs::create_dir_all(dir).tried(|| format!("making {}", dir.display()))?;
        for against in &growth.against {
            draw(&dir.join(format!("scaling-{}.svg", against.name)), against)?;
        }
    }
    Ok(())
}

fn draw(path: &std::path::Path, against: &Against) -> Result<()> {
    let curve = |grown: &'static str, points: &[Point]| Curve {
        name: grown,
        points: points.iter().map(|point| (point.n as f64, point.figures.median)).collect(),
    };
    let curves: Vec<_> = against.curves.iter().map(|grown| curve(grown.name, &grown.points)).collect();
    write_curves(path, &against.title, against.name, &curves)
}
