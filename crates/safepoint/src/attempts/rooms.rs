//! Rooms: where they lie, how a command enters them, and how they are deleted.

#![allow(clippy::disallowed_methods, reason = "this module prepares the command of an attempt")]

use crate::handles::Attempts;
use crate::home::{Home, RoomDraft, folder_beside};
use crate::plans::apply::git_refs;
use crate::upkeep::space::AttemptSpace;
use crate::warning::cause;
use crate::{CheckpointManager, Error};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use safepoint_catalog::Workspace;
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::attempt::{Attempt, AttemptKind, AttemptState};
use safepoint_model::id::AttemptId;
use safepoint_workspace::{
    Outside, RoomEntry, RoomFolder, RoomLock, RoomProcess, RoomRefused, Root, marked_processes,
    room_processes,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time that processes get to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);

/// File of a room with the refs of the repository at the start: a value and a name in each line.
const REFS: &str = "refs";

/// Names of refs, each with its value.
type Refs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Handling of refs that only the `.git` of an attempt has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnRefs {
    /// The room stays with them.
    Kept,
    /// They are deleted with the room.
    Deleted,
}

/// Room that is being made.
pub(crate) struct NewRoom {
    pub(crate) draft: RoomDraft,
    pub(crate) folder: RoomFolder,
    pub(crate) kind: Option<AttemptKind>,
    /// Reasons why it is no overlay.
    pub(crate) refused: Vec<String>,
}

impl CheckpointManager {
    /// Makes the room of an attempt, and tries out an overlay in it: in the home, if that is on the project's file system; beside the
    /// project; then in the home in any case. Where none can be mounted, `kind` is left open.
    pub(crate) fn make_attempt_room(
        &self,
        id: AttemptId,
        root: &Root,
        is_copy: bool,
    ) -> Result<NewRoom, Error> {
        let failed = |source| Error::Home { path: self.home().to_owned(), source };
        let draft = self.home.make_attempt_folder(&id.to_string()).map_err(failed)?;
        let name = root.path().file_name().unwrap_or(OsStr::new("")).to_owned();
        let own = RoomFolder::new(draft.path(), &name);
        let mut refused = Vec::new();
        if is_copy {
            own.make_around().map_err(failed)?;
            return Ok(NewRoom { draft, folder: own, kind: None, refused });
        }
        if self.settings.room_helper.is_empty() {
            refused.push("no program is set that could enter a namespace".to_owned());
        } else {
            let beside = folder_beside(root.path(), self.home());
            let beside = beside.filter(|beside| matches!(self.workspaces().around(beside), Ok(None)));
            if let Some(beside) = beside {
                let path = Home::make_room_beside(&draft, &id.to_string(), &beside);
                let tried = path.map_err(|error| error.to_string()).and_then(|path| {
                    let folder = RoomFolder::new(&path, &name);
                    self.try_room(id, root, &folder).map(|()| folder)
                });
                match tried {
                    Ok(folder) => {
                        return Ok(NewRoom { draft, folder, kind: Some(AttemptKind::Overlay), refused });
                    }
                    Err(why) => refused.push(why),
                }
            }
            match self.try_room(id, root, &own) {
                Ok(()) => {
                    return Ok(NewRoom { draft, folder: own, kind: Some(AttemptKind::Overlay), refused });
                }
                Err(why) => refused.push(why),
            }
            // What the trial left is no part of a copy.
            let _ = self.home.remove_room(&id.to_string());
            drop(draft);
            let draft = self.home.make_attempt_folder(&id.to_string()).map_err(failed)?;
            own.make_around().map_err(failed)?;
            return Ok(NewRoom { draft, folder: own, kind: None, refused });
        }
        own.make_around().map_err(failed)?;
        Ok(NewRoom { draft, folder: own, kind: None, refused })
    }

    /// Mounts an overlay and ends. The error is a sentence.
    fn try_room(&self, id: AttemptId, root: &Root, folder: &RoomFolder) -> Result<(), String> {
        folder.make(root).map_err(|error| cause(error).message)?;
        let entry = RoomEntry {
            attempt: id.to_string(),
            project: root.path().to_owned(),
            room: folder.clone(),
            directory: root.path().to_owned(),
            outside: Outside::Real,
            command: Vec::new(),
        };
        let ended = self
            .room_command(&entry)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match (folder.take_refused(), ended) {
            (Some(RoomRefused { step, source }), _) => Err(format!("cannot {step}: {source}")),
            (None, Ok(status)) if status.success() => Ok(()),
            (None, Ok(status)) => Err(format!("the trial of an overlay ended with {status}")),
            (None, Err(error)) => Err(format!("cannot start the trial of an overlay: {error}")),
        }
    }

