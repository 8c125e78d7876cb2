//! Domain ids: ULIDs with one type per entity, also accepted in UUID form.
//!
//! Creating an id needs a clock and randomness, and is therefore done by the library above.

use crate::ModelError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use ulid::Ulid;

/// Formats the 128 bits as a UUID.
fn uuid_form(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Parses the ULID or the UUID form.
fn parse_bits(text: &str) -> Option<u128> {
    match text.len() {
        26 if text.is_ascii() && text.as_bytes()[0] <= b'7' => Ulid::from_string(text).ok().map(u128::from),
        36 => parse_uuid(text),
        _ => None,
    }
}

fn parse_uuid(text: &str) -> Option<u128> {
    let dashes_in_place = text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    if !dashes_in_place {
        return None;
    }
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Returns the id with these bits.
            pub fn from_bits(bits: u128) -> Self {
                Self(bits)
            }

            /// Returns the 128 bits, time first.
            pub fn bits(self) -> u128 {
                self.0
            }

            /// Returns the UUID form.
            pub fn to_uuid(self) -> String {
                uuid_form(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&Ulid::from(self.0).to_string())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self)
            }
        }

        impl FromStr for $name {
            type Err = ModelError;

            fn from_str(text: &str) -> Result<Self, ModelError> {
                parse_bits(text).map(Self).ok_or_else(|| ModelError::Id { given: text.to_owned() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type! {
    /// Id of a checkpoint.
    CheckpointId
}
id_type! {
    /// Id of a registered workspace.
    WorkspaceId
}
id_type! {
    /// Id of a line: the publications of one clone of a workspace, or of one plan.
    LineId
}
id_type! {
    /// Id of a rollback, an undo or a redo.
    RollbackId
}
id_type! {
    /// Id of a session of an agent.
    SessionId
}
id_type! {
    /// Id of an attempt.
    AttemptId
}
id_type! {
    /// Names a run of a plan.
    RunId
}
id_type! {
    /// Names a decision of a plan.
    DecisionId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_from_both_forms() {
        let id = CheckpointId::from_bits(0x0193_2b7c_8f00_1234_5678_9abc_def0_1122);
        assert_eq!(id.to_string().parse::<CheckpointId>().unwrap(), id);
        assert_eq!(id.to_uuid().parse::<CheckpointId>().unwrap(), id);
        assert_eq!(id.to_uuid(), "01932b7c-8f00-1234-5678-9abcdef01122");
    }

    #[test]
    fn ids_sort_by_their_bits_as_text_too() {
        let (early, late) = (CheckpointId::from_bits(5 << 80), CheckpointId::from_bits(6 << 80));
        assert!(early < late && early.to_string() < late.to_string());
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "../../etc/passwd",
            "01932b7c8f00-1234-5678-9abc-def01122x",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV", // above 128 bits
            "01ARZ3NDEKTSV4RRFFQ69G5FA!",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVX",
            "é1ARZ3NDEKTSV4RRFFQ69G5FA",
            "01932b7c-8f00-1234-5678-9abcdef0112g",
            "+1932b7c-8f00-1234-5678-9abcdef01122",
        ] {
            assert!(matches!(bad.parse::<CheckpointId>(), Err(ModelError::Id { .. })), "{bad:?}");
        }
    }

    #[test]
    fn json_is_the_text_form() {
        let id = WorkspaceId::from_bits(7);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"00000000000000000000000007\"");
        assert_eq!(serde_json::from_str::<WorkspaceId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<WorkspaceId>("\"x\"").is_err());
        assert_eq!(format!("{id:?}"), "WorkspaceId(00000000000000000000000007)");
    }
}
