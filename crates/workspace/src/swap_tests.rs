//! Swap and undo with concurrent changes between the steps, with and without atomic exchange.

use crate::{Capabilities, Meanwhile, Root, Stage, StageOptions, Times, WorkspaceError};
use safepoint_model::content::Content;
use safepoint_model::progress::Silent;
use safepoint_model::rollback::{Expected, How, SwapStep};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, RelPath, RollbackId};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;

#[derive(Default)]
struct Memory(Mutex<HashMap<ObjectId, Vec<u8>>>);

impl ObjectSink for Memory {
    fn put(&self, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, ObjectError> {
        let id = ObjectId::of(kind, bytes);
        self.0.lock().unwrap().insert(id, bytes.to_vec());
        Ok(id)
    }

    fn put_content(&self, _: u64, reader: &mut dyn Read) -> Result<Content, ObjectError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(ObjectError::Input)?;
        self.put(ObjectKind::Chunk, &bytes)?;
        Ok(Content::whole(&bytes))
    }
}

impl ObjectSource for Memory {
    fn get(&self, _: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        self.0.lock().unwrap().get(&id).cloned().ok_or(ObjectError::Missing { id })
    }
}

/// Workspace, and the objects that rollbacks restore.
struct Desk {
    folder: tempfile::TempDir,
    root: Root,
    memory: Memory,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        Self { folder, root, memory: Memory::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn expected(&self, name: &str, mode: u16, node: Node) -> Expected {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let meta = Meta { mode, uid, gid, ..Meta::default() };
        Expected { entry: Entry { name: name.as_bytes().to_vec(), meta, node } }
    }

    fn file(&self, name: &str, content: &str) -> Expected {
        let content = self.memory.put_content(0, &mut content.as_bytes()).unwrap();
        self.expected(name, 0o644, Node::File(content))
    }

    fn folder(&self, name: &str, mode: u16) -> Expected {
        let tree = self.memory.put(ObjectKind::Tree, &Tree::new(Vec::new()).unwrap().encode()).unwrap();
        self.expected(name, mode, Node::Directory(tree))
    }

    /// Step from one content to another; `None` is no file.
    fn swap(&self, name: &str, old: Option<&str>, new: Option<&str>) -> SwapStep {
        let of = |content: Option<&str>| content.map(|content| self.file(name, content));
        SwapStep { path: RelPath::new(name).unwrap(), old: of(old), new: of(new), how: How::Swap { slot: 0 } }
    }

    /// Returns the stage of a rollback whose intent is recorded.
    fn stage(&self, steps: &[SwapStep], exchange: bool) -> Stage<'_> {
        let capabilities = Capabilities { exchange, ..Capabilities::default() };
        let options = StageOptions { capabilities, times: Times::Present };
        let id = RollbackId::from_bits(1);
        let mut stage = Stage::build(&self.root, id, steps, options, &self.memory, &Silent).unwrap();
        stage.arm().unwrap();
        stage
    }

    fn slot(&self, name: &str) -> PathBuf {
        self.path(&format!(".safepoint/apply-{}/{name}", RollbackId::from_bits(1)))
    }
}

#[test]
fn without_exchange_the_way_back_brings_the_old_from_wherever_the_swap_stopped() {
    for stopped in ["before", "between", "after", "after an edit"] {
        let desk = Desk::new();
        fs::write(desk.path("a"), "1").unwrap();
        let steps = [desk.swap("a", Some("1"), Some("2"))];
        let stage = desk.stage(&steps, false);
        match stopped {
            "before" => {}
            "between" => fs::rename(desk.path("a"), desk.slot("0.old")).unwrap(),
            _ => stage.apply(&steps).unwrap(),
        }
        if stopped == "after an edit" {
            fs::write(desk.path("a"), "edited").unwrap();
        }
        stage.undo(&steps, &desk.memory).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("1"), "{stopped}");
        let displaced = fs::read_to_string(desk.slot("0")).unwrap();
        assert_eq!(displaced, if stopped == "after an edit" { "edited" } else { "2" }, "{stopped}");
    }
}

#[test]
fn a_path_that_is_gone_before_its_swap_gets_the_new_content() {
    for exchange in [true, false] {
        let desk = Desk::new();
        fs::write(desk.path("a"), "1").unwrap();
        let steps = [desk.swap("a", Some("1"), Some("2"))];
        let stage = desk.stage(&steps, exchange);
        fs::remove_file(desk.path("a")).unwrap();
        stage.apply(&steps).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("2"));
        // The undo writes the old content again from its objects.
        stage.undo(&steps, &desk.memory).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("1"));
    }
}

#[test]
fn a_path_that_was_made_and_is_gone_again_does_not_stop_the_way_back() {
    for exchange in [true, false] {
        let desk = Desk::new();
        let steps = [desk.swap("a", None, Some("2"))];
        let stage = desk.stage(&steps, exchange);
        stage.apply(&steps).unwrap();
        fs::remove_file(desk.path("a")).unwrap();
        stage.undo(&steps, &desk.memory).unwrap();
        assert_eq!(desk.read("a"), None);
    }
}

