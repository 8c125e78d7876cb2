//! Checkpoints and rollbacks of everything and of agents: all folders or none.

use crate::bench::{Bench, assert_same, noise, unwatched};
use crate::runner::{Unseen, plan};
use crate::space::damage;
use safepoint::model::checkpoint::{PartKind, Scope};
use safepoint::model::plan::state::{PlanState, StepState};
use safepoint::model::rollback::{RollbackState, Strategy};
use safepoint::{
    Against, CreateOptions, Created, Depth, DryRun, Error, FailedUndo, Failure, FailureKind, Filter,
    FolderProblem, LeftAlone, Merge, NotUndoneReason, PlanFile, RollbackOptions, RunOptions, Search, Silent,
    Staged, StagedEnd, Strict, Subject, Thoroughness, Trial, TryIn, Until, Workspace,
};
use safepoint_testkit::TreeImage;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Three workspaces, one inside another; two agents, one with a folder and one with a file among others; a
/// plan.
pub(crate) struct World {
    pub(crate) bench: Bench,
    pub(crate) others: Vec<Workspace>,
    pub(crate) agents: PathBuf,
}

pub(crate) fn put(path: impl AsRef<Path>, content: &str) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn image(path: &Path) -> TreeImage {
    TreeImage::read(path, &[".safepoint"]).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        let bench = Bench::new();
        let top = bench.root().parent().unwrap().to_owned();
        bench.write("main.rs", "fn main() {}");
        let mut others = Vec::new();
        for name in ["second", "project/nested"] {
            put(top.join(name).join("file"), name);
            others.push(bench.manager.workspaces().register(&top.join(name)).unwrap());
        }
        let agents = top.join("agents");
        put(agents.join("memory/notes.md"), "remember");
        put(agents.join("settings *.json"), "{}");
        put(agents.join("sibling"), "not the agent's");
        let manager = &bench.manager;
        manager.agents().register("claude", &[], &[agents.join("memory")]).unwrap();
        manager.agents().register("codex", &[agents.join("settings *.json")], &[]).unwrap();
        manager.agents().set("codex", "model", json!("large")).unwrap();
        plan(&bench, "[[step]]\nid = 'one'\n[[step]]\nid = 'two'");
        bench.manager.plans().start_step("work", "one", &Silent).unwrap();
        Self { bench, others, agents }
    }

    pub(crate) fn everything(&self) -> Vec<TreeImage> {
        let mut roots = vec![self.bench.root(), self.agents.clone()];
        roots.extend(self.others.iter().map(|workspace| workspace.root_path().to_owned()));
        roots.iter().map(|root| image(root)).collect()
    }

    pub(crate) fn create(&self, whole: &Subject) -> Created {
        self.bench.manager.create(whole, &CreateOptions::default(), &Silent).unwrap()
    }

    /// Breaks every folder.
    pub(crate) fn disaster(&self) {
        self.bench.write("main.rs", "broken");
        self.bench.write("junk/x", "junk");
        fs::remove_file(self.others[0].root_path().join("file")).unwrap();
        put(self.others[1].root_path().join("file"), "nested and broken");
        put(self.agents.join("memory/notes.md"), "forgotten");
        put(self.agents.join("memory/lies.md"), "lies");
        fs::remove_file(self.agents.join("settings *.json")).unwrap();
        self.bench.manager.agents().set("codex", "model", json!("small")).unwrap();
        self.bench.manager.plans().finish_step("work", "one", None, &Silent).unwrap();
    }
}

pub(crate) fn assert_all(now: &[TreeImage], then: &[TreeImage]) {
    for (now, then) in now.iter().zip(then) {
        assert_same(now, then);
    }
}

