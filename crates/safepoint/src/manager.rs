//! The manager: one open home, and the workspaces registered in it.

use crate::checkpoint::records::CatalogStanding;
use crate::config::{self, Broken, CONFIG_BYTES_MAX, ConfigError, ConfigFile, Effective};
use crate::environment::{Environment, SystemEnvironment};
use crate::handles::{Checkpoints, Upkeep, Workspaces};
use crate::home::{Access, Home, HomeOwner, Scratch};
use crate::parts::outside::PartProvider;
use crate::plans::room::room_around;
use crate::rollback::recover::RecoveryLog;
use crate::threads::recall::Recall;
use crate::threads::room::Room;
use crate::threads::save::Saves;
use crate::{Error, checkpoint::find};
use safepoint_catalog::{Catalog, CatalogError, Filter, Summary, Workspace};
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::checkpoint::Checkpoint;
use safepoint_model::reference::Reference;
use safepoint_model::retention::Policy;
use safepoint_model::rollback::Rollback;
use safepoint_model::{CheckpointId, RelPath, WorkspaceId};
use safepoint_store::{Store, Usage, Using};
use safepoint_workspace::{
    Capabilities, Intruder, Lock, Obstacle, RoomMount, Root, SmallFile, WorkspaceError, is_in_a_home,
    is_made_up, room_mounts,
};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Manager settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Maximum wait for another Safepoint at the same workspace.
    pub lock_wait: Duration,
    /// Patterns to leave out of every capture, in gitignore's syntax; those of the configuration come on top.
    pub excludes: Vec<String>,
    /// Folders that are not taken as a workspace unless forced: the user's home directory.
    pub refused_roots: Vec<PathBuf>,
    /// Maximum size of the home in bytes; derived from the disk if `None`.
    pub cap_bytes: Option<u64>,
    /// Retention policy; that of the configuration if `None`.
    pub retention: Option<Policy>,
    /// The session that checkpoints belong to where nothing else is said, and for which steps, decisions and rollbacks are counted.
    pub session_id: Option<String>,
    /// A run of a plan takes an emergency checkpoint when the disk has less room than this.
    pub low_disk_bytes: u64,
    /// Open-file limit for plan commands, if lower than that of this process.
    pub open_files: Option<u64>,
    /// Do not use more of the file system than this, even where it could do more.
    pub capabilities: Capabilities,
    /// Maximum lock time on a SQLite database that is read. One that takes longer is copied by `database_helper`.
    pub database_hold: Duration,
    /// A program, with its first arguments, that calls [`back_up_database`](crate::back_up_database) with the two paths that follow. It copies
    /// SQLite databases that are too large to be read while they are locked; without it such a database is unsettled while a program has it open.
    pub database_helper: Vec<OsString>,
    /// A program, with its first arguments, that calls [`enter_room`](safepoint_workspace::enter_room) with the words that follow.
    /// Without it, attempts are copies.
    pub room_helper: Vec<OsString>,
    /// A program, with its first arguments, that publishes the workspace in its current directory after the time that follows, and ends
    /// itself. Without it nothing is published without being asked.
    pub publish_helper: Vec<OsString>,
    /// Requested access to the home.
    pub access: Access,
    /// Whose home may be written.
    pub home_owner: HomeOwner,
    /// Kinds of parts that your program brings.
    pub parts: Vec<Arc<dyn PartProvider>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lock_wait: Duration::from_secs(10),
            excludes: Vec::new(),
            refused_roots: Vec::new(),
            cap_bytes: None,
            retention: None,
            session_id: None,
            low_disk_bytes: 256 << 20,
            open_files: None,
            capabilities: Capabilities::default(),
            database_hold: Duration::from_millis(200),
            database_helper: Vec::new(),
            room_helper: Vec::new(),
            publish_helper: Vec::new(),
            access: Access::default(),
            home_owner: HomeOwner::default(),
            parts: Vec::new(),
        }
    }
}

/// Makes checkpoints and brings them back. See the [crate's page](crate) for how it is used.
pub struct CheckpointManager {
    pub(crate) home: Home,
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    pub(crate) environment: Box<dyn Environment>,
    pub(crate) settings: Settings,
    pub(crate) standing: Mutex<CatalogStanding>,
    /// Results of recoveries, for a caller whose verb failed.
    pub(crate) recovered: Mutex<RecoveryLog>,
    /// Saves of threads that share a transaction.
    pub(crate) saves: Saves,
    /// Values of threads in memory.
    pub(crate) recall: Recall,
    /// Space that saves of threads may take.
    pub(crate) room: Room,
    /// Bytes of pieces that this process added to the catalog since it last counted them.
    pub(crate) chunk_bytes: AtomicU64,
    /// Rooms of attempts that this process is in.
    pub(crate) inside: Vec<RoomMount>,
    /// The folder of a catalog that is deleted afterwards.
    pub(crate) _scratch: Option<Scratch>,
}

