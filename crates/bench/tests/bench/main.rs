//! Tests of the benchmarks on tiny trees: they run, their figures are complete, and a tool that restores
//! wrong data is detected.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_safepoint-bench")).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn git() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.is_file())
}

/// Folder in memory if possible: syncing a shared disk takes unpredictable time.
fn folder() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { TempDir::new_in(shm).unwrap() } else { TempDir::new().unwrap() }
}

/// Creates a tree of 60 files in two folders.
fn small_tree(at: &Path) -> PathBuf {
    let tree = at.join("tree");
    for number in 0..60 {
        let folder = tree.join(if number % 3 == 0 { "small" } else { "large" });
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("file{number}.txt")), format!("line {number}\n").repeat(20)).unwrap();
    }
    tree
}

fn compare(at: &TempDir, more: &[&str]) -> (Output, Value) {
    let tree = small_tree(at.path());
    let (work, json) = (at.path().join("work"), at.path().join("out.json"));
    let mut args = vec!["compare", "--repeat", "1", "--checkpoints", "2", "--big-mib", "1"];
    args.extend(["--tree", tree.to_str().unwrap(), "--work", work.to_str().unwrap()]);
    args.extend(["--json", json.to_str().unwrap()]);
    args.extend(more);
    let output = bench(&args);
    let report = fs::read(json).map(|text| serde_json::from_slice(&text).unwrap()).unwrap_or_default();
    assert!(fs::read_dir(&work).unwrap().next().is_none(), "the working folder is empty");
    (output, report)
}

fn work<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["works"].as_array().unwrap().iter().find(|work| work["work"] == name).unwrap()
}

#[test]
fn a_comparison_has_every_work_and_every_tree_comes_back() {
    let at = folder();
    let tools = if git().is_some() { "safepoint,git" } else { "safepoint" };
    let (svg, markdown) = (at.path().join("svg"), at.path().join("out.md"));
    let outputs = ["--svg", svg.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()];
    let (output, report) = compare(&at, &[&["--tools", tools], outputs.as_slice()].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let names =
        ["first", "nothing", "edit10", "edit1000", "move", "rollback", "deleted", "many", "big", "tiny"];
    for name in names {
        let figures = &work(&report, name)["tools"][0];
        assert_eq!(figures["tool"], "safepoint");
        assert!(figures["median"].as_f64().unwrap() > 0.0, "{name}: {figures}");
        assert!(figures["peak_bytes"].as_u64().unwrap() > 1_000_000, "{name}: {figures}");
        let has_limit = !["rollback", "deleted"].contains(&name);
        assert_eq!(work(&report, name)["limit"].is_object(), has_limit, "{name}");
        assert_eq!(figures["ratio_to_limit"].is_number(), has_limit, "{name}");
        assert!(svg.join(format!("{name}.svg")).is_file(), "{name}");
    }
    assert_eq!(work(&report, "many")["tools"][0]["seconds"].as_array().unwrap().len(), 2);
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["differences"], 0, "{check}");
    }
    assert_eq!(report["tree"]["files"], 60);
    assert_eq!(report["tree"]["moved"], "large");
    assert_eq!(report["tree"]["deleted"][0], "small");
    for field in ["cpu", "kernel", "file_system"] {
        assert!(!report["machine"][field].as_str().unwrap().is_empty(), "{field}");
    }
    for store in report["stores"].as_array().unwrap() {
        assert!(store["first_bytes"].as_u64().unwrap() > 0, "{store}");
        let limit = store["tool"] == "limit";
        assert!(limit || store["end_bytes"].as_u64() >= store["first_bytes"].as_u64(), "{store}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Ratio to the limit") && text.contains("safepoint"), "{text}");
    assert!(fs::read_to_string(markdown).unwrap().contains("|---|"), "a Markdown table");
}

#[test]
fn a_tool_that_puts_nothing_back_is_found_out() {
    let Some(git) = git() else { return };
    let at = folder();
    let fake = at.path().join("git");
    let script = format!("#!/bin/sh\n[ \"$1\" = reset ] || exec {} \"$@\"\n", git.display());
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let given = format!("git={}", fake.display());
    let (output, report) = compare(&at, &["--tools", "git", "--tool", &given, "--only", "rollback,deleted"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("git did not restore the tree"), "{}", stderr(&output));
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["differences"] != 0));
}

