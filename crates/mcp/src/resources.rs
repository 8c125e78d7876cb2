//! Resources: the timeline, plans, and files in checkpoints.

use crate::answer::{ROWS_MAX, harmless};
use crate::desk::{Call, Page};
use crate::input;
use rmcp::model::{Resource, ResourceTemplate};
use safepoint::Failure;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Checkpoints and rollbacks.
pub(crate) const TIMELINE: &str = "safepoint://timeline";
/// Active plan.
pub(crate) const PLAN: &str = "safepoint://plan";
/// Maximum size of a file as a resource.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;

/// Resource that a URI names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Timeline,
    Plan(Option<String>),
    File { checkpoint: String, path: OsString },
}

pub(crate) fn list() -> Vec<Resource> {
    vec![
        Resource::new(TIMELINE, "timeline")
            .with_title("Timeline")
            .with_description("Newest checkpoints, rollbacks and undos")
            .with_mime_type("application/json"),
        Resource::new(PLAN, "plan")
            .with_title("Active plan")
            .with_description("Steps and decisions of the active plan")
            .with_mime_type("application/json"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("safepoint://plan/{id}", "plan-by-id")
            .with_title("Plan")
            .with_description("Steps and decisions of a plan")
            .with_mime_type("application/json"),
        ResourceTemplate::new("safepoint://checkpoint/{checkpoint}/file/{+path}", "file-version")
            .with_title("File in a checkpoint")
            .with_description("Content of a file as it was in a checkpoint, at most 1 MiB"),
    ]
}

/// Reads a URI.
pub(crate) fn named(uri: &str) -> Result<Named, Failure> {
    let unknown =
        || input::invalid("the URI names no resource of this server", "List them with resources/list.");
    let rest = uri.strip_prefix("safepoint://").ok_or_else(unknown)?;
    match rest.split_once('/') {
        None if rest == "timeline" => Ok(Named::Timeline),
        None if rest == "plan" => Ok(Named::Plan(None)),
        Some(("plan", id)) => {
            let id = String::from_utf8(decoded(id).ok_or_else(unknown)?).map_err(|_| unknown())?;
            input::name("the plan", &id)?;
            Ok(Named::Plan(Some(id)))
        }
        Some(("checkpoint", rest)) => {
            let (checkpoint, path) = rest.split_once("/file/").ok_or_else(unknown)?;
            let checkpoint =
                String::from_utf8(decoded(checkpoint).ok_or_else(unknown)?).map_err(|_| unknown())?;
            input::name("the checkpoint", &checkpoint)?;
            let path = decoded(path).ok_or_else(unknown)?;
            input::path(&String::from_utf8_lossy(&path))?;
            Ok(Named::File { checkpoint, path: OsString::from_vec(path) })
        }
        _ => Err(unknown()),
    }
}

/// URI of a file in a checkpoint.
pub(crate) fn file_uri(checkpoint: &str, path: &[u8]) -> String {
    let mut uri = format!("safepoint://checkpoint/{checkpoint}/file/");
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(*byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// Decodes percent escapes.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(bytes)
}

impl Named {
    /// Calls that make the content, each with its key.
    pub(crate) fn calls(&self) -> Vec<(&'static str, Call)> {
        let page = Page { skip: 0, rows_max: ROWS_MAX };
        match self {
            Named::Timeline => {
                vec![("checkpoints", Call::Checkpoints(page)), ("history", Call::History(page))]
            }
            Named::Plan(id) => vec![("plan", Call::Plan { id: id.clone() })],
            Named::File { checkpoint, path } => vec![(
                "file",
                Call::FileAt {
                    checkpoint: checkpoint.clone(),
                    path: path.clone(),
                    bytes_max: FILE_BYTES_MAX,
                },
            )],
        }
    }

    /// Returns true if the content can change.
    pub(crate) fn can_change(&self) -> bool {
        !matches!(self, Named::File { .. })
    }
}

/// JSON as the text of a resource.
pub(crate) fn json_text(value: &serde_json::Value) -> String {
    harmless(&value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn every_path_survives_its_uri() {
        for path in [&b"a/b c.txt"[..], b"100%/\xff\xfe", "\u{1b}[31m\n\u{202e}".as_bytes(), b"?q#f"] {
            let uri = file_uri("01ABC", path);
            assert!(uri.is_ascii() && !uri.contains(char::is_control), "{uri}");
            let Named::File { checkpoint, path: found } = named(&uri).unwrap() else { panic!("{uri}") };
            assert_eq!((checkpoint.as_str(), found.as_bytes()), ("01ABC", path));
        }
    }

    #[test]
    fn a_uri_cannot_leave_the_workspace() {
        for bad in [
            "file:///etc/passwd",
            "safepoint://checkpoint/@/file/../../etc/passwd",
            "safepoint://checkpoint/@/file/%2e%2e/x",
            "safepoint://checkpoint/@/file/a%00b",
            "safepoint://checkpoint/@/file/",
            "safepoint://checkpoint//file/a",
            "safepoint://checkpoint/:1/file/a",
            "safepoint://plan/%",
            "safepoint://plan/%zz",
            "safepoint://other",
            "",
        ] {
            assert!(named(bad).is_err(), "{bad}");
        }
        assert_eq!(named(TIMELINE).unwrap(), Named::Timeline);
        assert_eq!(named("safepoint://plan/limits").unwrap(), Named::Plan(Some("limits".to_owned())));
    }
}
