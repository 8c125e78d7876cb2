//! Agents that are bound to a workspace: its checkpoints hold their configuration and memory.

use crate::bench::Bench;
use crate::framework::put;
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::PartKind;
use safepoint::{
    CreateOptions, Depth, DryRun, Failure, ImportOptions, LeftAlone, OutsideMemory, RollbackOptions,
    RolledBack, Silent, Subject,
};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// A project with an agent that is bound to it and remembers outside of it, and one that is not bound.
struct Bound {
    bench: Bench,
    top: PathBuf,
}

impl Bound {
    fn new() -> Self {
        let bench = Bench::new();
        let top = bench.root().parent().unwrap().to_owned();
        bench.write("main.rs", "fn main() {}");
        put(top.join("memory/notes.md"), "remember");
        put(top.join("settings/claude.json"), "{}");
        put(top.join("settings/sibling"), "not the agent's");
        put(top.join("free/notes.md"), "free");
        let (settings, memory) = (top.join("settings/claude.json"), top.join("memory"));
        let manager = &bench.manager;
        manager.agents().register_at("claude", &[settings], &[memory], &bench.root()).unwrap();
        manager.agents().register("codex", &[], &[top.join("free")]).unwrap();
        manager.agents().set("claude", "model", json!("large")).unwrap();
        Self { bench, top }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.top.join(name)).unwrap_or_else(|error| error.to_string())
    }

    /// Everything that tells one state from another.
    fn state(&self) -> Vec<String> {
        let mut state: Vec<String> =
            ["memory/notes.md", "memory/new.md", "settings/claude.json", "free/notes.md"]
                .iter()
                .map(|name| self.read(name))
                .collect();
        state.push(self.bench.read("main.rs"));
        state.push(self.bench.manager.agents().get("claude").unwrap().agent.settings["model"].to_string());
        state
    }

    fn change(&self) {
        self.bench.write("main.rs", "broken");
        put(self.top.join("memory/notes.md"), "forgotten");
        put(self.top.join("memory/new.md"), "new");
        put(self.top.join("settings/claude.json"), "{\"broken\": true}");
        put(self.top.join("free/notes.md"), "changed");
        self.bench.manager.agents().set("claude", "model", json!("small")).unwrap();
    }

    fn agent(&self) -> CheckpointId {
        let subject = Subject::Agent("claude".to_owned());
        self.bench.manager.create(subject, &CreateOptions::default(), &Silent).unwrap().checkpoint.id
    }

    fn rollback_part(&self, to: CheckpointId, part: PartKind) -> RolledBack {
        let options = RollbackOptions { parts: vec![part], ..RollbackOptions::default() };
        self.bench.manager.rollback(&self.bench.workspace, to, &options, &Silent).unwrap()
    }
}

