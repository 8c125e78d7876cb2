//! Random checkpoints and rollbacks over all scopes and strategies, each compared with an independent model.
//! CI runs some hundred of them; `SAFEPOINT_PROOF=full` runs 10,000.

use crate::bench::{Bench, unwatched};
use crate::runner::plan;
use safepoint::model::checkpoint::PartKind;
use safepoint::model::{CheckpointId, RelPath};
use safepoint::{
    CreateOptions, Filter, RollbackOptions, Search, Silent, Staged, StagedEnd, Subject, Trial, TryIn, Until,
    Workspace,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Names and contents of the files in a folder.
type Files = BTreeMap<String, String>;

/// Complete state.
#[derive(Debug, Clone, PartialEq, Default)]
struct World {
    /// Two projects and an agent's memory.
    places: [Files; 3],
    /// Context of the plan.
    context: Option<Value>,
    /// Setting of the agent.
    setting: Option<Value>,
}

/// State in a checkpoint.
#[derive(Debug, Clone)]
struct Kept {
    id: CheckpointId,
    world: World,
    places: Vec<usize>,
    plan: bool,
    agent: bool,
}

impl Kept {
    /// State after a rollback to this checkpoint, or to a part of it.
    fn over(&self, now: &World, part: Option<PartKind>) -> World {
        let mut then = now.clone();
        let wants = |kind| part.is_none_or(|part| part == kind);
        for place in &self.places {
            let kind = if *place == AGENT { PartKind::Agent } else { PartKind::Files };
            if wants(kind) {
                then.places[*place] = self.world.places[*place].clone();
            }
        }
        if self.plan && wants(PartKind::Plan) {
            then.context = self.world.context.clone();
        }
        if self.agent && wants(PartKind::Agent) {
            then.setting = self.world.setting.clone();
        }
        then
    }
}

const AGENT: usize = 2;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

struct Run {
    bench: Bench,
    workspaces: [Workspace; 2],
    roots: [PathBuf; 3],
    model: World,
    kept: Vec<Kept>,
    dice: Dice,
    done: BTreeMap<&'static str, u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let bench = Bench::new();
        let top = bench.root().parent().unwrap().to_owned();
        let roots = [bench.root(), top.join("second"), top.join("agent")];
        roots[1..].iter().for_each(|root| fs::create_dir(root).unwrap());
        let second = bench.manager.workspaces().register(&roots[1]).unwrap();
        bench.manager.agents().register("claude", &[], &[roots[2].clone()]).unwrap();
        plan(&bench, "[checkpoints]\non = []\n[[step]]\nid = 'one'");
        let workspaces = [bench.workspace.clone(), second];
        let (model, kept, done) = (World::default(), Vec::new(), BTreeMap::new());
        Self { bench, workspaces, roots, model, kept, dice: Dice(seed), done }
    }

    /// Reads the actual state.
    fn look(&self) -> World {
        let read = |root: &PathBuf| -> Files {
            let mut files = Files::new();
            let mut folders = vec![root.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let path = entry.path();
                    if path.is_dir() {
                        folders.push(path);
                    } else {
                        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                        files.insert(name, fs::read_to_string(&path).unwrap());
                    }
                }
            }
            files
        };
        let manager = &self.bench.manager;
        World {
            places: [0, 1, 2].map(|place| read(&self.roots[place])),
            context: manager.plans().get("work").unwrap().plan.context.get("key").cloned(),
            setting: manager.agents().get("claude").unwrap().agent.settings.get("key").cloned(),
        }
    }

    /// Makes random changes.
    fn change(&mut self) {
        for _ in 0..1 + self.dice.below(4) {
            match self.dice.below(8) {
                0 => {
                    let value = json!(self.dice.below(1000));
                    self.bench.manager.plans().set_context("work", "key", Some(value.clone())).unwrap();
                    self.model.context = Some(value);
                }
                1 => {
                    let value = json!(self.dice.below(1000));
                    self.bench.manager.agents().set("claude", "key", value.clone()).unwrap();
                    self.model.setting = Some(value);
                }
                kind => {
                    let place = self.dice.below(3);
                    let name = format!("{}f{}", ["", "d/", "d/e/"][self.dice.below(3)], self.dice.below(5));
                    let path = self.roots[place].join(&name);
                    if kind < 4 {
                        if self.model.places[place].remove(&name).is_some() {
                            fs::remove_file(path).unwrap();
                        }
                    } else {
                        let text = format!("{}", self.dice.below(4));
                        fs::create_dir_all(path.parent().unwrap()).unwrap();
                        fs::write(path, &text).unwrap();
                        self.model.places[place].insert(name, text);
                    }
                }
            }
        }
    }

    fn keep(&mut self) -> &'static str {
        let (manager, options) = (&self.bench.manager, CreateOptions::default());
        let kind = self.dice.below(5);
        let (id, places, plan, agent, what) = match kind {
            0 | 1 => {
                let created = manager.create(&self.workspaces[kind], &options, &Silent).unwrap();
                // The plan works in the first.
                (created.checkpoint.id, vec![kind], kind == 0, false, "create project")
            }
            2 => {
                let created = manager.plans().checkpoint("work", &options, &Silent).unwrap();
                (created.checkpoint.id, vec![0], true, false, "create workflow")
            }
            3 => {
                let whole = Subject::Agent("claude".to_owned());
                let created = manager.create(&whole, &options, &Silent).unwrap();
                (created.checkpoint.id, vec![AGENT], false, true, "create agent")
            }
            _ => {
                let created = manager.create(&Subject::Framework, &options, &Silent).unwrap();
                (created.checkpoint.id, vec![0, 1, AGENT], true, true, "create framework")
            }
        };
        self.kept.push(Kept { id, world: self.model.clone(), places, plan, agent });
        what
    }

    /// Rolls back with a random strategy and returns its name. The caller checks the result.
    #[allow(clippy::too_many_lines, reason = "one arm per strategy")]
    fn go_back(&mut self) -> &'static str {
        let kept = self.kept[self.dice.below(self.kept.len())].clone();
        let together = kept.agent;
        let workspace = self.workspaces[kept.places[0].min(1)].clone();
        let before = self.model.clone();
        let (manager, options) = (&self.bench.manager, RollbackOptions::default());
        match (self.dice.below(6), together) {
            (0 | 1, true) => {
                manager.rollback(None, kept.id, &options, &Silent).unwrap();
                self.model = kept.over(&before, None);
                "rollback together"
            }
            (2, true) => {
                let part = [PartKind::Files, PartKind::Plan, PartKind::Agent][self.dice.below(3)];
                let holds = match part {
                    PartKind::Files => kept.places.contains(&0),
                    PartKind::Plan => kept.plan,
                    _ => true,
                };
                if holds {
                    let options = RollbackOptions { parts: vec![part], ..options };
                    manager.rollback(None, kept.id, &options, &Silent).unwrap();
                    self.model = kept.over(&before, Some(part));
                }
                "rollback of a part together"
            }
            (3, true) => {
                let agree = self.dice.below(3) > 0;
                let mut agreed = |_: &Staged| agree;
                let trial = Trial { command: Some("true"), agreed: &mut agreed, printed: &mut |_| () };
                let end = manager.rollback_staged(&workspace, kept.id, &options, trial, &Silent);
                assert_eq!(matches!(end.unwrap(), StagedEnd::Done(..)), agree);
                if agree {
                    self.model = kept.over(&before, None);
                }
                "rollback staged together"
            }
            (4, true) => {
                self.progressive_together(&kept);
                "rollback progressive together"
            }
            (_, true) => {
                manager.rollback(None, kept.id, &options, &Silent).unwrap();
                let place = if kept.places.contains(&0) { Some(&self.workspaces[0]) } else { None };
                match place {
                    // Undo and redo: everything is as before.
                    Some(place) => {
                        manager.undo(place, &options, &Silent).unwrap();
                        self.model = before;
                    }
                    None => self.model = kept.over(&before, None),
                }
                "rollback and undo together"
            }
            (0, false) => {
                manager.rollback(&workspace, kept.id, &options, &Silent).unwrap();
                self.model = kept.over(&before, None);
                "rollback immediate"
            }
            (1, false) => {
                let place = kept.places[0];
                let names: Vec<String> =
                    kept.world.places[place].keys().chain(before.places[place].keys()).cloned().collect();
                if !names.is_empty() {
                    let name = names[self.dice.below(names.len())].clone();
                    let paths = vec![RelPath::new(name.as_str()).unwrap()];
                    let options = RollbackOptions { paths, ..options };
                    manager.rollback(&workspace, kept.id, &options, &Silent).unwrap();
                    match kept.world.places[place].get(&name) {
                        Some(text) => self.model.places[place].insert(name, text.clone()),
                        None => self.model.places[place].remove(&name),
                    };
                }
                "rollback selective"
            }
            (2, false) => {
                let part = if kept.plan { PartKind::Plan } else { PartKind::Files };
                let options = RollbackOptions { parts: vec![part], ..options };
                manager.rollback(&workspace, kept.id, &options, &Silent).unwrap();
                self.model = kept.over(&before, Some(part));
                "rollback of a part"
            }
            (3, false) => {
                let agree = self.dice.below(3) > 0;
                let mut agreed = |_: &Staged| agree;
                let trial = Trial { command: Some("true"), agreed: &mut agreed, printed: &mut |_| () };
                let end = manager.rollback_staged(&workspace, kept.id, &options, trial, &Silent).unwrap();
                assert_eq!(matches!(end, StagedEnd::Done(..)), agree);
                if agree {
                    self.model = kept.over(&before, None);
                }
                "rollback staged"
            }
            (4, false) => {
                self.progressive(&kept, &workspace);
                "rollback progressive"
            }
            _ => {
                manager.rollback(&workspace, kept.id, &options, &Silent).unwrap();
                manager.undo(&workspace, &options, &Silent).unwrap();
                if self.dice.below(2) == 0 {
                    manager.redo(&workspace, &options, &Silent).unwrap();
                    self.model = kept.over(&before, None);
                }
                "rollback, undo and redo"
            }
        }
    }

    /// Rolls back to the newest state with the same content of a file.
    fn progressive(&mut self, kept: &Kept, workspace: &Workspace) {
        let place = kept.places[0];
        let said = kept.world.places[place].get("f0").cloned().unwrap_or_default();
        let filter = Filter { workspace: Some(workspace.id), ..Filter::default() };
        let until = Until {
            command: format!("[ \"$(cat f0 2>/dev/null)\" = '{said}' ]"),
            from: self.bench.manager.checkpoints().list_ids(&filter).unwrap().first().copied(),
            search: Search::Stepwise,
            place: TryIn::Copy,
            plan: None,
        };
        let manager = &self.bench.manager;
        let newest = manager.checkpoints().list(&filter).unwrap().into_iter().find_map(|checkpoint| {
            let kept = self.kept.iter().find(|kept| kept.id == checkpoint.id)?;
            let f0 = kept.world.places[place].get("f0").cloned().unwrap_or_default();
            (f0 == said).then_some(kept)
        });
        let options = RollbackOptions::default();
        let found =
            unwatched(|watch| manager.rollback_until(workspace, &until, &options, watch, &Silent).unwrap());
        let newest = newest.unwrap();
        assert_eq!(found.restored.unwrap().record().to, newest.id);
        // Other candidates left nothing behind.
        self.model = newest.over(&self.model, None);
    }

    /// Rolls back several folders, from a checkpoint on, to the second candidate if there are two.
    fn progressive_together(&mut self, kept: &Kept) {
        let manager = &self.bench.manager;
        let seen = self.bench.root().parent().unwrap().join("seen");
        let _ = fs::remove_file(&seen);
        let command = format!("test -e {0} || {{ touch {0}; false; }}", seen.display());
        let (search, place) = (Search::Stepwise, TryIn::Copy);
        let until = Until { command, from: Some(kept.id), search, place, plan: None };
        let options = RollbackOptions::default();
        let here = &self.workspaces[0];
        let found =
            unwatched(|watch| manager.rollback_until(here, &until, &options, watch, &Silent).unwrap());
        let Some(restored) = found.restored else {
            assert_eq!(found.tried.len(), 1, "no second candidate, and nothing changed");
            return;
        };
        assert_eq!((found.tried.len(), restored.to), (2, found.tried[1].checkpoint));
        let stop = self.kept.iter().find(|kept| kept.id == restored.to).unwrap();
        self.model = stop.over(&self.model, None);
    }

    fn step(&mut self) {
        self.change();
        let what = if self.kept.is_empty() || self.dice.below(2) == 0 { self.keep() } else { self.go_back() };
        assert_eq!(self.look(), self.model, "{what}, after {:?}", self.done);
        *self.done.entry(what).or_default() += 1;
    }
}

#[test]
fn random_operations_over_all_scopes_and_strategies_are_all_right() {
    let full = std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full");
    let (runs, steps) = if full { (100, 100) } else { (6, 50) };
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 1..=runs {
        let mut run = Run::new(seed * 0x9e37_79b9);
        (0..steps).for_each(|_| run.step());
        run.done.into_iter().for_each(|(what, count)| *done.entry(what).or_default() += count);
    }
    let all: u64 = done.values().sum();
    eprintln!("{all} random operations compared with the model: {all} right");
    done.iter().for_each(|(what, count)| eprintln!("  {what}: {count}"));
    assert_eq!(all, runs * steps);
    assert!(done.len() == 15 || !full, "{done:?}");
}
