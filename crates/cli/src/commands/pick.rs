//! Choice of a checkpoint on a terminal: a list that is filtered while the user types, with the changes of the selected one.

use crate::commands::Context;
use crate::commands::naming::Naming;
use crate::context::{Surroundings, can_move_the_cursor};
use crate::problem::Problem;
use crate::render::terminal::{ago, counted, printable, shortened, width};
use crate::render::{consent, fold::folded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use safepoint::model::CheckpointId;
use safepoint::model::change::ChangeKind;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{Against, CheckpointManager, Progress, Silent, Workspace};
use std::collections::HashMap;
use std::io::{self, Write};

/// Rows that are shown at once.
const ROWS: usize = 10;
/// Changes of the selected checkpoint that are shown.
const CHANGES: usize = 5;
/// Longest filter.
const FILTER_MAX: usize = 100;
/// Time in which the rest of a key arrives.
const KEY_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Returns true if a person can choose here.
pub(crate) fn can_pick(context: &Context) -> bool {
    consent::can_ask(context) && !context.out.quiet
}

/// Lets the user choose one of these, newest first; nothing where the user chooses none.
pub(crate) fn pick(
    context: &Context,
    manager: &CheckpointManager,
    workspace: Option<&Workspace>,
    checkpoints: &[Checkpoint],
) -> Result<Option<Checkpoint>, Problem> {
    if checkpoints.is_empty() {
        return Ok(None);
    }
    let naming = Naming::among(&context.out, manager, workspace, checkpoints)?;
    let mut picker = Picker {
        context,
        manager,
        workspace,
        naming,
        all: checkpoints,
        filter: String::new(),
        selected: 0,
        changes: HashMap::new(),
    };
    if can_move_the_cursor() { picker.with_keys() } else { picker.by_number() }
}

struct Picker<'a> {
    context: &'a Context,
    manager: &'a CheckpointManager,
    workspace: Option<&'a Workspace>,
    naming: Naming,
    all: &'a [Checkpoint],
    filter: String,
    selected: usize,
    changes: HashMap<CheckpointId, Vec<String>>,
}

/// A key that counts.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Text(String),
    Erase,
    Up,
    Down,
    Choose,
    Cancel,
    Other,
}

impl Picker<'_> {
    /// For terminals that understand lines alone.
    fn by_number(&self) -> Result<Option<Checkpoint>, Problem> {
        let lines: Vec<String> =
            (1..).zip(self.all).map(|(at, it)| format!("{at:>3}  {}", self.row(it))).collect();
        lines.iter().for_each(|line| self.context.out.line(line));
        let typed = consent::line(self.context, "Which one? A number, an id, or Enter for none:")?;
        if typed.is_empty() {
            return Ok(None);
        }
        let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match number.and_then(|number| self.all.get(number)) {
            Some(chosen) => Ok(Some(chosen.clone())),
            None => self.context.checkpoint(self.manager, self.workspace, &typed, None).map(Some),
        }
    }

    fn with_keys(&mut self) -> Result<Option<Checkpoint>, Problem> {
        self.context.out.flush();
        let Some(keys) = Keys::begin() else { return self.by_number() };
        let mut drawn = 0;
        loop {
            drawn = self.draw(drawn);
            let key = self.context.out.waiting(|| keys.next(self.context))?;
            let count = self.matching().len();
            match key {
                Key::Text(text) if self.filter.len() < FILTER_MAX => {
                    self.filter.push_str(&text);
                    self.selected = 0;
                }
                Key::Erase => {
                    self.filter.pop();
                    self.selected = 0;
                }
                Key::Up => self.selected = self.selected.saturating_sub(1),
                Key::Down => self.selected = (self.selected + 1).min(count.saturating_sub(1)),
                Key::Choose if count > 0 => {
                    clear(drawn);
                    return Ok(self.matching().get(self.selected).map(|chosen| (*chosen).clone()));
                }
                Key::Cancel => {
                    clear(drawn);
                    return Ok(None);
                }
                Key::Text(_) | Key::Choose | Key::Other => {}
            }
        }
    }

    fn matching(&self) -> Vec<&Checkpoint> {
        let wanted = self.filter.to_lowercase();
        let fits = |it: &&Checkpoint| self.row(it).to_lowercase().contains(&wanted);
        self.all.iter().filter(fits).collect()
    }

    fn row(&self, checkpoint: &Checkpoint) -> String {
        let age = ago(Surroundings::now(), checkpoint.created_at);
        format!("{}  {age:14}  {}", self.naming.id(checkpoint.id), self.naming.label(checkpoint))
    }

    /// Draws the list over the one before it. Returns its lines.
    fn draw(&mut self, before: usize) -> usize {
        let matching = self.matching();
        let first = self.selected.saturating_sub(ROWS - 1);
        let mut lines = vec![format!("Filter: {}", printable(&self.filter))];
        for (at, checkpoint) in matching.iter().enumerate().skip(first).take(ROWS) {
            let mark = if at == self.selected { ">" } else { " " };
            lines.push(format!("{mark} {}", self.row(checkpoint)));
        }
        lines.push(format!(
            "  {} of {}; arrows move, Enter chooses, Esc cancels",
            matching.len(),
            counted(self.all.len() as u64, "checkpoint", "checkpoints")
        ));
        let selected = matching.get(self.selected).map(|checkpoint| (*checkpoint).clone());
        lines.extend(selected.map(|selected| self.changes_of(&selected)).unwrap_or_default());
        clear(before);
        let wide = width().saturating_sub(1);
        let text: String = lines.iter().map(|line| format!("{}\n", shortened(line, wide))).collect();
        let mut errors = io::stderr();
        let _ = errors.write_all(text.as_bytes()).and_then(|()| errors.flush());
        lines.len()
    }

    /// The changes since the checkpoint before it. That they cannot be read hides nothing.
    fn changes_of(&mut self, checkpoint: &Checkpoint) -> Vec<String> {
        if let Some(known) = self.changes.get(&checkpoint.id) {
            return known.clone();
        }
        let lines = self.compared(checkpoint).unwrap_or_default();
        self.changes.insert(checkpoint.id, lines.clone());
        lines
    }

    fn compared(&self, checkpoint: &Checkpoint) -> Option<Vec<String>> {
        let parent = self.manager.checkpoints().get(checkpoint.parent?).ok()?;
        let new = Against::Checkpoint(Box::new(checkpoint.clone()));
        let changes = self.manager.diff(self.workspace?, &parent, &new, &Silent).ok()?.changes;
        let lines = folded(changes.iter().map(|change| (&change.path, change.kind)));
        let mut shown: Vec<String> = lines
            .iter()
            .take(CHANGES)
            .map(|line| {
                let change = &changes[line.item];
                let sign = match change.kind {
                    ChangeKind::Added => '+',
                    ChangeKind::Removed => '-',
                    ChangeKind::Modified | ChangeKind::Type | ChangeKind::Mode => '~',
                };
                format!("    {sign} {}{}", printable(&change.path.to_string()), line.tail())
            })
            .collect();
        if lines.len() > CHANGES {
            shown.push(format!("    and {} more", lines.len() - CHANGES));
        }
        Some(shown)
    }
}