#[test]
fn everything_goes_back_together_and_so_does_the_undo() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    assert_eq!(created.checkpoint.scope, Scope::Framework);
    assert_eq!((created.checkpoint.count(PartKind::Agent), created.checkpoint.count(PartKind::Plan)), (2, 1));
    assert_eq!(
        created.checkpoint.count(PartKind::Files),
        6,
        "three workspaces, two folders of agents, and the home's own settings"
    );
    assert!(created.checkpoint.warnings.is_empty(), "{:?}", created.checkpoint.warnings);
    let (then, plan_then) = (world.everything(), manager.plans().get("work").unwrap().plan);
    world.disaster();
    // Files beside the agent's are ignored.
    put(world.agents.join("sibling"), "changed by somebody");
    let mut later = world.everything();
    let plan_later = manager.plans().get("work").unwrap().plan;

    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    let shown = manager.rollback(None, created.checkpoint.id, &dry, &Silent).unwrap();
    assert!(shown.folders.iter().any(|folder| folder.outline.restored > 0));
    assert_all(&world.everything(), &later);

    let options = RollbackOptions::default();
    let restored = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert!(restored.verified);
    assert_eq!((restored.plans.len(), restored.agents.len()), (1, 2));
    assert!(restored.warnings.is_empty(), "{:?}", restored.warnings);
    let left: Vec<_> = restored.effects_not_undone.iter().map(|it| (&*it.plan, &*it.step)).collect();
    assert_eq!(left, [("work", "one")]);
    assert_eq!(fs::read_to_string(world.agents.join("sibling")).unwrap(), "changed by somebody");
    put(world.agents.join("sibling"), "not the agent's");
    assert_all(&world.everything(), &then);
    assert_eq!(manager.plans().get("work").unwrap().plan, plan_then);
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "large");
    for record in restored.folders.iter().map(|folder| &folder.record) {
        assert_eq!((record.state, record.together), (RollbackState::Settled, Some(restored.id)));
    }
    put(world.agents.join("sibling"), "changed by somebody");
    manager.undo(&world.others[0], &options, &Silent).unwrap();
    later[1] = image(&world.agents);
    assert_all(&world.everything(), &later);
    assert_eq!(manager.plans().get("work").unwrap().plan, plan_later);
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "small");
    manager.redo(&world.bench.workspace, &options, &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn a_plan_that_was_applied_is_left_alone_and_everything_else_goes_back() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    let then = world.everything();
    world.disaster();
    manager.plans().start_step("work", "two", &Silent).unwrap();
    manager.plans().finish_step("work", "two", None, &Silent).unwrap();
    manager.plans().apply("work", Merge::default(), &Silent).unwrap();
    let now = world.everything();
    let strict = RollbackOptions { strict: Strict::Yes, ..RollbackOptions::default() };
    let error = manager.rollback(None, created.checkpoint.id, &strict, &Silent).unwrap_err();
    assert!(matches!(error, Error::PlanApplied { .. }), "{error:?}");
    assert_all(&world.everything(), &now);
    let options = RollbackOptions::default();
    let done = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(done.left_alone, [LeftAlone::PlanApplied { plan: "work".to_owned() }]);
    assert!(done.plans.is_empty());
    assert_all(&world.everything(), &then);
    assert_eq!(manager.plans().get("work").unwrap().plan.state, PlanState::Applied);
    manager.undo(None, &options, &Silent).unwrap();
    assert_all(&world.everything(), &now);
    // By name it is refused: then it is what was asked for.
    let plan = RollbackOptions { parts: vec![PartKind::Plan], ..options };
    let error = manager.rollback(None, created.checkpoint.id, &plan, &Silent).unwrap_err();
    assert!(matches!(error, Error::PlanApplied { .. }), "{error:?}");
}

#[test]
fn the_sandbox_of_a_plan_that_was_applied_is_left_alone() {
    let world = World::new();
    let manager = &world.bench.manager;
    let text = "title = 'Apart'\nid = 'apart'\nsandbox = { kind = 'copy' }\n[[step]]\nid = 'one'\nrun = 'echo apart > apart'\n";
    let file = PlanFile::parse(text.as_bytes(), None).unwrap();
    manager.plans().create(&world.bench.workspace, &file.spec).unwrap();
    manager.plans().start_step("apart", "one", &Silent).unwrap();
    let created = world.create(&Subject::Framework);
    manager.plans().finish_step("apart", "one", None, &Silent).unwrap();
    manager.plans().apply("apart", Merge::default(), &Silent).unwrap();
    world.disaster();
    let options = RollbackOptions::default();
    let done = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(done.left_alone, [LeftAlone::PlanApplied { plan: "apart".to_owned() }]);
    assert_eq!(done.plans.len(), 1);
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
}

