//! Complete repositories, and those of several folders.

use super::{Repository, assert_same, exit, text};
use safepoint_testkit::TreeImage;
use std::fs;

/// Reads the whole git folder.
fn folder(repository: &Repository) -> TreeImage {
    TreeImage::read(&repository.path(".git"), &[]).unwrap()
}

fn full() -> Option<Repository> {
    let repository = Repository::new()?;
    let sandbox = &repository.sandbox;
    fs::create_dir_all(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
    Some(repository)
}

#[test]
fn a_repository_that_was_deleted_comes_back_whole() {
    let Some(repository) = full() else { return };
    let sandbox = &repository.sandbox;
    // Rules apply to files, not to a repository; and nothing in it is excluded as a cache.
    sandbox.write(".safepointignore", "objects\n*.lock\nrefs\n");
    sandbox.write(".git/odd/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "rules"]);
    let then = folder(&repository);
    let answer = sandbox.json(&["create", "-m", "whole", "--json"]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    let kinds: Vec<&str> = answer["data"]["checkpoint"]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| text(&part["kind"]))
        .collect();
    assert_eq!(kinds, ["files", "git", "git_folder"]);
    fs::remove_dir_all(repository.path(".git")).unwrap();
    sandbox.write("a", "changed since\n");
    // A rollback of the files leaves it unchanged.
    assert_eq!(exit(&sandbox.output(&["rollback", "whole", "--dry-run"])), 0);
    let output = sandbox.output(&["rollback", "whole", "--part", "git", "--dry-run"]);
    assert_eq!(exit(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!repository.path(".git").exists(), "a dry run changes nothing");
    assert_eq!(exit(&sandbox.output(&["rollback", "whole", "--part", "git"])), 0);
    assert_same(&folder(&repository), &then);
    assert_eq!(sandbox.read("a"), "changed since\n");
    repository.is_sound();
    assert_eq!(repository.git(&["status", "--porcelain"]), " M a");
    // The undo removes it: it was missing before.
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert!(!repository.path(".git").exists());
    assert_eq!(exit(&sandbox.output(&["redo"])), 0);
    assert_same(&folder(&repository), &then);
    assert_eq!(exit(&sandbox.output(&["delete", "whole", "--yes"])), 0);
    assert_eq!(exit(&sandbox.output(&["gc", "--thorough"])), 0);
    assert_eq!(exit(&sandbox.output(&["validate", "--deep"])), 0);
    assert_eq!(exit(&sandbox.output(&["undo"])), 0, "the state for an undo is kept");
    assert!(!repository.path(".git").exists());
}

#[test]
fn a_repository_goes_back_whole_with_history_that_was_rewritten() {
    let Some(repository) = full() else { return };
    let sandbox = &repository.sandbox;
    let then = folder(&repository);
    assert_eq!(exit(&sandbox.output(&["create", "-m", "whole"])), 0);
    sandbox.write("a", "2\n");
    repository.git(&["commit", "-q", "-a", "--amend", "-m", "rewritten"]);
    repository.git(&["reflog", "expire", "--expire=now", "--all"]);
    repository.git(&["gc", "-q", "--prune=now"]);
    let rewritten = folder(&repository);
    sandbox.write("a", "not committed\n");
    let args = ["rollback", "whole", "--part", "git", "--json"];
    let answer = sandbox.json(&args);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert_eq!(answer["data"]["rollback"]["git"]["branch"], "main");
    assert_same(&folder(&repository), &then);
    repository.is_sound();
    assert_eq!(sandbox.read("a"), "not committed\n", "the files stay");
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_same(&folder(&repository), &rewritten);
    repository.is_sound();
    // An unreadable repository is no obstacle.
    fs::write(repository.path(".git/HEAD"), "nonsense").unwrap();
    assert_eq!(exit(&sandbox.output(&["rollback", "whole", "--part", "git"])), 0);
    assert_same(&folder(&repository), &then);
}

#[test]
fn a_repository_that_lies_elsewhere_is_noted_and_that_is_said() {
    let Some(repository) = full() else { return };
    let sandbox = &repository.sandbox;
    let beside = sandbox.path("beside");
    repository.git(&["worktree", "add", "-q", "-b", "side", beside.to_str().unwrap()]);
    let answer = sandbox.json(&["-C", "../beside", "create", "--json"]);
    let warnings = answer["data"]["checkpoint"]["warnings"].to_string();
    assert!(warnings.contains("not in the workspace"), "{answer:#}");
}

#[test]
fn repositories_are_noted_with_everything_and_go_back_together() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let other = sandbox.path("other");
    fs::create_dir_all(other.join("part")).unwrap();
    fs::write(other.join("part/b"), "1\n").unwrap();
    repository.git_in(&other, &["init", "-q", "-b", "main"]);
    repository.git_in(&other, &["add", "-A"]);
    repository.git_in(&other, &["commit", "-q", "-m", "one"]);
    for folder in [".", "../other", "../other/part"] {
        assert_eq!(exit(&sandbox.output(&["-C", folder, "init"])), 0);
    }
    let all = sandbox.json(&["create", "--scope", "framework", "-m", "all", "--json"]);
    let id = text(&all["data"]["checkpoint"]["id"]);
    let heads =
        || [repository.git(&["rev-parse", "HEAD"]), repository.git_in(&other, &["rev-parse", "HEAD"])];
    let then = heads();
    for (folder, file) in [(repository.path(""), "a"), (other.clone(), "part/b")] {
        fs::write(folder.join(file), "2\n").unwrap();
        repository.git_in(&folder, &["commit", "-q", "-a", "-m", "two"]);
    }
    let later = heads();
    // Files roll back, branches stay, and each is reported.
    let output = sandbox.output(&["rollback", id]);
    assert_eq!(exit(&output), 0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("git is left as it is: HEAD was main").count(), 3, "{said}");
    assert_eq!((heads(), sandbox.read("a")), (later.clone(), "1\n".to_owned()));
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!(sandbox.read("a"), "2\n");
    // And the branches, by name.
    let answer = sandbox.json(&["rollback", id, "--part", "git", "--json"]);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert_eq!(answer["data"]["rollback"]["git"].as_array().unwrap().len(), 2);
    assert!(answer.to_string().contains("only a part of the repository"), "{answer:#}");
    assert_eq!((heads(), sandbox.read("a")), (then.clone(), "2\n".to_owned()));
    assert_eq!(repository.git(&["status", "--porcelain"]), " M a");
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!(heads(), later);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    // The whole folder, if it is captured.
    fs::write(sandbox.path("home/config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
    let all = sandbox.json(&["create", "--scope", "framework", "-m", "all", "--json"]);
    let id = text(&all["data"]["checkpoint"]["id"]);
    fs::remove_dir_all(repository.path(".git")).unwrap();
    fs::remove_dir_all(other.join(".git")).unwrap();
    assert_eq!(exit(&sandbox.output(&["rollback", id, "--part", "git"])), 0);
    assert_eq!(heads(), later);
    repository.is_sound();
}