#[test]
fn a_newcomer_at_a_path_that_is_made_is_displaced_and_comes_back() {
    for exchange in [true, false] {
        let desk = Desk::new();
        let steps = [desk.swap("a", None, Some("2"))];
        let stage = desk.stage(&steps, exchange);
        fs::write(desk.path("a"), "newcomer").unwrap();
        stage.apply(&steps).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("2"));
        stage.undo(&steps, &desk.memory).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("newcomer"));
    }
}

#[test]
fn a_folder_whose_mode_changes_may_be_gone_at_any_moment() {
    let desk = Desk::new();
    let (old, new) = (Some(desk.folder("d", 0o755)), Some(desk.folder("d", 0o711)));
    let steps = [SwapStep { path: RelPath::new("d").unwrap(), old, new, how: How::Meta }];
    let stage = desk.stage(&steps, true);
    fs::create_dir(desk.path("d")).unwrap();
    stage.apply(&steps).unwrap();
    assert_eq!(stage.verify(&steps, &desk.memory, &Silent).unwrap(), []);
    fs::remove_dir(desk.path("d")).unwrap();
    let gone = Meanwhile { path: RelPath::new("d").unwrap() };
    assert_eq!(stage.verify(&steps, &desk.memory, &Silent).unwrap(), [gone]);
    stage.apply(&steps).unwrap();
    stage.undo(&steps, &desk.memory).unwrap();
    assert!(!desk.path("d").exists());
}

#[test]
fn a_folder_that_became_a_file_stops_a_rollback_that_runs_and_not_one_that_was_found() {
    let desk = Desk::new();
    fs::create_dir(desk.path("d")).unwrap();
    fs::write(desk.path("d/a"), "1").unwrap();
    fs::write(desk.path("d/mode"), "1").unwrap();
    let mode = |mode| {
        Some(Expected {
            entry: Entry {
                meta: Meta { mode, ..desk.file("mode", "1").entry.meta },
                ..desk.file("mode", "1").entry
            },
        })
    };
    let meta = SwapStep {
        path: RelPath::new("d/mode").unwrap(),
        old: mode(0o644),
        new: mode(0o600),
        how: How::Meta,
    };
    let swap = SwapStep { path: RelPath::new("d/a").unwrap(), ..desk.swap("a", Some("1"), Some("2")) };
    let stage = desk.stage(&[swap.clone(), meta.clone()], true);
    stage.apply(&[swap.clone(), meta.clone()]).unwrap();
    fs::remove_dir_all(desk.path("d")).unwrap();
    fs::write(desk.path("d"), "a file").unwrap();
    for steps in [[swap.clone()], [meta.clone()]] {
        // It may be temporary: no step counts as done.
        let undone = stage.undo(&steps, &desk.memory);
        assert!(matches!(undone, Err(WorkspaceError::PutBack { .. })), "{undone:?}");
        assert!(stage.sync(&steps).is_err());
    }
    let found = Stage::open(&desk.root, RollbackId::from_bits(1), Capabilities::default()).unwrap().unwrap();
    found.undo(&[swap, meta], &desk.memory).unwrap();
    assert_eq!(desk.read("d").as_deref(), Some("a file"));
    assert_eq!(fs::read_to_string(desk.slot("0")).unwrap(), "1");
}

#[test]
fn a_stage_that_cannot_be_opened_is_a_failure_and_not_missing() {
    let desk = Desk::new();
    let id = RollbackId::from_bits(1);
    let open = || Stage::open(&desk.root, id, Capabilities::default()).map(|stage| stage.is_some());
    assert!(!open().unwrap());
    fs::create_dir(desk.path(".safepoint")).unwrap();
    assert!(!open().unwrap());
    fs::write(desk.path(&format!(".safepoint/apply-{id}")), "a file").unwrap();
    assert!(open().is_err());
}

/// A crash during a move by hard link may leave both names.
#[test]
fn a_move_that_was_cut_between_its_two_names_is_ended_by_the_way_back() {
    let desk = Desk::new();
    let steps = [desk.swap("a", None, Some("2"))];
    let stage = desk.stage(&steps, false);
    fs::hard_link(desk.slot("0"), desk.path("a")).unwrap();
    stage.undo(&steps, &desk.memory).unwrap();
    assert_eq!(desk.read("a"), None);
    assert_eq!(fs::read_to_string(desk.slot("0")).unwrap(), "2");

    for new in [Some("2"), None] {
        let desk = Desk::new();
        fs::write(desk.path("a"), "1").unwrap();
        let steps = [desk.swap("a", Some("1"), new)];
        let stage = desk.stage(&steps, false);
        let displaced = desk.slot(if new.is_some() { "0.old" } else { "0" });
        fs::hard_link(desk.path("a"), &displaced).unwrap();
        stage.undo(&steps, &desk.memory).unwrap();
        assert_eq!(desk.read("a").as_deref(), Some("1"));
        assert!(!displaced.exists(), "{new:?}");
    }
}
