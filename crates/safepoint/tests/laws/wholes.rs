//! Multi-folder checkpoints as layouts: they round-trip, and are restored only if everything is registered.

use crate::bench::{Bench, scratch};
use crate::framework::{World, assert_all, put};
use crate::hostile::{edit_json, seal};
use crate::layouts::{export, names, read_json};
use safepoint::model::checkpoint::{Checkpoint, PartKind, Scope};
use safepoint::{
    CheckpointManager, CreateOptions, Depth, Error, Failure, Filter, ImportOptions, Imported, RoleFilter,
    RollbackOptions, Silent, Subject, Thoroughness,
};
use safepoint_testkit::TreeImage;
use safepoint_testkit::tree::Content;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn import(manager: &CheckpointManager, dir: &Path) -> Result<Imported, Error> {
    manager.import(None, dir, &ImportOptions::default(), &Silent)
}

fn go_back(manager: &CheckpointManager, checkpoint: &Checkpoint) -> Result<(), Error> {
    manager.rollback(None, checkpoint.id, &RollbackOptions::default(), &Silent).map(drop)
}

/// Returns every file of a layout except the metadata, which names another checkpoint.
fn contents(layout: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let image = TreeImage::read(layout, &["metadata.json"]).unwrap();
    let files = image.0.into_iter().filter(|(_, node)| matches!(node.content, Content::File { .. }));
    files
        .map(|(path, _)| {
            let bytes = fs::read(layout.join(OsStr::from_bytes(&path))).unwrap();
            (path, bytes)
        })
        .collect()
}

#[track_caller]
fn assert_same_layout(one: &Path, two: &Path) {
    let (one_files, two_files) = (contents(one), contents(two));
    for (path, bytes) in &one_files {
        let text = String::from_utf8_lossy(path);
        assert_eq!(
            two_files.get(path).map(|bytes| String::from_utf8_lossy(bytes)),
            Some(String::from_utf8_lossy(bytes)),
            "{text}"
        );
    }
    assert_eq!(one_files.len(), two_files.len());
    let (one, two) = (read_json(&one.join("metadata.json")), read_json(&two.join("metadata.json")));
    for key in ["hashes", "contents", "scope", "kind", "reason", "created_at", "label", "progress"] {
        assert_eq!(one[key], two[key], "{key}");
    }
}

#[test]
fn everything_comes_back_from_its_folder_the_same() {
    let (world, out) = (World::new(), scratch());
    let manager = &world.bench.manager;
    let then = world.create(&Subject::Framework).checkpoint;
    let (image, plan_then) = (world.everything(), manager.plans().get("work").unwrap().plan);
    let path = export(&world.bench, &then, out.path());
    world.disaster();
    let imported = import(manager, &path).unwrap();
    let again = &imported.checkpoint;
    assert_eq!(imported.original, then.id);
    assert_eq!((again.integrity, again.scope, again.workspace_id), (then.integrity, Scope::Framework, None));
    assert_eq!((imported.missing.len(), again.files.count), (0, then.files.count), "{imported:?}");
    assert_eq!(again.source_tool.as_deref(), Some("import"));
    assert_eq!(manager.checkpoints().list(&Filter::default()).unwrap()[0].id, again.id);
    assert!(manager.upkeep().validate(Some(again), Depth::Deep, &Silent).unwrap().is_valid());
    assert_same_layout(&path, &export(&world.bench, again, out.path()));
    go_back(manager, again).unwrap();
    assert_all(&world.everything(), &image);
    assert_eq!(manager.plans().get("work").unwrap().plan, plan_then);
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "large");
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn an_agent_comes_back_from_its_folder_and_people_can_read_what_it_remembers() {
    let (world, out) = (World::new(), scratch());
    let manager = &world.bench.manager;
    put(world.agents.join("memory/deep/er/more.md"), "more");
    symlink("/etc/passwd", world.agents.join("memory/out")).unwrap();
    manager.agents().register("claude", &[world.agents.join("settings *.json")], &[]).unwrap();
    let then = world.create(&Subject::Agent("claude".to_owned())).checkpoint;
    let path = export(&world.bench, &then, out.path());
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!(read("agent_memory/claude/memory/notes.md"), "remember");
    assert_eq!(read("agent_memory/claude/memory/deep/er/more.md"), "more");
    assert_eq!(read("agent_configurations/claude/settings__.json"), "{}");
    assert_eq!(
        names(&path.join("agent_memory/claude/memory")),
        ["deep".to_owned(), "notes.md".to_owned()].into()
    );
    let state = read_json(&path.join("agent_state.json"));
    assert_eq!(state["agents"][0]["name"], "claude");
    assert_eq!(state["agents"][0]["copies"].as_array().unwrap().len(), 2);
    put(world.agents.join("memory/notes.md"), "forgotten");
    let again = import(manager, &path).unwrap().checkpoint;
    assert_eq!((again.integrity, again.scope), (then.integrity, Scope::Agent));
    assert_same_layout(&path, &export(&world.bench, &again, out.path()));
    go_back(manager, &again).unwrap();
    assert_eq!(fs::read_to_string(world.agents.join("memory/notes.md")).unwrap(), "remember");
}