#[test]
fn a_plan_whose_sandbox_is_missing_is_left_alone_and_everything_else_goes_back() {
    let world = World::new();
    let manager = &world.bench.manager;
    let text = "title = 'Apart'\nid = 'apart'\nsandbox = { kind = 'copy' }\n[[step]]\nid = 'one'";
    let file = PlanFile::parse(text.as_bytes(), None).unwrap();
    manager.plans().create(&world.bench.workspace, &file.spec).unwrap();
    manager.plans().start_step("apart", "one", &Silent).unwrap();
    let created = world.create(&Subject::Framework);
    let then = world.everything();
    let sandbox = manager.plans().sandbox(&manager.plans().get("apart").unwrap()).unwrap().unwrap().path;
    fs::remove_dir_all(&sandbox).unwrap();
    world.disaster();
    let now = world.everything();
    for options in [
        RollbackOptions { strict: Strict::Yes, ..RollbackOptions::default() },
        RollbackOptions { parts: vec![PartKind::Plan], ..RollbackOptions::default() },
    ] {
        let error = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap_err();
        assert!(matches!(&error, Error::SandboxMissing { id, .. } if id == "apart"), "{error:?}");
        assert!(Failure::from(&error).hints[0].contains("--recreate-sandbox"));
        assert_all(&world.everything(), &now);
    }
    let done = manager.rollback(None, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    let folder = sandbox.to_string_lossy().into_owned();
    assert_eq!(done.left_alone, [LeftAlone::SandboxMissing { plan: "apart".to_owned(), folder }]);
    assert_eq!((done.plans.len(), done.plans[0].0.as_str()), (1, "work"));
    assert_all(&world.everything(), &then);
    manager.undo(None, &RollbackOptions::default(), &Silent).unwrap();
    assert_all(&world.everything(), &now);
}

#[test]
fn a_folder_that_is_a_file_now_is_left_alone_with_its_plans_and_agents() {
    let world = World::new();
    let manager = &world.bench.manager;
    let text = "title = 'There'\nid = 'there'\n[[step]]\nid = 'one'";
    manager.plans().create(&world.others[0], &PlanFile::parse(text.as_bytes(), None).unwrap().spec).unwrap();
    let created = world.create(&Subject::Framework);
    world.disaster();
    manager.plans().start_step("there", "one", &Silent).unwrap();
    let (second, memory) = (world.others[0].root_path().to_owned(), world.agents.join("memory"));
    for folder in [&second, &memory] {
        fs::remove_dir_all(folder).unwrap();
        fs::write(folder, "a file now").unwrap();
    }
    let options = RollbackOptions::default();
    let strict = RollbackOptions { strict: Strict::Yes, ..RollbackOptions::default() };
    manager.rollback(None, created.checkpoint.id, &strict, &Silent).unwrap_err();
    assert_eq!(world.bench.read("main.rs"), "broken");
    let done = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    let left = |folder: &Path, plans: &[&str], agents: &[&str]| LeftAlone::FolderUnusable {
        folder: folder.to_string_lossy().into_owned(),
        why: FolderProblem::NotAFolder,
        plans: plans.iter().map(|&it| it.to_owned()).collect(),
        agents: agents.iter().map(|&it| it.to_owned()).collect(),
    };
    let expected = [left(&second, &["there"], &[]), left(&memory, &[], &["claude"])];
    assert_eq!(done.left_alone.len(), expected.len(), "{:?}", done.left_alone);
    assert!(expected.iter().all(|one| done.left_alone.contains(one)), "{:?}", done.left_alone);
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    assert_eq!(manager.plans().get("there").unwrap().plan.steps[0].state, StepState::Running);
    assert_eq!(fs::read_to_string(&second).unwrap(), "a file now");
    manager.undo(None, &options, &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "broken");
}

#[test]
fn the_history_without_a_workspace_has_each_rollback_of_several_folders_once() {
    let world = World::new();
    let manager = &world.bench.manager;
    assert!(manager.history(None).unwrap().is_empty());
    let created = world.create(&Subject::Framework);
    world.disaster();
    let own = world.bench.create();
    world.bench.write("main.rs", "again");
    world.bench.rollback(own.id);
    assert!(manager.history(None).unwrap().is_empty(), "a rollback of one folder is not one of several");
    let options = RollbackOptions::default();
    let done = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    let undone = manager.undo(None, &options, &Silent).unwrap();
    let history = manager.history(None).unwrap();
    let told: Vec<_> = history.iter().map(|it| (it.id.clone(), it.verb, it.result)).collect();
    assert_eq!(told, [(undone.id.to_string(), "undo", "done"), (done.id.to_string(), "rollback", "done")]);
    // An agent has folders that are no project.
    let agent = world.create(&Subject::Agent("claude".to_owned()));
    put(world.agents.join("memory/notes.md"), "forgotten");
    let done = manager.rollback(None, agent.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(manager.history(None).unwrap()[0].id, done.id.to_string());
}

#[test]
fn a_folder_that_was_deleted_is_made_again() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    let then = world.everything();
    let (second, memory) = (world.others[0].root_path().to_owned(), world.agents.join("memory"));
    fs::remove_dir_all(&second).unwrap();
    fs::remove_dir_all(&memory).unwrap();
    let strict = RollbackOptions { strict: Strict::Yes, ..RollbackOptions::default() };
    let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
    manager.rollback(None, created.checkpoint.id, &strict, &Silent).unwrap_err();
    let shown = manager.rollback(None, created.checkpoint.id, &dry, &Silent).unwrap();
    assert!(shown.folders.iter().any(|folder| folder.outline.restored > 0));
    assert!(!second.exists() && !memory.exists(), "neither a refusal nor a dry run makes them");
    let options = RollbackOptions::default();
    manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert_all(&world.everything(), &then);
    // What could not be carried out leaves no empty folder behind.
    fs::remove_dir_all(&second).unwrap();
    let blocked = world.others[1].root_path().join("file");
    fs::remove_file(&blocked).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&blocked).unwrap();
    manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap_err();
    assert!(!second.exists());
}

