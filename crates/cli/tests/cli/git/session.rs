//! Checkpoints of sessions in a git repository (R7.3, R7.4).

use super::{Repository, exit, text};
use serde_json::Value;
use std::fs;

const ID: &str = "0190f3a0-0000-7000-8000-000000000001";

fn create(repository: &Repository, more: &[&str]) -> Value {
    let args = [&["create", "--session-id", ID, "--json"], more].concat();
    let answer = repository.sandbox.json(&args);
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    answer["data"]["checkpoint"].clone()
}

fn tags(repository: &Repository) -> Vec<String> {
    repository.git(&["tag"]).lines().map(str::to_owned).collect()
}

#[test]
fn a_checkpoint_of_a_session_is_a_commit_and_a_tag() {
    let Some(repository) = Repository::new() else { return };
    repository.sandbox.write("a", "2\n");
    repository.sandbox.write("untracked", "u\n");
    repository.git(&["add", "a"]);
    let before = repository.place();
    let checkpoint = create(&repository, &["-m", "two"]);
    assert_eq!(repository.place(), before);
    let (sha, tag) = (text(&checkpoint["commit_sha"]), text(&checkpoint["tags"][0]));
    assert_eq!(tags(&repository), [tag]);
    assert_eq!(repository.git(&["rev-parse", &format!("refs/tags/{tag}")]), sha);
    assert_eq!(repository.git(&["show", &format!("{sha}:untracked")]), "u");
    repository.is_sound();
}

#[test]
fn a_clean_tree_is_tagged_at_head() {
    let Some(repository) = Repository::new() else { return };
    let head = repository.git(&["rev-parse", "HEAD"]);
    let checkpoint = create(&repository, &["-m", "clean"]);
    assert_eq!((text(&checkpoint["commit_sha"]), text(&checkpoint["commit_message"])), (&*head, "one"));
    assert_eq!(tags(&repository), [format!("checkpoint-{}", text(&checkpoint["id"]))]);
    // By name, `--git` makes a commit of its own.
    assert_ne!(text(&repository.create(&[])["commit_sha"]), head);
}

#[test]
fn nothing_else_makes_commits() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    for args in [&["create"][..], &["run", "--", "true"], &["emergency"]] {
        let output = sandbox.command(args).env("SAFEPOINT_SESSION_ID", ID).output().unwrap();
        assert_eq!(exit(&output), 0, "{output:?}");
    }
    assert_eq!(exit(&sandbox.output(&["rollback", "@~1"])), 0);
    assert!(tags(&repository).is_empty());
    fs::write(sandbox.path("home/config.toml"), "[sessions]\ncommit = false\n").unwrap();
    assert_eq!(create(&repository, &[])["commit_sha"], Value::Null);
    assert!(tags(&repository).is_empty());
}

#[test]
fn outside_a_repository_and_with_a_repository_that_is_read_only_a_session_has_its_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    sandbox.write("a", "2\n");
    fs::write(repository.path(".git/refs/tags"), "").unwrap_err();
    fs::remove_dir(repository.path(".git/refs/tags")).unwrap();
    fs::write(repository.path(".git/refs/tags"), "no folder").unwrap();
    let answer = sandbox.json(&["create", "--session-id", ID, "--json"]);
    assert_eq!(
        (answer["exit_code"].as_i64(), &answer["data"]["checkpoint"]["commit_sha"]),
        (Some(0), &Value::Null)
    );
    assert!(answer["messages"].to_string().contains("no commit was made of it"), "{answer:#}");
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    assert_eq!(create(&repository, &[])["commit_sha"], Value::Null);
}

#[test]
fn prune_and_delete_remove_the_tags() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let mut made = Vec::new();
    for state in ["2\n", "3\n", "4\n"] {
        sandbox.write("a", state);
        made.push(text(&create(&repository, &[])["id"]).to_owned());
    }
    repository.git(&["tag", "mine"]);
    assert_eq!(exit(&sandbox.output(&["delete", &made[0], "--yes"])), 0);
    assert_eq!(
        tags(&repository),
        [format!("checkpoint-{}", made[1]), format!("checkpoint-{}", made[2]), "mine".into()]
    );
    let prune = ["prune", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s"];
    assert_eq!(exit(&sandbox.output(&prune)), 0);
    assert_eq!(tags(&repository), [format!("checkpoint-{}", made[2]), "mine".into()]);
}

#[test]
fn a_tag_that_prune_cannot_remove_is_reported() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    for state in ["2\n", "3\n", "4\n"] {
        sandbox.write("a", state);
        create(&repository, &[]);
    }
    let tagged = tags(&repository);
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    let prune = ["prune", "--keep-last", "1", "--keep-within", "0s", "--thin-daily-for", "0s", "--json"];
    let answer = sandbox.json(&prune);
    let left: Vec<&Value> =
        answer["messages"].as_array().unwrap().iter().filter(|it| it["code"] == "tags_not_removed").collect();
    assert_eq!((&answer["status"], left.len()), (&"ok".into(), 2), "{answer:#}");
    assert!(tagged[..2].iter().all(|tag| left.iter().any(|it| text(&it["text"]).contains(tag))), "{left:#?}");
    // So is one that the next checkpoint prunes.
    fs::write(
        sandbox.path("home/config.toml"),
        "[retention]\nkeep_last = 1\nkeep_within = \"0s\"\nthin_daily_for = \"0s\"\n",
    )
    .unwrap();
    sandbox.write("a", "5\n");
    let answer = sandbox.json(&["create", "-m", "five", "--json"]);
    assert!(answer["messages"].to_string().contains("tags_not_removed"), "{answer:#}");
}