#[test]
fn what_agents_have_in_a_project_lies_with_the_project() {
    let (bench, out) = (Bench::new(), scratch());
    bench.write(".claude/memory/notes.md", "remember");
    bench.write(".claude/settings.json", "{}");
    bench.write("main.rs", "fn main() {}");
    bench.write("link", "a file, until it is captured");
    let (config, memory) = (bench.path(".claude/settings.json"), bench.path(".claude/memory"));
    let paths = [memory, bench.path("gone"), bench.path("link"), out.path().join("elsewhere")];
    bench.manager.agents().register("claude", &[config], &paths).unwrap();
    fs::remove_file(bench.path("link")).unwrap();
    symlink("main.rs", bench.path("link")).unwrap();
    let then = bench.create();
    let path = export(&bench, &then, out.path());
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!(read("agent_memory/claude/memory/notes.md"), "remember");
    assert_eq!(read("agent_configurations/claude/settings.json"), "{}");
    assert_eq!(names(&path.join("agent_memory/claude")), ["memory".to_owned()].into());
    let imported = crate::layouts::import(&bench, &path).unwrap().checkpoint;
    assert_eq!((imported.integrity, imported.warnings.len()), (then.integrity, 0));
    assert_same_layout(&path, &export(&bench, &imported, out.path()));
    // A reader of the copy must not get different content.
    let evil = export(&bench, &then, out.path());
    fs::write(evil.join("agent_memory/claude/memory/notes.md"), "harmless").unwrap();
    seal(&evil);
    let error = crate::layouts::import(&bench, &evil).unwrap_err().to_string();
    assert!(error.contains("it is another content than files/.claude/memory/notes.md"), "{error}");
}

#[test]
fn an_agent_with_nothing_but_settings() {
    let (bench, out) = (Bench::new(), scratch());
    bench.manager.agents().register("bare", &[], &[]).unwrap();
    bench.manager.agents().set("bare", "model", json!("large")).unwrap();
    let whole = Subject::Agent("bare".to_owned());
    let created = bench.manager.create(&whole, &CreateOptions::default(), &Silent).unwrap();
    let path = export(&bench, &created.checkpoint, out.path());
    bench.manager.agents().set("bare", "model", json!("small")).unwrap();
    let again = import(&bench.manager, &path).unwrap().checkpoint;
    assert_eq!(again.integrity, created.checkpoint.integrity);
    assert_same_layout(&path, &export(&bench, &again, out.path()));
    let there = scratch();
    // Even if nothing is registered.
    let empty = crate::bench::open(&there.path().join("home"), safepoint::Settings::default());
    let imported = import(&empty, &path).unwrap();
    assert_eq!(imported.missing[0], "agent bare is not registered here");
    let failure = Failure::from(&go_back(&empty, &imported.checkpoint).unwrap_err());
    assert_eq!(failure.code, "elsewhere", "missing parts are reported");
}