#[test]
fn where_one_folder_cannot_nothing_changes_anywhere() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    world.disaster();
    // An uncaptured socket is at the path of a checkpoint's file.
    let file = world.others[0].root_path().join("file");
    let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
    let before: Vec<TreeImage> = vec![image(&world.bench.root()), image(&world.agents)];
    let error =
        manager.rollback(None, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Conflict, "{error}");
    assert_all(&[image(&world.bench.root()), image(&world.agents)], &before);
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "small");
    assert!(!world.bench.path(".safepoint").exists());
    // Every folder records the attempt.
    let refused = |workspace: &Workspace| {
        let all = manager.rollbacks(workspace).unwrap();
        let last = all.last().unwrap();
        assert_eq!(last.state, RollbackState::Refused);
        assert_eq!(last.safety_checkpoint, None);
        assert!(last.error.as_ref().unwrap().contains("file"), "{:?}", last.error);
        last.together.unwrap()
    };
    assert_eq!(refused(&world.bench.workspace), refused(&world.others[0]));
    fs::remove_file(&file).unwrap();
    manager.rollback(None, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    assert!(file.is_file());
}

#[test]
fn where_one_folder_cannot_be_staged_no_stage_is_left_in_another() {
    for damaged in 0..3 {
        let world = World::new();
        let roots = [
            world.bench.root(),
            world.others[0].root_path().to_owned(),
            world.others[1].root_path().to_owned(),
        ];
        let content = noise(7, 50_000);
        fs::write(roots[damaged].join("large"), &content).unwrap();
        let created = world.create(&Subject::Framework);
        world.disaster();
        fs::write(roots[damaged].join("large"), "changed").unwrap();
        damage(&world.bench, &content[1000..1100]);
        let options = RollbackOptions::default();
        world.bench.manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap_err();
        for root in &roots {
            assert!(!root.join(".safepoint").exists(), "{damaged} {root:?}");
        }
    }
}

#[test]
fn an_agent_goes_back_alone_with_its_own_paths_and_no_others() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Agent("codex".to_owned()));
    assert_eq!((created.checkpoint.scope, created.checkpoint.count(PartKind::Files)), (Scope::Agent, 1));
    world.disaster();
    let project = image(&world.bench.root());
    let restored =
        manager.rollback(None, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    assert_eq!(restored.agents, ["codex"]);
    assert_eq!(fs::read_to_string(world.agents.join("settings *.json")).unwrap(), "{}");
    assert_eq!(fs::read_to_string(world.agents.join("memory/notes.md")).unwrap(), "forgotten");
    assert_eq!(manager.agents().get("codex").unwrap().agent.settings["model"], "large");
    assert_same(&image(&world.bench.root()), &project);
    let error = manager.create(Subject::Agent("x".to_owned()), &CreateOptions::default(), &Silent);
    assert_eq!(Failure::from(&error.unwrap_err()).code, "no_agent");
}

