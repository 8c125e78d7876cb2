//! Safepoint's attempts, with the limit of each figure in the same repetition.

use super::{COUNTS, Task, Way, lasts};
use crate::failure::{Failure, Result, Tried};
use crate::generate::make_files;
use crate::ground::copy_tree;
use crate::limits;
use crate::measure::{Cmd, settle};
use crate::numbers::Series;
use crate::tools::{Place, safepoint};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of the small project whose flushes are counted.
const SMALL: u64 = 12;
/// Label of the state before the edits.
const BASE: &str = "base";

/// Limits, in the order of the repetitions.
#[derive(Default)]
pub(super) struct Limits {
    /// Time from the start to the first instruction, and a checkpoint of nothing; for each task.
    pub(super) start: Vec<(f64, f64)>,
    /// Time of a result of the first task, and of its flushes alone.
    pub(super) result: Vec<(f64, f64)>,
    /// Time of a keep, and of a rollback of the same paths.
    pub(super) keep: [Vec<(f64, f64)>; COUNTS.len()],
    /// Flushes before the first instruction, and after the last one.
    pub(super) flushes: (usize, usize),
}

impl Limits {
    /// Forgets what was measured.
    pub(super) fn clear(&mut self) {
        *self = Self { flushes: self.flushes, ..Self::default() };
    }
}

/// Pairs of figures as two series.
pub(super) fn series(pairs: &[(f64, f64)]) -> (Series, Series) {
    let (first, second) = pairs.iter().copied().unzip();
    (Series { seconds: first }, Series { seconds: second })
}

/// Safepoint, with its project.
pub(super) struct Own {
    place: Place,
    flushed: PathBuf,
    kept: f64,
    pub(super) limits: Limits,
}

impl Own {
    /// Copies the tree, takes a checkpoint of it, and counts the flushes of an attempt.
    pub(super) fn new(program: &Path, ground: &Path, tree: &Path) -> Result<Self> {
        let flushed = ground.join("flushed");
        fs::create_dir(&flushed).tried(|| format!("making {}", flushed.display()))?;
        let small = Place::new(program, ground, "small");
        make_files(SMALL, &small.tree, 1)?;
        let place = Place::new(program, ground, "safepoint");
        copy_tree(tree, &place.tree)?;
        let mut own = Self { place: small, flushed, kept: 0.0, limits: Limits::default() };
        own.place.renew(&safepoint::Safepoint)?;
        own.command(&["create", "-q", "-m", BASE]).output()?;
        own.limits.flushes = own.count_flushes(ground)?;
        own.place = place;
        own.place.renew(&safepoint::Safepoint)?;
        own.command(&["create", "-q", "-m", BASE]).output()?;
        Ok(own)
    }

    fn command(&self, args: &[&str]) -> Cmd {
        safepoint::command(&self.place, args)
    }

    fn attempt(&self, task: &Task) -> Result<Cmd> {
        let words = task.words()?;
        Ok(self.command(&["try", "-q", "--name", &task.name, "--later", "--"]).args(words))
    }

    /// Counts the flushes of an attempt in the small project. Their number does not depend on the size of a project.
    fn count_flushes(&self, ground: &Path) -> Result<(usize, usize)> {
        let files = crate::image::Image::read(&self.place.tree)?.files();
        let task = Task::new(ground, (&files, COUNTS[0]), 1)?;
        let command = self.attempt(&task)?;
        let (calls, end) =
            safepoint_testkit::calls(&command.traced()).tried(|| "tracing an attempt".into())?;
        let marks = task.marks.display().to_string();
        let at = calls.iter().position(|call| call.detail.contains(&marks));
        let Some(at) = at.filter(|_| end.is_success()) else {
            return Err(Failure::new(format!("the traced attempt ended with {end:?}")));
        };
        let is_flush = |name: &str| ["fsync", "fdatasync", "syncfs", "sync_file_range"].contains(&name);
        let count =
            |calls: &[safepoint_testkit::Call]| calls.iter().filter(|call| is_flush(call.name)).count();
        Ok((count(&calls[..at]), count(&calls[at..])))
    }
}

impl Way for Own {
    fn name(&self) -> &str {
        safepoint::NAME
    }

    fn lacks(&self) -> &'static str {
        ""
    }

    fn project(&self) -> &Path {
        &self.place.tree
    }

    fn run(&mut self, task: &Task) -> Result<(f64, Option<f64>)> {
        let nothing = lasts(&self.command(&["create", "-q"]))?;
        settle(&self.flushed)?;
        let (start, result) = task.run(&self.attempt(task)?, None)?;
        self.limits.start.push((start, nothing));
        if task.files.len() <= COUNTS[0] {
            settle(&self.flushed)?;
            self.limits.result.push((result, limits::flush(&self.flushed, self.limits.flushes.1)?));
        }
        Ok((start, Some(result)))
    }

    fn keep(&mut self, task: &Task) -> Result<Option<f64>> {
        self.kept = lasts(&self.command(&["attempt", "keep", "-q", &task.name]))?;
        Ok(Some(self.kept))
    }

    fn back(&mut self, task: &Task) -> Result<()> {
        // Both ways go from one captured state to another.
        self.command(&["create", "-q"]).output()?;
        settle(&self.flushed)?;
        let rollback = lasts(&self.command(&["rollback", "-q", "--yes", BASE]))?;
        let at = usize::from(task.files.len() > COUNTS[0]);
        self.limits.keep[at].push((self.kept, rollback));
        Ok(())
    }
}