/// The same folders with another home that has no registrations.
struct Abroad {
    world: World,
    there: Bench,
    out: tempfile::TempDir,
    then: Checkpoint,
    path: PathBuf,
}

impl Abroad {
    fn new() -> Self {
        let (world, there, out) = (World::new(), Bench::new(), scratch());
        let then = world.create(&Subject::Framework).checkpoint;
        let path = export(&world.bench, &then, out.path());
        Self { world, there, out, then, path }
    }

    fn register(&self) {
        let manager = &self.there.manager;
        manager.workspaces().register(&self.world.bench.root()).unwrap();
        self.world
            .others
            .iter()
            .for_each(|other| drop(manager.workspaces().register(other.root_path()).unwrap()));
        manager.agents().register("claude", &[], &[self.world.agents.join("memory")]).unwrap();
        manager.agents().register("codex", &[self.world.agents.join("settings *.json")], &[]).unwrap();
    }

    fn records(&self) -> Vec<Checkpoint> {
        self.there.manager.checkpoints().list(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap()
    }

    /// Checks that this corruption is refused and nothing changed.
    #[track_caller]
    fn refuses(&self, words: &str, spoil: impl FnOnce(&Path)) {
        let path = export(&self.world.bench, &self.then, self.out.path());
        spoil(&path);
        let before = self.records();
        let error = match import(&self.there.manager, &path) {
            Ok(imported) => panic!("{words:?}: it was imported: {imported:#?}"),
            Err(error) => error,
        };
        assert_eq!(Failure::from(&error).code, "bad_layout", "{error}");
        assert!(error.to_string().contains(words), "{error} lacks {words:?}");
        assert_eq!(self.records(), before);
    }

    #[track_caller]
    fn refuses_state(&self, words: &str, edit: impl FnOnce(&mut Value)) {
        self.refuses(words, |path| {
            edit_json(&path.join("framework_state.json"), edit);
            seal(path);
        });
    }

    #[track_caller]
    fn refuses_metadata(&self, words: &str, edit: impl FnOnce(&mut Value)) {
        self.refuses(words, |path| edit_json(&path.join("metadata.json"), edit));
    }

    /// Imports a changed layout where everything is registered.
    fn imported(&self, spoil: impl FnOnce(&Path)) -> Imported {
        let path = export(&self.world.bench, &self.then, self.out.path());
        spoil(&path);
        seal(&path);
        import(&self.there.manager, &path).unwrap()
    }
}

fn files_row<'v>(state: &'v mut Value, name: &str) -> &'v mut Value {
    let rows = state["files"].as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["workspace"]["name"] == name).unwrap()
}

#[test]
fn what_is_not_registered_is_kept_and_refused_with_what_to_do() {
    let abroad = Abroad::new();
    let manager = &abroad.there.manager;
    let Imported { checkpoint: imported, missing, .. } = import(manager, &abroad.path).unwrap();
    let away = imported.parts.iter().filter(|part| part.key.starts_with("elsewhere:")).count();
    assert_eq!((away, imported.parts.len()), (9, 9), "{:?}", imported.parts);
    assert!(missing.last().unwrap().contains("import it again"), "{missing:?}");
    assert!(manager.upkeep().validate(Some(&imported), Depth::Deep, &Silent).unwrap().is_valid());
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
    // A second export is equal, and complete on its own machine.
    let second = export(&abroad.there, &imported, abroad.out.path());
    assert_same_layout(&abroad.path, &second);
    let home = import(&abroad.world.bench.manager, &second).unwrap();
    assert_eq!((home.checkpoint.integrity, home.missing.len()), (abroad.then.integrity, 0));
    let failure = Failure::from(&go_back(manager, &imported).unwrap_err());
    assert_eq!(failure.code, "elsewhere");
    let root = abroad.world.bench.root();
    assert!(failure.message.contains(&format!("folder {}", root.display())), "{}", failure.message);
    for word in ["agent claude", "agent codex", "plan work", "an agent's folder"] {
        assert!(failure.message.contains(word), "{word}: {}", failure.message);
    }
    let memory = abroad.world.agents.join("memory");
    let hints = failure.hints.join("\n");
    assert!(hints.contains(&format!("safepoint init {}", root.display())), "{hints}");
    assert!(
        hints.contains(&format!("safepoint agent register claude --memory {}", memory.display())),
        "{hints}"
    );
    assert!(hints.contains("settings *.json'"), "{hints}");
}

