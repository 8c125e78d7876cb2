//! START: the room, the base checkpoint, and the row. The last is the commit: a crash before it leaves a folder that the next command deletes.

use super::capture::Given;
use super::rooms::NewRoom;
use crate::config::Broken;
use crate::handles::Attempts;
use crate::parts::files::FilesPart;
use crate::parts::part::{Captured, Part};
use crate::parts::{Member, seal};
use crate::places::Place;
use crate::rollback::recover::Recovery;
use crate::{CheckpointManager, Error};
use safepoint_catalog::{Transaction, Workspace};
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::attempt::{Attempt, AttemptKind, AttemptRun, AttemptState, check_attempt_name};
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::id::AttemptId;
use safepoint_model::{Progress, WorkspaceId};
use safepoint_workspace::{RoomFolder, Root, copy_tree};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Means of sharing the project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// An overlay where the machine allows one, else a copy.
    #[default]
    Best,
    /// A copy at another path.
    Copy,
}

/// Properties of a new attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartAttempt {
    /// Name; `try-` and its number if `None`.
    pub name: Option<String>,
    /// Means of sharing the project's files.
    pub sharing: Sharing,
}

/// An attempt that was just started.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttemptStarted {
    /// Its record.
    pub attempt: Attempt,
    /// State of the project that it began with.
    pub base: Checkpoint,
    /// Reasons why it is a copy although an overlay was wanted.
    pub refused: Vec<String>,
    /// Crash recovery that ran before.
    pub recovered: Recovery,
}

/// More rows that the transaction of a new attempt writes.
pub(crate) type Also<'a> = &'a mut dyn FnMut(&Transaction<'_>, &Attempt) -> Result<(), Error>;

impl Attempts<'_> {
    /// Starts an attempt of a project. When this returns, it is durable.
    ///
    /// # Errors
    /// When the name is taken, the project is busy or cannot be read, or this process is inside an attempt. There is no attempt then.
    pub fn start(
        &self,
        project: &Workspace,
        options: &StartAttempt,
        progress: &dyn Progress,
    ) -> Result<AttemptStarted, Error> {
        let manager = self.manager;
        manager.refuse_inside()?;
        if let Some(name) = &options.name {
            check_attempt_name(name)?;
        }
        let held = manager.hold(project)?;
        let recovered = manager.recover_held(project, &held.root, progress)?.refuse_foreign(project)?;
        if !manager.own_folders(&held.root).is_empty() {
            return Err(Error::HomeInProject { home: manager.home().to_owned() });
        }
        let id = AttemptId::from_bits(manager.environment.new_id());
        let NewRoom { draft, folder, kind, refused } =
            manager.make_attempt_room(id, &held.root, options.sharing == Sharing::Copy)?;
        let room = folder.path().to_owned();
        let kind = match kind {
            Some(kind) => kind,
            None => {
                let copied = copy_tree(&held.root, &folder.tree(), &[], progress)?;
                match copied.shared == copied.files && copied.files > 0 {
                    true => AttemptKind::Reflink,
                    false => AttemptKind::Copy,
                }
            }
        };
        let repository =
            if kind == AttemptKind::Overlay { held.root.path().to_owned() } else { folder.tree() };
        CheckpointManager::note_refs(&folder, &repository);
        let place = manager.register_room(&folder.tree(), project)?;
        let name = options.name.clone().unwrap_or_default();
        let attempt = manager.new_attempt((id, kind, name), project, (&place, &room));
        let nothing: Also<'_> = &mut |_, _| Ok(());
        let begun = match kind {
            // The project is the attempt's first state.
            AttemptKind::Overlay => manager.begin(attempt, &place, (&held.root, project), nothing, progress),
            AttemptKind::Reflink | AttemptKind::Copy => Root::open(place.root_path())
                .map_err(Error::from)
                .and_then(|root| manager.begin(attempt, &place, (&root, &place), nothing, progress)),
        };
        if begun.is_err() {
            // If that fails, too, the next command deletes it.
            let _ = manager.home.remove_room(&id.to_string());
        }
        drop(draft);
        let (attempt, base) = begun?;
        Ok(AttemptStarted { attempt, base, refused, recovered })
    }
}

