//! Attempts of Safepoint beside their limits, and beside `git worktree`, copies that share extents, and `try`.
//!
//! Each way has its own copy of the tree and does the same edits, by turns. A command inside notes the clock at its first and last
//! instruction. The figures of one row come from the same repetitions. After each keep and rollback the project is compared with a plain
//! copy that got the same edits.

mod own;
mod report;
mod ways;

use crate::args::{Attempts, Edit, OtherWay};
use crate::edits;
use crate::failure::{Failure, Result, Tried};
use crate::ground::{Ground, copy_tree};
use crate::image::Image;
use crate::measure::{Cmd, settle};
use crate::numbers::Series;
use crate::tools::own_safepoint;
use clap::ValueEnum;
use own::Own;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ways::{Reflink, Try, Worktree};

/// Numbers of edited files.
const COUNTS: [usize; 2] = [10, 1_000];

/// Seconds of the monotonic clock, which all processes share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs the command inside of an attempt: edits files, and notes when it began and ended.
pub(crate) fn edit(args: &Edit) -> Result<ExitCode> {
    let began = now();
    let list = fs::read_to_string(&args.list).tried(|| format!("reading {}", args.list.display()))?;
    let files: Vec<PathBuf> = list.lines().map(PathBuf::from).collect();
    edits::append(Path::new("."), &files, args.seed)?;
    let marks = format!("{began} {}", now());
    fs::write(&args.marks, marks).tried(|| format!("writing {}", args.marks.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Edits to make in an attempt.
struct Task {
    name: String,
    files: Vec<PathBuf>,
    seed: u64,
    list: PathBuf,
    marks: PathBuf,
}

impl Task {
    fn new(ground: &Path, (files, count): (&[PathBuf], usize), seed: u64) -> Result<Self> {
        let files = edits::choose(files, count, seed);
        let (list, marks) = (ground.join("list"), ground.join("marks"));
        let lines: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        fs::write(&list, lines.join("\n")).tried(|| format!("writing {}", list.display()))?;
        Ok(Self { name: format!("a{seed}"), files, seed, list, marks })
    }

    /// Words of the command inside.
    fn words(&self) -> Result<Vec<String>> {
        let own = std::env::current_exe().tried(|| "finding the path of this program".into())?;
        let paths = [&own, &self.marks, &self.list].map(|path| path.display().to_string());
        let [own, marks, list] = paths;
        Ok(vec![
            own,
            "edit".into(),
            "--marks".into(),
            marks,
            "--list".into(),
            list,
            "--seed".into(),
            self.seed.to_string(),
        ])
    }

    /// Runs a command that starts an attempt with the edits in it. Returns the time to the first instruction of the edits, and that from
    /// their last instruction to the end. `inside` is the place of the marks if the attempt has it elsewhere.
    fn run(&self, command: &Cmd, inside: Option<&Path>) -> Result<(f64, f64)> {
        let marks = inside.unwrap_or(&self.marks);
        // Marks of the last command would look like those of this one.
        let _ = fs::remove_file(marks);
        let (began, ended) = timed(command)?;
        let text = fs::read_to_string(marks).tried(|| format!("{}: reading its marks", command.shown()))?;
        let noted: Option<(f64, f64)> =
            text.split_once(' ').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let (first, last) = noted.ok_or_else(|| Failure::new(format!("unexpected marks: {text}")))?;
        Ok((first - began, ended - last))
    }
}

/// Runs a command. Returns the time at which it was started, and at which it was over.
fn timed(command: &Cmd) -> Result<(f64, f64)> {
    let began = now();
    command.output()?;
    Ok((began, now()))
}

/// Returns the seconds that a command takes.
fn lasts(command: &Cmd) -> Result<f64> {
    timed(command).map(|(began, ended)| ended - began)
}

/// Way to try edits without the project.
trait Way {
    fn name(&self) -> &str;

    /// Missing features, for the table.
    fn lacks(&self) -> &'static str;

    /// Folder with the project.
    fn project(&self) -> &Path;

    /// Starts an attempt and runs the task in it. Returns the time to its first instruction, and that from its last one to a result that
    /// can be kept; `None` for a way that records none.
    fn run(&mut self, task: &Task) -> Result<(f64, Option<f64>)>;

    /// Takes the result over into the project, and returns the time; `None` for a way without such a command.
    fn keep(&mut self, task: &Task) -> Result<Option<f64>>;

    /// Folder with the result, if it is not the project.
    fn result(&self) -> Option<&Path> {
        None
    }

    /// Brings the project back, and deletes the attempt.
    fn back(&mut self, task: &Task) -> Result<()>;
}

/// Times of one way.
#[derive(Default)]
struct Times {
    start: Series,
    result: [Series; COUNTS.len()],
    keep: [Series; COUNTS.len()],
}

/// Comparison of a folder with the plain copy.
struct Checks {
    plain: PathBuf,
    original: Image,
    made: usize,
    failed: Vec<String>,
}

impl Checks {
    /// Compares a folder with the state that the plain copy has with the task's edits.
    fn edited(&mut self, name: &str, folder: &Path, task: &Task) -> Result<()> {
        let path = |file: &PathBuf| self.plain.join(file);
        let lengths: Vec<u64> = task
            .files
            .iter()
            .map(|file| fs::metadata(path(file)).map(|facts| facts.len()))
            .collect::<std::io::Result<_>>()
            .tried(|| format!("looking at files of {}", self.plain.display()))?;
        edits::append(&self.plain, &task.files, task.seed)?;
        let expected = Image::read(&self.plain)?;
        for (file, length) in task.files.iter().zip(lengths) {
            let open = OpenOptions::new().write(true).open(path(file));
            open.and_then(|open| open.set_len(length)).tried(|| format!("shortening {}", file.display()))?;
        }
        self.compare(&format!("{name}, the result of {} edits", task.files.len()), &expected, folder)
    }

    /// Compares a folder with the state before the edits.
    fn untouched(&mut self, name: &str, folder: &Path) -> Result<()> {
        let original = std::mem::take(&mut self.original);
        let compared = self.compare(name, &original, folder);
        self.original = original;
        compared
    }

    fn compare(&mut self, name: &str, expected: &Image, folder: &Path) -> Result<()> {
        self.made += 1;
        let differences = expected.difference(&Image::read(folder)?);
        if let Some(first) = differences.first() {
            let line = format!("{name}: {} paths differ from a plain copy: {first}", differences.len());
            eprintln!("error: {line}");
            self.failed.push(line);
        }
        Ok(())
    }
}

/// Runs `attempts`.
pub(crate) fn run(args: &Attempts) -> Result<ExitCode> {
    let safepoint = match &args.safepoint {
        Some(path) => path.canonicalize().tried(|| format!("finding {}", path.display()))?,
        None => own_safepoint()?,
    };
    let ground = Ground::new(args.work.as_deref())?;
    let at = |name: &str| ground.path().join(name);
    copy_tree(&args.tree, &at("plain"))?;
    let original = Image::read(&at("plain"))?;
    let Some((ignored, _)) = original.folders().last().cloned() else {
        return Err(Failure::new(format!("--tree {}: no folder with files in it", args.tree.display())));
    };
    // git has no result of ignored files, so none of them is edited.
    let files: Vec<PathBuf> =
        original.files().into_iter().filter(|file| !file.starts_with(&ignored)).collect();
    let mut checks = Checks { plain: at("plain"), original, made: 0, failed: Vec::new() };
    let mut own = Own::new(&safepoint, ground.path(), &args.tree)?;
    let (mut others, skipped) = other_ways(args, ground.path(), (&checks.original, &ignored));
    let mut times: Vec<Times> = (0..=others.len()).map(|_| Times::default()).collect();
    for repetition in 0..=args.repeat {
        let mut turns: Vec<usize> = (0..=others.len()).collect();
        turns.rotate_left(repetition as usize % (others.len() + 1));
        for turn in turns {
            let way: &mut dyn Way = match turn {
                0 => &mut own,
                turn => others[turn - 1].as_mut(),
            };
            // The first one warms the caches.
            let times = (repetition > 0).then_some(&mut times[turn]);
            turn_of(way, times, (&mut checks, &files), (ground.path(), repetition))?;
        }
        if repetition == 0 {
            own.limits.clear();
        }
    }
    let mut names = vec![(own.name().to_owned(), own.lacks())];
    names.extend(others.iter().map(|way| (way.name().to_owned(), way.lacks())));
    let facts =
        report::Facts { ground: ground.path(), tree: &args.tree, ignored: &ignored, skipped: &skipped };
    report::report(&facts, args, (&own.limits, &names, &times), &checks)?;
    Ok(ExitCode::from(u8::from(!checks.failed.is_empty())))
}

/// Returns the other ways that were asked for, and the reasons why some are left out.
fn other_ways(
    args: &Attempts,
    ground: &Path,
    (original, ignored): (&Image, &Path),
) -> (Vec<Box<dyn Way>>, Vec<String>) {
    let (mut others, mut skipped) = (Vec::new(), Vec::new());
    for way in OtherWay::value_variants() {
        if !args.ways.is_empty() && !args.ways.contains(way) {
            continue;
        }
        let (name, made) = match way {
            OtherWay::Worktree => ("git worktree", Worktree::make(ground, &args.tree, ignored)),
            OtherWay::Reflink => ("cp --reflink", Reflink::make(ground, &args.tree, original)),
            OtherWay::Try => ("try", Try::make(args.try_program.as_deref(), ground, &args.tree)),
        };
        match made {
            Ok(way) => others.push(way),
            Err(failure) => {
                eprintln!("{name}: skipped: {failure}");
                skipped.push(format!("{name}: {failure}"));
            }
        }
    }
    (others, skipped)
}

/// One way does both tasks once.
fn turn_of(
    way: &mut dyn Way,
    mut times: Option<&mut Times>,
    (checks, files): (&mut Checks, &[PathBuf]),
    (ground, repetition): (&Path, u32),
) -> Result<()> {
    for (at, count) in COUNTS.into_iter().enumerate() {
        let task = Task::new(ground, (files, count), u64::from(repetition) * 10_000 + count as u64)?;
        settle(ground)?;
        let (start, result) = way.run(&task)?;
        if repetition == 0 {
            checks.untouched(&format!("{}, the project during an attempt", way.name()), way.project())?;
        }
        settle(ground)?;
        let keep = way.keep(&task)?;
        let folder = way.result().unwrap_or_else(|| way.project()).to_owned();
        checks.edited(way.name(), &folder, &task)?;
        settle(ground)?;
        way.back(&task)?;
        checks.untouched(&format!("{}, brought back", way.name()), way.project())?;
        if let Some(times) = times.as_deref_mut() {
            times.start.push(start);
            result.into_iter().for_each(|time| times.result[at].push(time));
            keep.into_iter().for_each(|time| times.keep[at].push(time));
        }
    }
    Ok(())
}
