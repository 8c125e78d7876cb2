//! Works that every tool does.

use clap::ValueEnum;
use serde::Serialize;

/// Work to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub(crate) enum Work {
    /// First checkpoint of the tree
    First,
    /// Checkpoint without changes
    Nothing,
    /// Checkpoint after 10 edited files
    Edit10,
    /// Checkpoint after 1,000 edited files
    Edit1000,
    /// Checkpoint after the largest folder was moved
    Move,
    /// Rollback of 1,000 edits
    Rollback,
    /// Restore of a deleted folder
    Deleted,
    /// Many checkpoints of 10 edits each
    Many,
    /// Checkpoint after one byte of a large file changed
    Big,
    /// Checkpoint of a tiny project
    Tiny,
}

impl Work {
    /// All works, in order of execution.
    pub(crate) const ALL: [Work; 10] = [
        Work::First,
        Work::Nothing,
        Work::Edit10,
        Work::Edit1000,
        Work::Move,
        Work::Rollback,
        Work::Deleted,
        Work::Many,
        Work::Big,
        Work::Tiny,
    ];

    /// Name on the command line and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::First => "first",
            Work::Nothing => "nothing",
            Work::Edit10 => "edit10",
            Work::Edit1000 => "edit1000",
            Work::Move => "move",
            Work::Rollback => "rollback",
            Work::Deleted => "deleted",
            Work::Many => "many",
            Work::Big => "big",
            Work::Tiny => "tiny",
        }
    }

    /// Returns the description of the limit.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Work::First => "walk; read, hash, compress, write every file; one flush",
            Work::Nothing | Work::Move => "walk",
            Work::Edit10 | Work::Edit1000 | Work::Many => {
                "walk; read, hash, compress, write changed files; one flush"
            }
            Work::Big => "read and hash the file, write one piece, one flush",
            Work::Tiny => "one flush of a small file",
            Work::Rollback | Work::Deleted => "",
        }
    }

    /// Returns true if it uses the copies of the tree.
    pub(crate) fn is_of_the_tree(self) -> bool {
        !matches!(self, Work::Big | Work::Tiny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_has_one_name_everywhere() {
        for work in Work::ALL {
            let value = work.to_possible_value().unwrap();
            assert_eq!(value.get_name(), work.name());
            assert_eq!(serde_json::to_value(work).unwrap(), work.name());
        }
    }
}