#[test]
fn a_part_of_everything_goes_back_alone() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    world.disaster();
    let part = |part| RollbackOptions { parts: vec![part], ..RollbackOptions::default() };
    let restored = manager.rollback(None, created.checkpoint.id, &part(PartKind::Agent), &Silent).unwrap();
    assert_eq!((restored.plans.len(), restored.agents.len()), (0, 2));
    assert_eq!(fs::read_to_string(world.agents.join("memory/notes.md")).unwrap(), "remember");
    assert_eq!(world.bench.read("main.rs"), "broken");
    let before = manager.plans().get("work").unwrap().plan;
    manager.rollback(None, created.checkpoint.id, &part(PartKind::Plan), &Silent).unwrap();
    assert_ne!(manager.plans().get("work").unwrap().plan, before);
    assert_eq!(world.bench.read("main.rs"), "broken");
    manager.rollback(None, created.checkpoint.id, &part(PartKind::Files), &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    // Also chosen paths of one workspace.
    world.disaster_again();
    let options = RollbackOptions { paths: vec!["main.rs".parse_path()], ..RollbackOptions::default() };
    manager.rollback(&world.bench.workspace, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    let whole =
        manager.rollback(&world.bench.workspace, created.checkpoint.id, &RollbackOptions::default(), &Silent);
    assert!(matches!(whole, Err(Error::GoesTogether { .. })));
}

#[test]
fn an_undo_takes_back_what_was_chosen_and_nothing_else() {
    for chosen in [PartKind::Plan, PartKind::Agent] {
        let world = World::new();
        let manager = &world.bench.manager;
        let created = world.create(&Subject::Framework);
        world.disaster();
        let (plan, memory) =
            (manager.plans().get("work").unwrap().plan, world.agents.join("memory/notes.md"));
        let options = RollbackOptions { parts: vec![chosen], ..RollbackOptions::default() };
        manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
        world.bench.write("main.rs", "edited since");
        manager.undo(None, &RollbackOptions::default(), &Silent).unwrap();
        assert_eq!(world.bench.read("main.rs"), "edited since", "{chosen}");
        assert_eq!(manager.plans().get("work").unwrap().plan, plan, "{chosen}");
        assert_eq!(fs::read_to_string(&memory).unwrap(), "forgotten", "{chosen}");
    }
}

trait ParsePath {
    fn parse_path(&self) -> safepoint::model::RelPath;
}

impl ParsePath for str {
    fn parse_path(&self) -> safepoint::model::RelPath {
        safepoint::model::RelPath::new(self).unwrap()
    }
}

impl World {
    fn disaster_again(&self) {
        self.bench.write("main.rs", "broken");
    }
}

#[test]
fn a_purge_reaches_what_was_taken_together() {
    let world = World::new();
    let manager = &world.bench.manager;
    world.bench.write("secret", "the key");
    let created = world.create(&Subject::Framework);
    fs::remove_file(world.bench.path("secret")).unwrap();
    let report = manager.upkeep().purge(&world.bench.workspace, &["secret".parse_path()], &Silent).unwrap();
    assert_eq!(report.checkpoints, [created.checkpoint.id]);
    manager.rollback(None, created.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    assert!(!world.bench.path("secret").exists());
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
}

#[test]
fn folders_that_are_gone_and_agents_that_are_odd_are_told() {
    let world = World::new();
    let manager = &world.bench.manager;
    fs::remove_dir_all(world.others[0].root_path()).unwrap();
    fs::remove_dir_all(world.agents.join("memory")).unwrap();
    let created = world.create(&Subject::Framework);
    assert_eq!(created.checkpoint.warnings.len(), 1, "{:?}", created.checkpoint.warnings);
    assert!(created.checkpoint.warnings[0].ends_with("second is missing"));
    for bad in ["relative", "/", "/a/../b"] {
        assert!(manager.agents().register("a", &[PathBuf::from(bad)], &[]).is_err(), "{bad}");
    }
    assert!(manager.agents().register("../a", &[], &[]).is_err());
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"odd \xff");
    let error = manager.agents().register("a", &[world.agents.join(odd)], &[]).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    assert!(
        manager.agents().set("nobody", "k", json!(1)).is_err() && manager.agents().remove("nobody").is_err()
    );
    manager.agents().set("codex", "model", json!(null)).unwrap();
    assert!(manager.agents().get("codex").unwrap().agent.settings.is_empty());
    manager.agents().remove("codex").unwrap();
    assert_eq!(manager.agents().list().unwrap().len(), 1);
    // The folder of an agent is not a project.
    assert_eq!(manager.workspaces().around(&world.agents).unwrap(), None);
    assert_eq!(manager.workspaces().list().unwrap().len(), 3);
    let project = manager.workspaces().register(&world.agents).unwrap();
    assert_eq!(manager.workspaces().around(&world.agents).unwrap().unwrap().id, project.id);
    assert_eq!(manager.plans().get("work").unwrap().plan.state, PlanState::Running);
    let all = manager.checkpoints().list(&Filter::default()).unwrap();
    assert!(all.iter().any(|checkpoint| checkpoint.id == created.checkpoint.id));
}

#[test]
fn what_is_taken_together_is_pruned_by_its_own_policy_and_each_plan_by_itself() {
    let world = World::new();
    let manager = &world.bench.manager;
    let config = "[retention]
        keep_last = 2
        keep_within = \"0s\"
        thin_daily_for = \"0s\"
        [retention_framework]
        keep_last = 1
        [retention_workflow]
        keep_last = 3";
    fs::write(world.bench.home().join("config.toml"), config).unwrap();
    for _ in 0..4 {
        world.create(&Subject::Framework);
        world.bench.create();
        manager.plans().checkpoint("work", &CreateOptions::default(), &Silent).unwrap();
    }
    let all = manager.checkpoints().list(&Filter::default()).unwrap();
    let count = |scope: Scope| all.iter().filter(|checkpoint| checkpoint.scope == scope).count();
    // The newest of a project is also the workspace's head; the plan's rollback target stays as well.
    assert_eq!(count(Scope::Framework), 1, "{all:?}");
    assert_eq!(count(Scope::Project), 2);
    assert!((3..=4).contains(&count(Scope::Workflow)), "{}", count(Scope::Workflow));
}

/// Creates a plan whose only step leaves an external mark and can undo it.
fn with_effects() -> (World, PathBuf) {
    let world = World::new();
    let outside = world.bench.root().parent().unwrap().join("outside");
    let text = format!(
        "title = 'Marks'\nid = 'marks'\n\
         [[step]]\nid = 'mark'\nrun = 'echo done >> {0}'\nundo = 'echo undone >> {0}'\n",
        outside.display()
    );
    let file = PlanFile::parse(text.as_bytes(), None).unwrap();
    world.bench.manager.plans().create(&world.bench.workspace, &file.spec).unwrap();
    (world, outside)
}

fn run_marks(world: &World) {
    world.bench.manager.plans().run("marks", &RunOptions::default(), &Unseen, &Silent).unwrap();
}

#[test]
fn what_steps_did_outside_is_undone_before_everything_goes_back() {
    let (world, outside) = with_effects();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    let then = world.everything();
    run_marks(&world);
    world.disaster();
    let read = || fs::read_to_string(&outside).unwrap();
    assert_eq!(read(), "done\n");
    let options = RollbackOptions::default();
    let restored = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(read(), "done\nundone\n");
    assert_all(&world.everything(), &then);
    let undone: Vec<_> = restored.undone.iter().map(|it| (&*it.plan, &*it.step, it.ran)).collect();
    assert_eq!(undone, [("marks", "mark", true)]);
    // One run is enough, and a refused rollback runs nothing.
    manager.undo(&world.bench.workspace, &options, &Silent).unwrap();
    manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(read(), "done\nundone\n");
}

#[test]
fn an_undo_command_that_fails_stops_all_of_it_and_is_on_record() {
    let (world, outside) = with_effects();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework);
    run_marks(&world);
    world.disaster();
    fs::remove_file(&outside).unwrap();
    fs::create_dir(&outside).unwrap();
    let before = world.everything();
    let options = RollbackOptions::default();
    let error = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap_err();
    assert!(matches!(error, Error::UndoFailed { .. }), "{error:?}");
    assert_all(&world.everything(), &before);
    let last = manager.rollbacks(&world.others[0]).unwrap().pop().unwrap();
    assert_eq!(last.state, RollbackState::Refused);
    let options = RollbackOptions { failed_undo: FailedUndo::IsSkipped, ..options };
    let restored = manager.rollback(None, created.checkpoint.id, &options, &Silent).unwrap();
    assert!(restored.effects_not_undone.iter().any(|it| matches!(it.why, NotUndoneReason::Failed { .. })));
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
}

