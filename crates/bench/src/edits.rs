//! Same edits in every copy: appends lines to files, chosen by a seed.

use crate::failure::{Result, Tried};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Xorshift: the same numbers in each run.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Xorshift never leaves zero; spreading the bits makes nearby seeds differ from the start.
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

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns eight bytes without a pattern.
    pub(crate) fn bytes(&mut self) -> [u8; 8] {
        self.next().wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    }

    /// Returns a line of varied words that compresses like source code.
    pub(crate) fn line(&mut self) -> String {
        let words: Vec<String> =
            (0..3 + self.below(8)).map(|_| format!("w{:x}", self.below(3_000))).collect();
        words.join(" ") + "\n"
    }
}

/// Chooses up to `count` different files.
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

/// Appends a line to each of these files below `root`; the seed determines the text.
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
