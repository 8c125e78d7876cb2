//! Exit codes, all in one place (design, section 8).

use safepoint::FailureKind;

/// Done.
pub(crate) const DONE: u8 = 0;
/// Done in part; the problems are listed.
pub(crate) const IN_PART: u8 = 3;

/// The code of each kind of failure.
pub(crate) fn code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Failed => 1,
        FailureKind::Usage => 2,
        FailureKind::NotFound => 10,
        FailureKind::Busy => 11,
        FailureKind::Conflict => 12,
        FailureKind::Damaged => 13,
        FailureKind::Internal => 70,
        FailureKind::Interrupted => 130,
    }
}