#[test]
fn the_memory_of_bound_agents_goes_back_with_their_folder_and_so_does_the_undo() {
    let world = Bound::new();
    let (bench, manager) = (&world.bench, &world.bench.manager);
    let created = bench.create();
    assert_eq!((created.count(PartKind::Agent), created.count(PartKind::Files)), (1, 3));
    assert_eq!((created.files.count, created.warnings.len()), (1, 0), "{:?}", created.warnings);
    assert_eq!(manager.checkpoints().folders_of(&created).unwrap().len(), 2, "the folders of its memory");
    assert_eq!(manager.checkpoints().entries(&created).unwrap().len(), 1, "its own files");
    let mut then = world.state();
    world.change();
    let later = world.state();

    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    manager.rollback(&bench.workspace, created.id, &dry, &Silent).unwrap();
    assert_eq!(world.state(), later);

    let done = bench.rollback(created.id);
    then[3] = "changed".to_owned();
    assert_eq!(world.state(), then, "an agent that is not bound stays as it is");
    assert_eq!((done.agents.as_slice(), done.left_alone.len()), (&["claude".to_owned()][..], 0));
    assert_eq!(done.record().workspace_id, bench.workspace.id);
    assert!(!done.is_together() && done.verified);
    assert_eq!(world.read("settings/sibling"), "not the agent's");
    bench.undo();
    assert_eq!(world.state(), later);
    bench.redo();
    assert_eq!(world.state(), then);
    // Chosen parts and paths are all that goes.
    world.change();
    world.rollback_part(created.id, PartKind::Files);
    assert_eq!(
        (bench.read("main.rs").as_str(), world.read("memory/notes.md").as_str()),
        ("fn main() {}", "forgotten")
    );
    bench.restore_paths(created.id, &["main.rs"]);
    assert_eq!(world.read("memory/notes.md"), "forgotten");
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn memory_inside_the_folder_is_captured_once() {
    let bench = Bench::new();
    bench.write("notes/memory.md", "remember");
    bench.manager.agents().register_at("claude", &[], &[bench.path("notes")], &bench.root()).unwrap();
    let created = bench.create();
    assert_eq!((created.count(PartKind::Agent), created.count(PartKind::Files)), (1, 1));
    bench.write("notes/memory.md", "forgotten");
    let done = bench.rollback(created.id);
    assert_eq!((bench.read("notes/memory.md").as_str(), done.folders.len()), ("remember", 1));
    assert_eq!(done.record().together, None);
}

#[test]
fn memory_that_was_captured_elsewhere_since_is_left_and_reported() {
    let world = Bound::new();
    let bench = &world.bench;
    let to = bench.create().id;
    bench.write("main.rs", "broken");
    put(world.top.join("memory/notes.md"), "learned elsewhere");
    let elsewhere = world.agent();
    let done = bench.rollback(to);
    assert_eq!(bench.read("main.rs"), "fn main() {}");
    assert_eq!(world.read("memory/notes.md"), "learned elsewhere");
    let folder = world.top.join("memory").to_str().unwrap().to_owned();
    let agents = vec!["claude".to_owned()];
    assert_eq!(done.left_alone, [LeftAlone::ChangedElsewhere { folder, agents, checkpoint: elsewhere }]);
    assert!(done.agents.is_empty(), "{:?}", done.agents);
    // It was no part of the rollback, so that an undo has nothing to do with it.
    put(world.top.join("memory/notes.md"), "learned since");
    bench.undo();
    assert_eq!(bench.read("main.rs"), "broken");
    assert_eq!(world.read("memory/notes.md"), "learned since");
    // It is taken when it is asked for by name, and the undo brings it again.
    let taken = world.rollback_part(to, PartKind::Agent);
    assert_eq!((taken.left_alone.len(), taken.agents.len()), (0, 1));
    assert_eq!(
        (world.read("memory/notes.md").as_str(), bench.read("main.rs").as_str()),
        ("remember", "broken")
    );
    bench.undo();
    assert_eq!(world.read("memory/notes.md"), "learned since");
}

#[test]
fn memory_that_this_folder_captured_since_goes_back() {
    let world = Bound::new();
    let bench = &world.bench;
    let to = bench.create().id;
    put(world.top.join("memory/notes.md"), "learned elsewhere");
    world.agent();
    bench.create();
    assert!(bench.rollback(to).left_alone.is_empty());
    assert_eq!(world.read("memory/notes.md"), "remember");
    // A change that no checkpoint holds belongs to the workspace that is open.
    bench.undo();
    put(world.top.join("memory/notes.md"), "learned just now");
    assert!(bench.rollback(to).left_alone.is_empty());
    assert_eq!(world.read("memory/notes.md"), "remember");
    bench.undo();
    assert_eq!(world.read("memory/notes.md"), "learned just now");
}

#[test]
fn an_agent_that_is_bound_to_another_folder_is_left() {
    let world = Bound::new();
    let (bench, manager) = (&world.bench, &world.bench.manager);
    let to = bench.create().id;
    world.change();
    fs::create_dir(world.top.join("other")).unwrap();
    let record = manager.agents().register_at("claude", &[], &[], &world.top.join("other")).unwrap();
    let other = manager.workspaces().get(record.workspace_id.unwrap()).unwrap();
    let done = bench.rollback(to);
    assert_eq!(done.left_alone, [LeftAlone::NotBound { agent: "claude".to_owned() }]);
    assert_eq!(
        (bench.read("main.rs").as_str(), world.read("memory/notes.md").as_str()),
        ("fn main() {}", "forgotten")
    );
    assert_eq!(bench.create().count(PartKind::Agent), 0);
    let there = manager.create(&other, &CreateOptions::default(), &Silent).unwrap().checkpoint;
    assert_eq!((there.count(PartKind::Agent), there.count(PartKind::Files)), (1, 3));
}

#[test]
fn memory_that_was_deleted_is_made_again_and_deleted_again() {
    let world = Bound::new();
    let bench = &world.bench;
    let to = bench.create().id;
    fs::remove_dir_all(world.top.join("memory")).unwrap();
    let without = bench.create().id;
    bench.rollback(to);
    assert_eq!(world.read("memory/notes.md"), "remember");
    bench.rollback(without);
    assert!(!world.top.join("memory").exists());
    bench.undo();
    assert_eq!(world.read("memory/notes.md"), "remember");
}

#[test]
fn a_part_that_a_folder_has_not_is_refused() {
    let bench = Bench::new();
    bench.write("a", "a");
    let to = bench.create().id;
    let options = RollbackOptions { parts: vec![PartKind::Agent], ..RollbackOptions::default() };
    let error = bench.manager.rollback(&bench.workspace, to, &options, &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).code, "no_part");
}