/// A workspace that is open and belongs to this process alone.
pub(crate) struct Held {
    pub(crate) root: Root,
    _lock: Lock,
    /// Nothing that is in the store now is collected while we work with it.
    _using: Using,
}

impl CheckpointManager {
    /// Opens a home, making it where it is missing.
    ///
    /// # Errors
    /// When the folder cannot be used, or store or catalog cannot be opened.
    pub fn open(home: &Path) -> Result<Self, Error> {
        Self::open_with(home, Settings::default(), Box::new(SystemEnvironment::default()))
    }

    /// The same, with settings and an environment.
    ///
    /// # Errors
    /// As [`CheckpointManager::open`].
    pub fn open_with(
        home: &Path,
        settings: Settings,
        environment: Box<dyn Environment>,
    ) -> Result<Self, Error> {
        let home = Home::open(home, settings.access, settings.home_owner)?;
        let store = match home.is_writable() {
            true => Store::open(&home.store())?,
            false => Store::open_to_read(&home.store())?,
        };
        Self::assemble(home, store, settings, environment)
    }

    /// Opens the catalog beside a store that is open, and sees whether the two belong together.
    pub(crate) fn assemble(
        home: Home,
        store: Store,
        settings: Settings,
        environment: Box<dyn Environment>,
    ) -> Result<Self, Error> {
        let catalog = match home.is_writable() {
            true => Catalog::open(&home.catalog())?,
            false => Catalog::open_to_read(&home.catalog())?,
        };
        let standing = Mutex::default();
        let recovered = Mutex::default();
        let (saves, chunk_bytes) = (Saves::default(), AtomicU64::default());
        let manager = Self {
            home,
            store,
            catalog,
            environment,
            settings,
            standing,
            recovered,
            saves,
            recall: Recall::default(),
            room: Room::default(),
            chunk_bytes,
            inside: room_mounts(),
            _scratch: None,
        };
        manager.recognise_catalog()?;
        Ok(manager)
    }

    /// The folder with the store and the catalog.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns true if the home is writable. In a read-only home, crash recovery does not run either.
    pub fn is_writable(&self) -> bool {
        self.home.is_writable()
    }

    /// Registers a folder as this kind. A project stays a project.
    pub(crate) fn register_as(&self, path: &Path, kind: WorkspaceKind) -> Result<Workspace, Error> {
        let path = canonical(path)?;
        if path != self.home.path() || kind == WorkspaceKind::Project {
            check_place(&path)?;
        }
        if kind == WorkspaceKind::Project
            && let Some(place) = self.workspaces().of_room(&path)?
        {
            // Below the root, a workspace would have the history and the lock of a folder of the project.
            let is_root = self.inside.iter().any(|mount| path == mount.project || path == mount.tree);
            return if is_root { Ok(place) } else { self.refuse_inside().map(|()| place) };
        }
        Root::open(&path)?;
        let name =
            path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        let workspace = Workspace {
            id: WorkspaceId::from_bits(self.environment.new_id()),
            root: path.as_os_str().as_bytes().to_vec(),
            name,
            created_at: self.environment.now(),
            head: None,
            removed_at: None,
            kind,
        };
        self.catalog.write(|transaction| match transaction.workspace_at(&workspace.root)? {
            Some(known) if known.kind == WorkspaceKind::Agent && kind == WorkspaceKind::Project => {
                transaction.set_workspace_kind(known.id, kind)?;
                Ok(Workspace { kind, ..known })
            }
            Some(known) => Ok(known),
            None if kind == WorkspaceKind::Project
                && let Some(known) =
                    transaction.revive_workspace(&workspace.root, workspace.created_at)? =>
            {
                Ok(known)
            }
            None => {
                transaction.register_workspace(&workspace)?;
                Ok(workspace)
            }
        })
    }

