//! Checkpoints and rollbacks of everything, and of agents: all folders or none.

use crate::bench::{Bench, assert_same};
use crate::runner::plan;
use safepoint::model::checkpoint::{PartKind, Scope};
use safepoint::model::plan::state::PlanState;
use safepoint::model::rollback::{RollbackState, Verb};
use safepoint::{
    CreateOptions, CreatedTogether, Depth, DryRun, Error, Failure, FailureKind, Filter, RestoreOptions,
    Silent, Thoroughness, Whole, Workspace,
};
use safepoint_testkit::TreeImage;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Three workspaces, one of them inside of another; two agents, one with a folder and one with a file among others; a plan.
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
            others.push(bench.manager.register(&top.join(name)).unwrap());
        }
        let agents = top.join("agents");
        put(agents.join("memory/notes.md"), "remember");
        put(agents.join("settings *.json"), "{}");
        put(agents.join("sibling"), "not the agent's");
        let manager = &bench.manager;
        manager.register_agent("claude", &[], &[agents.join("memory")]).unwrap();
        manager.register_agent("codex", &[agents.join("settings *.json")], &[]).unwrap();
        manager.set_agent("codex", "model", json!("large")).unwrap();
        plan(&bench, "[[step]]\nid = 'one'\n[[step]]\nid = 'two'");
        bench.manager.start_step("work", "one", &Silent).unwrap();
        Self { bench, others, agents }
    }

    pub(crate) fn everything(&self) -> Vec<TreeImage> {
        let mut roots = vec![self.bench.root(), self.agents.clone()];
        roots.extend(self.others.iter().map(|workspace| workspace.root_path().to_owned()));
        roots.iter().map(|root| image(root)).collect()
    }

    pub(crate) fn create(&self, whole: &Whole) -> CreatedTogether {
        self.bench.manager.create_together(whole, &CreateOptions::default(), &Silent).unwrap()
    }

    /// What goes wrong everywhere.
    pub(crate) fn disaster(&self) {
        self.bench.write("main.rs", "broken");
        self.bench.write("junk/x", "junk");
        fs::remove_file(self.others[0].root_path().join("file")).unwrap();
        put(self.others[1].root_path().join("file"), "nested and broken");
        put(self.agents.join("memory/notes.md"), "forgotten");
        put(self.agents.join("memory/lies.md"), "lies");
        fs::remove_file(self.agents.join("settings *.json")).unwrap();
        self.bench.manager.set_agent("codex", "model", json!("small")).unwrap();
        self.bench.manager.finish_step("work", "one", None, &Silent).unwrap();
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
    let created = world.create(&Whole::Framework);
    assert_eq!(created.checkpoint.scope, Scope::Framework);
    assert_eq!((created.counts.agents, created.counts.plans), (2, 1));
    assert_eq!(
        created.counts.places, 6,
        "three workspaces, two folders of agents, and the home's own settings"
    );
    assert!(created.checkpoint.warnings.is_empty(), "{:?}", created.checkpoint.warnings);
    let (then, plan_then) = (world.everything(), manager.plan("work").unwrap().plan);
    world.disaster();
    // What is not the agent's is nobody's business.
    put(world.agents.join("sibling"), "changed by somebody");
    let mut later = world.everything();
    let plan_later = manager.plan("work").unwrap().plan;

    let dry = RestoreOptions { dry_run: DryRun::Yes, ..RestoreOptions::default() };
    let shown = manager.restore_together(created.checkpoint.id, &dry, &Silent).unwrap();
    assert!(shown.places.iter().any(|(_, outline)| outline.restored > 0));
    assert_all(&world.everything(), &later);

    let options = RestoreOptions::default();
    let restored = manager.restore_together(created.checkpoint.id, &options, &Silent).unwrap();
    assert!(restored.verified);
    assert_eq!((restored.plans.len(), restored.agents.len()), (1, 2));
    let said = "what steps of plan work did outside of the files stays, and no undo command is run: one";
    assert_eq!(restored.warnings, [said]);
    assert_eq!(fs::read_to_string(world.agents.join("sibling")).unwrap(), "changed by somebody");
    put(world.agents.join("sibling"), "not the agent's");
    assert_all(&world.everything(), &then);
    assert_eq!(manager.plan("work").unwrap().plan, plan_then);
    assert_eq!(manager.agent("codex").unwrap().agent.settings["model"], "large");
    for (record, _) in &restored.places {
        assert_eq!((record.state, record.together), (RollbackState::Settled, Some(restored.id)));
    }
    // In one workspace it is not undone alone.
    let alone = manager.undo(&world.bench.workspace, &options, &Silent).unwrap_err();
    assert!(matches!(alone, Error::GoesTogether { .. }), "{alone}");
    put(world.agents.join("sibling"), "changed by somebody");
    manager.answer_together(&world.others[0], Verb::Undo, &options, &Silent).unwrap();
    later[1] = image(&world.agents);
    assert_all(&world.everything(), &later);
    assert_eq!(manager.plan("work").unwrap().plan, plan_later);
    assert_eq!(manager.agent("codex").unwrap().agent.settings["model"], "small");
    manager.answer_together(&world.bench.workspace, Verb::Redo, &options, &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    let validation = manager.validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    manager.collect(Thoroughness::Everything, &Silent).unwrap();
    assert!(manager.validate(None, Depth::Deep, &Silent).unwrap().is_valid());
}

#[test]
fn where_one_folder_cannot_nothing_changes_anywhere() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Whole::Framework);
    world.disaster();
    // What is never captured stands where the checkpoint has a file.
    let file = world.others[0].root_path().join("file");
    let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
    let before: Vec<TreeImage> = vec![image(&world.bench.root()), image(&world.agents)];
    let error =
        manager.restore_together(created.checkpoint.id, &RestoreOptions::default(), &Silent).unwrap_err();
    assert_eq!(Failure::from(&error).kind, FailureKind::Conflict, "{error}");
    assert_all(&[image(&world.bench.root()), image(&world.agents)], &before);
    assert_eq!(manager.agent("codex").unwrap().agent.settings["model"], "small");
    assert!(!world.bench.path(".safepoint").exists());
    fs::remove_file(&file).unwrap();
    manager.restore_together(created.checkpoint.id, &RestoreOptions::default(), &Silent).unwrap();
    assert!(file.is_file());
}

