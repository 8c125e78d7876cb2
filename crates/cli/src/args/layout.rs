//! The flags of `export` and `import`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How a checkpoint is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LayoutForm {
    /// Files as files, everything else as JSON beside them.
    #[default]
    Tree,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The checkpoint.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Write it into a new folder in this one, which is made where it is missing.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// How to lay it out.
    #[arg(long, value_name = "LAYOUT", default_value = "tree")]
    pub(crate) layout: LayoutForm,
    /// Include memory of agents that lies outside of the workspace.
    #[arg(long)]
    pub(crate) with_memory: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The folder that `safepoint export` printed: the one with metadata.json in it.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to call it [default: what it was called].
    #[arg(short = 'm', long = "label", visible_alias = "description", value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// Never prune it.
    #[arg(long)]
    pub(crate) pin: bool,
}
