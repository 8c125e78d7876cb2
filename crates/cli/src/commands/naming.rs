//! Names of checkpoints for people: the shortest unique prefix of the id, and a label that fits on the line.
//! Programs get ids whole: what is unique today may not be tomorrow.

use crate::problem::Problem;
use crate::render::output::Printer;
use crate::render::terminal::{printable, shortened, width};
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{CheckpointManager, Filter, RoleFilter, Workspace};

pub(crate) const ID_LETTERS: usize = 26;
/// Never fewer letters than this, so that new checkpoints seldom change how the old ones are called.
const ID_LETTERS_MIN: usize = 8;
/// A label that is cut shorter than this says nothing.
pub(crate) const LABEL_LETTERS_MIN: usize = 12;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    /// Length of a unique id prefix.
    pub(crate) letters: usize,
    /// Width of a line on a terminal.
    columns: Option<usize>,
}

impl Naming {
    /// For the checkpoints of a workspace, or of all.
    pub(crate) fn new(
        out: &Printer,
        manager: &CheckpointManager,
        workspace: Option<&Workspace>,
    ) -> Result<Self, Problem> {
        let workspace = workspace.map(|workspace| workspace.id);
        let filter = Filter { workspace, role: RoleFilter::Any, ..Filter::default() };
        let ids = manager.checkpoints().list_ids(&filter)?.iter().map(ToString::to_string).collect();
        Ok(Self { letters: unique_letters(ids), columns: out.terminal.then(width) })
    }

    /// For these checkpoints, seen from a workspace. The first letters of an id mean a checkpoint of the workspace first, so one from elsewhere
    /// needs as many as tell it apart from all others.
    pub(crate) fn among(
        out: &Printer,
        manager: &CheckpointManager,
        workspace: Option<&Workspace>,
        shown: &[Checkpoint],
    ) -> Result<Self, Problem> {
        let of_here = |it: &Checkpoint| it.workspace_id == workspace.map(|workspace| workspace.id);
        Self::new(out, manager, workspace.filter(|_| shown.iter().all(of_here)))
    }

    /// Count of id letters shown.
    pub(crate) fn id_letters(&self) -> usize {
        if self.columns.is_some() { self.letters.min(ID_LETTERS) } else { ID_LETTERS }
    }

    pub(crate) fn id(&self, id: CheckpointId) -> String {
        id.to_string().chars().take(self.id_letters()).collect()
    }

    /// Name of a checkpoint. Safepoint's own labels name others by their whole ids; a few letters are enough for people.
    pub(crate) fn name(&self, checkpoint: &Checkpoint) -> String {
        let label = checkpoint.label.as_deref().map(printable).unwrap_or_default();
        if checkpoint.role.is_some() { self.with_short_ids(&label) } else { label }
    }

    /// The same, and whether it is pinned.
    pub(crate) fn label(&self, checkpoint: &Checkpoint) -> String {
        let pinned = if checkpoint.pinned { " (pinned)" } else { "" };
        format!("{}{pinned}", self.name(checkpoint)).trim_start().to_owned()
    }

    /// A sentence of Safepoint's own in which every id has as few letters as on the rest of the screen.
    pub(crate) fn said(&self, sentence: &str) -> String {
        if self.columns.is_some() { self.with_short_ids(sentence) } else { sentence.to_owned() }
    }

    fn with_short_ids(&self, label: &str) -> String {
        let short = |word: &str| match word.parse::<CheckpointId>() {
            Ok(id) if word.len() == ID_LETTERS => id.to_string().chars().take(self.letters).collect(),
            _ => word.to_owned(),
        };
        label.split(' ').map(short).collect::<Vec<String>>().join(" ")
    }

    /// Count of letters left on a line after `letters`.
    pub(crate) fn left_after(&self, letters: usize) -> usize {
        self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(letters))
    }

    /// The text, cut to what is left of a line; nothing where too little is left.
    pub(crate) fn fitted(&self, text: &str, after_letters: usize) -> String {
        match self.left_after(after_letters) {
            ..LABEL_LETTERS_MIN => String::new(),
            left => shortened(text, left),
        }
    }
}

/// Length of a unique id prefix.
pub(crate) fn unique_letters(mut ids: Vec<String>) -> usize {
    ids.sort_unstable();
    let same = |pair: &[String]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    ids.windows(2).map(|pair| same(pair) + 1).max().unwrap_or(0).max(ID_LETTERS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_get_as_many_letters_as_tell_them_apart() {
        let ids = |given: &[&str]| given.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(unique_letters(ids(&["AAAAAAAAAAB", "AAAAAAAAAAC", "B"])), 11);
        assert_eq!(unique_letters(ids(&["A", "B"])), 8);
        assert_eq!(unique_letters(ids(&[])), 8);
    }

    #[test]
    fn a_label_fits_or_is_left_out() {
        let on = |columns| Naming { letters: 8, columns };
        assert_eq!(on(Some(40)).fitted("tests pass, all of them", 20), "tests pass, all of …");
        assert_eq!(on(Some(30)).fitted("tests pass", 20), "");
        assert_eq!(on(None).fitted("tests pass", 2000), "tests pass");
    }
}