impl CheckpointManager {
    /// Registers the folder in a room as a workspace. Until its attempt is on record, nothing uses it.
    fn register_room(&self, tree: &std::path::Path, project: &Workspace) -> Result<Workspace, Error> {
        let tree = crate::manager::canonical(tree)?;
        let workspace = Workspace {
            id: WorkspaceId::from_bits(self.environment.new_id()),
            root: tree.as_os_str().as_bytes().to_vec(),
            name: project.name.clone(),
            created_at: self.environment.now(),
            head: None,
            removed_at: None,
            kind: WorkspaceKind::Attempt,
        };
        // The commit of the attempt makes it durable, too.
        self.catalog.write_unflushed(|transaction| transaction.register_workspace(&workspace))?;
        Ok(workspace)
    }

    /// Begins an attempt with an overlay in a room that is made. `also` runs in the transaction that makes it exist.
    pub(crate) fn begin_in_room(
        &self,
        (id, folder, name): (AttemptId, &RoomFolder, String),
        (root, project): (&Root, &Workspace),
        also: Also<'_>,
        progress: &dyn Progress,
    ) -> Result<(Attempt, Checkpoint), Error> {
        Self::note_refs(folder, root.path());
        let place = self.register_room(&folder.tree(), project)?;
        let attempt = self.new_attempt((id, AttemptKind::Overlay, name), project, (&place, folder.path()));
        let begun = self.begin(attempt, &place, (root, project), also, progress);
        if begun.is_err() {
            // If that fails, too, the next command deletes it.
            let _ = self.home.remove_room(&id.to_string());
        }
        begun
    }

    fn new_attempt(
        &self,
        (id, kind, name): (AttemptId, AttemptKind, String),
        project: &Workspace,
        (place, room): (&Workspace, &Path),
    ) -> Attempt {
        Attempt {
            id,
            workspace_id: project.id,
            place_id: place.id,
            number: 0,
            name,
            kind,
            room: room.to_owned(),
            state: AttemptState::Open,
            base: safepoint_model::CheckpointId::from_bits(0),
            result: None,
            run: AttemptRun::default(),
            created_at: self.environment.now(),
            closed_at: None,
            is_removed: false,
        }
    }

    /// Captures the first state of an attempt and puts both on record.
    fn begin(
        &self,
        mut attempt: Attempt,
        place: &Workspace,
        (root, captured_of): (&Root, &Workspace),
        also: Also<'_>,
        progress: &dyn Progress,
    ) -> Result<(Attempt, Checkpoint), Error> {
        let act = || {
            let writer = self.store.writer()?;
            let config = self.config_at(Some(root), Broken::Refused)?;
            let part = FilesPart::new(self, root, captured_of, config.excludes);
            let mut captured = part.capture(&writer, None, progress)?;
            let mut cache = captured.cache.take();
            let mut base = self.blank(Some(place.id));
            base.label = Some("base".to_owned());
            captured.totals.added = 0;
            (captured.totals.modified, captured.totals.removed) = (0, 0);
            let given = Given { workspace: place.clone() };
            let mut member = Member::new(given, 0, None);
            member.captured = Captured { cache: None, ..captured };
            let places = [Place { workspace: place.clone(), only: None, leave: Vec::new() }];
            seal(&mut base, std::slice::from_ref(&member), &places, &writer)?;
            let stored = self.finish_with_record(writer, &mut base, &[])?;
            attempt.base = base.id;
            let attempt = self.catalog.write::<_, Error>(|transaction| {
                if transaction.has_open_attempt(attempt.workspace_id, &attempt.name)? {
                    return Err(Error::AttemptExists { name: attempt.name.clone() });
                }
                transaction.insert_checkpoint(&base)?;
                stored.note(transaction)?;
                transaction.set_head(place.id, base.id)?;
                transaction.insert_attempt(&attempt)?;
                also(transaction, &attempt)?;
                transaction
                    .attempt(attempt.id)?
                    .ok_or_else(|| Error::NoAttempt { name: attempt.name.clone() })
            })?;
            self.keep_cache(&base, &mut cache);
            Ok((attempt, base))
        };
        let mut act = act;
        let (begun, _) = self.within_cap(Some(captured_of.id), crate::DryRun::No, progress, &mut act)?;
        Ok(begun)
    }
}
