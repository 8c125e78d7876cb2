//! Project, home and lab of a real agent.

use safepoint_testkit::TreeImage;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Files that agents and git write for themselves.
const NOT_COMPARED: [&str; 2] = [".git", ".safepoint"];

/// One agent at a time: each fills a processor.
static TURN: Mutex<()> = Mutex::new(());

/// Folder of `lab.py`, and that of the agents.
static LAB: LazyLock<Result<[PathBuf; 2], String>> = LazyLock::new(|| {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/agents-lab");
    let agents = std::env::var_os("SAFEPOINT_LAB_AGENTS").map(PathBuf::from);
    let agents = agents.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("agents-lab"));
    fs::create_dir_all(&agents).map_err(|error| format!("not run: {}: {error}", agents.display()))?;
    if !agents.join("node_modules").is_dir() {
        let status = Command::new("python3").arg(lab.join("lab.py")).arg("install").arg(&agents).status();
        if !status.as_ref().is_ok_and(|status| status.success()) {
            return Err(format!(
                "not run: lab.py cannot install the agents from the npm registry: {status:?}"
            ));
        }
    }
    Ok([lab, agents])
});

pub(crate) struct World {
    folder: tempfile::TempDir,
    lab: PathBuf,
    agents: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub(crate) fn new(agent: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let [lab, agents] = LAB.clone().unwrap_or_else(|why| panic!("{agent}: {why}"));
        let folder = tempfile::tempdir().unwrap();
        for name in ["project/.git", "user", "bin"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_safepoint"), folder.path().join("bin/safepoint")).unwrap();
        Self { folder, lab, agents, _turn: turn }
    }

    fn base(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base("project").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs Safepoint in the project; it must end with 0.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_safepoint"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.base("user"))
            .env("SAFEPOINT_HOME", self.base("home"));
        command.current_dir(self.base("project")).output().unwrap()
    }

    /// Number of turns so far.
    pub(crate) fn turns(&self) -> u64 {
        let answer: Value = serde_json::from_str(&self.run(&["list", "--turns", "--json"])).unwrap();
        answer["data"]["turns"][0]["turn"].as_u64().unwrap_or_default()
    }

    /// Number of turns that are not wholly covered.
    pub(crate) fn uncovered(&self) -> usize {
        let answer: Value = serde_json::from_str(&self.run(&["list", "--turns", "--json"])).unwrap();
        let turns = answer["data"]["turns"].as_array().unwrap().iter();
        turns.filter(|turn| turn["uncovered"].as_array().is_none_or(|reasons| !reasons.is_empty())).count()
    }

    /// Titles of the steps in the first plan of an agent.
    pub(crate) fn steps(&self, agent: &str) -> Vec<String> {
        let plans: Value = serde_json::from_str(&self.run(&["plan", "list", "--json"])).unwrap();
        let plans = plans["data"]["plans"].as_array().unwrap().iter();
        let mut ids = plans.filter_map(|plan| plan["id"].as_str()).filter(|id| id.starts_with(agent));
        let Some(id) = ids.next_back() else { return Vec::new() };
        let shown: Value = serde_json::from_str(&self.run(&["plan", "show", id, "--json"])).unwrap();
        let steps = shown["data"]["plan"]["steps"].as_array().unwrap().iter();
        steps.map(|step| step["title"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn scenario(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.lab.join("scenarios").join(format!("{name}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Runs the agent once, until its script is played. Returns the texts that the model had not seen before.
    pub(crate) fn play(&self, agent: &str, scenario: &Value, resume: bool) -> Vec<String> {
        let file = self.base("scenario.json");
        fs::write(&file, scenario.to_string()).unwrap();
        let mut command = Command::new("python3");
        command
            .arg(self.lab.join("lab.py"))
            .args(["run", agent, "--limit", "300", "--dir"])
            .arg(&self.agents);
        command.arg("--project").arg(self.base("project")).arg("--home").arg(self.base("user"));
        command.arg("--scenario").arg(&file).args(resume.then_some("--resume"));
        let home = format!("SAFEPOINT_HOME={}", self.base("home").display());
        let path = format!("PATH={}:{}", self.base("bin").display(), std::env::var("PATH").unwrap());
        let output = command.args(["--env", &home, "--env", &path]).output().unwrap();
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let answer = answer.unwrap_or_else(|| panic!("{agent}: {output:?}"));
        let left = answer["turns_left"].as_object().unwrap();
        let is_played = left.values().all(|left| *left == 0);
        assert!(answer["exit"] == 0 && is_played, "{agent}: {answer:#}");
        let requests = answer["requests"].as_array().unwrap().iter();
        let texts = requests.flat_map(|request| request["new_messages"].as_array().into_iter().flatten());
        texts.map(|message| message["text"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn image(&self) -> TreeImage {
        TreeImage::read(&self.base("project"), &NOT_COMPARED).unwrap()
    }

    /// Compares the project with a plain copy of its state. Rollback does not restore times unless asked.
    #[track_caller]
    pub(crate) fn assert_image(&self, expected: &TreeImage, what: &str) {
        let difference = expected.difference(&self.image());
        let difference: Vec<_> = difference.iter().filter(|line| !line.contains("mtime")).collect();
        assert!(difference.is_empty(), "{what}: {difference:#?}");
    }
}
