//! Candidates for the word under the cursor, for the scripts of `completions`. No command for people.
//!
//! In: the words of the command line so far, the last of them unfinished. Out: a line each, with a description after a tab; `:files` lets
//! the shell add its own files. It never fails, prints no errors, reads a few rows only, and never makes a home.

mod words;

use crate::args::{Arguments, Global};
use crate::commands::naming::unique_letters;
use crate::context::Surroundings;
use crate::render::terminal::{ago, printable, shortened};
use clap::CommandFactory;
use safepoint::{Access, CheckpointManager, Filter, Workspace};
use std::ffi::OsString;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use words::{Kind, Line, Wanted};

/// The word that asks for it, followed by `--` and the words so far.
pub(crate) const COMPLETE: &str = "__complete";
/// So many rows are read of each kind.
const ROWS_MAX: u64 = 50;
/// Longer descriptions are cut.
const LETTERS_MAX: usize = 48;

/// One word that fits, and what it is.
struct Candidate {
    word: String,
    about: String,
}

fn candidate(word: impl Into<String>, about: impl AsRef<str>) -> Candidate {
    let about = shortened(&printable(about.as_ref()), LETTERS_MAX);
    Candidate { word: word.into(), about }
}

/// Prints the candidates. Whatever goes wrong, there are none.
pub(super) fn complete(words: &[OsString]) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let text = catch_unwind(AssertUnwindSafe(|| candidates(words))).unwrap_or_default();
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn candidates(words: &[OsString]) -> String {
    let mut whole = Arguments::command();
    whole.build();
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (current, before) = words.split_last().map_or(("", &words[..]), |(last, rest)| (last.as_str(), rest));
    let line = Line::read(&whole, before);
    let wanted = line.wanted(current);
    let mut text = String::new();
    for Candidate { word, about } in found(&line, &wanted) {
        let fits = word.get(..wanted.begun.len()).is_some_and(|head| head.eq_ignore_ascii_case(wanted.begun));
        // A control character would be a key press.
        if !fits || word.chars().any(char::is_control) {
            continue;
        }
        let tab = if about.is_empty() { "" } else { "\t" };
        text.push_str(&format!("{}{word}{tab}{about}\n", wanted.prefix));
    }
    if wanted.kinds.contains(&Kind::Files) {
        text.push_str(":files\n");
    }
    text
}

fn found(line: &Line<'_>, wanted: &Wanted<'_>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> =
        wanted.fixed.iter().map(|(word, about)| candidate(word.as_str(), about)).collect();
    let Some(home) = wanted.kinds.iter().any(|kind| *kind != Kind::Files).then(|| Home::open(line)).flatten()
    else {
        return found;
    };
    for kind in &wanted.kinds {
        found.extend(
            match kind {
                Kind::Files => None,
                Kind::Checkpoints => home.checkpoints(None, wanted.begun),
                Kind::CheckpointsOfPlan => home.checkpoints(line.positionals.first().cloned(), wanted.begun),
                Kind::Plans => home.plans(),
                Kind::Sessions => home.sessions(),
                Kind::Agents => home.agents(),
                Kind::Remotes => home.remotes(),
            }
            .unwrap_or_default(),
        );
    }
    found
}

/// The home that the words are about.
struct Home {
    manager: CheckpointManager,
    workspace: Option<Workspace>,
}

impl Home {
    /// Opens it for reading, if there is one.
    fn open(line: &Line<'_>) -> Option<Self> {
        let option =
            |name: &str| line.options.iter().rev().find(|(id, _)| id == name).map(|(_, value)| value);
        let global = Global {
            directory: option("directory").map(PathBuf::from),
            home: option("home").map(PathBuf::from),
            ..Global::default()
        };
        let surroundings = Surroundings::read(&global, Access::Read).ok()?;
        surroundings.home.join("catalog.db").symlink_metadata().ok()?;
        let manager = surroundings.try_open(None).ok()?;
        let workspace = surroundings.workspace_if_any(&manager).ok().flatten();
        Some(Self { manager, workspace })
    }

    /// Checkpoints by their short ids, newest first. A label is offered once it is begun.
    fn checkpoints(&self, plan: Option<String>, begun: &str) -> Option<Vec<Candidate>> {
        let workspace = self.workspace.as_ref().map(|workspace| workspace.id);
        let filter =
            Filter { workspace: workspace.filter(|_| plan.is_none()), plan_id: plan, ..Filter::default() };
        let rows =
            self.manager.checkpoints().list(&Filter { limit: Some(ROWS_MAX), ..filter.clone() }).ok()?;
        let all = Filter { workspace: None, plan_id: None, ..filter };
        let ids =
            self.manager.checkpoints().list_ids(&Filter { role: safepoint::RoleFilter::Any, ..all }).ok()?;
        let letters = unique_letters(ids.iter().map(ToString::to_string).collect());
        let now = Surroundings::now();
        let mut found = Vec::new();
        if begun.is_empty() && !rows.is_empty() {
            found.push(candidate("@", "the newest checkpoint"));
        }
        for row in rows {
            let id: String = row.id.to_string().chars().take(letters).collect();
            let (label, age) = (row.label.unwrap_or_default(), ago(now, row.created_at));
            let plain = |letter: char| letter.is_alphanumeric() || "._-+,".contains(letter);
            if !begun.is_empty() && !label.is_empty() && label.chars().all(plain) {
                found.push(candidate(label.as_str(), format!("{id}, {age}")));
            }
            found.push(candidate(id, if label.is_empty() { age } else { format!("{label}, {age}") }));
        }
        Some(found)
    }

    fn remotes(&self) -> Option<Vec<Candidate>> {
        let remotes = self.manager.remotes().list().ok()?;
        Some(remotes.into_iter().map(|remote| candidate(remote.name, remote.bytes)).collect())
    }

    fn plans(&self) -> Option<Vec<Candidate>> {
        let plans =
            self.manager.plans().list(self.workspace.as_ref()).ok()?.into_iter().take(ROWS_MAX as usize);
        Some(
            plans
                .map(|plan| candidate(plan.id, format!("{}, {}", plan.title, plan.state.as_str())))
                .collect(),
        )
    }

    fn sessions(&self) -> Option<Vec<Candidate>> {
        let sessions = self.manager.sessions().list(None, Some(ROWS_MAX)).ok()?;
        let row = |session: safepoint::model::session::Session| {
            candidate(session.id.to_uuid(), format!("{}, {}", session.request, session.status))
        };
        Some(sessions.into_iter().map(row).collect())
    }

    fn agents(&self) -> Option<Vec<Candidate>> {
        let agents = self.manager.agents().list().ok()?.into_iter().take(ROWS_MAX as usize);
        Some(agents.map(|record| candidate(record.agent.name, "")).collect())
    }
}
