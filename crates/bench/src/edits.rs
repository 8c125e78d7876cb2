//! The same changes in every copy: in come names of files and a seed, out come appended lines.

use crate::failure::{Result, Tried};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Xorshift: the same numbers in each run.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice that fall as the seed says.
    pub(crate) fn new(seed: u64) -> Self {
        // Xorshift stays at zero for ever; spreading the bits makes seeds that lie close fall differently from the start.
        let mut dice = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Eight bytes without a pattern.
    pub(crate) fn bytes(&mut self) -> [u8; 8] {
        self.next().wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    }

    /// A line of words that do not repeat much: it compresses as source code does.
    pub(crate) fn line(&mut self) -> String {
        let words: Vec<String> =
            (0..3 + self.below(8)).map(|_| format!("w{:x}", self.below(3_000))).collect();
        words.join(" ") + "\n"
    }
}

/// So many of these files, none twice; all of them where there are fewer.
pub(crate) fn choose(files: &[PathBuf], count: usize, seed: u64) -> Vec<PathBuf> {
    let mut dice = Dice::new(seed);
    let mut left: Vec<usize> = (0..files.len()).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count && !left.is_empty() {
        let at = dice.below(left.len() as u64) as usize;
        chosen.push(files[left.swap_remove(at)].clone());
    }
    chosen
}

/// Appends a line to each of these files below `root`; what the lines say comes from the seed.
pub(crate) fn append(root: &Path, files: &[PathBuf], seed: u64) -> Result<()> {
    let mut dice = Dice::new(seed);
    for file in files {
        let path = root.join(file);
        let line = format!("// edited {} {}", dice.below(1_000_000_000), dice.line());
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut open| open.write_all(line.as_bytes()))
            .tried(|| format!("editing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same_files_and_none_twice() {
        let files: Vec<PathBuf> = (0..100).map(|n| PathBuf::from(n.to_string())).collect();
        let mut chosen = choose(&files, 40, 7);
        assert_eq!(chosen, choose(&files, 40, 7));
        assert_ne!(chosen, choose(&files, 40, 8));
        chosen.sort();
        chosen.dedup();
        assert_eq!(chosen.len(), 40);
        assert_eq!(choose(&files, 1_000, 7).len(), 100);
    }
}
