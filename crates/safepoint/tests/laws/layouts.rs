//! Checkpoints as folders: an export is complete, an import is equal, and nothing else changes.

use crate::bench::{Bench, assert_same, noise, scratch};
use crate::histories::{deed, touch};
use crate::runner::Unseen;
use proptest::prelude::*;
use safepoint::model::checkpoint::{Checkpoint, Kind, PartKind, PartRecord, Phase, Reason, Scope};
use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::model::{CheckpointId, ObjectId, RelPath, Timestamp};
use safepoint::{
    CreateOptions, Depth, Error, Exported, Failure, ImportOptions, Imported, Layout, Progress,
    RollbackOptions, Silent, Subject, Thoroughness,
};
use safepoint_testkit::TreeImage;
use safepoint_testkit::tree::{Content, Node};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) fn export(bench: &Bench, checkpoint: &Checkpoint, dir: &Path) -> PathBuf {
    bench.manager.export_checkpoint(checkpoint, dir, safepoint::OutsideMemory::Omitted, &Silent).unwrap().path
}

pub(crate) fn import(bench: &Bench, dir: &Path) -> Result<Imported, Error> {
    bench.manager.import(&bench.workspace, dir, &ImportOptions::default(), &Silent)
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the document that covers every byte and attribute of the files.
fn files(checkpoint: &Checkpoint) -> ObjectId {
    checkpoint.parts.iter().find(|part| part.kind == PartKind::Files).unwrap().document
}

/// Adds an entry of every type.
fn furnish(bench: &Bench) {
    bench.write("notes.txt", "good\n");
    bench.write("src/deep/main.rs", "fn main() {}\n");
    bench.write("large", noise(1, 700_000));
    bench.write("run.sh", "#!/bin/sh\n");
    bench.write("README", "upper");
    bench.write("readme", "lower");
    bench.write("metadata.json", "{}");
    bench.write(".safepointignore", "*.log\n");
    bench.write("left.log", "left out");
    bench.write(".git/config", "left out");
    fs::create_dir_all(bench.path("empty/below")).unwrap();
    fs::write(bench.root().join(OsStr::from_bytes(b"not \xff utf8")), "odd").unwrap();
    fs::write(bench.root().join(OsStr::from_bytes(b"new\nline \x1b[2J")), "odd").unwrap();
    symlink("/etc/passwd", bench.path("out")).unwrap();
    symlink("../../elsewhere", bench.path("src/climbs")).unwrap();
    symlink(OsStr::from_bytes(b"gone \xfe"), bench.path("dangling")).unwrap();
    symlink("src", bench.path("to-a-folder")).unwrap();
    fs::set_permissions(bench.path("run.sh"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(bench.path("notes.txt"), Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(bench.path("empty"), Permissions::from_mode(0o1777)).unwrap();
    let _ = xattr::set(bench.path("notes.txt"), "user.note", b"\xff\x00 bytes");
    let _ = xattr::set(bench.path("src"), "user.note", b"text");
}

/// Names in a folder.
pub(crate) fn names(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_checkpoint_comes_back_from_its_folder_the_same() {
    let (bench, out) = (Bench::new(), scratch());
    furnish(&bench);
    let options = CreateOptions {
        label: Some("all of it".to_owned()),
        kind: Kind::Automatic,
        reason: Reason::SafeState,
        phase: Some(Phase::Validate),
        pinned: true,
        session_id: Some("0193fafe-0000-7000-8000-000000000000".to_owned()),
        progress: safepoint::model::checkpoint::Counters { tests_passing: 42, ..Default::default() },
        ..CreateOptions::default()
    };
    let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap();
    let (then, image) = (created.checkpoint, bench.image());
    let exported = bench
        .manager
        .export_checkpoint(&then, out.path(), safepoint::OutsideMemory::Omitted, &Silent)
        .unwrap();
    let Exported { path, layout, checkpoint, files: count, bytes, omitted, .. } = exported;
    assert_eq!(omitted, 0);
    assert_eq!((layout, checkpoint, bytes), (Layout::Tree, then.id, then.files.bytes));
    assert!(count > 12 && path.starts_with(out.path().join("project")));
    let imported = import(&bench, &path).unwrap();
    let again = &imported.checkpoint;
    assert_eq!((files(again), again.integrity), (files(&then), then.integrity));
    assert_eq!((imported.original, imported.original_created_at), (then.id, then.created_at));
    assert_eq!(imported.coverage, created.coverage);
    assert_ne!(again.id, then.id);
    assert_eq!(again.size_bytes, 0, "everything was stored already");
    assert_eq!((&again.label, again.kind, again.reason), (&then.label, then.kind, then.reason));
    assert_eq!((again.phase, again.progress, again.created_at), (then.phase, then.progress, then.created_at));
    assert_eq!((again.files.count, again.files.bytes), (then.files.count, then.files.bytes));
    assert_eq!(again.source_tool.as_deref(), Some("import"));
    // Facts about the original workspace are not imported.
    assert_eq!((again.pinned, &again.session_id, again.parent), (false, &None, None));
    assert_eq!(again.warnings, [""; 0]);
    assert_eq!(bench.manager.checkpoints().get(again.id).unwrap(), *again);
    // The workspace's head stays, and a rollback to the import works.
    assert_eq!(bench.manager.workspaces().get(bench.workspace.id).unwrap().head, Some(then.id));
    bench.write("notes2.txt", "bad");
    fs::remove_dir_all(bench.path("src")).unwrap();
    bench.rollback(again.id);
    assert_same(&bench.image(), &image);
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
}

#[test]
fn the_folder_says_everything_and_says_it_readably() {
    let (bench, out) = (Bench::new(), scratch());
    furnish(&bench);
    let then = bench.create();
    let path = export(&bench, &then, out.path());
    let stamp = path.file_name().unwrap().to_str().unwrap().strip_prefix("project_").unwrap().to_owned();
    assert!(stamp.len() == 15 && stamp.as_bytes()[8] == b'_', "{stamp}");
    let expected =
        ["agent_memory", "files", "files.json", "metadata.json", "project_state.json", "task_tool_state"];
    assert_eq!(names(&path), expected.map(str::to_owned).into());
    assert_same(&TreeImage::read(&path.join("files"), &[]).unwrap(), &{
        let mut image = bench.image();
        image.0.remove(&b"left.log"[..]);
        image
    });
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700, "it is private");
    let metadata = read_json(&path.join("metadata.json"));
    let record = serde_json::to_value(&then).unwrap();
    for (key, value) in record.as_object().unwrap() {
        assert_eq!(&metadata[key], value, "{key}");
    }
    assert_eq!((&metadata["format"], &metadata["layout"]), (&json!(1), &json!("tree")));
    // The hashes list exactly all other files.
    let mut listed = BTreeSet::new();
    for row in metadata["hashes"].as_array().unwrap() {
        let file: RelPath = serde_json::from_value(row["path"].clone()).unwrap();
        let bytes = fs::read(path.join(OsStr::from_bytes(file.as_bytes()))).unwrap();
        assert_eq!(row["blake3"], blake3::hash(&bytes).to_hex().as_str(), "{file}");
        assert_eq!(row["size"], bytes.len());
        listed.insert(file.as_bytes().to_vec());
    }
    let is_file = |node: &Node| matches!(node.content, Content::File { .. });
    let image = TreeImage::read(&path, &[]).unwrap();
    let found = image.0.into_iter().filter(|(_, node)| is_file(node)).map(|(path, _)| path);
    let found: BTreeSet<Vec<u8>> = found.filter(|path| path != b"metadata.json").collect();
    assert_eq!(listed, found);
    let state = read_json(&path.join("project_state.json"));
    assert_eq!(state["workspace"]["name"], "project");
    assert_eq!(state["files"][0]["workspace"], state["workspace"]);
    assert_eq!(state["files"][0]["coverage"]["skipped"][0], json!({ "path": ".git", "why": "git" }));
    let text = fs::read_to_string(path.join("files.json")).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"type\"")).count() as u64, then.files.count + 1);
}

#[test]
fn a_folder_made_here_is_one_there() {
    let (here, there, out) = (Bench::new(), Bench::new(), scratch());
    furnish(&here);
    let then = here.create();
    let image = TreeImage::read(&here.root(), &[".git", "left.log"]).unwrap();
    let path = export(&here, &then, &out.path().join("made/on/the/way"));
    there.write("mine", "other");
    let imported = import(&there, &path).unwrap().checkpoint;
    assert_eq!(files(&imported), files(&then));
    assert_ne!(imported.integrity, then.integrity, "it is another workspace");
    assert_eq!(there.read("mine"), "other");
    there.rollback(imported.id);
    assert_same(&there.image(), &image);
    // And a second round trip.
    let second = import(&here, &export(&there, &imported, out.path())).unwrap().checkpoint;
    assert_eq!((files(&second), second.integrity), (files(&then), then.integrity));
}

#[test]
fn an_import_is_called_what_its_user_says_and_pinned_if_so_wanted() {
    let (bench, out) = (Bench::new(), scratch());
    let path = export(&bench, &bench.create(), out.path());
    let options = ImportOptions { label: Some("mine".to_owned()), pinned: true };
    let imported = bench.manager.import(&bench.workspace, &path, &options, &Silent).unwrap().checkpoint;
    assert_eq!((imported.label.as_deref(), imported.pinned), (Some("mine"), true));
    assert_eq!(imported.files.count, 0);
}

#[test]
fn two_of_the_same_second_never_collide_and_nothing_is_overwritten() {
    let (bench, out) = (Bench::new(), scratch());
    bench.write("file", "1");
    let then = bench.create();
    let first = export(&bench, &then, out.path());
    let base = first.file_name().unwrap().to_str().unwrap().to_owned();
    // A foreign file makes the export use the next name.
    fs::write(out.path().join(format!("project/{base}_2")), "mine").unwrap();
    fs::write(first.join("extra"), "mine").unwrap();
    let paths: BTreeSet<PathBuf> = (0..20).map(|_| export(&bench, &then, out.path())).collect();
    assert_eq!(paths.len(), 20);
    assert!(paths.contains(&out.path().join(format!("project/{base}_22"))), "{paths:?}");
    assert_eq!(fs::read(out.path().join(format!("project/{base}_2"))).unwrap(), b"mine");
    assert_eq!(fs::read(first.join("extra")).unwrap(), b"mine");
    assert_eq!(names(&out.path().join("project")).len(), 22);
    for path in &paths {
        assert_eq!(files(&import(&bench, path).unwrap().checkpoint), files(&then));
    }
}

#[test]
fn many_at_once_into_one_folder() {
    let (bench, out) = (Bench::new(), scratch());
    furnish(&bench);
    let then = bench.create();
    let run = || (0..5).map(|_| export(&bench, &then, out.path())).collect::<Vec<_>>();
    let paths: BTreeSet<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((paths.len(), names(&out.path().join("project")).len()), (20, 20));
    for path in paths {
        assert_eq!(files(&import(&bench, &path).unwrap().checkpoint), files(&then));
    }
}

#[test]
fn a_project_with_a_strange_name_stays_in_its_place() {
    let out = scratch();
    let folder = scratch();
    let bench = Bench::new();
    for name in [&b"..x"[..], b"-rf", b"a b\n\x1b[2J", b"not \xff utf8", &[b'n'; 255], "\u{1f600}".as_bytes()]
    {
        let project = folder.path().join(OsStr::from_bytes(name));
        fs::create_dir(&project).unwrap();
        fs::write(project.join("file"), name).unwrap();
        let workspace = bench.manager.workspaces().register(&project).unwrap();
        let options = CreateOptions::default();
        let checkpoint = bench.manager.create(&workspace, &options, &Silent).unwrap().checkpoint;
        let path = export(&bench, &checkpoint, out.path());
        assert_eq!(path.parent().unwrap(), out.path().join("project"));
        let last = path.file_name().unwrap().to_str().unwrap();
        assert!(
            last.len() < 150 && !last.starts_with(['.', '-']) && !last.contains(['\n', '\u{1b}']),
            "{last:?}"
        );
        let imported = bench.manager.import(&workspace, &path, &ImportOptions::default(), &Silent);
        assert_eq!(files(&imported.unwrap().checkpoint), files(&checkpoint));
    }
    assert_eq!(names(out.path()), ["project".to_owned()].into());
}

/// Interrupts after a number of checks.
struct Impatient(AtomicU64);

impl Progress for Impatient {
    fn interrupted(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn what_is_interrupted_at_any_moment_leaves_nothing() {
    let (bench, out) = (Bench::new(), scratch());
    furnish(&bench);
    let then = bench.create();
    let whole = export(&bench, &then, &out.path().join("whole"));
    let before = bench.manager.checkpoints().list(&safepoint::Filter::default()).unwrap();
    let (mut exports, mut imports) = (0, 0);
    for looks in 0.. {
        let dir = out.path().join("new/folder");
        let exported = bench.manager.export_checkpoint(
            &then,
            &dir,
            safepoint::OutsideMemory::Omitted,
            &Impatient(AtomicU64::new(looks)),
        );
        match exported {
            Ok(_) => break,
            Err(error) => assert_eq!(Failure::from(&error).code, "interrupted", "{error:?}"),
        }
        assert!(!out.path().join("new").exists(), "{looks}");
        exports += 1;
    }
    for looks in 0.. {
        let patience = Impatient(AtomicU64::new(looks));
        let options = ImportOptions::default();
        match bench.manager.import(&bench.workspace, &whole, &options, &patience) {
            Ok(_) => break,
            Err(error) => assert_eq!(Failure::from(&error).code, "interrupted", "{error:?}"),
        }
        assert_eq!(bench.manager.checkpoints().list(&safepoint::Filter::default()).unwrap(), before);
        imports += 1;
    }
    assert!(exports > 30 && imports > 30, "{exports} {imports}");
}

#[test]
fn a_folder_that_cannot_be_written_is_told_and_left_alone() {
    let (bench, out) = (Bench::new(), scratch());
    bench.write("file", "1");
    let then = bench.create();
    fs::write(out.path().join("file"), "mine").unwrap();
    fs::write(out.path().join("project"), "mine").unwrap();
    for dir in [out.path().join("file"), out.path().join("file/below"), out.path().to_owned()] {
        let error = bench
            .manager
            .export_checkpoint(&then, &dir, safepoint::OutsideMemory::Omitted, &Silent)
            .unwrap_err();
        let failure = Failure::from(&error);
        assert_eq!(failure.code, "not_written", "{failure:?}");
        assert!(failure.message.contains(dir.to_str().unwrap()) && !failure.causes.is_empty());
    }
    assert_eq!(names(out.path()), ["file".to_owned(), "project".to_owned()].into());
    // An export of a lost object fails and leaves nothing.
    for pack in fs::read_dir(bench.home().join("store/packs")).unwrap() {
        fs::write(pack.unwrap().path(), "").unwrap();
    }
    let error = bench
        .manager
        .export_checkpoint(&then, &out.path().join("new"), safepoint::OutsideMemory::Omitted, &Silent)
        .unwrap_err();
    assert!(["missing", "damaged", "store"].contains(&Failure::from(&error).code), "{error:?}");
    assert!(!out.path().join("new").exists());
}

#[test]
fn ten_thousand_files() {
    let (bench, out) = (Bench::new(), scratch());
    for number in 0..10_000 {
        bench.write(&format!("{}/{}/{number}", number % 7, number % 113), format!("content {number}"));
    }
    let then = bench.create();
    let exported = bench
        .manager
        .export_checkpoint(&then, out.path(), safepoint::OutsideMemory::Omitted, &Silent)
        .unwrap();
    assert_eq!(exported.files, 10_000);
    let imported = import(&bench, &exported.path).unwrap();
    assert_eq!(files(&imported.checkpoint), files(&then));
}

#[test]
fn deeply_nested_folders() {
    let (bench, out) = (Bench::new(), scratch());
    let mut deep = bench.root();
    for _ in 0..600 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    let then = bench.create();
    let imported = import(&bench, &export(&bench, &then, out.path())).unwrap();
    assert_eq!(files(&imported.checkpoint), files(&then));
}

fn plan(bench: &Bench, id: &str, command: &str) {
    let run = |id: &str, run: &str| StepSpec { run: Some(run.to_owned()), ..StepSpec::new(id) };
    let spec = PlanSpec {
        id: Some(id.to_owned()),
        steps: vec![run("one", command), run("two", "true")],
        ..PlanSpec::new("A plan")
    };
    bench.manager.plans().create(&bench.workspace, &spec).unwrap();
}

fn work(bench: &Bench, id: &str) -> Checkpoint {
    bench.manager.plans().start_step(id, "one", &Silent).unwrap();
    bench
        .manager
        .plans()
        .finish_step(id, "one", Some(json!({ "half": 0.1, "list": [1, null] })), &Silent)
        .unwrap();
    bench.manager.plans().set_context(id, "key", Some(json!({ "deep": { "er": "\u{fc}" } }))).unwrap();
    bench.manager.plans().checkpoint(id, &CreateOptions::default(), &Silent).unwrap().checkpoint
}

#[test]
fn a_plan_that_is_there_comes_back_with_its_files() {
    let (bench, out) = (Bench::new(), scratch());
    bench.write("file", "good");
    plan(&bench, "work", "echo printed");
    let then = work(&bench, "work");
    let state = bench.manager.plans().get("work").unwrap().plan;
    let path = export(&bench, &then, out.path());
    assert!(path.starts_with(out.path().join("workflow")), "{path:?}");
    let folder = read_json(&path.join("task_tool_state/work.json"));
    assert_eq!(folder, serde_json::to_value(&state).unwrap());
    assert_eq!(read_json(&path.join("workflow_state.json"))["plans"][0]["id"], "work");
    bench.manager.plans().start_step("work", "two", &Silent).unwrap();
    bench.write("file", "bad");
    let imported = import(&bench, &path).unwrap().checkpoint;
    assert_eq!(imported.integrity, then.integrity);
    assert_eq!((imported.scope, imported.plan_id.as_deref()), (Scope::Workflow, Some("work")));
    assert_eq!((imported.step_index, imported.state_hash), (then.step_index, then.state_hash));
    assert_eq!(imported.warnings, [""; 0]);
    bench.manager.plans().rollback("work", imported.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(bench.manager.plans().get("work").unwrap().plan, state);
    assert_eq!(bench.read("file"), "good");
}

#[test]
fn what_the_steps_of_a_plan_printed_comes_along() {
    let (bench, out) = (Bench::new(), scratch());
    plan(&bench, "work", "echo printed");
    bench.manager.plans().run("work", &safepoint::RunOptions::default(), &Unseen, &Silent).unwrap();
    let then =
        bench.manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap().checkpoint;
    let path = export(&bench, &then, out.path());
    let logs = names(&path.join("task_tool_state/work.logs"));
    let log = path.join("task_tool_state/work.logs").join(logs.first().unwrap());
    assert_eq!(fs::read_to_string(&log).unwrap(), "printed\n");
    let there = Bench::new();
    let imported = import(&there, &path).unwrap().checkpoint;
    let validation = there.manager.upkeep().validate(Some(&imported), Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    fs::remove_file(log).unwrap();
    let error = import(&there, &path).unwrap_err().to_string();
    assert!(error.contains("work.logs/") && error.contains("is missing"), "{error}");
}

#[test]
fn a_plan_that_is_not_there_is_kept_and_the_files_come_alone() {
    let (here, there, out) = (Bench::new(), Bench::new(), scratch());
    here.write("file", "good");
    plan(&here, "work", "make");
    let then = work(&here, "work");
    let path = export(&here, &then, out.path());
    let imported = import(&there, &path).unwrap().checkpoint;
    assert_eq!((imported.scope, &imported.plan_id, imported.parts.len()), (Scope::Project, &None, 1));
    assert_eq!(imported.state_snapshot, then.state_snapshot);
    assert!(imported.warnings[0].contains("there is no plan \"work\" here"), "{:?}", imported.warnings);
    there.rollback(imported.id);
    assert_eq!(there.read("file"), "good");
    // A collection keeps it, and so does an export.
    there.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let again = export(&there, &imported, out.path());
    assert!(again.starts_with(out.path().join("project")));
    assert_eq!(
        fs::read(again.join("task_tool_state/work.json")).unwrap(),
        fs::read(path.join("task_tool_state/work.json")).unwrap()
    );
    let validation = there.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    assert_eq!(import(&here, &again).unwrap().checkpoint.integrity, then.integrity);
}

#[test]
fn an_import_brings_no_commands() {
    let (here, there, out) = (Bench::new(), Bench::new(), scratch());
    plan(&here, "work", "rm -rf /");
    plan(&there, "work", "make");
    let path = export(&here, &work(&here, "work"), out.path());
    let imported = import(&there, &path).unwrap().checkpoint;
    assert_eq!((imported.plan_id, imported.parts.len()), (None, 1));
    assert!(imported.warnings[0].contains("brings no commands"), "{:?}", imported.warnings);
    // It is not restored into a plan of another workspace, or into a finished one.
    let other = scratch();
    let workspace = here.manager.workspaces().register(other.path()).unwrap();
    let options = ImportOptions::default();
    let imported = here.manager.import(&workspace, &path, &options, &Silent).unwrap().checkpoint;
    assert!(imported.warnings[0].contains("works in another workspace"), "{:?}", imported.warnings);
}

#[test]
fn parts_of_every_kind_have_their_place() {
    let (bench, out) = (Bench::new(), scratch());
    bench.write("file", "1");
    bench.manager.agents().register("coder", &[], &[]).unwrap();
    let agent = bench.manager.create(Subject::Agent("coder".to_owned()), &CreateOptions::default(), &Silent);
    let agent = agent.unwrap().checkpoint.parts[0].document;
    let then = bench.create();
    let part = |kind, key: &str, document| PartRecord { kind, key: key.to_owned(), document };
    // Invalid names that no checkpoint has, for hostile layouts.
    let parts = vec![
        part(PartKind::Files, "first/../../x", files(&then)),
        part(PartKind::Files, "second", files(&then)),
        part(PartKind::Agent, "Coder", agent),
        part(PartKind::Agent, "coder", agent),
        part(PartKind::Session, "s", files(&then)),
    ];
    for (scope, expected) in [
        (
            Scope::Framework,
            [
                "agent_configurations/Coder.json",
                "agent_configurations/coder_2.json",
                "active_workflows/session_s.json",
            ],
        ),
        (
            Scope::Agent,
            [
                "agent_configurations/Coder.json",
                "agent_configurations/coder_2.json",
                "agent_memory/session_s.json",
            ],
        ),
        (
            Scope::Project,
            ["agent_memory/Coder.json", "agent_memory/coder_2.json", "task_tool_state/session_s.json"],
        ),
    ] {
        let checkpoint = Checkpoint { scope, parts: parts.clone(), ..then.clone() };
        let path = export(&bench, &checkpoint, out.path());
        let last = path.file_name().unwrap().to_str().unwrap().to_owned();
        match scope {
            Scope::Framework => assert!(last.ends_with("_manual") && last.len() == 22, "{last}"),
            Scope::Agent => assert!(last.starts_with("Coder_"), "{last}"),
            _ => assert!(last.starts_with("project_"), "{last}"),
        }
        assert!(path.starts_with(out.path().join(scope.as_str())));
        assert!(path.join(format!("{scope}_state.json")).exists());
        for name in expected {
            assert!(path.join(name).is_file(), "{scope} {name}");
        }
        assert_eq!(names(&path.join("files")), ["first_.._.._x".to_owned(), "second".to_owned()].into());
        assert_eq!(fs::read(path.join("files/second/file")).unwrap(), b"1");
        let failure = Failure::from(&import(&bench, &path).unwrap_err());
        assert_eq!(failure.code, "not_importable", "{failure:?}");
        // Invalid keys are not accepted.
        let whole = bench.manager.import(None, &path, &ImportOptions::default(), &Silent).unwrap_err();
        let expected = if scope == Scope::Project { "not_importable" } else { "bad_layout" };
        assert_eq!(Failure::from(&whole).code, expected, "{whole}");
    }
    // With one workspace the files are imported, and other parts are reported.
    let parts = vec![parts[0].clone(), parts[2].clone(), parts[4].clone()];
    let checkpoint = Checkpoint { parts: parts.clone(), ..then.clone() };
    let imported = import(&bench, &export(&bench, &checkpoint, out.path())).unwrap().checkpoint;
    assert_eq!((files(&imported), imported.scope), (files(&then), Scope::Project));
    assert_eq!(imported.warnings.len(), 2);
    let none = Checkpoint { parts: Vec::new(), ..then.clone() };
    let failure = Failure::from(&import(&bench, &export(&bench, &none, out.path())).unwrap_err());
    assert_eq!(failure.code, "not_importable");
    // The single folder of an agent is no project state.
    for scope in [Scope::Agent, Scope::Framework] {
        let checkpoint = Checkpoint { scope, parts: parts.clone(), ..then.clone() };
        let failure = Failure::from(&import(&bench, &export(&bench, &checkpoint, out.path())).unwrap_err());
        assert_eq!(failure.code, "not_importable");
        assert!(failure.message.contains(&format!("of scope {scope}")), "{}", failure.message);
    }
}

#[test]
fn a_moment_that_is_yet_to_come_is_now() {
    let (bench, out) = (Bench::new(), scratch());
    let then = bench.create();
    let later =
        Checkpoint { created_at: Timestamp::from_micros(i64::MAX), id: CheckpointId::from_bits(7), ..then };
    let imported = import(&bench, &export(&bench, &later, out.path())).unwrap();
    assert!(imported.checkpoint.created_at < later.created_at);
    assert!(imported.checkpoint.warnings[0].contains("later than now"));
    assert_eq!(imported.original, later.id);
}

/// Number of trees; `PROPTEST_CASES` overrides it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_the_same(deeds in prop::collection::vec(deed(), 5..80)) {
        let (bench, there, out) = (Bench::new(), Bench::new(), scratch());
        for deed in &deeds {
            touch(&bench, deed);
        }
        let (then, image) = (bench.create(), bench.image());
        let path = export(&bench, &then, out.path());
        prop_assert_eq!(files(&import(&bench, &path).unwrap().checkpoint), files(&then));
        let imported = import(&there, &path).unwrap().checkpoint;
        prop_assert_eq!(files(&imported), files(&then));
        there.rollback(imported.id);
        assert_same(&there.image(), &image);
    }
}