#[test]
fn where_all_is_registered_it_goes_back_also_elsewhere() {
    let abroad = Abroad::new();
    let manager = &abroad.there.manager;
    let image = abroad.world.everything();
    abroad.register();
    // Everything but the plan, which is different here.
    abroad.world.disaster();
    let Imported { checkpoint: imported, missing, .. } = import(manager, &abroad.path).unwrap();
    let settings =
        format!("Safepoint's settings in {} stay where they are", abroad.world.bench.home().display());
    assert_eq!(missing[..2], [settings, "there is no plan \"work\" here".to_owned()]);
    let failure = Failure::from(&go_back(manager, &imported).unwrap_err());
    assert!(
        failure.message.ends_with("contains parts that are not registered on this machine: plan work"),
        "{}",
        failure.message
    );
    // Single parts can be restored.
    let part = |part| RollbackOptions { parts: vec![part], ..RollbackOptions::default() };
    manager.rollback(None, imported.id, &part(PartKind::Agent), &Silent).unwrap();
    assert_eq!(fs::read_to_string(abroad.world.agents.join("memory/notes.md")).unwrap(), "remember");
    assert_eq!(abroad.world.bench.read("main.rs"), "broken");
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "large");
    manager.rollback(None, imported.id, &part(PartKind::Files), &Silent).unwrap();
    assert_all(&abroad.world.everything(), &image);
    // And everything, from an export without plans.
    let abroad = Abroad::new();
    let path = abroad.imported(|path| {
        edit_json(&path.join("metadata.json"), |metadata| {
            metadata["contents"].as_array_mut().unwrap().retain(|row| row["kind"] != "plan");
        });
    });
    assert!(path.missing.iter().any(|warning| warning.contains("is not registered here")));
    abroad.register();
    let image = abroad.world.everything();
    let whole = abroad.imported(|path| {
        edit_json(&path.join("metadata.json"), |metadata| {
            metadata["contents"].as_array_mut().unwrap().retain(|row| row["kind"] != "plan");
        });
    });
    assert_eq!(whole.missing.len(), 1, "{:?}", whole.missing);
    abroad.world.disaster();
    go_back(&abroad.there.manager, &whole.checkpoint).unwrap();
    assert_all(&abroad.world.everything(), &image);
    // The redo restores the same folder.
    let workspace = abroad.there.manager.workspaces().around(&abroad.world.bench.root()).unwrap().unwrap();
    let options = RollbackOptions::default();
    abroad.there.manager.undo(&workspace, &options, &Silent).unwrap();
    abroad.there.manager.redo(&workspace, &options, &Silent).unwrap();
    assert_all(&abroad.world.everything(), &image);
}

