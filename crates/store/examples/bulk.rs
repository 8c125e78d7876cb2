//! Stores every file under a folder and prints the elapsed time: `bulk FOLDER STORE`.
#![allow(clippy::print_stdout, reason = "an example prints to a terminal")]

use rayon::prelude::*;
use safepoint_model::ObjectSink;
use safepoint_store::{Depth, Store};
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn files(dir: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files(&entry.path(), out)?;
        } else if kind.is_file() {
            out.push(entry.path());
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let [folder, store] =
        std::env::args_os().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "bulk FOLDER STORE")?;
    let mut paths = Vec::new();
    files(Path::new(&folder), &mut paths)?;
    let begin = Instant::now();
    let seconds = |what: &str, since: Instant| println!("{what:<10} {:8.3} s", since.elapsed().as_secs_f64());
    let store = Store::open(Path::new(&store))?;
    seconds("open", begin);
    let writer = store.writer()?;
    let bytes: u64 = paths
        .par_iter()
        .map(|path| {
            let mut file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok(writer.put_content(size, &mut file)?.size)
        })
        .sum::<Result<u64, Box<dyn Error + Send + Sync>>>()?;
    seconds("put", begin);
    let finish = Instant::now();
    let written = writer.finish()?;
    seconds("finish", finish);
    seconds("total", begin);
    println!("{} files, {bytes} bytes, {written:?}", paths.len());
    println!("{:?}", store.usage()?);
    let check = Instant::now();
    let report = store.validate(Depth::Deep, &|_, _| {})?;
    seconds("validate", check);
    println!("damaged: {:?}", report.damaged);
    Ok(())
}