/// Content of a file of an export.
fn exported(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| error.to_string())
}

#[test]
fn an_export_omits_memory_outside_of_the_folder_unless_it_is_asked_for() {
    let world = Bound::new();
    let (bench, manager) = (&world.bench, &world.bench.manager);
    bench.write("inside/notes.md", "inside");
    manager.agents().register_at("claude", &[], &[bench.path("inside")], &bench.root()).unwrap();
    crate::runner::plan(bench, "[[step]]\nid = 'one'");
    let then = bench.create();
    let plain = manager
        .export_checkpoint(&then, &world.top.join("plain"), safepoint::OutsideMemory::Omitted, &Silent)
        .unwrap();
    assert_eq!(plain.omitted, 2);
    assert_eq!(exported(&plain.path, "files/main.rs"), "fn main() {}");
    assert_eq!(exported(&plain.path, "agent_memory/claude/inside/notes.md"), "inside");
    assert!(!plain.path.join("agent_memory/claude/memory").exists());
    assert!(!plain.path.join("agent_configurations/claude").exists());
    let plan: serde_json::Value =
        serde_json::from_str(&exported(&plain.path, "task_tool_state/work.json")).unwrap();
    assert_eq!(plan["steps"][0]["path"], "one");

    let memory = OutsideMemory::Written;
    let whole = manager.export_checkpoint(&then, &world.top.join("whole"), memory, &Silent).unwrap();
    assert_eq!((whole.omitted, whole.files), (0, plain.files));
    assert_eq!(exported(&whole.path, "agent_memory/claude/memory/notes.md"), "remember");
    assert_eq!(exported(&whole.path, "agent_configurations/claude/claude.json"), "{}");
    let text = exported(&whole.path, "agent_memory/claude.json");
    assert!(text.contains("large"), "{text}");
    // Both come back as the files of the workspace; memory is not taken over.
    for folder in [&plain.path, &whole.path] {
        let imported = manager.import(&bench.workspace, folder, &ImportOptions::default(), &Silent);
        let imported = imported.unwrap().checkpoint;
        assert_eq!((imported.count(PartKind::Files), imported.count(PartKind::Agent)), (1, 0));
        bench.write("main.rs", "broken");
        put(world.top.join("memory/notes.md"), "as it is");
        bench.rollback(imported.id);
        assert_eq!(
            (bench.read("main.rs").as_str(), world.read("memory/notes.md").as_str()),
            ("fn main() {}", "as it is")
        );
    }
    // Memory is not believed either.
    fs::write(whole.path.join("agent_memory/claude/memory/notes.md"), "evil").unwrap();
    let options = ImportOptions::default();
    let error = manager.import(&bench.workspace, &whole.path, &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("agent_memory/claude/memory/notes.md"), "{error}");
}
