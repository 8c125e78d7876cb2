//! Calls that only read.

use super::Ground;
use crate::args::attempt::{AttemptCommand, ListAttemptsArgs};
use crate::args::plan::{PlanArgs, PlanCommand};
use crate::args::{Command, agent::AgentCommand, session::ListArgs, session::SessionCommand};
use crate::commands::list::turns;
use crate::problem::Problem;
use crate::render::json;
use safepoint::model::RelPath;
use safepoint::model::change::{Change, ChangeKind};
use safepoint::model::checkpoint::Checkpoint;
use safepoint::model::plan::state::Plan;
use safepoint::model::tree::{Entry, Node};
use safepoint::{
    Against, Error, Letters, OwnCheckpoints, Page, Placed, TextFound, TextSearch, TurnAt, Version,
    VersionChange, within,
};
use safepoint_web::{Blob, BlobKind, Call, Letters as CaseOf, Listing, Own, Place, State};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ops::ControlFlow;

impl Ground<'_> {
    pub(super) fn look(&self, call: &Call) -> Result<Value, Problem> {
        match call {
            Call::Workspace => self.facts(),
            Call::Checkpoints(listing) => self.page(listing),
            Call::Checkpoint(id) => self.one(id),
            Call::Rollbacks { limit } => {
                let all = self.manager.rollbacks(&self.workspace)?;
                let rows = all.iter().rev().take(usize::try_from(*limit).unwrap_or(usize::MAX));
                Ok(json!({ "rollbacks": rows.map(json::rollback_record).collect::<Value>() }))
            }
            Call::Strip { buckets } => self.strip(*buckets),
            Call::Tree { place, skip, limit } => self.folder(place, *skip, *limit),
            Call::Diff { from, to, skip, limit } => self.diff((from, to), *skip, *limit),
            Call::History { path, before, limit } => self.history(path, *before, *limit),
            Call::Line { path, text } => self.line(path, text),
            Call::Plans => {
                let plans = self.manager.plans().list(Some(&self.workspace))?;
                Ok(json!({ "plans": plans }))
            }
            Call::Plan(id) => self.plan(id),
            Call::Output { plan, step, after } => self.output(plan, step, *after),
            Call::Sessions => self.command(&Command::Session(SessionCommand::List(ListArgs {
                status: None,
                limit: Some(1000),
            }))),
            Call::Turns { before, limit } => {
                let turns = self.manager.turns().page(&self.workspace, *before, *limit)?;
                let next = turns.last().filter(|turn| turns.len() as u64 == *limit && turn.number > 1);
                let rows: Value = turns.iter().map(turns::entry).collect();
                Ok(json!({ "turns": rows, "next": next.map(|turn| turn.number) }))
            }
            Call::Agents => self.command(&Command::Agent(AgentCommand::List)),
            Call::Attempts => {
                self.command(&Command::Attempt(AttemptCommand::List(ListAttemptsArgs { all: true })))
            }
            Call::Usage { limit } => self.usage(*limit),
            Call::Events { after, limit } => self.events(*after, *limit),
            Call::LastEvent => Ok(json!(self.manager.last_event()?)),
            Call::Search { text, path, letters, limit } => self.search(text, path, *letters, *limit),
            _ => Err(Problem::internal("a call was not understood".to_owned())),
        }
    }

    /// Disk usage. Of the checkpoints of this workspace, those of which deletion frees most.
    fn usage(&self, limit: u64) -> Result<Value, Problem> {
        let mut usage = self.command(&Command::Usage)?;
        let own = json!(self.workspace.id);
        let mut total = 0;
        if let Some(rows) = usage["checkpoints"].as_array_mut() {
            rows.retain(|row| row["workspace_id"] == own);
            total = rows.len();
            rows.sort_by_key(|row| std::cmp::Reverse(row["frees_bytes"].as_u64()));
            rows.truncate(amount(limit));
        }
        usage["total"] = json!(total);
        Ok(usage)
    }

    fn facts(&self) -> Result<Value, Problem> {
        let good = self.manager.checkpoints().last_good(&self.workspace)?;
        let total = self.manager.checkpoints().page_total(&Page::first(self.workspace.id, 1))?;
        let test = self.manager.config(None).ok().and_then(|config| config.test).map(|test| test.line);
        Ok(json!({
            "workspace": json::workspace(&self.workspace),
            "missing": !self.workspace.root_path().is_dir(),
            "version": env!("CARGO_PKG_VERSION"),
            "event": self.manager.last_event()?,
            "checkpoints": total,
            "last_good": good.map(|(checkpoint, why)| json!({ "checkpoint": checkpoint, "why": why })),
            "test_command": test,
            "attempts": self.manager.attempts().open_count(&self.workspace)?,
        }))
    }

    fn page(&self, listing: &Listing) -> Result<Value, Problem> {
        let page = Page {
            workspace: self.workspace.id,
            before: listing.before,
            from: listing.from,
            session_id: listing.session.clone(),
            source_tool: listing.agent.clone(),
            plan_id: listing.plan.clone(),
            own: match listing.own {
                Own::Listed => OwnCheckpoints::Listed,
                Own::LeftOut => OwnCheckpoints::LeftOut,
            },
            skip: listing.skip,
            limit: listing.limit,
        };
        let placed = self.manager.checkpoints().page(&page)?;
        let next = placed.last().filter(|_| placed.len() as u64 == listing.limit).map(|last| last.seq);
        Ok(json!({
            "checkpoints": self.rows(&placed)?,
            "head": self.workspace.head,
            "total": self.manager.checkpoints().page_total(&page)?,
            "next": next,
        }))
    }

    pub(super) fn rows(&self, placed: &[Placed]) -> Result<Value, Problem> {
        let ids: Vec<_> = placed.iter().map(|placed| placed.checkpoint.id).collect();
        let turns = self.manager.turns().at(&self.workspace, &ids)?;
        Ok(placed.iter().map(|placed| row(placed, &turns)).collect())
    }

    pub(super) fn row(&self, checkpoint: Checkpoint) -> Result<Value, Problem> {
        let placed = [Placed { seq: self.manager.checkpoints().place(checkpoint.id)?, checkpoint }];
        Ok(self.rows(&placed)?[0].take())
    }

    fn one(&self, id: &str) -> Result<Value, Problem> {
        let (checkpoint, attempt) = self.seen(id)?;
        let coverage = self.manager.checkpoints().coverage(&checkpoint)?;
        let files = checkpoint.files;
        let changed = files.added + files.modified + files.removed;
        let attempt = attempt.map(|attempt| attempt.name);
        Ok(json!({
            "row": self.row(checkpoint)?, "coverage": coverage, "changed": changed, "attempt": attempt,
        }))
    }

    fn strip(&self, buckets: u64) -> Result<Value, Problem> {
        let strip = self.manager.checkpoints().strip(&self.workspace, buckets)?;
        let bucket = |bucket: &safepoint::Bucket| {
            json!({
                "first": bucket.first, "last": bucket.last, "from": bucket.from, "to": bucket.to,
                "checkpoints": bucket.checkpoints, "changed": bucket.changed,
            })
        };
        Ok(json!({ "buckets": strip.iter().map(bucket).collect::<Value>() }))
    }

    fn folder(&self, place: &Place, skip: u64, limit: u64) -> Result<Value, Problem> {
        let State::Checkpoint(id) = &place.state else {
            return Err(Problem::internal("a folder is one of a checkpoint".to_owned()));
        };
        let (checkpoint, path) = (self.seen(id)?.0, path(&place.path)?);
        let entries = self.manager.checkpoints().folder(&within(&checkpoint, self.workspace.id), &path)?;
        let (skip, limit) = (amount(skip), amount(limit));
        let mut rows = Vec::new();
        for entry in entries.iter().skip(skip).take(limit) {
            let mut row = json::entry_value(entry);
            json::set(&mut row, "name", json::bytes(&entry.name));
            json::set(&mut row, "path", json::value(path.join(&entry.name)?));
            rows.push(row);
        }
        let next = skip.saturating_add(limit);
        Ok(json!({
            "checkpoint": checkpoint.id, "path": path, "entries": rows, "total": entries.len(),
            "next": (next < entries.len()).then_some(next),
        }))
    }

    pub(super) fn diff(&self, (from, to): (&State, &State), skip: u64, limit: u64) -> Result<Value, Problem> {
        let new = self.state(to)?;
        let old = match (from, &new) {
            (State::Parent, Some(new)) => {
                new.parent.and_then(|parent| self.manager.checkpoints().get(parent).ok())
            }
            (State::Parent, None) => {
                self.workspace.head.map(|head| self.manager.checkpoints().get(head)).transpose()?
            }
            (from, _) => self.state(from)?,
        };
        let Some(old) = old else { return self.whole(new.as_ref(), skip, limit) };
        let (old_id, new_id) = (old.id, new.as_ref().map(|new| new.id));
        let against = new.map_or(Against::Present, |new| Against::Checkpoint(Box::new(new)));
        let compared = self.manager.diff(&self.workspace, &old, &against, self.watch)?;
        let (changes, total, next) = renamed(&compared.changes, skip, limit);
        Ok(json!({
            "from": old_id, "to": new_id, "changes": changes, "total": total, "next": next,
            "coverage": compared.coverage,
        }))
    }

    /// Everything that a checkpoint holds, where nothing is before it.
    fn whole(&self, new: Option<&Checkpoint>, skip: u64, limit: u64) -> Result<Value, Problem> {
        let Some(new) = new else {
            return Err(Error::NoCheckpoint { reference: "@".to_owned() }.into());
        };
        let entries = self.manager.checkpoints().entries(&within(new, self.workspace.id))?;
        let changes: Vec<Change> = entries
            .into_iter()
            .map(|listed| Change {
                path: listed.path,
                kind: ChangeKind::Added,
                old: None,
                new: Some(listed.entry),
            })
            .collect();
        let coverage = self.manager.checkpoints().coverage(new)?;
        let (changes, total, next) = renamed(&changes, skip, limit);
        Ok(json!({
            "from": new.id, "to": new.id, "changes": changes, "total": total, "next": next, "coverage": coverage,
        }))
    }

    fn history(&self, given: &[u8], before: Option<u64>, limit: u64) -> Result<Value, Problem> {
        let path = path(given)?;
        let history = self.manager.checkpoints().history(&self.workspace, &path, before, amount(limit))?;
        let version = |version: &Version| {
            let Placed { seq, checkpoint } = &version.placed;
            // The agent of the next turn did not put it back.
            let is_its = version.change != VersionChange::RolledBack;
            json!({
                "seq": seq, "checkpoint": checkpoint.id, "created_at": checkpoint.created_at,
                "label": checkpoint.label, "agent": checkpoint.source_tool.as_ref().filter(|_| is_its),
                "session_id": checkpoint.session_id, "change": version.change, "entry": version.entry.as_ref().map(json::entry_value),
            })
        };
        let versions: Value = history.versions.iter().map(version).collect();
        Ok(json!({
            "path": path, "versions": versions, "next": history.next, "unreadable": history.unreadable,
        }))
    }

    fn line(&self, given: &[u8], text: &str) -> Result<Value, Problem> {
        let search = TextSearch { text: text.to_owned(), path: path(given)?, letters: Letters::Exact };
        let found = self.manager.checkpoints().newest_with_line(&self.workspace, &search, self.watch)?;
        Ok(json!({ "found": found.as_ref().map(found_value) }))
    }

    fn search(&self, text: &str, given: &[u8], letters: CaseOf, limit: u64) -> Result<Value, Problem> {
        let letters = match letters {
            CaseOf::Exact => Letters::Exact,
            CaseOf::AnyCase => Letters::AnyCase,
        };
        let search = TextSearch { text: text.to_owned(), path: path(given)?, letters };
        let total = self.manager.checkpoints().page_total(&Page::first(self.workspace.id, 1))?;
        self.watch.begin(safepoint::Activity::Checking, Some(total));
        let mut left = limit;
        let mut each = |found: TextFound| {
            self.watch.item(found_value(&found));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let checkpoints = self.manager.checkpoints();
        let unreadable = checkpoints.search(&self.workspace, &search, &mut each, self.watch)?;
        Ok(
            json!({ "found": limit - left, "complete": left > 0 && unreadable == 0, "unreadable": unreadable }),
        )
    }

    /// The plan of this id, if it is one of this workspace.
    pub(super) fn known_plan(&self, id: &str) -> Result<(), Problem> {
        let plans = self.manager.plans().list(Some(&self.workspace))?;
        match plans.iter().any(|plan| plan.id == id) {
            true => Ok(()),
            false => Err(Error::NoPlan { id: id.to_owned() }.into()),
        }
    }

    pub(super) fn plan_value(&self, id: &str) -> Result<Value, Problem> {
        let shown = self.command(&Command::Plan(PlanCommand::Show(PlanArgs { plan: id.to_owned() })))?;
        Ok(shown["plan"].clone())
    }

    fn plan(&self, id: &str) -> Result<Value, Problem> {
        self.known_plan(id)?;
        let held = self.manager.plans().checkpoints(id)?;
        let mut placed = Vec::new();
        for held in held.iter().take(1000) {
            let checkpoint = self.manager.checkpoints().get(held.checkpoint)?;
            placed.push(Placed { seq: self.manager.checkpoints().place(held.checkpoint)?, checkpoint });
        }
        let log: Value = self
            .manager
            .plans()
            .notes(id)?
            .iter()
            .map(|note| {
                let mut shown =
                    json!({ "at": note.at, "kind": note.kind, "subject": "", "payload": note.body });
                let subject = ["step", "id", "key"].iter().find_map(|key| note.body.get(key)?.as_str());
                shown["subject"] = json!(subject.unwrap_or(""));
                shown
            })
            .collect();
        Ok(json!({
            "plan": self.plan_value(id)?,
            "running": self.manager.plans().is_running(id).unwrap_or(false),
            "clean": held.iter().find(|held| held.healthy).map(|held| held.checkpoint),
            "checkpoints": self.rows(&placed)?,
            "log": log,
        }))
    }

    fn output(&self, id: &str, step: &str, after: u64) -> Result<Value, Problem> {
        self.known_plan(id)?;
        let record = self.manager.plans().get(id)?;
        let at = record.plan.find(step).map_err(Error::from)?;
        let (attempt, running) = {
            let step = &record.plan.steps[at];
            (step.attempts, step.state == safepoint::model::plan::state::StepState::Running)
        };
        let printed = self.printed(&record.plan, step)?;
        let start = amount(after).min(printed.len());
        let text = String::from_utf8_lossy(&printed[start..]);
        Ok(json!({
            "plan": id, "step": step, "text": text, "next": printed.len(), "running": running, "attempt": attempt,
        }))
    }

    fn printed(&self, plan: &Plan, step: &str) -> Result<Vec<u8>, Problem> {
        Ok(self.manager.plans().output(plan, step)?.unwrap_or_default())
    }

    fn events(&self, after: u64, limit: u64) -> Result<Value, Problem> {
        let events = self.manager.events(after, limit)?;
        let own = json!(self.workspace.id);
        let row = |event: &safepoint::Event| {
            // Of other workspaces only the number is told, so that the count has no gaps.
            let is_ours = event.payload.get("workspace_id").is_none_or(|id| id.is_null() || *id == own);
            match is_ours {
                true => json!({
                    "seq": event.seq, "at": event.at, "kind": event.kind, "subject": event.subject,
                    "payload": event.payload,
                }),
                false => json!({
                    "seq": event.seq, "at": event.at, "kind": "elsewhere", "subject": "", "payload": {},
                }),
            }
        };
        Ok(events.iter().map(row).collect())
    }

    pub(super) fn read(&self, place: &Place, bytes_max: u64) -> Result<Option<Blob>, Problem> {
        let path = path(&place.path)?;
        let Some(checkpoint) = self.state(&place.state)? else { return self.present(&path, bytes_max) };
        let checkpoint = within(&checkpoint, self.workspace.id);
        let Some(entry) = self.manager.checkpoints().entry(&checkpoint, &path)? else { return Ok(None) };
        let shown = json::entry_value(&entry);
        let (kind, size) = match &entry.node {
            Node::File(content) => (BlobKind::File, content.size),
            Node::Symlink(target) => (BlobKind::Symlink, target.len() as u64),
            Node::Directory(_) => (BlobKind::Directory, 0),
        };
        let is_read = kind != BlobKind::Directory && size <= bytes_max && !is_unread(&entry);
        let bytes = match is_read {
            true => {
                let mut bytes = Vec::new();
                self.manager.checkpoints().cat(&checkpoint, &path, &mut bytes)?;
                Some(bytes)
            }
            false => None,
        };
        Ok(Some(Blob { kind, entry: shown, size, bytes }))
    }

    /// A file of the workspace as it is now. No link is followed.
    fn present(&self, path: &RelPath, bytes_max: u64) -> Result<Option<Blob>, Problem> {
        let Some(bytes) = self.manager.workspaces().read_file(&self.workspace, path, bytes_max)? else {
            return Ok(None);
        };
        let entry =
            json!({ "type": "file", "mode": null, "size": bytes.len(), "hash": null, "target": null });
        Ok(Some(Blob { kind: BlobKind::File, entry, size: bytes.len() as u64, bytes: Some(bytes) }))
    }
}

