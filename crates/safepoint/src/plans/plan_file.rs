//! Plan files: the text of a plan, in TOML or JSON.
//!
//! Comes in: bytes that anybody may have written. Goes out: a [`PlanSpec`] that keeps every rule of the model, or everything that is wrong
//! with it, each problem with its line and column and what was meant. `docs/plan-files.md` lists every key, `docs/schemas/plan-file.json` is
//! the same for machines.
//!
//! Both notations become one tree of nodes that know their place; one reader turns that into a plan. No text makes it overflow
//! the stack: each notation bounds how deep it nests before anything here walks it.

mod error;
mod json;
mod node;
mod reading;
mod toml;

pub use error::{Place, PlanFileError, PlanFileProblem, PlanProblemKind};

use safepoint_model::plan::spec::PlanSpec;
use std::fmt;

/// A longer file is no plan.
pub const PLAN_FILE_BYTES_MAX: usize = 1024 * 1024;

/// How a plan file is written.
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

/// What a plan file says.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// The plan. It keeps every rule.
    pub spec: PlanSpec,
    /// How it was written.
    pub format: PlanFormat,
    /// Whether it says when checkpoints are taken.
    pub has_checkpoints: bool,
}

impl PlanFile {
    /// Reads a plan file. Where no format is asked for, a text whose first character is `{` is JSON, and any other TOML.
    ///
    /// # Errors
    /// When it is too long, not text, not of that format, or not a plan.
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

/// The text, without a byte order mark.
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
