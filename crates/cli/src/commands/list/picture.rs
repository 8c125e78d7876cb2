//! The history of a workspace as a picture: which checkpoint came from which, and where each rollback, undo and redo went.

use crate::context::{Surroundings, speaks_unicode};
use crate::render::graph::{ASCII, Drawn, Node, Signs, UNICODE, draw};
use crate::render::output::Printer;
use crate::render::terminal::{ago, counted, printable, shortened, width};
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::rollback::{Rollback, RollbackState};
use std::collections::HashMap;

/// Picture contents.
pub(crate) struct Picture<'a> {
    pub(crate) out: &'a Printer,
    /// Newest first.
    pub(crate) checkpoints: &'a [Checkpoint],
    pub(crate) rollbacks: &'a [Rollback],
    pub(crate) head: Option<CheckpointId>,
    /// Length of a unique id prefix.
    pub(crate) id_letters: usize,
}

impl Picture<'_> {
    pub(crate) fn print(&self) {
        let signs = if speaks_unicode() { UNICODE } else { ASCII };
        let nodes: Vec<_> = self.checkpoints.iter().map(|checkpoint| self.node(checkpoint, signs)).collect();
        let when = |checkpoint: &Checkpoint| ago(Surroundings::now(), checkpoint.created_at);
        let when_letters =
            self.checkpoints.iter().map(|checkpoint| when(checkpoint).len()).max().unwrap_or(0);
        let moves: HashMap<_, _> = self
            .rollbacks
            .iter()
            .filter_map(|rollback| Some((rollback.safety_checkpoint?, rollback)))
            .collect();
        for (checkpoint, Drawn { above, beside }) in self.checkpoints.iter().zip(draw(&nodes, signs)) {
            above.into_iter().for_each(|above| self.out.line(above));
            let text = match moves.get(&checkpoint.id) {
                Some(rollback) => self.step(rollback, signs),
                None => label(checkpoint),
            };
            let before = beside.chars().count() + self.id_letters + when_letters + 5;
            let letters_max = width().saturating_sub(before);
            let text = if self.out.terminal { shortened(&text, letters_max) } else { text };
            let when = format!("{:when_letters$}", when(checkpoint));
            let line = format!("{beside} {}  {when}  {}", self.id(checkpoint), self.paint(checkpoint, text));
            self.out.line(line.trim_end());
        }
        if self.checkpoints.iter().any(|checkpoint| self.head == Some(checkpoint.id)) {
            self.out.remark(self.out.colours.dim(format!("{} is where the workspace is now", signs.here)));
        }
    }

    fn node(&self, checkpoint: &Checkpoint, signs: Signs) -> Node<CheckpointId> {
        let sign = match checkpoint.role {
            _ if self.head == Some(checkpoint.id) => signs.here,
            Some(_) => signs.own,
            None => signs.made,
        };
        Node { id: checkpoint.id, parent: checkpoint.parent, sign }
    }

    fn id(&self, checkpoint: &Checkpoint) -> String {
        let id = self.short(checkpoint.id);
        if checkpoint.role.is_some() { self.out.colours.dim(id) } else { self.out.colours.bold(id) }
    }

    fn short(&self, id: CheckpointId) -> String {
        id.to_string().chars().take(self.id_letters).collect()
    }

    fn paint(&self, checkpoint: &Checkpoint, text: String) -> String {
        if checkpoint.role.is_some() { self.out.colours.cyan(text) } else { text }
    }

    /// Action from a safety checkpoint, and its target.
    fn step(&self, rollback: &Rollback, signs: Signs) -> String {
        let target = self.checkpoints.iter().find(|checkpoint| checkpoint.id == rollback.to);
        // A safety checkpoint has no name but a long one that says again what the picture shows.
        let named =
            target.filter(|target| target.role.is_none()).map(label).filter(|label| !label.is_empty());
        let chosen = match rollback.paths.len() as u64 {
            0 => String::new(),
            count => format!(" of {}", counted(count, "path", "paths")),
        };
        let ended = match rollback.state {
            RollbackState::Aborted => " (failed; everything was restored)",
            RollbackState::Applying => " (unfinished)",
            RollbackState::Done | RollbackState::Settled | RollbackState::Refused => "",
        };
        let named = named.map(|label| format!(" {label}")).unwrap_or_default();
        format!("{}{chosen} {} {}{named}{ended}", rollback.verb, signs.arrow, self.short(rollback.to))
    }
}

fn label(checkpoint: &Checkpoint) -> String {
    let label = checkpoint.label.as_deref().map(printable).unwrap_or_default();
    let pinned = if checkpoint.pinned { " (pinned)" } else { "" };
    format!("{label}{pinned}").trim_start().to_owned()
}
