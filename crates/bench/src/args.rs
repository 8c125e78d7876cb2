//! Command line.

use crate::generate::Shape;
use crate::works::Work;
use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Measures Safepoint against other tools, its growth, and its instruction counts.
#[derive(Debug, Parser)]
#[command(name = "safepoint-bench", version)]
pub(crate) struct Args {
    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the same work with Safepoint and the other installed tools
    Compare(Compare),
    /// Measure how the cost grows with files, changes and checkpoints
    Scaling(Scaling),
    /// Create a tree of a known shape
    Generate(Generate),
    /// Measure hooks of agents when nothing changed, beside a walk and git
    Hooks(Hooks),
    /// Measure attempts, beside their limits, git worktree, cp --reflink and try
    Attempts(Attempts),
    /// Edit files, and note the clock at the first and the last instruction
    #[command(hide = true)]
    Edit(Edit),
    /// Play many lines that publish to one PostgreSQL, without files
    Fleet(Fleet),
    /// Measure pushes and clones beside restic, rustic and git
    Remote(Remote),
    /// Count instructions of the hot paths and compare with the baseline
    Instructions(Instructions),
    /// Run a command and print its cost as JSON
    #[command(hide = true)]
    Measured {
        /// Program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Output files.
#[derive(Debug, Default, Clone, Group)]
pub(crate) struct Outputs {
    /// Write all figures as JSON
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
    /// Tree to copy and work on; it is only read
    #[arg(long, value_name = "DIR", required_unless_present = "generate", conflicts_with = "generate")]
    pub(crate) tree: Option<PathBuf>,
    /// Generate a tree of this shape
    #[arg(long, value_name = "SHAPE")]
    pub(crate) generate: Option<Shape>,
    /// Folder for copies and stores during the run [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Repetitions of each work
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Run only these works
    #[arg(long, value_name = "WORK", value_delimiter = ',')]
    pub(crate) only: Vec<Work>,
    /// Run only these tools [default: all that are installed]
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Path of a tool's program, such as jj=/opt/jj/bin/jj
    #[arg(long = "tool", value_name = "TOOL=PATH", value_parser = tool_at)]
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// The safepoint to measure [default: next to this program, built by cargo if missing]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Size of the large file
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) big_mib: u64,
    /// Number of consecutive checkpoints
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) checkpoints: u32,
    /// Output files.
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// Arguments of `scaling`.
#[derive(Debug, Group)]
pub(crate) struct Scaling {
    /// Folder for trees and stores during the run [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Repetitions of each point
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Use small sizes, as a smoke test
    #[arg(long)]
    pub(crate) quick: bool,
    /// The safepoint to measure [default: next to this program, built by cargo if missing]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Output files.
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// Arguments of `generate`.
#[derive(Debug, Group)]
pub(crate) struct Generate {
    /// Shape of the tree
    pub(crate) shape: Shape,
    /// Folder to create; it must not exist
    pub(crate) dir: PathBuf,
    /// Seed of the content
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Arguments of `hooks`.
#[derive(Debug, Group)]
pub(crate) struct Hooks {
    /// Large tree to measure after the small one; it is only read
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,
    /// Folder for the small tree and the stores during the run [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// The safepoint to measure [default: next to this program, built by cargo if missing]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Way to try edits beside Safepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OtherWay {
    /// `git worktree add`, and a copy of the ignored files.
    Worktree,
    /// `cp -a --reflink=always` on XFS.
    Reflink,
    /// The script `try`.
    Try,
}

/// Arguments of `attempts`.
#[derive(Debug, Group)]
pub(crate) struct Attempts {
    /// Tree to copy and work on; it is only read
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: PathBuf,
    /// Folder for copies and stores during the run [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// The safepoint to measure [default: next to this program, built by cargo if missing]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Measure only these ways beside Safepoint [default: all that are possible]
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    pub(crate) ways: Vec<OtherWay>,
    /// The script `try` to measure [default: the one on the path]
    #[arg(long = "try", value_name = "PATH")]
    pub(crate) try_program: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Arguments of `edit`.
#[derive(Debug, Group)]
pub(crate) struct Edit {
    /// File for the two times
    #[arg(long, value_name = "FILE")]
    pub(crate) marks: PathBuf,
    /// File with the paths to edit, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) list: PathBuf,
    /// Seed of the text
    #[arg(long, value_name = "N")]
    pub(crate) seed: u64,
}

/// Arguments of `fleet`.
#[derive(Debug, Group)]
pub(crate) struct Fleet {
    /// Number of lines
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lines: u64,
    /// Length of the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Time between two pushes of a line
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every: u64,
    /// Time of an upload
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub(crate) latency_ms: u64,
    /// Pushes at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) workers: u64,
    /// Keep a connection for each line, as machines do that publish often [default: one for each worker]
    #[arg(long)]
    pub(crate) held: bool,
    /// Connect through PgBouncer in transaction mode, with 20 connections to the server
    #[arg(long)]
    pub(crate) pooler: bool,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Arguments of `remote`.
#[derive(Debug, Group)]
pub(crate) struct Remote {
    /// Tree to copy and publish; it is only read [default: 2,000 generated files]
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,
    /// Folder for copies and servers during the run [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Repetitions of the pushes of ten edits
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Path of a tool's program, such as rustic=/opt/rustic
    #[arg(long = "tool", value_name = "TOOL=PATH", value_parser = tool_at)]
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// The safepoint to measure [default: next to this program, built by cargo if missing]
    #[arg(long, value_name = "PATH")]
    pub(crate) safepoint: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Arguments of `instructions`.
#[derive(Debug, Group)]
pub(crate) struct Instructions {
    /// Write the counts as the new baseline
    #[arg(long)]
    pub(crate) record: bool,
    /// Allowed growth of a count, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    pub(crate) tolerance: f64,
    /// Baseline file [default: the one in the repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
}

fn tool_at(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected TOOL=PATH".into()),
    }
}
