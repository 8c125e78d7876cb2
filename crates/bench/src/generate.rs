//! Generates trees of a known shape. The same shape and seed give the same tree, byte for byte.

use crate::args::Generate;
use crate::edits::Dice;
use crate::failure::{Failure, Result, Tried};
use clap::ValueEnum;
use rayon::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shape of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Shape {
    /// 10,000 small files, 100 per folder
    #[value(name = "files-10k")]
    Files10k,
    /// 100,000 small files
    #[value(name = "files-100k")]
    Files100k,
    /// 1,000,000 small files
    #[value(name = "files-1m")]
    Files1m,
    /// 600 JavaScript packages, some nested, with links in .bin
    #[value(name = "node_modules")]
    NodeModules,
    /// Apps and libraries with sources, tests, documents and some assets
    Monorepo,
}

/// Runs `generate SHAPE DIR`.
pub(crate) fn run(args: &Generate) -> Result<ExitCode> {
    let files = make(args.shape, &args.dir, args.seed)?;
    println!("{files} files in {}", args.dir.display());
    Ok(ExitCode::SUCCESS)
}

/// Creates a tree in a new folder and returns the number of files.
pub(crate) fn make(shape: Shape, dir: &Path, seed: u64) -> Result<u64> {
    let plan = match shape {
        Shape::Files10k => plain(10_000, 200..=16_000),
        Shape::Files100k => plain(100_000, 200..=8_000),
        Shape::Files1m => plain(1_000_000, 100..=2_000),
        Shape::NodeModules => node_modules(seed),
        Shape::Monorepo => monorepo(seed),
    };
    lay_out(dir, &plan, seed)
}

/// Creates a tree of `count` small files.
pub(crate) fn make_files(count: u64, dir: &Path, seed: u64) -> Result<u64> {
    lay_out(dir, &plain(count, 200..=8_000), seed)
}

/// Entry to create.
enum Piece {
    /// Text with a length in this range.
    Text(PathBuf, std::ops::RangeInclusive<u64>),
    /// Executable script.
    Script(PathBuf),
    /// Incompressible bytes.
    Asset(PathBuf, u64),
    /// Link and its target.
    Link(PathBuf, PathBuf),
}

impl Piece {
    fn path(&self) -> &Path {
        match self {
            Piece::Text(path, _) | Piece::Script(path) | Piece::Asset(path, _) | Piece::Link(path, _) => path,
        }
    }
}

fn plain(count: u64, bytes: std::ops::RangeInclusive<u64>) -> Vec<Piece> {
    let name = |n: u64| format!("group{}/part{}/file{}.txt", n / 1_000, n / 100 % 10, n % 100);
    (0..count).map(|n| Piece::Text(name(n).into(), bytes.clone())).collect()
}

fn node_modules(seed: u64) -> Vec<Piece> {
    let mut dice = Dice::new(seed ^ 0x0de);
    let mut pieces = vec![
        Piece::Text("package.json".into(), 800..=1_500),
        Piece::Text("src/index.js".into(), 500..=4_000),
    ];
    for number in 0..600 {
        let package = match number % 5 {
            0 => format!("node_modules/@scope{}/package{number}", number % 7),
            _ => format!("node_modules/package{number}"),
        };
        package_of(&mut pieces, &mut dice, &package);
        if number % 10 == 3 {
            let nested = format!("{package}/node_modules/package{}", number / 10);
            package_of(&mut pieces, &mut dice, &nested);
        }
        if number % 4 == 1 {
            let bin = PathBuf::from(format!("node_modules/.bin/package{number}"));
            pieces.push(Piece::Script(format!("{package}/cli.js").into()));
            pieces.push(Piece::Link(bin, format!("../package{number}/cli.js").into()));
        }
    }
    pieces
}

fn package_of(pieces: &mut Vec<Piece>, dice: &mut Dice, package: &str) {
    let mut text = |name: String, bytes| pieces.push(Piece::Text(format!("{package}/{name}").into(), bytes));
    text("package.json".into(), 400..=2_000);
    text("README.md".into(), 500..=12_000);
    text("LICENSE".into(), 1_000..=1_100);
    for n in 0..5 + dice.below(30) {
        text(format!("lib/module{n}.js"), 100..=8_000);
        text(format!("types/module{n}.d.ts"), 50..=1_000);
    }
    text("dist/bundle.min.js".into(), 10_000..=120_000);
}

