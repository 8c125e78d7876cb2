//! Checkpoint references: an id, an id prefix, a label, `@`, `@~N` or `@here`.

use crate::{CheckpointId, ModelError};
use std::str::FromStr;

/// Minimum length of an id prefix.
pub const PREFIX_CHARS_MIN: usize = 4;

/// Parsed reference, not yet resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The newest, or the N-th before it.
    Newest {
        /// Number of checkpoints to go back.
        back: u64,
    },
    /// The position of the workspace: the checkpoint that it was last captured as or rolled back to.
    Here,
    /// Full id, in ULID or UUID form.
    Id(CheckpointId),
    /// Label, or an id prefix (in capitals, as ids are shown) if possible.
    Name {
        /// Text as typed.
        text: String,
        /// Text as an id prefix.
        prefix: Option<String>,
    },
}

impl FromStr for Reference {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let refuse = |why| Err(ModelError::Reference { given: text.to_owned(), why });
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text == "@" {
            return Ok(Self::Newest { back: 0 });
        }
        if text == "@here" {
            return Ok(Self::Here);
        }
        if let Some(count) = text.strip_prefix("@~") {
            return match count.parse() {
                Ok(back) if count.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Self::Newest { back }),
                _ => refuse("@~ must be followed by a number, as in @~2"),
            };
        }
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let could_be_id = (PREFIX_CHARS_MIN..26).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        Ok(Self::Name { text: text.to_owned(), prefix: could_be_id.then(|| text.to_ascii_uppercase()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        assert_eq!("@".parse::<Reference>().unwrap(), Reference::Newest { back: 0 });
        assert_eq!("@~12".parse::<Reference>().unwrap(), Reference::Newest { back: 12 });
        assert_eq!("@here".parse::<Reference>().unwrap(), Reference::Here);
        let id = CheckpointId::from_bits(1 << 90);
        assert_eq!(id.to_string().parse::<Reference>().unwrap(), Reference::Id(id));
        assert_eq!(id.to_uuid().parse::<Reference>().unwrap(), Reference::Id(id));
        assert_eq!(
            "01jb".parse::<Reference>().unwrap(),
            Reference::Name { text: "01jb".into(), prefix: Some("01JB".into()) }
        );
        assert_eq!(
            "before the refactoring".parse::<Reference>().unwrap(),
            Reference::Name { text: "before the refactoring".into(), prefix: None }
        );
        assert!(matches!("01j".parse::<Reference>().unwrap(), Reference::Name { prefix: None, .. }));
    }

    #[test]
    fn half_forms_are_refused() {
        for bad in ["", "@~", "@~x", "@~-1", "@~+1"] {
            assert!(matches!(bad.parse::<Reference>(), Err(ModelError::Reference { .. })), "{bad:?}");
        }
    }
}