#[test]
fn everything_is_tried_beside_its_folders_and_done_when_all_agree() {
    let world = World::new();
    let manager = &world.bench.manager;
    let to = world.create(&Subject::Framework).checkpoint.id;
    let then = world.everything();
    world.disaster();
    let now = world.everything();
    let staged = |here: &Workspace, command: &str, yes: bool| {
        let mut agreed = |staged: &Staged| {
            assert!(staged.outline.folders.len() > 3);
            yes
        };
        let trial = Trial { command: Some(command), agreed: &mut agreed, printed: &mut |_| () };
        let options = RollbackOptions::default();
        manager.rollback_staged(here, to, &options, trial, &Silent).unwrap()
    };
    // A folder that does not go back is checked as it is now.
    let agents = RollbackOptions { parts: vec![PartKind::Agent], ..RollbackOptions::default() };
    let command = Some("! grep -q 'fn main' main.rs");
    let trial = Trial { command, agreed: &mut |_| false, printed: &mut |_| () };
    let end = manager.rollback_staged(&world.bench.workspace, to, &agents, trial, &Silent).unwrap();
    assert!(matches!(&end, StagedEnd::Left(left) if left.check.as_ref().unwrap().is_passed()), "{end:?}");
    // In one of its folders, the command runs in that folder's target, with the others beside it.
    let here = "grep -q 'fn main' main.rs && test -e $SAFEPOINT_TARGET/second/file";
    for (command, yes) in [("false", true), (here, false)] {
        assert!(matches!(staged(&world.bench.workspace, command, yes), StagedEnd::Left(_)), "{command}");
        assert_all(&world.everything(), &now);
    }
    let end = staged(&world.bench.workspace, here, true);
    let StagedEnd::Done(restored, _) = end else { panic!("{end:?}") };
    assert_eq!(restored.record().strategy, Strategy::Staged);
    assert_all(&world.everything(), &then);
    // Elsewhere, it runs beside all targets.
    let elsewhere =
        manager.workspaces().register(&world.agents.parent().unwrap().join("outside")).map_err(drop);
    assert!(elsewhere.is_err(), "the folder does not exist");
    fs::create_dir(world.agents.parent().unwrap().join("third")).unwrap();
    let third = manager.workspaces().register(&world.agents.parent().unwrap().join("third")).unwrap();
    assert!(matches!(
        staged(&third, "test -e second/file && test -e project/main.rs", true),
        StagedEnd::Done(..)
    ));
}