#[test]
fn an_agent_goes_back_alone_with_its_own_paths_and_no_others() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Whole::Agent("codex".to_owned()));
    assert_eq!((created.checkpoint.scope, created.counts.places), (Scope::Agent, 1));
    world.disaster();
    let project = image(&world.bench.root());
    let restored =
        manager.restore_together(created.checkpoint.id, &RestoreOptions::default(), &Silent).unwrap();
    assert_eq!(restored.agents, ["codex"]);
    assert_eq!(fs::read_to_string(world.agents.join("settings *.json")).unwrap(), "{}");
    assert_eq!(fs::read_to_string(world.agents.join("memory/notes.md")).unwrap(), "forgotten");
    assert_eq!(manager.agent("codex").unwrap().agent.settings["model"], "large");
    assert_same(&image(&world.bench.root()), &project);
    let error = manager.create_together(&Whole::Agent("x".to_owned()), &CreateOptions::default(), &Silent);
    assert_eq!(Failure::from(&error.unwrap_err()).code, "no_agent");
}

#[test]
fn a_part_of_everything_goes_back_alone() {
    let world = World::new();
    let manager = &world.bench.manager;
    let created = world.create(&Whole::Framework);
    world.disaster();
    let part = |part| RestoreOptions { part: Some(part), ..RestoreOptions::default() };
    let restored = manager.restore_together(created.checkpoint.id, &part(PartKind::Agent), &Silent).unwrap();
    assert_eq!((restored.plans.len(), restored.agents.len()), (0, 2));
    assert_eq!(fs::read_to_string(world.agents.join("memory/notes.md")).unwrap(), "remember");
    assert_eq!(world.bench.read("main.rs"), "broken");
    let before = manager.plan("work").unwrap().plan;
    manager.restore_together(created.checkpoint.id, &part(PartKind::Plan), &Silent).unwrap();
    assert_ne!(manager.plan("work").unwrap().plan, before);
    assert_eq!(world.bench.read("main.rs"), "broken");
    manager.restore_together(created.checkpoint.id, &part(PartKind::Files), &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    // And chosen paths of one workspace.
    world.disaster_again();
    let options = RestoreOptions { paths: vec!["main.rs".parse_path()], ..RestoreOptions::default() };
    manager.restore(&world.bench.workspace, created.checkpoint.id, &options, &Silent).unwrap();
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
    let whole =
        manager.restore(&world.bench.workspace, created.checkpoint.id, &RestoreOptions::default(), &Silent);
    assert!(matches!(whole, Err(Error::GoesTogether { .. })));
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
    let created = world.create(&Whole::Framework);
    fs::remove_file(world.bench.path("secret")).unwrap();
    let report = manager.purge(&world.bench.workspace, &["secret".parse_path()], &Silent).unwrap();
    assert_eq!(report.checkpoints, [created.checkpoint.id]);
    manager.restore_together(created.checkpoint.id, &RestoreOptions::default(), &Silent).unwrap();
    assert!(!world.bench.path("secret").exists());
    assert_eq!(world.bench.read("main.rs"), "fn main() {}");
}

#[test]
fn folders_that_are_gone_and_agents_that_are_odd_are_told() {
    let world = World::new();
    let manager = &world.bench.manager;
    fs::remove_dir_all(world.others[0].root_path()).unwrap();
    fs::remove_dir_all(world.agents.join("memory")).unwrap();
    let created = world.create(&Whole::Framework);
    assert_eq!(created.checkpoint.warnings.len(), 1, "{:?}", created.checkpoint.warnings);
    assert!(created.checkpoint.warnings[0].ends_with("second is not there"));
    for bad in ["relative", "/", "/a/../b"] {
        assert!(manager.register_agent("a", &[PathBuf::from(bad)], &[]).is_err(), "{bad}");
    }
    assert!(manager.register_agent("../a", &[], &[]).is_err());
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"odd \xff");
    let error = manager.register_agent("a", &[world.agents.join(odd)], &[]).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    assert!(manager.set_agent("nobody", "k", json!(1)).is_err() && manager.remove_agent("nobody").is_err());
    manager.set_agent("codex", "model", json!(null)).unwrap();
    assert!(manager.agent("codex").unwrap().agent.settings.is_empty());
    manager.remove_agent("codex").unwrap();
    assert_eq!(manager.agents().unwrap().len(), 1);
    // An agent's folder is not somebody's project.
    assert_eq!(manager.workspace_around(&world.agents).unwrap(), None);
    assert_eq!(manager.workspaces().unwrap().len(), 3);
    let project = manager.register(&world.agents).unwrap();
    assert_eq!(manager.workspace_around(&world.agents).unwrap().unwrap().id, project.id);
    assert_eq!(manager.plan("work").unwrap().plan.state, PlanState::Running);
    let all = manager.list(&Filter::default()).unwrap();
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
        world.create(&Whole::Framework);
        world.bench.create();
        manager.checkpoint_plan("work", &CreateOptions::default(), &Silent).unwrap();
    }
    let all = manager.list(&Filter::default()).unwrap();
    let count = |scope: Scope| all.iter().filter(|checkpoint| checkpoint.scope == scope).count();
    // The newest of a project is also what the workspace stands on; what a plan would go back to stays as well.
    assert_eq!(count(Scope::Framework), 1, "{all:?}");
    assert_eq!(count(Scope::Project), 2);
    assert!((3..=4).contains(&count(Scope::Workflow)), "{}", count(Scope::Workflow));
}