#[test]
fn the_form_for_programs_keeps_the_files_whatever_the_checkpoint_is() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let first = repository.git(&["rev-parse", "HEAD"]);
    // Taken without a commit: the commit of HEAD is noted.
    let plain = sandbox.command(&["create", "--json"]).env("SAFEPOINT_SESSION_ID", ID).output().unwrap();
    let plain: Value = serde_json::from_slice(&plain.stdout).unwrap();
    let plain = text(&plain["data"]["checkpoint"]["id"]).to_owned();
    sandbox.write("a", "2\n");
    let with_commit = create(&repository, &[]);
    repository.git(&["commit", "-q", "-a", "-m", "two"]);
    sandbox.write("a", "3\n");
    for (id, sha) in [(&*plain, &*first), (text(&with_commit["id"]), text(&with_commit["commit_sha"]))] {
        let answer = sandbox.json(&["rollback", "--session-id", ID, "--checkpoint-id", id, "--json"]);
        assert_eq!(answer["exit_code"], 0, "{answer:#}");
        assert_eq!(
            (repository.git(&["rev-parse", "main"]), sandbox.read("a")),
            (sha.to_owned(), "3\n".to_owned())
        );
        assert_eq!(repository.git(&["status", "--porcelain"]), " M a");
    }
    // By name, whatever the form is.
    assert_eq!(exit(&sandbox.output(&["rollback", &plain, "--mixed"])), 0);
    assert_eq!((repository.git(&["rev-parse", "main"]), sandbox.read("a")), (first, "3\n".to_owned()));
    // A checkpoint that is named is its files, also within a session.
    let place = repository.place();
    let back =
        sandbox.command(&["rollback", text(&with_commit["id"])]).env("SAFEPOINT_SESSION_ID", ID).output();
    assert_eq!(exit(&back.unwrap()), 0);
    assert_eq!((repository.place(), sandbox.read("a")), (place, "2\n".to_owned()));
}

#[test]
fn a_hard_reset_keeps_uncommitted_work_in_the_safety_checkpoint() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let checkpoint = create(&repository, &[]);
    let id = text(&checkpoint["id"]);
    sandbox.write("a", "staged\n");
    repository.git(&["add", "a"]);
    sandbox.write("a", "work\n");
    sandbox.write("untracked", "u\n");
    let before = (repository.place(), repository.git(&["status", "--porcelain"]));
    let hard = ["rollback", "--session-id", ID, "--checkpoint-id", id, "--hard-reset"];
    let text = sandbox.run(&hard);
    assert!(
        text.contains("uncommitted changes (1 staged, 1 modified, 1 untracked) are in the safety checkpoint"),
        "{text}"
    );
    assert_eq!(
        (sandbox.read("a"), repository.git(&["status", "--porcelain"])),
        ("1\n".into(), String::new())
    );
    assert_eq!(exit(&sandbox.output(&["undo"])), 0);
    assert_eq!((repository.place(), repository.git(&["status", "--porcelain"])), before);
    assert_eq!((sandbox.read("a"), sandbox.read("untracked")), ("work\n".into(), "u\n".into()));
    assert_eq!(exit(&sandbox.output(&[&hard[..], &["--discard-uncommitted"]].concat())), 0);
    // Without a repository, it names the command for the files.
    fs::rename(repository.path(".git"), sandbox.path("away")).unwrap();
    let answer = sandbox.json(&[&hard[..5], &["--json"]].concat());
    assert_eq!(answer["exit_code"], 12, "{answer:#}");
    assert!(answer["error"]["hints"].to_string().contains(&format!("safepoint rollback {id}")), "{answer:#}");
}

#[test]
fn a_session_notes_where_git_is_and_its_log_names_the_commit() {
    let Some(repository) = Repository::new() else { return };
    let sandbox = &repository.sandbox;
    let made = sandbox.json(&["session", "create", "Add limits", "--session-id", ID, "--json"]);
    let context = &made["data"]["session"]["git_context"];
    assert_eq!(
        (text(&context["branch"]), text(&context["commit"])),
        ("main", &*repository.git(&["rev-parse", "HEAD"]))
    );
    sandbox.write("a", "2\n");
    let checkpoint = create(&repository, &["-m", "two"]);
    let log = sandbox.json(&["session", "export", ID, "--json"])["data"]["log"].clone();
    assert_eq!(log["summary"]["latest_checkpoint"], checkpoint["commit_sha"]);
    assert_eq!(log["checkpoints"][0]["tags"], checkpoint["tags"]);
}
