//! Works on copies of the tree.

use super::{Measured, Run};
use crate::edits;
use crate::failure::{Failure, Result, Tried};
use crate::ground::{copy_tree, remove};
use crate::image::Image;
use crate::limits;
use crate::measure::settle;
use crate::report::TreeFacts;
use crate::works::Work;
use std::fs;
use std::path::{Path, PathBuf};

/// Distance between the seeds of the works, so that no two edit the same files.
const SEED_STEP: u64 = 1_000_000;

impl Run<'_> {
    /// Runs all requested works on the tree.
    pub(super) fn in_the_tree(&mut self, name: &str, source: &Path) -> Result<TreeFacts> {
        let reference = self.ground.join("reference");
        copy_tree(source, &reference)?;
        let mut image = Image::read(&reference)?;
        let facts = facts(name, &image)?;
        if Work::ALL.iter().any(|work| work.is_of_the_tree() && self.wants(*work)) {
            self.copy(&reference)?;
            self.first(&image)?;
            for work in [Work::Nothing, Work::Edit10, Work::Edit1000] {
                if self.wants(work) {
                    self.edited(work, &image.files())?;
                }
            }
            if self.wants(Work::Move) {
                self.moved(&facts)?;
            }
            image = self.same_everywhere()?;
            if self.wants(Work::Rollback) {
                self.rolled_back(&image)?;
            }
            if self.wants(Work::Deleted) {
                self.put_back(&image, &facts)?;
            }
            if self.wants(Work::Many) {
                self.many(&image.files())?;
            }
            self.each(0, |_, contender| {
                contender.sizes.end_bytes = Some(contender.store_bytes());
                Ok(())
            });
            self.clear()?;
        }
        remove(&reference)?;
        Ok(facts)
    }

    /// Copies the tree for each tool; reading it warms the cache.
    fn copy(&mut self, reference: &Path) -> Result<()> {
        for contender in &self.contenders {
            copy_tree(reference, &contender.place.tree)?;
            Image::read(&contender.place.tree)?;
        }
        settle(self.ground)
    }

    /// Removes copies and stores.
    pub(super) fn clear(&mut self) -> Result<()> {
        for contender in &self.contenders {
            let place = &contender.place;
            for folder in [&place.tree, &place.store, &place.home] {
                remove(folder)?;
            }
        }
        settle(self.ground)
    }

    /// Takes the first checkpoint. Later works need it, so it runs once even if its time is not requested.
    fn first(&mut self, image: &Image) -> Result<()> {
        let is_wanted = self.wants(Work::First);
        let files = image.files();
        let mut measured = Measured::new(self.contenders.len());
        for repetition in 0..if is_wanted { self.args.repeat } else { 1 } {
            self.each(repetition, |_, contender| contender.place.renew(contender.tool.as_ref()));
            if is_wanted {
                let walk = limits::walk(&self.measured_tree())?.1;
                let (keep, written) =
                    limits::keep(&self.measured_tree(), &files, &self.ground.join("limit"))?;
                measured.limit.push(walk + keep);
                self.limit_bytes = Some(written);
            }
            self.measure(repetition, &mut measured, super::Contender::checkpoint);
        }
        self.each(0, |_, contender| {
            contender.sizes.first_bytes = Some(contender.store_bytes());
            Ok(())
        });
        if is_wanted {
            self.keep(Work::First, "first checkpoint".into(), &measured);
        }
        Ok(())
    }

    /// Returns the copy that limits are measured on: the first.
    fn measured_tree(&self) -> PathBuf {
        self.contenders[0].place.tree.clone()
    }

    /// Measures checkpoints after edits.
    fn edited(&mut self, work: Work, files: &[PathBuf]) -> Result<()> {
        let (count, title) = match work {
            Work::Edit10 => (10, "10 files edited"),
            Work::Edit1000 => (1_000, "1,000 files edited"),
            _ => (0, "nothing changed"),
        };
        let mut measured = Measured::new(self.contenders.len());
        for repetition in 0..self.args.repeat {
            let seed = count as u64 * SEED_STEP + u64::from(repetition);
            let chosen = edits::choose(files, count, seed);
            self.edit(&chosen, seed, repetition);
            measured.limit.push(self.walk_and_keep(&chosen)?);
            self.measure(repetition, &mut measured, super::Contender::checkpoint);
        }
        let title = match count > files.len() {
            true => format!("{title} (all {} files)", files.len()),
            false => title.into(),
        };
        self.keep(work, title, &measured);
        Ok(())
    }

    fn edit(&mut self, chosen: &[PathBuf], seed: u64, repetition: u32) {
        self.each(repetition, |_, contender| edits::append(&contender.place.tree, chosen, seed));
    }

    fn walk_and_keep(&self, chosen: &[PathBuf]) -> Result<f64> {
        settle(self.ground)?;
        let tree = self.measured_tree();
        let walk = limits::walk(&tree)?.1;
        match chosen.is_empty() {
            true => Ok(walk),
            false => Ok(walk + limits::keep(&tree, chosen, &self.ground.join("limit"))?.0),
        }
    }

    /// Measures checkpoints after the largest folder is renamed and renamed back.
    fn moved(&mut self, facts: &TreeFacts) -> Result<()> {
        let names = [facts.moved.clone(), format!("{}-moved", facts.moved)];
        let mut measured = Measured::new(self.contenders.len());
        for repetition in 0..self.args.repeat {
            let (from, to) = (&names[repetition as usize % 2], &names[1 - repetition as usize % 2]);
            self.each(repetition, |_, contender| rename(&contender.place.tree, from, to));
            measured.limit.push(self.walk_and_keep(&[])?);
            self.measure(repetition, &mut measured, super::Contender::checkpoint);
        }
        self.keep(Work::Move, format!("folder {} moved", facts.moved), &measured);
        if self.args.repeat % 2 == 1 {
            self.each(0, |_, contender| {
                rename(&contender.place.tree, &names[1], &names[0])?;
                contender.checkpoint().map(drop)
            });
        }
        Ok(())
    }

    /// Checks that all copies are equal; otherwise the figures are meaningless.
    fn same_everywhere(&mut self) -> Result<Image> {
        let image = Image::read(&self.measured_tree())?;
        for contender in self.contenders.iter().filter(|contender| contender.failed.is_none()) {
            if let Some(line) = image.difference(&Image::read(&contender.place.tree)?).first() {
                return Err(Failure::new(format!(
                    "the copy of {} differs from the others: {line}",
                    contender.name()
                )));
            }
        }
        Ok(image)
    }

    fn rolled_back(&mut self, image: &Image) -> Result<()> {
        let files = image.files();
        let mut measured = Measured::new(self.contenders.len());
        for repetition in 0..self.args.repeat {
            let seed = 7 * SEED_STEP + u64::from(repetition);
            self.edit(&edits::choose(&files, 1_000, seed), seed, repetition);
            self.measure(repetition, &mut measured, super::Contender::back);
            self.check(Work::Rollback, repetition, image);
        }
        self.keep(Work::Rollback, format!("roll back {} edits", files.len().min(1_000)), &measured);
        Ok(())
    }

    fn put_back(&mut self, image: &Image, facts: &TreeFacts) -> Result<()> {
        let (folder, count) = &facts.deleted;
        let mut measured = Measured::new(self.contenders.len());
        for repetition in 0..self.args.repeat {
            self.each(repetition, |_, contender| remove(&contender.place.tree.join(folder)));
            self.measure(repetition, &mut measured, super::Contender::back);
            self.check(Work::Deleted, repetition, image);
        }
        self.keep(Work::Deleted, format!("restore deleted {folder} ({count} files)"), &measured);
        Ok(())
    }

    /// Measures many checkpoints. Each is one measurement, so there are no repetitions.
    fn many(&mut self, files: &[PathBuf]) -> Result<()> {
        let mut measured = Measured::new(self.contenders.len());
        for number in 0..self.args.checkpoints {
            let seed = 9 * SEED_STEP + u64::from(number);
            let chosen = edits::choose(files, 10, seed);
            self.edit(&chosen, seed, number);
            measured.limit.push(self.walk_and_keep(&chosen)?);
            self.measure(number, &mut measured, super::Contender::checkpoint);
        }
        self.keep(
            Work::Many,
            format!("each of {} checkpoints of 10 edits", self.args.checkpoints),
            &measured,
        );
        Ok(())
    }
}

fn rename(tree: &Path, from: &str, to: &str) -> Result<()> {
    let (from, to) = (tree.join(from), tree.join(to));
    fs::rename(&from, &to).tried(|| format!("moving {} to {}", from.display(), to.display()))
}

/// Chooses the largest folder to move, and the second largest to delete and restore.
fn facts(name: &str, image: &Image) -> Result<TreeFacts> {
    let folders = image.folders();
    let largest =
        folders.first().ok_or_else(|| Failure::new(format!("{name} has no folder with files in it")))?;
    let second = folders.get(1).unwrap_or(largest);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(TreeFacts {
        name: name.into(),
        files: image.files().len(),
        directories: image.directories(),
        bytes: image.bytes(),
        moved: text(&largest.0),
        deleted: (text(&second.0), second.1),
    })
}