#[test]
fn an_import_brings_no_paths_and_writes_nowhere_else() {
    let abroad = Abroad::new();
    abroad.register();
    let unfit = |words: &str, imported: &Imported| {
        assert!(imported.missing.iter().any(|why| why.contains(words)), "{words}: {:?}", imported.missing);
        let failure = Failure::from(&go_back(&abroad.there.manager, &imported.checkpoint).unwrap_err());
        assert_eq!(failure.code, "elsewhere");
    };
    // Another path for an agent, and with it its parent folder, which may contain keys.
    let imported = abroad.imported(|path| {
        edit_json(&path.join("agent_configurations/codex.json"), |agent| {
            agent["paths"][0]["path"] = json!(abroad.world.agents.to_str().unwrap().trim_start_matches('/'));
        });
    });
    unfit("agent codex has other paths here", &imported);
    // More files in the folder than the agent's.
    let imported = abroad.imported(|path| {
        let state = read_json(&path.join("framework_state.json"));
        let rows = state["files"].as_array().unwrap();
        let row = rows.iter().find(|row| row["workspace"]["name"] == "agents").unwrap();
        let folder = row["path"].as_str().unwrap();
        fs::write(path.join(folder).join("authorized_keys"), "evil").unwrap();
        edit_json(&path.join("files.json"), |list| {
            let rows = list["entries"].as_array_mut().unwrap();
            rows.push(json!({ "path": format!("{folder}/authorized_keys"), "type": "file", "mode": "0600", "uid": 0, "gid": 0, "mtime_ns": 1 }));
            rows.sort_by_key(|row| row["path"].as_str().unwrap().as_bytes().to_vec());
        });
        edit_json(&path.join("framework_state.json"), |state| {
            files_row(state, "agents")["coverage"]["skipped"] = json!([]);
        });
    });
    unfit("holds more than what is registered of its agents", &imported);
    // A folder of no agent; a folder that is a project here; a missing folder.
    let root = |name: &str, root: &Path| {
        let root = root.to_str().unwrap().to_owned();
        abroad.imported(|path| {
            edit_json(&path.join("framework_state.json"), |state| {
                files_row(state, name)["workspace"]["root"] = json!(root);
            });
        })
    };
    unfit("no agent that is registered here has the folder /etc", &root("agents", Path::new("/etc")));
    abroad.there.manager.workspaces().register(&abroad.world.agents.join("memory")).unwrap();
    unfit("is a project here", &root("memory", &abroad.world.agents.join("memory")));
    // Two folders of the layout are the same here, or one is inside the other.
    unfit("holds what lies in another of its folders", &root("second", &abroad.world.bench.root()));
    let imported = abroad.imported(|path| {
        edit_json(&path.join("framework_state.json"), |state| {
            files_row(state, "second")["workspace"] = json!(null);
        });
    });
    unfit("is not on record", &imported);
    let abroad = Abroad::new();
    abroad.register();
    let moved = abroad.world.agents.join("elsewhere");
    fs::rename(abroad.world.agents.join("memory"), &moved).unwrap();
    let missing = import(&abroad.there.manager, &abroad.path).unwrap().missing;
    assert!(missing.iter().any(|why| why.ends_with("memory is missing")), "{missing:?}");
}

#[test]
fn settings_of_safepoint_come_back_only_where_they_were() {
    let world = World::new();
    let (out, manager) = (scratch(), &world.bench.manager);
    fs::write(world.bench.home().join("config.toml"), "[retention]\nkeep_last = 7\n").unwrap();
    let then = world.create(&Subject::Framework).checkpoint;
    let path = export(&world.bench, &then, out.path());
    fs::write(world.bench.home().join("config.toml"), "[retention]\nkeep_last = 9\n").unwrap();
    // A layout that falsely claims to be from this home.
    let evil = export(&world.bench, &then, out.path());
    let state = read_json(&evil.join("framework_state.json"));
    let row =
        state["files"].as_array().unwrap().iter().find(|row| row["workspace"]["kind"] == "home").unwrap();
    let (key, folder) = (row["key"].as_str().unwrap(), row["path"].as_str().unwrap());
    let other = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    edit_json(&evil.join("framework_state.json"), |state| {
        let rows = state["files"].as_array_mut().unwrap();
        let row = rows.iter_mut().find(|row| row["key"] == key).unwrap();
        (row["key"], row["workspace"]["id"]) = (json!(other), json!(other));
    });
    edit_json(&evil.join("metadata.json"), |metadata| {
        let rows = metadata["contents"].as_array_mut().unwrap();
        rows.iter_mut().find(|row| row["path"] == folder).unwrap()["key"] = json!(other);
    });
    seal(&evil);
    let imported = import(manager, &evil).unwrap();
    assert!(imported.missing[0].contains("stay where they are"), "{:?}", imported.missing);
    go_back(manager, &imported.checkpoint).unwrap();
    let read = || fs::read_to_string(world.bench.home().join("config.toml")).unwrap();
    assert_eq!(read(), "[retention]\nkeep_last = 9\n");
    go_back(manager, &import(manager, &path).unwrap().checkpoint).unwrap();
    assert_eq!(read(), "[retention]\nkeep_last = 7\n");
}

