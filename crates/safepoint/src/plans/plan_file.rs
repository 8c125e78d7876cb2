//! Plan files: the text of a plan, in TOML or JSON.
//!
//! Input: untrusted bytes. Output: a [`PlanSpec`] that follows every rule of the model, or all problems, each
//! with its line, column and a suggestion. `docs/plan-files.md` lists every key;
//! `docs/schemas/plan-file.json` is its schema.
//!
//! Both formats become one tree of nodes with positions, and one reader turns it into a plan. No text
//! overflows the stack: each parser bounds the nesting first.

mod error;
mod json;
mod node;
mod reading;
mod toml;

pub use error::{Place, PlanFileError, PlanFileProblem, PlanProblemKind};

use safepoint_model::plan::spec::PlanSpec;
use std::fmt;

/// Maximum size of a plan file.
pub const PLAN_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Format of a plan file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanFormat {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl fmt::Display for PlanFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PlanFormat::Toml => "TOML",
            PlanFormat::Json => "JSON",
        })
    }
}

/// Parsed plan file.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// The plan, which follows every rule.
    pub spec: PlanSpec,
    /// Format of the text.
    pub format: PlanFormat,
    /// True if it sets when to checkpoint.
    pub has_checkpoints: bool,
}

impl PlanFile {
    /// Reads a plan file. Without a given format, a text that starts with `{` is JSON, and any other TOML.
    ///
    /// # Errors
    /// Fails if it is too long, not UTF-8, of another format, or no plan.
    pub fn parse(bytes: &[u8], format: Option<PlanFormat>) -> Result<PlanFile, PlanFileError> {
        if bytes.len() > PLAN_FILE_BYTES_MAX {
            return Err(PlanFileError::TooLarge { bytes_max: PLAN_FILE_BYTES_MAX });
        }
        let text = text_of(bytes)?;
        let format = format.unwrap_or_else(|| match text.trim_start().starts_with('{') {
            true => PlanFormat::Json,
            false => PlanFormat::Toml,
        });
        let root = match format {
            PlanFormat::Toml => toml::parse(text)?,
            PlanFormat::Json => json::parse(text)?,
        };
        let spec = reading::plan(text, format, &root)?;
        Ok(PlanFile { spec, format, has_checkpoints: root.get(&["checkpoints"]).is_some() })
    }
}

/// Text without a byte order mark.
fn text_of(bytes: &[u8]) -> Result<&str, PlanFileError> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.split_at(error.valid_up_to()).0;
        let good = std::str::from_utf8(good).unwrap_or_default();
        PlanFileError::NotUtf8 { place: Place::of(good, good.len()) }
    })
}

#[cfg(test)]
mod tests;