    /// Returns the words of the process that enters a room and becomes the command.
    pub(crate) fn room_words(&self, entry: &RoomEntry) -> Vec<OsString> {
        self.settings.room_helper.iter().cloned().chain(entry.to_words()).collect()
    }

    fn room_command(&self, entry: &RoomEntry) -> Command {
        let words = self.room_words(entry);
        let (program, rest) =
            words.split_first().map_or((OsStr::new(""), &[][..]), |(first, rest)| (first, rest));
        let mut command = Command::new(program);
        command.args(rest);
        command
    }

    /// Returns the room of an attempt, if the workspace is that of one with an overlay.
    pub(crate) fn overlay_room(&self, workspace: &Workspace) -> Result<Option<RoomFolder>, Error> {
        if workspace.kind != WorkspaceKind::Attempt {
            return Ok(None);
        }
        let attempt = self.catalog.attempt_at(workspace.id)?;
        let overlay = attempt.filter(|attempt| attempt.kind == AttemptKind::Overlay);
        Ok(overlay.map(|attempt| RoomFolder::new(&attempt.room, OsStr::new(""))))
    }

    /// Returns the disk space of the layers of all attempts.
    pub(crate) fn layers_bytes(&self) -> Result<u64, Error> {
        let rooms = self.catalog.attempts_with_rooms()?;
        Ok(rooms.iter().map(|attempt| RoomFolder::new(&attempt.room, OsStr::new("")).layer_bytes()).sum())
    }

    /// Returns the disk space of all rooms.
    pub(crate) fn attempt_space(&self) -> Result<AttemptSpace, Error> {
        let mut space = AttemptSpace::default();
        for attempt in self.catalog.attempts_with_rooms()? {
            let folder = RoomFolder::new(&attempt.room, OsStr::new(""));
            space.rooms += u64::from(folder.path().is_dir());
            match attempt.kind {
                AttemptKind::Overlay => space.layer_bytes += folder.layer_bytes(),
                AttemptKind::Reflink | AttemptKind::Copy => space.copy_bytes += folder.copy_bytes(),
            }
        }
        Ok(space)
    }

    /// Deletes the rooms of closed attempts, and those that a crash left without a record. A failure waits for the next command.
    pub(crate) fn sweep_rooms(&self) -> Result<(), Error> {
        if !self.inside.is_empty() {
            return Ok(());
        }
        for (id, held) in self.home.attempt_folders().unwrap_or_default() {
            let Ok(parsed) = id.parse::<AttemptId>() else { continue };
            // The row is looked up under the lock: its maker holds it until the row is there.
            match self.catalog.attempt(parsed)? {
                None => drop(self.home.remove_room(&id)),
                Some(attempt) if attempt.state != AttemptState::Open => self.sweep_room(&attempt),
                Some(_) => {}
            }
            drop(held);
        }
        Ok(())
    }

    /// Returns true if the `.git` of an attempt has refs that neither its base nor the project has: checkpoints do not hold them.
    fn has_own_refs(&self, attempt: &Attempt) -> bool {
        let Ok(project) = self.workspaces().get(attempt.workspace_id) else { return true };
        let folder = self.room_of(attempt, &project);
        let ours = match attempt.kind {
            // A layer holds only what was written.
            AttemptKind::Overlay => named_refs(&folder.layer()),
            AttemptKind::Reflink | AttemptKind::Copy => named_refs(&folder.tree()),
        };
        let base = packed_refs(&fs::read(folder.path().join(REFS)).unwrap_or_default());
        let theirs = named_refs(project.root_path());
        ours.iter().any(|(name, value)| base.get(name) != Some(value) && theirs.get(name) != Some(value))
    }

    /// Notes the refs with which an attempt begins.
    pub(super) fn note_refs(folder: &RoomFolder, repository: &Path) {
        let mut bytes = Vec::new();
        for (name, value) in named_refs(repository) {
            bytes.extend([value.as_slice(), b" ", &name, b"\n"].concat());
        }
        // Without them the refs of the attempt are compared with those of the project alone.
        let _ = fs::write(folder.path().join(REFS), bytes);
    }