    /// Every rollback of a workspace, oldest first, failed ones too.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn rollbacks(&self, workspace: &Workspace) -> Result<Vec<Rollback>, Error> {
        Ok(self.catalog.rollbacks(workspace.id)?)
    }

    /// The configuration that holds: everywhere, or in this workspace.
    ///
    /// # Errors
    /// When the workspace cannot be opened, or one of the two files cannot be understood.
    pub fn config(&self, workspace: Option<&Workspace>) -> Result<Effective, Error> {
        let root = workspace.map(|workspace| Root::open(workspace.root_path())).transpose()?;
        self.config_at(root.as_ref(), Broken::Refused)
    }

    pub(crate) fn config_at(&self, root: Option<&Root>, broken: Broken) -> Result<Effective, Error> {
        let failed = |file| move |source| ConfigError::Read { file, source };
        let home = self.home.read_config().map_err(failed(ConfigFile::Home))?;
        let workspace = match root {
            Some(root) => self.read_settings(root)?.map_err(failed(ConfigFile::Workspace)),
            None => Ok(SmallFile::Missing),
        };
        Ok(config::load(home, workspace, &self.settings.excludes, broken)?)
    }

    /// Reads the configuration of a workspace. The sandbox of a plan that is an overlay has it in its layer, else in the project.
    fn read_settings(&self, root: &Root) -> Result<io::Result<SmallFile>, Error> {
        let read = |root: &Root| root.read_small(ConfigFile::Workspace.name(), CONFIG_BYTES_MAX);
        let found = read(root);
        if !matches!(found, Ok(SmallFile::Missing)) || room_around(root.path()).is_none() {
            return Ok(found);
        }
        let workspace = self.catalog.workspace_at(root.path().as_os_str().as_bytes())?;
        let room = workspace.map(|workspace| self.room_of_plan(&workspace)).transpose()?.flatten();
        let Some(room) = room else { return Ok(found) };
        Ok(match read(&Root::open(&room.folder.layer())?) {
            Ok(SmallFile::Missing) => read(&Root::open(room.project.root_path())?),
            // A whiteout: the steps deleted it.
            Ok(SmallFile::NotAFile) => Ok(SmallFile::Missing),
            own => own,
        })
    }

    pub(crate) fn probe(&self, root: &Root) -> Result<Capabilities, Error> {
        root.check_own_folder()?;
        let found = Capabilities::probe(root).map_err(|source| match source.kind() {
            // New content has to be written there first, so a root that forbids it is in the way like any other.
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                WorkspaceError::Obstructed(vec![Obstacle::ReadOnly(RelPath::root())])
            }
            _ => WorkspaceError::Stage { path: RelPath::root(), source },
        })?;
        Ok(found.and(self.settings.capabilities))
    }

    /// Opens the workspace for this process alone.
    pub(crate) fn hold(&self, workspace: &Workspace) -> Result<Held, Error> {
        let root = Root::open(workspace.root_path())?;
        let lock = match self.overlay_room(workspace)? {
            // The mount point is another directory in each namespace, and the one above it the same in all.
            Some(room) => Root::open(&room.place())?.lock(self.settings.lock_wait)?,
            None => root.lock(self.settings.lock_wait)?,
        };
        // A repair under the same lock may have merged it into another workspace.
        let now = self.catalog.workspace_at(&workspace.root)?;
        if now.is_some_and(|now| now.id != workspace.id) {
            return Err(CatalogError::Replaced { path: self.home.catalog() }.into());
        }
        Ok(Held { root, _lock: lock, _using: self.store.using()? })
    }

    /// Path of Safepoint's home in the workspace, if inside.
    pub(crate) fn own_folders(&self, root: &Root) -> Vec<RelPath> {
        let below = self.home.path().strip_prefix(root.path()).ok();
        below.and_then(|below| RelPath::new(below.as_os_str().as_bytes()).ok()).into_iter().collect()
    }
}