fn monorepo(seed: u64) -> Vec<Piece> {
    let mut dice = Dice::new(seed ^ 0x3030);
    let mut pieces = vec![
        Piece::Text("README.md".into(), 2_000..=6_000),
        Piece::Script("tools/build.sh".into()),
        Piece::Link("docs/latest".into(), "v2".into()),
    ];
    for (kind, count) in [("apps", 12), ("libs", 80), ("services", 30)] {
        for number in 0..count {
            let at = format!("{kind}/{kind}-{number}");
            let mut text =
                |name: String, bytes| pieces.push(Piece::Text(format!("{at}/{name}").into(), bytes));
            text("package.toml".into(), 200..=900);
            text("README.md".into(), 300..=4_000);
            for n in 0..20 + dice.below(120) {
                text(format!("src/area{}/file{n}.rs", n / 15), 300..=20_000);
            }
            for n in 0..5 + dice.below(30) {
                text(format!("tests/case{n}.rs"), 300..=8_000);
            }
            if number % 4 == 0 {
                let bytes = 200_000 + dice.below(2_000_000);
                pieces.push(Piece::Asset(format!("{at}/assets/image{number}.bin").into(), bytes));
            }
        }
    }
    for n in 0..200 {
        pieces.push(Piece::Text(format!("docs/v{}/page{n}.md", 1 + n % 2).into(), 1_000..=12_000));
    }
    pieces
}

fn lay_out(dir: &Path, pieces: &[Piece], seed: u64) -> Result<u64> {
    if dir.exists() {
        return Err(Failure::new(format!("making a tree in {}: it already exists", dir.display())));
    }
    let mut folders: Vec<PathBuf> =
        pieces.iter().filter_map(|piece| Some(dir.join(piece.path().parent()?))).collect();
    folders.sort();
    folders.dedup();
    for folder in folders {
        fs::create_dir_all(&folder).tried(|| format!("making {}", folder.display()))?;
    }
    pieces.par_iter().enumerate().try_for_each(|(number, piece)| {
        let dice = Dice::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number as u64));
        let path = dir.join(piece.path());
        put(piece, &path, dice).tried(|| format!("making {}", path.display()))
    })?;
    Ok(pieces.len() as u64)
}

fn put(piece: &Piece, path: &Path, mut dice: Dice) -> std::io::Result<()> {
    match piece {
        Piece::Text(_, bytes) => {
            // The minimum of two throws gives many small files and few large ones.
            let span = bytes.end() - bytes.start() + 1;
            let length = bytes.start() + dice.below(span).min(dice.below(span));
            fs::write(path, text(&mut dice, length))
        }
        Piece::Script(_) => {
            fs::write(path, format!("#!/bin/sh\n{}", text(&mut dice, 300)))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        }
        Piece::Asset(_, length) => fs::write(path, noise(&mut dice, *length)),
        Piece::Link(_, target) => symlink(target, path),
    }
}

fn text(dice: &mut Dice, bytes: u64) -> String {
    let mut text = String::new();
    while (text.len() as u64) < bytes {
        text.push_str(&dice.line());
    }
    text
}

/// Returns incompressible bytes.
pub(crate) fn noise(dice: &mut Dice, bytes: u64) -> Vec<u8> {
    let mut noise: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| dice.bytes()).collect();
    noise.truncate(bytes as usize);
    noise
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;

    #[test]
    fn a_shape_and_a_seed_make_one_tree() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, seed) in [("a", 1), ("b", 1), ("c", 2)] {
            assert_eq!(make_files(300, &at(name), seed).unwrap(), 300);
        }
        let read = |name: &str| Image::read(&at(name)).unwrap();
        assert_eq!(read("a"), read("b"));
        assert_ne!(read("a"), read("c"));
        assert_eq!(read("a").files().len(), 300);
        assert!(make_files(1, &at("a"), 1).unwrap_err().to_string().contains("already exists"));
    }

    #[test]
    fn every_name_comes_once() {
        for pieces in [node_modules(1), monorepo(1), plain(30_000, 1..=2)] {
            let mut names: Vec<_> = pieces.iter().map(Piece::path).collect();
            let count = names.len();
            assert!(count > 5_000, "{count}");
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
