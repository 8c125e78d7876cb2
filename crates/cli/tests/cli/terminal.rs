//! Output on a terminal.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

#[test]
fn a_list_has_short_ids_ages_and_no_line_over_80() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["create", "-m", "milestone", "--kind", "workflow", "--pin"]);
    sandbox.run(&["create", "-m", &"a long label ".repeat(9), "--kind", "automatic"]);
    sandbox.wreck();
    sandbox.run(&["rollback", "first"]);
    let seen = sandbox.terminal(sandbox.command(&["list"]));
    assert!(seen.lines().all(|line| line.chars().count() <= 80), "{seen}");
    assert_snapshot!(seen, @"
          CHECKPOINT  WHEN           KIND       LABEL
      :1  01KG9YWW    1 minute ago   automatic  a long label a long label a long la…
      :2  01KG9YV2    2 minutes ago  workflow   milestone (pinned)
    * :3  01KG9YS9    3 minutes ago  manual     first
    * @here: the position of the workspace
    1 safety checkpoint is not shown: safepoint list --all-roles
    ");
    let mut colourful = sandbox.command(&["list", "--kind", "workflow"]);
    colourful.env_remove("NO_COLOR");
    assert_snapshot!(sandbox.terminal(colourful), @"
    ^[[2m    CHECKPOINT  WHEN           KIND      CHANGED   STORED  LABEL^[[0m
    ^[[2m:1  ^[[0m^[[1m01KG9YV2^[[0m    3 minutes ago  ^[[36mworkflow^[[0m  ^[[2m+0^[[0m ^[[2m~0^[[0m ^[[2m-0^[[0m     0 B  milestone (pinned)
    ");
    let mut dumb = sandbox.command(&["list", "--kind", "workflow"]);
    dumb.env_remove("NO_COLOR").env("TERM", "dumb");
    assert!(!sandbox.terminal(dumb).contains("^["));
}

#[test]
fn the_content_of_a_file_cannot_act_on_a_terminal() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "a\ttab and \u{1b}]0;title\u{7}\r\n");
    assert_snapshot!(sandbox.terminal(sandbox.command(&["diff"])), @r"
    diff --git a/notes.txt b/notes.txt
    --- a/notes.txt
    +++ b/notes.txt
    @@ -1 +1 @@
    -good
    +a	tab and \u{1b}]0;title\u{7}\r
    ");
}

#[test]
fn json_is_laid_out_for_people_on_a_terminal() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.terminal(sandbox.command(&["version", "--json"])), @r#"
    {
      "version": 1,
      "command": "version",
      "status": "ok",
      "exit_code": 0,
      "data": {
        "json": 1,
        "version": "0.1.0"
      },
      "messages": [],
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:00:00.000000Z"
      }
    }
    "#);
}

#[test]
fn failures_are_in_colour() {
    let sandbox = Sandbox::new();
    // The paths of the test have any length.
    sandbox.columns.set(200);
    let mut command = sandbox.command(&["undo"]);
    command.env_remove("NO_COLOR");
    assert_snapshot!(sandbox.terminal(command), @"
    ^[[31merror:^[[0m cannot undo: no workspace is registered at or above $T/project
    Nothing was changed.
    ^[[36mhint:^[[0m Safepoint has no copy of these files. Write nothing to the folder until they are found elsewhere.
    ^[[36mhint:^[[0m If git tracks them: git status; git stash list; git fsck --lost-found
    ^[[36mhint:^[[0m Editors keep local histories, and an open editor can undo.
    ");
}

#[test]
fn tables_fit_a_narrow_terminal() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["pin", "first"]);
    sandbox.run(&["create", "-m", "a label that is much too long for such a narrow terminal"]);
    sandbox.wreck();
    sandbox.run(&["rollback", "@", "--path", "src"]);
    sandbox.columns.set(60);
    for args in [&["list"][..], &["list", "--graph"], &["prune", "--dry-run"], &["usage"], &["rollback"]] {
        let seen = sandbox.terminal(sandbox.command(args));
        // Sentences may wrap; rows of a table may not.
        let rows: Vec<&str> =
            seen.lines().filter(|line| line.contains("ago") || line.contains("CHECK")).collect();
        assert!(rows.len() > 2, "{seen}");
        assert!(rows.iter().all(|row| row.chars().count() <= 60), "{args:?}\n{seen}");
    }
    assert_snapshot!(sandbox.terminal(sandbox.command(&["list"])), @"
          CHECKPOINT  WHEN           KIND      LABEL
    * :1  01KG9YYS    5 minutes ago  (safety)  before rollback …
      :2  01KG9YWW    6 minutes ago  manual    a label that is …
      :3  01KG9YS9    8 minutes ago  manual    first (pinned)
    * @here: the state before the last rollback, which restored
        only src from 01KG9YWW
    ");
    assert_snapshot!(sandbox.terminal(sandbox.command(&["prune", "--dry-run"])), @r#"
      keep  01KG9YYS  6 minutes ago   base of the current state
      keep  01KG9YWW  7 minutes ago   the newest  "a label that…
      keep  01KG9YS9  9 minutes ago   pinned  "first"
    Nothing to prune: 3 checkpoints kept.
    "#);
    assert_snapshot!(sandbox.terminal(sandbox.command(&["status"])), @r#"
    1 change since 01KG9YYS, the state before the last rollback,
        7 minutes ago:
        + src/main.rs
      The last rollback restored only src from 01KG9YWW; all
          else is as before it.
      Compare with the newest checkpoint: safepoint diff @
      left out:
        .git  git's own folder
      workspace: project in $T/project
      store: 3 checkpoints here; SIZE for all workspaces in
          $T/home
    Take a checkpoint now: safepoint create -m "a label"
    "#);
}

/// Columns that a text takes: letters of these tests beyond the Latin ones are wide.
fn columns(text: &str) -> usize {
    text.chars().map(|letter| if ('\u{2e80}'..'\u{ff61}').contains(&letter) { 2 } else { 1 }).sum()
}

#[test]
fn tables_fit_with_wide_characters_and_on_the_narrowest_terminal() {
    let (sandbox, _) = crate::plan::failed();
    let wide = "\u{65e5}\u{672c}\u{8a9e}".repeat(20);
    sandbox.run(&["create", "-m", &wide]);
    sandbox.run(&["plan", "checkpoint", "create", "limits", "-m", &wide]);
    sandbox.run(&["plan", "new", "--title", &wide, "--id", "wide"]);
    sandbox.run(&["rollback", "@"]);
    sandbox.run(&["plan", "correct", "wide", "--mode", "skip", "--reason", "none"]);
    for width in [40, 80, 120] {
        sandbox.columns.set(width);
        for args in [
            &["list"][..],
            &["list", "--graph"],
            &["history"],
            &["plan", "list"],
            &["plan", "checkpoint", "list", "limits"],
            &["plan", "rollback", "limits"],
        ] {
            let seen = sandbox.terminal(sandbox.command(args));
            let rows = seen.lines().filter(|line| !line.starts_with("Choose one")).filter(|line| {
                ["ago", "just now", "CHECKPOINT", "WHEN", "PLAN  ", "01KG"]
                    .iter()
                    .any(|sign| line.contains(sign))
            });
            let too_long: Vec<&str> = rows.filter(|row| columns(row) > usize::from(width)).collect();
            assert!(too_long.is_empty(), "{width} {args:?}\n{seen}");
        }
        let seen = sandbox.terminal(sandbox.command(&["list"]));
        assert!(seen.contains("\u{65e5}"), "the label stays: {seen}");
    }
}

#[test]
fn sentences_are_broken_at_words_and_commands_are_whole() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    sandbox.write("notes.txt", "new work\n");
    sandbox.columns.set(50);
    let seen = sandbox.terminal(sandbox.command(&["undo"]));
    let lines: Vec<&str> = seen.lines().collect();
    let hint = lines.iter().position(|line| line.starts_with("hint: Undo anyway")).unwrap();
    assert_eq!(
        lines[hint..hint + 2].join("|"),
        "hint: Undo anyway, and keep the current state in a|    safety checkpoint: safepoint undo --yes",
        "{seen}"
    );
    let seen = sandbox.terminal(sandbox.command(&["status"]));
    let store = seen.lines().position(|line| line.starts_with("  store: ")).unwrap();
    assert!(seen.lines().nth(store).unwrap().chars().count() <= 50, "{seen}");
    assert!(seen.lines().nth(store + 1).unwrap().starts_with("      "), "{seen}");
}

#[test]
fn a_table_leaves_figures_out_before_it_cuts_a_label() {
    let sandbox = Sandbox::with_checkpoint();
    let label = "a label that is as long as thirty-two";
    sandbox.write("notes.txt", "more\n");
    sandbox.run(&["create", "-m", label]);
    let seen = sandbox.terminal(sandbox.command(&["list"]));
    assert!(seen.contains(label) && !seen.contains("STORED"), "{seen}");
    sandbox.columns.set(120);
    let seen = sandbox.terminal(sandbox.command(&["list"]));
    assert!(seen.contains(label) && seen.contains("STORED") && seen.contains("CHANGED"), "{seen}");
}
