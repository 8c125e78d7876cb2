//! Complete story of a failing plan, each command in a separate process.

use crate::plan_run::data;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Twelve steps and two levels of subplans; the eighth step fails until it is fixed.
const PLAN: &str = "
    title = 'A large change'
    id = 'story'
    [sandbox]
    kind = 'copy'
    [[step]]
    id = 's1'
    run = 'echo 1 > f1'
    [[step]]
    id = 's2'
    run = 'echo 2 > f2; echo changed >> kept.txt'
    [[step]]
    id = 'build'
    [[step.step]]
    id = 's3'
    run = 'mkdir -p deep && echo 3 > deep/f3'
    [[step.step]]
    id = 'parts'
    [[step.step.step]]
    id = 's4'
    run = 'echo 4 > deep/f4'
    [[step.step.step]]
    id = 's5'
    run = 'echo 5 > deep/f5; rm gone.txt'
    [[step.step]]
    id = 's6'
    run = 'echo 6 > f6; chmod 600 f6'
    [[step]]
    id = 'test'
    [[step.step]]
    id = 's7'
    run = 'echo 7 > f7'
    [[step.step]]
    id = 's8'
    run = 'if [ ! -e mended ]; then echo junk > deep/f3; rm -r f1 deep/f4; echo it broke; exit 9; fi; echo 8 > f8'
    [[step.step]]
    id = 's9'
    run = 'echo 9 > f9'
    [[step]]
    id = 's10'
    run = 'echo 10 > f10'
    [[step]]
    id = 's11'
    run = 'echo 11 > f11'
    [[step]]
    id = 's12'
    run = 'echo 12 > f12'
";

/// Returns every path below a folder with its content.
fn picture(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut picture = BTreeMap::new();
    let mut look = vec![folder.to_owned()];
    while let Some(next) = look.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            match path.is_dir() {
                _ if name == Path::new(".safepoint") => {}
                true => {
                    picture.insert(name, Vec::new());
                    look.push(path);
                }
                false => drop(picture.insert(name, fs::read(path).unwrap())),
            }
        }
    }
    picture
}

/// State of each step.
fn states(plan: &Value) -> Vec<String> {
    let mut states = Vec::new();
    let mut look: Vec<&Value> = plan["steps"].as_array().unwrap().iter().rev().collect();
    while let Some(step) = look.pop() {
        let of = |key: &str| step[key].as_str().unwrap();
        states.push(format!("{} {}", of("path"), of("state")));
        look.extend(step["steps"].as_array().into_iter().flatten().rev());
    }
    states
}

#[test]
fn a_plan_goes_wrong_and_is_brought_to_its_end() {
    let sandbox = Sandbox::new();
    for (name, content) in [("kept.txt", "kept\n"), ("gone.txt", "gone\n"), ("plan.toml", PLAN)] {
        sandbox.write(name, content);
    }
    let project = sandbox.path("project");
    let before = picture(&project);
    data(&sandbox, &["plan", "new", "plan.toml"]);

    // Step 8 corrupts files and fails.
    let failed = sandbox.json(&["plan", "run", "story", "--json"]);
    assert_eq!((&failed["exit_code"], &failed["error"]["code"]), (&json!(1), &json!("step_failed")));
    assert_eq!(failed["data"]["run"]["step"], "test/s8");
    let place = PathBuf::from(failed["data"]["plan"]["sandbox"]["path"].as_str().unwrap());
    assert_eq!(fs::read_to_string(place.join("deep/f3")).unwrap(), "junk\n");
    assert!(!place.join("f1").exists());
    assert_eq!(picture(&project), before, "the project is unchanged");

    // A fresh process lists the checkpoints and rolls back.
    let checkpoints = data(&sandbox, &["plan", "checkpoint", "list", "story"])["checkpoints"].clone();
    let labelled = |label: &str| {
        let found = checkpoints.as_array().unwrap().iter().find(|it| it["label"] == label);
        found.unwrap_or_else(|| panic!("no checkpoint {label}: {checkpoints:#}")).clone()
    };
    assert_eq!(labelled("test/s8 failed")["kind"], "emergency");
    let to = labelled("before test/s8");
    let id = to["id"].as_str().unwrap();
    let back = data(&sandbox, &["plan", "rollback", "story", id]);
    assert_eq!(back["rollback"]["verified"], true);
    assert_eq!(
        states(&back["plan"]),
        [
            "s1 done",
            "s2 done",
            "build done",
            "build/s3 done",
            "build/parts done",
            "build/parts/s4 done",
            "build/parts/s5 done",
            "build/s6 done",
            "test running",
            "test/s7 done",
            "test/s8 pending",
            "test/s9 pending",
            "s10 pending",
            "s11 pending",
            "s12 pending",
        ]
    );

    // Same plan and same files: the next checkpoint has the same state and tree.
    let again = data(&sandbox, &["plan", "checkpoint", "create", "story", "-m", "as before step 8"]);
    assert_eq!(again["checkpoint"]["state_hash"], to["state_hash"]);
    assert!(to["state_hash"].is_string());
    let there = data(&sandbox, &["plan", "checkpoint", "show", "story", id])["state"].clone();
    let here = data(&sandbox, &["plan", "checkpoint", "show", "story", "as before step 8"])["state"].clone();
    assert_eq!(here, there);
    let files = |id: &str| {
        let shown = data(&sandbox, &["-C", place.to_str().unwrap(), "show", id, "--files"]);
        let mut entries = shown["entries"].as_array().unwrap().clone();
        // The hash of a folder covers its times, and restored files have the current time.
        let folders = entries.iter_mut().filter(|it| it["type"] == "directory");
        folders.for_each(|folder| folder["hash"] = Value::Null);
        entries
    };
    assert_eq!(files(again["checkpoint"]["id"].as_str().unwrap()), files(id));
    for (name, content) in
        [("f1", "1\n"), ("f2", "2\n"), ("deep/f3", "3\n"), ("deep/f4", "4\n"), ("f7", "7\n")]
    {
        assert_eq!(fs::read_to_string(place.join(name)).unwrap(), content, "{name}");
    }

    // The cause is fixed, one more step is added, and the rest is done.
    fs::write(place.join("mended"), "").unwrap();
    data(
        &sandbox,
        &["plan", "step", "add", "story", "clear-up", "--title", "Clear up", "--run", "rm mended"],
    );
    let resumed = data(&sandbox, &["plan", "resume", "story"]);
    assert_eq!(resumed["run"]["outcome"], "done");
    assert_eq!(resumed["run"]["done"], json!(["test/s8", "test/s9", "s10", "s11", "s12", "clear-up"]));
    assert!(states(&resumed["plan"]).iter().all(|state| state.ends_with(" done")));
    assert_eq!(picture(&project), before, "the project is still unchanged");

    // The complete result is applied to the project; the plan is closed.
    let made = picture(&place);
    let applied = data(&sandbox, &["plan", "apply", "story"]);
    assert_eq!((&applied["plan"]["state"], &applied["kept"]), (&json!("applied"), &Value::Null));
    assert_eq!(picture(&project), made);
    assert!(!project.join("gone.txt").exists() && !project.join("mended").exists());
    assert_eq!(sandbox.read("kept.txt"), "kept\nchanged\n");
    let refused = sandbox.json(&["plan", "rollback", "story", id, "--json"]);
    assert_eq!((&refused["exit_code"], &refused["error"]["code"]), (&json!(12), &json!("plan_applied")));
    assert_eq!(picture(&project), made);
}