impl Workspaces<'_> {
    /// Registers a folder as a workspace, or finds it among those that are.
    ///
    /// # Errors
    /// When it cannot be opened, or is one that is only taken when forced (`/`, the home directory).
    pub fn register(&self, path: &Path) -> Result<Workspace, Error> {
        let path = canonical(path)?;
        if path == Path::new("/") {
            return Err(Error::RefusedRoot { path, why: "it is the root of the whole system" });
        }
        if self.manager.settings.refused_roots.contains(&path) {
            return Err(Error::RefusedRoot {
                path,
                why: "it is a home directory, with far more in it than one project",
            });
        }
        if self.manager.home.path() == path {
            return Err(Error::RefusedRoot { path, why: "it is Safepoint's own home" });
        }
        self.register_anyway(&path)
    }

    /// Registers a folder even where [`Workspaces::register`] would not.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn register_anyway(&self, path: &Path) -> Result<Workspace, Error> {
        self.manager.register_as(path, WorkspaceKind::Project)
    }

    /// The workspace that is registered at this folder or, nearest first, above it.
    ///
    /// # Errors
    /// When the folder does not exist or the catalog cannot be read.
    pub fn around(&self, path: &Path) -> Result<Option<Workspace>, Error> {
        let path = canonical(path)?;
        if let Some(workspace) = self.of_room(&path)? {
            return Ok(Some(workspace));
        }
        for above in path.ancestors() {
            match self.manager.catalog.workspace_at(above.as_os_str().as_bytes())? {
                Some(workspace) if workspace.kind == WorkspaceKind::Project => return Ok(Some(workspace)),
                // The mount point of an overlay is empty outside of its namespace. That of a plan stands for its sandbox.
                Some(workspace)
                    if workspace.kind == WorkspaceKind::Attempt
                        && (self.manager.overlay_room(&workspace)?.is_none()
                            || self.manager.room_of_plan(&workspace)?.is_some()) =>
                {
                    return Ok(Some(workspace));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Every registered project workspace.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self) -> Result<Vec<Workspace>, Error> {
        let mut workspaces = self.manager.catalog.workspaces()?;
        workspaces.retain(|workspace| workspace.kind == WorkspaceKind::Project);
        Ok(workspaces)
    }

    /// The workspace as it is on record now.
    ///
    /// # Errors
    /// When the catalog cannot be read, or it is not on record.
    pub fn get(&self, id: WorkspaceId) -> Result<Workspace, Error> {
        let missing = || Error::NoWorkspace { path: PathBuf::from(id.to_string()) };
        self.manager.catalog.workspace(id)?.ok_or_else(missing)
    }

    /// Capabilities of a workspace's file system.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn capabilities(&self, workspace: &Workspace) -> Result<Capabilities, Error> {
        let held = self.manager.hold(workspace)?;
        self.manager.probe(&held.root)
    }

    /// Content of a file as it is now. Nothing if it is missing, no regular file, or longer than this. No link is followed.
    ///
    /// # Errors
    /// When the workspace or the file cannot be read.
    pub fn read_file(
        &self,
        workspace: &Workspace,
        path: &RelPath,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        let root = Root::open(workspace.root_path())?;
        match root.read_file(path, bytes_max) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            result => result.map_err(|source| WorkspaceError::Read { path: path.clone(), source }.into()),
        }
    }

    /// Everything in a workspace that has the name of Safepoint's own folder, or lies in it, and is not Safepoint's.
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub fn intruders(&self, workspace: &Workspace) -> Result<Vec<Intruder>, Error> {
        Ok(Root::open(workspace.root_path())?.intruders()?)
    }
}

impl Checkpoints<'_> {
    /// Checkpoints, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Checkpoint>, Error> {
        Ok(self.manager.catalog.checkpoints(filter)?)
    }

    /// Their ids alone, newest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn list_ids(&self, filter: &Filter) -> Result<Vec<CheckpointId>, Error> {
        Ok(self.manager.catalog.checkpoint_ids(filter)?)
    }

    /// Counts over checkpoints.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn summary(&self, filter: &Filter) -> Result<Summary, Error> {
        Ok(self.manager.catalog.summary(filter)?)
    }

    /// The checkpoint that a reference names.
    ///
    /// # Errors
    /// When none or several have the name.
    pub fn find(&self, workspace: Option<&Workspace>, reference: &str) -> Result<Checkpoint, Error> {
        let parsed: Reference = reference.parse()?;
        find::one(&self.manager.catalog, workspace.map(|workspace| workspace.id), reference, &parsed)
    }
}

impl Upkeep<'_> {
    /// Size of the store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn usage(&self) -> Result<Usage, Error> {
        Ok(self.manager.store.usage()?)
    }
}

/// Refuses paths that cannot be a workspace.
pub(crate) fn check_place(path: &Path) -> Result<(), Error> {
    let refused = |why| Err(Error::RefusedRoot { path: path.to_owned(), why });
    match () {
        () if is_made_up(path) => refused("it is on a virtual file system and cannot be captured"),
        () if is_in_a_home(path) => refused("it is a home of Safepoint, or in one"),
        () => Ok(()),
    }
}

pub(crate) fn canonical(path: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path)
        .map_err(|source| Error::Workspace(WorkspaceError::Open { path: path.to_owned(), source }))
}