    /// Deletes the room of a closed attempt, unless another command is at it.
    fn sweep_room(&self, attempt: &Attempt) {
        // A room of which a part is deleted may have no lock any more.
        let lock = RoomFolder::new(&attempt.room, OsStr::new("")).try_lock();
        if !matches!(lock, Ok(None)) {
            self.remove_room(attempt, OwnRefs::Kept);
        }
    }

    /// Ends what runs in a closed attempt's room and deletes the room. The caller holds its lock. Returns why it stays, if it does.
    pub(crate) fn remove_room(&self, attempt: &Attempt, own_refs: OwnRefs) -> Option<String> {
        if attempt.is_removed {
            return None;
        }
        // A room that cannot be marked is missing in part; nothing can enter it.
        let _ = RoomFolder::new(&attempt.room, OsStr::new("")).close();
        end_processes(attempt);
        if own_refs == OwnRefs::Kept && self.has_own_refs(attempt) {
            return Some(format!(
                "its .git has refs that the project has not; delete them with it: safepoint attempt drop {} --delete-commits",
                attempt.number
            ));
        }
        match self.home.remove_room(&attempt.id.to_string()) {
            Ok(()) => {
                // Not on record, it costs one more look the next time.
                let _ = self.catalog.write(|transaction| transaction.note_room_removed(attempt.id));
                None
            }
            Err(error) => Some(cause(error).message),
        }
    }
}

/// Variables of a command in an attempt, by which its processes are found again.
pub(crate) fn variables(attempt: &Attempt) -> [(&'static str, String); 2] {
    [("SAFEPOINT_ATTEMPT", attempt.name.clone()), ("SAFEPOINT_ATTEMPT_NUMBER", attempt.number.to_string())]
}

/// Returns the processes in the room of an attempt, without this one.
pub(crate) fn processes_of(attempt: &Attempt) -> Vec<RoomProcess> {
    if attempt.kind != AttemptKind::Overlay {
        let marks = variables(attempt).map(|(name, value)| OsString::from(format!("{name}={value}")));
        return marked_processes(&marks, &attempt.room);
    }
    let (id, own) = (attempt.id.to_string(), std::process::id());
    let found = room_processes(&|other| other == id).into_iter().map(|(_, process)| process);
    found.filter(|process| u32::try_from(process.pid) != Ok(own)).collect()
}

/// Ends the processes in the room of this name.
pub(crate) fn end_room(name: &str) {
    end_found(&|| room_processes(&|other| other == name).into_iter().map(|(_, process)| process).collect());
}

/// Returns the refs of the repository in a folder, packed ones too. Symbolic ones hold no commit and are left out.
fn named_refs(folder: &Path) -> Refs {
    let mut files = git_refs(folder);
    let mut refs =
        files.remove(Path::new("packed-refs")).map(|bytes| packed_refs(&bytes)).unwrap_or_default();
    for (name, bytes) in files {
        let value = bytes.trim_ascii();
        if !value.starts_with(b"ref:") {
            refs.insert(name.as_os_str().as_bytes().to_vec(), value.to_vec());
        }
    }
    refs
}

/// Reads lines with a value and a name (git-pack-refs(1)). Comments, and the objects of annotated tags, are no refs.
fn packed_refs(bytes: &[u8]) -> Refs {
    let lines =
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#") && !line.starts_with(b"^"));
    let pair = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        Some((line[at + 1..].to_vec(), line[..at].to_vec()))
    };
    lines.filter_map(pair).collect()
}

/// Locks the rooms of attempts: no process enters them until this is dropped. A room that is missing has no lock.
pub(super) fn lock_rooms<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> Vec<RoomLock> {
    let mut attempts: Vec<&Attempt> = attempts.into_iter().collect();
    // Always in the same order, so that two commands never wait for each other.
    attempts.sort_by_key(|attempt| attempt.id);
    let lock = |attempt: &Attempt| RoomFolder::new(&attempt.room, OsStr::new("")).lock().ok();
    attempts.into_iter().filter_map(lock).collect()
}

/// Ends the processes in the room of an attempt: SIGTERM, then SIGKILL. Returns those that were there.
pub(super) fn end_processes(attempt: &Attempt) -> Vec<RoomProcess> {
    end_found(&|| processes_of(attempt))
}