fn part<'v>(metadata: &'v mut Value, kind: &str) -> &'v mut Value {
    let rows = metadata["contents"].as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["kind"] == kind).unwrap()
}

#[test]
fn lists_of_folders_and_agents_that_lie_are_refused() {
    let abroad = Abroad::new();
    abroad.refuses_metadata("comes twice", |metadata| {
        let row = metadata["contents"][0].clone();
        metadata["contents"].as_array_mut().unwrap().push(row);
    });
    abroad.refuses_metadata("it does not say what was left out", |metadata| {
        part(metadata, "files")["key"] = json!("01ARZ3NDEKTSV4RRFFQ69G5FAV");
    });
    abroad.refuses("its key is no id of a workspace", |path| {
        edit_json(&path.join("framework_state.json"), |state| state["files"][0]["key"] = json!("../x"));
        seal(path);
        edit_json(&path.join("metadata.json"), |metadata| part(metadata, "files")["key"] = json!("../x"));
    });
    for elsewhere in ["files", "agent_memory", "files/a/b", "framework_state.json"] {
        abroad.refuses_metadata("each folder is in one of its own in `files`", |metadata| {
            part(metadata, "files")["path"] = json!(elsewhere);
        });
    }
    abroad.refuses_metadata("there are other folders in it", |metadata| {
        part(metadata, "files")["path"] = json!("files/nothing");
    });
    abroad.refuses("more is in it than is listed", |path| {
        fs::create_dir(path.join("files/extra")).unwrap();
    });
    // Documents of agents.
    let agent = "agent_configurations/claude.json";
    let edited = |words: &str, edit: fn(&mut Value)| {
        abroad.refuses(words, |path| {
            edit_json(&path.join(agent), edit);
            seal(path);
        });
    };
    edited("it is not the agent that metadata.json lists", |agent| agent["name"] = json!("codex"));
    edited("it is not the agent that metadata.json lists", |agent| agent["format"] = json!(2));
    edited("it cannot be understood", |agent| agent["more"] = json!(1));
    edited("it cannot be understood", |agent| agent["paths"][0]["path"] = json!("../../etc"));
    edited("its paths are not those of an agent", |agent| agent["paths"][0]["path"] = json!(""));
    edited("its paths are not those of an agent", |agent| {
        let path = agent["paths"][0].clone();
        agent["paths"].as_array_mut().unwrap().push(path);
    });
    abroad.refuses("it is not the agent that metadata.json lists", |path| {
        edit_json(&path.join(agent), |agent| agent["name"] = json!("../x"));
        seal(path);
        edit_json(&path.join("metadata.json"), |metadata| part(metadata, "agent")["key"] = json!("../x"));
    });
    abroad.refuses("is in `agent_configurations`", |path| {
        fs::rename(path.join(agent), path.join("active_workflows/claude.json")).unwrap();
        seal(path);
        edit_json(&path.join("metadata.json"), |metadata| {
            part(metadata, "agent")["path"] = json!("active_workflows/claude.json");
        });
    });
    abroad.refuses("a link", |path| {
        fs::remove_file(path.join(agent)).unwrap();
        symlink("/etc/passwd", path.join(agent)).unwrap();
    });
    // Original paths of a folder.
    for root in [
        json!("relative"),
        json!("/a/../b"),
        json!(""),
        json!({ "bytes": "AC9h" }),
        json!(format!("/{}", "r".repeat(5_000))),
    ] {
        abroad.refuses_state("has no absolute path", |state| state["files"][0]["workspace"]["root"] = root);
    }
    abroad.refuses_state("has no absolute path, or too long a name", |state| {
        state["files"][0]["workspace"]["name"] = json!("n".repeat(5_000));
    });
    abroad.refuses_state("it cannot be understood", |state| {
        state["files"][0]["workspace"]["kind"] = json!("king");
    });
    abroad.refuses_state("it does not say what was left out", |state| state["files"] = json!([]));
    abroad.refuses_state("is said to be left out, and is there", |state| {
        files_row(state, "second")["coverage"]["skipped"] = json!([{ "path": "file", "why": "ignored" }]);
    });
    // Exactly one agent is valid.
    abroad.refuses("is one of one agent", |path| {
        fs::rename(path.join("framework_state.json"), path.join("agent_state.json")).unwrap();
        seal(path);
        edit_json(&path.join("metadata.json"), |metadata| metadata["scope"] = json!("agent"));
    });
    let many: Vec<Value> =
        (0..100_001).map(|key| json!({ "kind": "files", "key": key.to_string(), "path": "files" })).collect();
    abroad.refuses_metadata("more than 100000 items", |metadata| metadata["contents"] = json!(many));
}

