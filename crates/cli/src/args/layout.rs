//! The flags of `export` and `import`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Layout of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LayoutForm {
    /// Files as files, everything else as JSON.
    #[default]
    Tree,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Checkpoint.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Folder in which to create the export; created if missing.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Layout.
    #[arg(long, value_name = "LAYOUT", default_value = "tree")]
    pub(crate) layout: LayoutForm,
    /// Include agent memory from outside the workspace.
    #[arg(long)]
    pub(crate) with_memory: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Folder that `safepoint export` printed, with metadata.json in it.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Label, also with a hyphen first [default: the original label].
    #[arg(
        short = 'm',
        long = "label",
        visible_alias = "description",
        value_name = "LABEL",
        allow_hyphen_values = true
    )]
    pub(crate) label: Option<String>,
    /// Protect it from pruning.
    #[arg(long)]
    pub(crate) pin: bool,
}