#[test]
fn a_tool_that_fails_is_named_and_the_others_go_on() {
    let at = folder();
    let fake = at.path().join("git");
    let script = "#!/bin/sh\n[ \"$1\" = add ] && { echo no such luck >&2; exit 3; }\nexit 0\n";
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let given = format!("git={}", fake.display());
    let (output, report) = compare(&at, &["--tools", "safepoint,git", "--tool", &given, "--only", "first"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(report["tools"][1]["failed"].as_str().unwrap().contains("no such luck"), "{report:#}");
    assert_eq!(work(&report, "first")["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn quick_scaling_fits_every_curve() {
    let at = folder();
    let (work, json, svg) = (at.path().join("work"), at.path().join("out.json"), at.path().join("svg"));
    let paths = ["--work", work.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = bench(
        &[&["scaling", "--quick", "--repeat", "1", "--svg", svg.to_str().unwrap()], paths.as_slice()]
            .concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let growth: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    for against in growth["against"].as_array().unwrap() {
        for curve in against["curves"].as_array().unwrap() {
            assert!(curve["fit"]["exponent"].is_number(), "{curve:#}");
            assert!(curve["points"].as_array().unwrap().len() >= 3, "{curve:#}");
        }
        assert!(svg.join(format!("scaling-{}.svg", against["name"].as_str().unwrap())).is_file());
    }
}

#[test]
fn hooks_are_measured_beside_a_walk_and_git() {
    if git().is_none() {
        return eprintln!("skipped: hooks beside git: git is not installed");
    }
    let at = folder();
    let (tree, json) = (small_tree(at.path()), at.path().join("out.json"));
    let paths = ["--tree", tree.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let work = ["--work", at.path().to_str().unwrap()];
    let output = bench(&[&["hooks", "--repeat", "1"], &paths[..], &work[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    for tree in report.as_array().unwrap() {
        let ways = tree["ways"].as_array().unwrap();
        assert_eq!(ways.len(), 5, "{tree:#}");
        assert!(ways.iter().all(|way| way["seconds"][0].as_f64().unwrap() > 0.0), "{tree:#}");
    }
    assert_eq!(report.as_array().unwrap().len(), 2);
}

fn attempts(at: &TempDir, more: &[&str]) -> (Output, Value) {
    let tree = small_tree(at.path());
    let (work, json) = (at.path().join("work"), at.path().join("out.json"));
    let paths = ["--tree", tree.to_str().unwrap(), "--work", work.to_str().unwrap()];
    let json_path = ["--json", json.to_str().unwrap()];
    let output = bench(&[&["attempts", "--repeat", "1"], &paths[..], &json_path, more].concat());
    assert!(fs::read_dir(&work).unwrap().next().is_none(), "the working folder is empty");
    (output, fs::read(json).map(|text| serde_json::from_slice(&text).unwrap()).unwrap_or_default())
}

#[test]
fn attempts_are_measured_beside_their_limits_and_compared_with_a_plain_copy() {
    let at = folder();
    let (output, report) = attempts(&at, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let goals = report["goals"].as_array().unwrap();
    let titles: Vec<&str> = goals.iter().map(|goal| goal["measure"].as_str().unwrap()).collect();
    let expected =
        ["start to the first instruction", "result of 10 edits", "keep of 10 edits", "keep of 1000 edits"];
    assert_eq!(titles, expected);
    for figures in goals.iter().flat_map(|goal| [&goal["seconds"], &goal["limit_seconds"]]) {
        let figures = figures.as_array().unwrap();
        assert!(!figures.is_empty() && figures.iter().all(|time| time.as_f64().unwrap() > 0.0), "{report:#}");
    }
    assert!(report["flushes"]["result"].as_u64().unwrap() > 0, "{report:#}");
    // Each way has figures or a reason; in the warm-up each is compared three times for both numbers of edits, later twice.
    let (ways, skipped) = (report["ways"].as_array().unwrap(), report["skipped"].as_array().unwrap());
    assert_eq!(ways.len() + skipped.len(), 4, "{report:#}");
    assert_eq!(report["checks"].as_u64().unwrap() as usize, ways.len() * 10);
    assert_eq!(report["failed"].as_array().unwrap().len(), 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("| keep of 10 edits |"));
}

#[test]
fn a_keep_that_takes_nothing_over_is_found_out() {
    let real = Path::new(env!("CARGO_BIN_EXE_safepoint-bench")).with_file_name("safepoint");
    let at = folder();
    if !real.is_file() {
        attempts(&at, &[]);
    }
    let at = folder();
    let fake = at.path().join("safepoint");
    let script = format!("#!/bin/sh\n[ \"$1 $2\" = 'attempt keep' ] || exec {} \"$@\"\n", real.display());
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let (output, report) = attempts(&at, &["--safepoint", fake.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failed = report["failed"].as_array().unwrap();
    let is_of_keep = |line: &Value| line.as_str().unwrap().contains("safepoint, the result of");
    assert!(failed.len() == 4 && failed.iter().all(is_of_keep), "{failed:#?}");
}

#[test]
fn what_cannot_be_done_is_said_with_what_it_was_about() {
    let at = folder();
    let work = at.path().join("work");
    let work = work.to_str().unwrap();
    let there = at.path().to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["compare"], "--tree"),
        (&["compare", "--tree", "/nowhere", "--work", work], "--tree /nowhere: not a folder"),
        (&["compare", "--tree", there, "--work", work, "--tools", "cvs"], "unknown tool cvs"),
        (&["compare", "--tree", there, "--only", "sleep"], "sleep"),
        (&["compare", "--tree", there, "--tool", "git"], "TOOL=PATH"),
        (&["compare", "--tree", there, "--work", work, "--safepoint", "/nowhere"], "/nowhere"),
        (&["generate", "files-10k", there], "it already exists"),
    ];
    for (args, said) in cases {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    }
}
