//! Folder and file names of a layout, from untrusted names.

use safepoint_model::Timestamp;
use safepoint_model::checkpoint::{Checkpoint, PartKind, Scope};

/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 100;
/// Numbered names per second; the id follows.
const NUMBERED_MAX: u32 = 10_000;

/// Returns a single name that is valid on any file system and is no command option.
pub(super) fn safe(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        if safe.len() + letter.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        let plain = letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
        safe.push(if plain { letter } else { '_' });
    }
    if safe.is_empty() || safe.starts_with(['.', '-']) {
        safe.insert(0, '_');
    }
    safe
}

/// Formats a time as `YYYYMMDD_HHMMSS`, in UTC.
fn stamp(moment: Timestamp) -> String {
    let text = moment.to_string();
    let digits: String =
        text.chars().take_while(|letter| *letter != '.').filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at(digits.len().min(8));
    format!("{day}_{time}")
}

/// Returns the preferred folder name of a checkpoint.
pub(super) fn base(checkpoint: &Checkpoint, workspace: Option<&str>) -> String {
    let stamp = stamp(checkpoint.created_at);
    let agent = || checkpoint.parts.iter().find(|part| part.kind == PartKind::Agent);
    let name = match checkpoint.scope {
        Scope::Framework => return format!("{stamp}_{}", checkpoint.kind),
        Scope::Project => workspace,
        Scope::Workflow => checkpoint.plan_id.as_deref(),
        Scope::Agent => agent().map(|part| part.key.as_str()),
    };
    format!("{}_{stamp}", safe(name.unwrap_or("unnamed")))
}

/// Returns names to try in order: checkpoints of the same second never collide (R8.2).
pub(super) fn candidates(base: &str, checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    let numbered = (2..=NUMBERED_MAX).map({
        let base = base.to_owned();
        move |number| format!("{base}_{number}")
    });
    std::iter::once(base.to_owned()).chain(numbered).chain([format!("{base}_{}", checkpoint.id)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_anywhere_else() {
        for (given, expected) in [
            ("shop", "shop"),
            ("../x", "_.._x"),
            ("/etc/passwd", "_etc_passwd"),
            ("..", "_.."),
            ("", "_"),
            ("-rf", "_-rf"),
            (".hidden", "_.hidden"),
            ("a b\n\u{1b}[2J\0", "a_b___2J_"),
            ("\u{fc}ml\u{e4}ut", "\u{fc}ml\u{e4}ut"),
            ("not \u{fffd} utf8", "not___utf8"),
        ] {
            assert_eq!(safe(given), expected, "{given:?}");
        }
        let long = safe(&"\u{e4}".repeat(300));
        assert!(long.len() <= NAME_BYTES_MAX && long.len() > 90);
    }

    #[test]
    fn a_moment_has_eight_digits_and_six() {
        assert_eq!(stamp(Timestamp::from_micros(1_763_193_600_000_007)), "20251115_080000");
        assert_eq!(stamp(Timestamp::from_micros(i64::MIN)).len(), 15);
        assert_eq!(stamp(Timestamp::from_micros(i64::MAX)).len(), 15);
    }
}
