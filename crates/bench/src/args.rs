//! The command line.

use crate::generate::Shape;
use crate::works::Work;
use clap::{Args as Group, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Measures Safepoint: beside other tools, as things grow, in instructions.
#[derive(Debug, Parser)]
#[command(name = "safepoint-bench", version)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The same work by Safepoint and by the other tools that are installed, in one run
    Compare(Compare),
    /// How the cost grows with files, changes and checkpoints
    Scaling(Scaling),
    /// Make a tree of a known shape
    Generate(Generate),
    /// Instructions of the hot paths, compared with the baseline
    Instructions(Instructions),
    /// Run a command and say as JSON what it took
    #[command(hide = true)]
    Measured {
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Where figures go.
#[derive(Debug, Default, Clone, Group)]
pub(crate) struct Outputs {
    /// Write every figure as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write plots
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Arguments of `compare`.
#[derive(Debug, Group)]
pub(crate) struct Compare {
    /// The tree to copy and work on; it is only read
    #[arg(long, value_name = "DIR", required_unless_present = "generate", conflicts_with = "generate")]
    pub(crate) tree: Option<PathBuf>,
    /// Make a tree of this shape in place of one that is there
    #[arg(long, value_name = "SHAPE")]
    pub(crate) generate: Option<Shape>,
    /// Where copies and stores lie meanwhile [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// How often each work is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// These works alone
    #[arg(long, value_name = "WORK", value_delimiter = ',')]
    pub(crate) only: Vec<Work>,
    /// These tools alone [default: all that are installed]
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Where the program of a tool is, as in jj=/opt/jj/bin/jj
    #[arg(long = "tool", value_name = "TOOL=PATH", value_parser = tool_at)]
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// The safepoint to measure [default: the one beside this program, built by cargo if need be]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// How large the large file is
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) big_mib: u64,
    /// How many checkpoints in a row
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) checkpoints: u32,
    /// Where figures go.
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// Arguments of `scaling`.
#[derive(Debug, Group)]
pub(crate) struct Scaling {
    /// Where trees and stores lie meanwhile [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// How often each point is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Small sizes, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// The safepoint to measure [default: the one beside this program, built by cargo if need be]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Where figures go.
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// Arguments of `generate`.
#[derive(Debug, Group)]
pub(crate) struct Generate {
    /// What to make
    pub(crate) shape: Shape,
    /// Where; it must not be there yet
    pub(crate) dir: PathBuf,
    /// Another seed makes another tree
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Arguments of `instructions`.
#[derive(Debug, Group)]
pub(crate) struct Instructions {
    /// Write the counts as the new baseline
    #[arg(long)]
    pub(crate) record: bool,
    /// By how many percent a count may grow
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    pub(crate) tolerance: f64,
    /// The baseline [default: the one in the repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
}

fn tool_at(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("write it as TOOL=PATH".into()),
    }
}