#[test]
fn everything_goes_back_step_by_step_to_the_newest_good_state() {
    let world = World::new();
    let manager = &world.bench.manager;
    let mut all = Vec::new();
    for at in 0..6 {
        world.bench.write("main.rs", format!("version {at}"));
        put(world.others[0].root_path().join("file"), &format!("other {at}"));
        all.push(world.create(&Subject::Framework).checkpoint);
        world.create(&Subject::Agent("codex".to_owned()));
        world.bench.create();
    }
    let newest = all.last().unwrap();
    let go = |command: &str, (search, place)| {
        let until = Until { command: command.to_owned(), from: Some(newest.id), search, place, plan: None };
        let options = RollbackOptions::default();
        unwatched(|watch| manager.rollback_until(&world.bench.workspace, &until, &options, watch, &Silent))
    };
    let (copy, workspace) = (TryIn::Copy, TryIn::Workspace);
    for (search, place) in [
        (Search::Stepwise, copy),
        (Search::Bisect, copy),
        (Search::Stepwise, workspace),
        (Search::Bisect, workspace),
    ] {
        world.bench.write("main.rs", "present");
        let (was, rows) = (world.everything(), manager.rollbacks(&world.bench.workspace).unwrap().len());
        let found = go("grep -q 'version [0-2]' main.rs", (search, place)).unwrap();
        assert_eq!(found.restored.unwrap().to, all[2].id, "{search:?}");
        assert_eq!(manager.rollbacks(&world.bench.workspace).unwrap().len(), rows + 1, "one record");
        let undo = RollbackOptions::default();
        manager.undo(&world.bench.workspace, &undo, &Silent).unwrap();
        assert_all(&world.everything(), &was);
        manager.redo(&world.bench.workspace, &undo, &Silent).unwrap();
        assert_eq!(world.bench.read("main.rs"), "version 2");
        let other = fs::read_to_string(world.others[0].root_path().join("file")).unwrap();
        assert_eq!(other, "other 2");
        let tried = if search == Search::Bisect { 2..=5 } else { 4..=4 };
        assert!(tried.contains(&found.tried.len()), "{:?}", found.tried);
        let before = world.everything();
        let none = go("false", (search, place)).unwrap();
        assert!(none.restored.is_none());
        assert_all(&world.everything(), &before);
    }
    // Checkpoints of one agent form a separate series.
    let agent = world.create(&Subject::Agent("claude".to_owned())).checkpoint;
    let (command, search) = ("false".to_owned(), Search::Stepwise);
    let until = Until { command, from: Some(agent.id), search, place: TryIn::Copy, plan: None };
    let options = RollbackOptions::default();
    let here = &world.bench.workspace;
    let none = unwatched(|watch| manager.rollback_until(here, &until, &options, watch, &Silent).unwrap());
    assert_eq!(none.tried.len(), 1);
}