#[test]
fn copies_that_are_none_are_refused() {
    let abroad = Abroad::new();
    let copy = |state: &mut Value| state["agents"][0]["copies"][0].clone();
    let notes = "agent_memory/claude/memory/notes.md";
    abroad.refuses("it is another content than", |path| {
        fs::write(path.join(notes), "harmless").unwrap();
        seal(path);
    });
    abroad.refuses("it has not the same files as", |path| {
        fs::remove_file(path.join(notes)).unwrap();
        seal(path);
    });
    abroad.refuses("it is another content than", |path| {
        fs::write(path.join("agent_memory/claude/memory/more.md"), "more").unwrap();
        seal(path);
    });
    abroad.refuses("it belongs to no agent", |path| {
        fs::write(path.join("agent_memory/claude/other"), "more").unwrap();
        seal(path);
    });
    abroad.refuses_state("it belongs to no agent", |state| state["agents"] = json!([]));
    abroad.refuses_state("it comes twice", |state| {
        let copy = copy(state);
        state["agents"][0]["copies"].as_array_mut().unwrap().push(copy);
    });
    for place in [
        "agent_memory",
        "agent_memory/claude",
        "agent_memory/claude/memory/notes.md",
        "files/a/b",
        "agent_configurations/claude/memory",
    ] {
        abroad.refuses_state("it is no place for what belongs to an agent", |state| {
            state["agents"][0]["copies"][0]["path"] = json!(place);
        });
    }
    abroad.refuses_state("it is no place for", |state| {
        state["agents"][0]["copies"][0]["of"] = json!("agent_configurations");
    });
    abroad.refuses("is a link", |path| {
        fs::remove_file(path.join(notes)).unwrap();
        symlink("/etc/passwd", path.join(notes)).unwrap();
    });
}

#[test]
fn what_lies_too_deep_is_not_copied_and_goes_back_all_the_same() {
    let (world, out) = (World::new(), scratch());
    let deep = world.agents.join("memory").join("d/".repeat(120));
    put(deep.join("notes.md"), "deep");
    put(world.agents.join("memory").join("d/".repeat(99)).join("here.md"), "less deep");
    let then = world.create(&Subject::Agent("claude".to_owned())).checkpoint;
    let path = export(&world.bench, &then, out.path());
    assert!(path.join("agent_memory/claude/memory").join("d/".repeat(99)).join("here.md").exists());
    assert!(!path.join("agent_memory/claude/memory").join("d/".repeat(101)).exists());
    let again = import(&world.bench.manager, &path).unwrap().checkpoint;
    assert_eq!(again.integrity, then.integrity);
}
