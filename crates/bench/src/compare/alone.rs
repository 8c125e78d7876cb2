//! Works in separate projects: one large file, and a tiny project.

use super::{Measured, Run};
use crate::edits::{self, Dice};
use crate::failure::{Result, Tried};
use crate::generate;
use crate::limits;
use crate::measure::settle;
use crate::numbers::Series;
use crate::report::{Figures, Flushes};
use crate::works::Work;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LARGE: &str = "large.bin";
const TINY_FILES: u64 = 12;

impl Run<'_> {
    /// Lays out the project for each tool, takes a first checkpoint, then measures.
    pub(super) fn alone(&mut self, work: Work) -> Result<()> {
        let bytes = self.args.big_mib << 20;
        self.each(0, |_, contender| {
            let tree = &contender.place.tree;
            generate::make_files(TINY_FILES, tree, 1)?;
            if work == Work::Big {
                write_noise(&tree.join(LARGE), bytes)?;
            }
            contender.place.renew(contender.tool.as_ref())?;
            contender.checkpoint().map(drop)
        });
        match work {
            Work::Big => self.big(bytes)?,
            _ => self.tiny()?,
        }
        self.clear()
    }

    fn big(&mut self, bytes: u64) -> Result<()> {
        let mut measured = Measured::new(self.contenders.len());
        let mut growth = vec![Series::default(); self.contenders.len()];
        for repetition in 0..self.args.repeat {
            let offset = bytes / (u64::from(self.args.repeat) + 1) * (u64::from(repetition) + 1);
            let mut before = vec![0; self.contenders.len()];
            self.each(repetition, |at, contender| {
                before[at] = contender.store_bytes();
                change_byte(&contender.place.tree.join(LARGE), offset)
            });
            settle(self.ground)?;
            let large = self.contenders[0].place.tree.join(LARGE);
            measured.limit.push(limits::keep_one_piece(&large, &self.ground.join("limit"))?);
            self.measure(repetition, &mut measured, super::Contender::checkpoint);
            self.each(repetition, |at, contender| {
                growth[at].push(contender.store_bytes().saturating_sub(before[at]) as f64);
                Ok(())
            });
        }
        self.each(0, |at, contender| {
            contender.sizes.big_growth_bytes = growth[at].median().map(|bytes| bytes as u64);
            Ok(())
        });
        self.keep(Work::Big, format!("one byte of a file of {} MiB edited", bytes >> 20), &measured);
        Ok(())
    }

    fn tiny(&mut self) -> Result<()> {
        let files: Vec<PathBuf> = crate::image::Image::read(&self.contenders[0].place.tree)?.files();
        let flushed = self.ground.join("flushed");
        fs::create_dir(&flushed).tried(|| format!("making {}", flushed.display()))?;
        let count = self.count_flushes(&files)?;
        let mut alone = Series::default();
        let mut measured = Measured::new(self.contenders.len());
        // Short works are repeated more often: the time of a flush varies from one to ten milliseconds.
        for repetition in 0..self.args.repeat * 4 {
            let seed = u64::from(repetition);
            let chosen = edits::choose(&files, 1, seed);
            self.each(repetition, |_, contender| edits::append(&contender.place.tree, &chosen, seed));
            settle(self.ground)?;
            measured.limit.push(limits::flush(&flushed, 1)?);
            if let Some(count) = count {
                settle(self.ground)?;
                alone.push(limits::flush(&flushed, count)?);
            }
            self.measure(repetition, &mut measured, super::Contender::checkpoint);
        }
        self.flushes = count.and_then(|count| Some(Flushes { count, alone: Figures::of(&alone)? }));
        self.keep(Work::Tiny, format!("tiny project ({TINY_FILES} files), 1 edited"), &measured);
        crate::ground::remove(&flushed)
    }

    /// Counts the flushes of a Safepoint checkpoint; `None` if Safepoint does not take part or programs
    /// cannot be traced.
    fn count_flushes(&mut self, files: &[PathBuf]) -> Result<Option<usize>> {
        let Some(own) = self.contenders.iter_mut().find(|contender| contender.name() == "safepoint") else {
            return Ok(None);
        };
        edits::append(&own.place.tree, &edits::choose(files, 1, 99), 99)?;
        own.number += 1;
        let commands = own.tool.checkpoint(&own.place, own.number);
        let Some(command) = commands.first() else { return Ok(None) };
        let calls = safepoint_testkit::calls(&command.traced()).map(|(calls, _)| calls);
        let is_flush = |name: &str| ["fsync", "fdatasync", "syncfs", "sync_file_range"].contains(&name);
        Ok(calls.ok().map(|calls| calls.iter().filter(|call| is_flush(call.name)).count()))
    }
}

fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let failed = || format!("writing {}", path.display());
    let mut file = File::create(path).tried(failed)?;
    let mut dice = Dice::new(5);
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(1 << 20);
        file.write_all(&generate::noise(&mut dice, piece)).tried(failed)?;
        left -= piece;
    }
    Ok(())
}

fn change_byte(path: &Path, offset: u64) -> Result<()> {
    let failed = || format!("changing a byte of {}", path.display());
    let file = File::options().read(true).write(true).open(path).tried(failed)?;
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, offset).tried(failed)?;
    file.write_all_at(&[!byte[0]], offset).tried(failed)
}