/// Takes lines off the screen that were just drawn.
fn clear(lines: usize) {
    if lines > 0 {
        let mut errors = io::stderr();
        let _ = write!(errors, "\r\u{1b}[{lines}A\u{1b}[J").and_then(|()| errors.flush());
    }
}

/// Standard input, key by key. The terminal is as before when this is dropped.
struct Keys {
    before: Termios,
}

impl Keys {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut now = before.clone();
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &now).ok()?;
        Some(Self { before })
    }

    /// The next key. A wish to stop is heard during the wait.
    fn next(&self, context: &Context) -> Result<Key, Problem> {
        loop {
            if context.progress.interrupted() {
                return Err(Problem::interrupted("Run it again when you like."));
            }
            if is_ready(&LOOK_EVERY) {
                break;
            }
        }
        let Some(first) = byte() else { return Ok(Key::Cancel) };
        Ok(match first {
            b'\n' | b'\r' => Key::Choose,
            0x7f | 0x08 => Key::Erase,
            0x10 => Key::Up,
            0x0e => Key::Down,
            0x04 => Key::Cancel,
            0x1b => escape(),
            0x20..=0x7e => Key::Text(char::from(first).to_string()),
            0xc2..=0xf4 => letter(first),
            _ => Key::Other,
        })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn is_ready(wait: &Timespec) -> bool {
    let stdin = io::stdin();
    poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(wait)).is_ok_and(|count| count > 0)
}

/// One byte and no more: what follows may be the answer to a question.
fn byte() -> Option<u8> {
    let mut byte = [0];
    matches!(rustix::io::read(io::stdin(), &mut byte), Ok(1)).then_some(byte[0])
}

/// The rest of an escape sequence; the key Esc where there is none.
fn escape() -> Key {
    if !is_ready(&KEY_WAIT) {
        return Key::Cancel;
    }
    match byte() {
        Some(b'[' | b'O') => {}
        _ => return Key::Other,
    }
    // Parameters, then one letter.
    for _ in 0..16 {
        match is_ready(&KEY_WAIT).then(byte).flatten() {
            Some(b'A') => return Key::Up,
            Some(b'B') => return Key::Down,
            Some(b'0'..=b'9' | b';') => {}
            _ => return Key::Other,
        }
    }
    Key::Other
}

/// A letter of several bytes.
fn letter(first: u8) -> Key {
    let more = match first {
        0xc2..=0xdf => 1,
        0xe0..=0xef => 2,
        _ => 3,
    };
    let mut bytes = vec![first];
    for _ in 0..more {
        match is_ready(&KEY_WAIT).then(byte).flatten() {
            Some(byte) => bytes.push(byte),
            None => return Key::Other,
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => Key::Text(text),
        _ => Key::Other,
    }
}
