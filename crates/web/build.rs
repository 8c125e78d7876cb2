//! Lists the files of `page/`, which are embedded as they are.

#![allow(clippy::disallowed_methods, clippy::panic, reason = "a build script reads the sources")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => files(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let top = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("page");
    println!("cargo::rerun-if-changed={}", top.display());
    let mut found = Vec::new();
    files(&top, &mut found)?;
    found.sort();
    let mut table = String::from("&[\n");
    for path in found {
        let name = path.strip_prefix(&top)?.to_string_lossy().into_owned();
        writeln!(table, "({name:?}, include_bytes!({path:?})),")?;
    }
    table.push(']');
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("page.rs");
    Ok(std::fs::write(out, table)?)
}