#[test]
fn a_probe_sees_every_folder_as_it_was_and_leaves_none_changed() {
    let world = World::new();
    let (manager, top) = (&world.bench.manager, world.agents.parent().unwrap());
    let mut newest = None;
    for at in 0..3 {
        world.bench.write("main.rs", format!("main {at}"));
        put(world.others[0].root_path().join("file"), &format!("second {at}"));
        put(world.others[1].root_path().join("file"), &format!("nested {at}"));
        put(world.agents.join("memory/notes.md"), &format!("notes {at}"));
        put(world.agents.join("settings *.json"), &format!("settings {at}"));
        newest = Some(world.create(&Subject::Framework).checkpoint);
    }
    world.disaster();
    let (before, newest) = (world.everything(), newest.unwrap());
    for place in [TryIn::Copy, TryIn::Workspace] {
        let seen = top.join("seen");
        let beside = if place == TryIn::Copy { "$SAFEPOINT_TARGET" } else { top.to_str().unwrap() };
        let command = format!(
            "cd {beside}; for it in project/main.rs project/nested/file second/file agents/memory/notes.md \
             'agents/settings *.json'; do cat \"$it\" >> {0}; echo wrecked > \"$it\"; done; echo >> {0}; \
             test ! -e agents/memory/lies.md || echo lies >> {0}; \
             echo new > agents/memory/new; echo new > second/new; echo new > project/nested/new; false",
            seen.display()
        );
        let (from, search) = (Some(newest.id), Search::Stepwise);
        let until = Until { command, from, search, place, plan: None };
        let options = RollbackOptions::default();
        let here = &world.bench.workspace;
        let none = unwatched(|watch| manager.rollback_until(here, &until, &options, watch, &Silent).unwrap());
        assert_eq!(none.tried.len(), 3, "{:?}", none.tried);
        let line = |at: usize| format!("main {at}nested {at}second {at}notes {at}settings {at}\n");
        assert_eq!(fs::read_to_string(&seen).unwrap(), line(2) + &line(1) + &line(0), "{place:?}");
        fs::remove_file(seen).unwrap();
        assert_all(&world.everything(), &before);
    }
}

#[test]
fn what_was_taken_together_is_looked_into_from_each_of_its_folders() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Subject::Framework).checkpoint;
    let later = manager.create(&world.others[0], &CreateOptions::default(), &Silent).unwrap().checkpoint;
    let folders = manager.checkpoints().folders_of(&created).unwrap();
    assert_eq!(folders.len(), 6);
    assert!(manager.checkpoints().folders_of(&later).unwrap().is_empty());
    world.disaster();
    let seen = safepoint::within(&created, world.others[0].id);
    let mut content = Vec::new();
    manager.checkpoints().cat(&seen, &"file".parse_path(), &mut content).unwrap();
    assert_eq!(content, b"second");
    assert_eq!(manager.checkpoints().entries(&seen).unwrap().len(), 1);
    let against = Against::Present;
    let changes = manager.diff(&world.others[0], &created, &against, &Silent).unwrap().changes;
    assert_eq!(changes.len(), 1);
    let two = Against::Checkpoint(Box::new(later.clone()));
    assert!(manager.diff(&world.others[0], &created, &two, &Silent).unwrap().changes.is_empty());
    assert_eq!(safepoint::within(&later, world.bench.workspace.id), later);
    let error = manager.checkpoints().entries(&created).unwrap_err();
    assert!(matches!(error, Error::NoFiles { .. }));
}