fn is_unread(entry: &Entry) -> bool {
    matches!(&entry.node, Node::File(content) if content.is_unread())
}

fn row(placed: &Placed, turns: &HashMap<safepoint::model::CheckpointId, TurnAt>) -> Value {
    let turn = turns.get(&placed.checkpoint.id);
    // A turn may begin at a checkpoint that another agent, or a person, took.
    let ended = turn.filter(|turn| turn.ends).map(|turn| turn.agent.clone());
    let agent = ended.or_else(|| placed.checkpoint.source_tool.clone());
    json!({
        "seq": placed.seq,
        "turn": turn.map(|turn| json!({ "number": turn.number, "side": if turn.ends { "after" } else { "before" } })),
        "agent": agent,
        "checkpoint": json::checkpoint(&placed.checkpoint),
    })
}

fn found_value(found: &TextFound) -> Value {
    json!({
        "seq": found.seq, "checkpoint": found.checkpoint, "created_at": found.created_at, "label": found.label,
        "path": found.path, "hash": found.content, "line": found.line, "text": found.text,
        "matches": found.matches,
    })
}

pub(super) fn path(bytes: &[u8]) -> Result<RelPath, Problem> {
    Ok(RelPath::new(bytes.to_vec())?)
}

fn amount(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Page of changes as rows, with the number of all rows and the first of the next page. A removed and an added file of
/// equal content are one that was renamed.
fn renamed(changes: &[Change], skip: u64, limit: u64) -> (Value, usize, Option<usize>) {
    let content = |entry: Option<&Entry>| match entry.map(|entry| &entry.node) {
        Some(Node::File(content)) if content.size > 0 && !content.is_unread() => Some(content.id),
        _ => None,
    };
    let mut gone: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate().rev() {
        if let (ChangeKind::Removed, Some(id)) = (change.kind, content(change.old.as_ref())) {
            gone.entry(id).or_default().push(at);
        }
    }
    let mut came_from: HashMap<usize, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        if let (ChangeKind::Added, Some(id)) = (change.kind, content(change.new.as_ref()))
            && let Some(old) = gone.get_mut(&id).and_then(Vec::pop)
        {
            came_from.insert(at, old);
        }
    }
    let moved: std::collections::HashSet<usize> = came_from.values().copied().collect();
    let (skip, limit, total) = (amount(skip), amount(limit), changes.len() - moved.len());
    let shown = changes.iter().enumerate().filter(|(at, _)| !moved.contains(at)).skip(skip).take(limit);
    let rows = shown.map(|(at, change)| {
        let mut shown = json::change(change);
        json::set(&mut shown, "old_path", Value::Null);
        if let Some(old) = came_from.get(&at).and_then(|old| changes.get(*old)) {
            let from = json::change(old);
            json::set(&mut shown, "change", json!("renamed"));
            json::set(&mut shown, "old_path", from["path"].clone());
            json::set(&mut shown, "old", from["old"].clone());
        }
        shown
    });
    let next = skip.saturating_add(limit);
    (rows.collect(), total, (next < total).then_some(next))
}