fn end_found(find: &dyn Fn() -> Vec<RoomProcess>) -> Vec<RoomProcess> {
    let since = Instant::now();
    let met = find();
    let mut left = met.clone();
    while !left.is_empty() && since.elapsed() < 2 * GRACE {
        let signal = if since.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        for process in &left {
            if let Some(pid) = Pid::from_raw(process.pid)
                && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
                // Looked at again with the handle, so that none which took its number later is ended.
                && find().iter().any(|still| still.pid == process.pid)
            {
                let _ = pidfd_send_signal(handle.as_fd(), signal);
            }
        }
        sleep(TICK);
        left = find();
    }
    met
}

impl Attempts<'_> {
    /// Tries out which means of sharing files this machine allows for a folder. Returns true for an overlay, and the reasons against it.
    ///
    /// # Errors
    /// When the folder or the home cannot be used.
    pub fn probe(&self, folder: &Path) -> Result<(bool, Vec<String>), Error> {
        let id = AttemptId::from_bits(self.manager.environment.new_id());
        let root = Root::open(folder)?;
        let room = self.manager.make_attempt_room(id, &root, false)?;
        let found = (room.kind == Some(AttemptKind::Overlay), room.refused);
        self.manager.home.remove_room(&id.to_string())?;
        Ok(found)
    }

    /// Returns the command that runs a program in an attempt. `directory` is a folder of the project, or one outside. The caller starts
    /// it, and asks [`Attempts::refused`] if it fails.
    ///
    /// # Errors
    /// When the attempt is closed, its room is missing, or it is a copy and the rest of the file system is to be read-only.
    pub fn command(
        &self,
        project: &Workspace,
        attempt: &Attempt,
        words: &[OsString],
        (directory, outside): (&Path, Outside),
    ) -> Result<Command, Error> {
        self.must_be_open(attempt)?;
        let folder = self.manager.room_of(attempt, project);
        if !folder.tree().is_dir() {
            return Err(Error::RoomMissing { name: attempt.name.clone(), path: attempt.room.clone() });
        }
        self.manager.recover_room(attempt)?;
        let mut command = match attempt.kind {
            AttemptKind::Overlay => self.manager.room_command(&RoomEntry {
                attempt: attempt.id.to_string(),
                project: project.root_path().to_owned(),
                room: folder.clone(),
                directory: directory.to_owned(),
                outside,
                command: words.to_vec(),
            }),
            AttemptKind::Reflink | AttemptKind::Copy if outside != Outside::Real => {
                return Err(Error::Room {
                    name: attempt.name.clone(),
                    step: "make the rest of the file system read-only: the attempt is a copy".to_owned(),
                    source: io::ErrorKind::Unsupported.into(),
                });
            }
            AttemptKind::Reflink | AttemptKind::Copy => {
                let (program, rest) = words.split_first().ok_or_else(|| Error::Room {
                    name: attempt.name.clone(),
                    step: RoomRefused::RUN.to_owned(),
                    source: io::ErrorKind::InvalidInput.into(),
                })?;
                let mut command = Command::new(program);
                let inside = match directory.strip_prefix(project.root_path()) {
                    Ok(below) => folder.tree().join(below),
                    Err(_) => directory.to_owned(),
                };
                command.args(rest).current_dir(inside);
                command
            }
        };
        command
            .envs(variables(attempt))
            .env("SAFEPOINT_HOME", self.manager.home())
            .env("TMPDIR", folder.tmp());
        Ok(command)
    }

    /// Returns why the last process could not enter the room of an attempt.
    pub fn refused(&self, project: &Workspace, attempt: &Attempt) -> Option<Error> {
        let RoomRefused { step, source } = self.manager.room_of(attempt, project).take_refused()?;
        if let Err(closed) = self.must_be_open(attempt) {
            return Some(closed);
        }
        Some(Error::Room { name: attempt.name.clone(), step, source })
    }

    /// Processes in the room of an attempt.
    pub fn processes(&self, attempt: &Attempt) -> Vec<RoomProcess> {
        processes_of(attempt)
    }

    /// Refuses an attempt that is closed by now.
    pub(super) fn must_be_open(&self, attempt: &Attempt) -> Result<(), Error> {
        let name = || attempt.name.clone();
        let now = self.manager.catalog.attempt(attempt.id)?;
        match now.ok_or_else(|| Error::NoAttempt { name: name() })?.state {
            AttemptState::Open => Ok(()),
            state => Err(Error::AttemptClosed { name: name(), state }),
        }
    }
}
