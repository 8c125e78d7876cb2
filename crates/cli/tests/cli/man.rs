//! `man`: pages with the contents of `--help`.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use std::fs;

#[test]
fn a_page_of_a_command() {
    let sandbox = Sandbox::new();
    assert_snapshot!(sandbox.run(&["man", "pages"]), @"
    $T/project/pages/safepoint.1
    $T/project/pages/safepoint-init.1
    $T/project/pages/safepoint-create.1
    $T/project/pages/safepoint-list.1
    $T/project/pages/safepoint-show.1
    $T/project/pages/safepoint-cat.1
    $T/project/pages/safepoint-diff.1
    $T/project/pages/safepoint-rollback.1
    $T/project/pages/safepoint-run.1
    $T/project/pages/safepoint-try.1
    $T/project/pages/safepoint-attempt.1
    $T/project/pages/safepoint-attempt-start.1
    $T/project/pages/safepoint-attempt-exec.1
    $T/project/pages/safepoint-attempt-list.1
    $T/project/pages/safepoint-attempt-show.1
    $T/project/pages/safepoint-attempt-diff.1
    $T/project/pages/safepoint-attempt-compare.1
    $T/project/pages/safepoint-attempt-keep.1
    $T/project/pages/safepoint-attempt-drop.1
    $T/project/pages/safepoint-metric.1
    $T/project/pages/safepoint-plan.1
    $T/project/pages/safepoint-plan-new.1
    $T/project/pages/safepoint-plan-list.1
    $T/project/pages/safepoint-plan-show.1
    $T/project/pages/safepoint-plan-tree.1
    $T/project/pages/safepoint-plan-log.1
    $T/project/pages/safepoint-plan-run.1
    $T/project/pages/safepoint-plan-resume.1
    $T/project/pages/safepoint-plan-takeover.1
    $T/project/pages/safepoint-plan-step.1
    $T/project/pages/safepoint-plan-step-start.1
    $T/project/pages/safepoint-plan-step-finish.1
    $T/project/pages/safepoint-plan-step-fail.1
    $T/project/pages/safepoint-plan-step-add.1
    $T/project/pages/safepoint-plan-decide.1
    $T/project/pages/safepoint-plan-context.1
    $T/project/pages/safepoint-plan-context-set.1
    $T/project/pages/safepoint-plan-context-get.1
    $T/project/pages/safepoint-plan-context-unset.1
    $T/project/pages/safepoint-plan-output.1
    $T/project/pages/safepoint-plan-output-set.1
    $T/project/pages/safepoint-plan-checkpoint.1
    $T/project/pages/safepoint-plan-checkpoint-create.1
    $T/project/pages/safepoint-plan-checkpoint-list.1
    $T/project/pages/safepoint-plan-checkpoint-show.1
    $T/project/pages/safepoint-plan-checkpoint-delete.1
    $T/project/pages/safepoint-plan-rollback.1
    $T/project/pages/safepoint-plan-correct.1
    $T/project/pages/safepoint-plan-pause.1
    $T/project/pages/safepoint-plan-cancel.1
    $T/project/pages/safepoint-plan-apply.1
    $T/project/pages/safepoint-session.1
    $T/project/pages/safepoint-session-create.1
    $T/project/pages/safepoint-session-get.1
    $T/project/pages/safepoint-session-list.1
    $T/project/pages/safepoint-session-update.1
    $T/project/pages/safepoint-session-transition.1
    $T/project/pages/safepoint-session-delete.1
    $T/project/pages/safepoint-session-export.1
    $T/project/pages/safepoint-agent.1
    $T/project/pages/safepoint-agent-register.1
    $T/project/pages/safepoint-agent-list.1
    $T/project/pages/safepoint-agent-show.1
    $T/project/pages/safepoint-agent-set.1
    $T/project/pages/safepoint-agent-remove.1
    $T/project/pages/safepoint-install.1
    $T/project/pages/safepoint-uninstall.1
    $T/project/pages/safepoint-workspace.1
    $T/project/pages/safepoint-workspace-list.1
    $T/project/pages/safepoint-workspace-move.1
    $T/project/pages/safepoint-workspace-forget.1
    $T/project/pages/safepoint-remote.1
    $T/project/pages/safepoint-remote-add.1
    $T/project/pages/safepoint-remote-list.1
    $T/project/pages/safepoint-remote-remove.1
    $T/project/pages/safepoint-remote-status.1
    $T/project/pages/safepoint-remote-init.1
    $T/project/pages/safepoint-remote-migrate.1
    $T/project/pages/safepoint-remote-upkeep.1
    $T/project/pages/safepoint-remote-rebuild.1
    $T/project/pages/safepoint-push.1
    $T/project/pages/safepoint-sync.1
    $T/project/pages/safepoint-fetch.1
    $T/project/pages/safepoint-pull.1
    $T/project/pages/safepoint-clone.1
    $T/project/pages/safepoint-emergency.1
    $T/project/pages/safepoint-undo.1
    $T/project/pages/safepoint-redo.1
    $T/project/pages/safepoint-delete.1
    $T/project/pages/safepoint-pin.1
    $T/project/pages/safepoint-unpin.1
    $T/project/pages/safepoint-prune.1
    $T/project/pages/safepoint-gc.1
    $T/project/pages/safepoint-usage.1
    $T/project/pages/safepoint-purge.1
    $T/project/pages/safepoint-repair.1
    $T/project/pages/safepoint-export.1
    $T/project/pages/safepoint-import.1
    $T/project/pages/safepoint-validate.1
    $T/project/pages/safepoint-summary.1
    $T/project/pages/safepoint-history.1
    $T/project/pages/safepoint-status.1
    $T/project/pages/safepoint-recover.1
    $T/project/pages/safepoint-hook.1
    $T/project/pages/safepoint-doctor.1
    $T/project/pages/safepoint-demo.1
    $T/project/pages/safepoint-completions.1
    $T/project/pages/safepoint-man.1
    $T/project/pages/safepoint-mcp.1
    $T/project/pages/safepoint-ui.1
    $T/project/pages/safepoint-version.1
    --- exit 0
    ");
    assert_snapshot!(sandbox.read("pages/safepoint-undo.1"), @r#"
    .ie \n(.g .ds Aq \(aq
    .el .ds Aq '
    .TH SAFEPOINT-UNDO 1  "safepoint 0.1.0" Safepoint
    .SH NAME
    safepoint\-undo \- Undo the last rollback; repeat to undo earlier ones
    .SH SYNOPSIS
    \fBsafepoint undo\fR [\fB\-\-json\fR] [\fB\-\-turn\fR] [\fB\-\-all\fR] [\fB\-q\fR|\fB\-\-quiet\fR] [\fB\-C \fR] [\fB\-\-dry\-run\fR] [\fB\-\-home\fR] [\fB\-\-keep\-times\fR] [\fB\-\-allow\-other\-owner\fR] [\fB\-\-skip\-failed\-undo\fR] [\fB\-\-no\-progress\fR] [\fB\-\-no\-undo\-commands\fR] [\fB\-\-no\-pager\fR] [\fB\-\-color\fR] [\fB\-\-yes\fR] [\fB\-\-utc\fR] [\fB\-h\fR|\fB\-\-help\fR] [\fIPATH\fR] 
    .SH DESCRIPTION
    Undo the last rollback; repeat to undo earlier ones
    .SH OPTIONS
    .TP
    \fB\-\-turn\fR \fI<N>\fR
    Only the paths that turn N of an agent changed; those that changed since stay
    .TP
    \fB\-\-all\fR
    With \-\-turn: also the paths that changed since
    .TP
    \fB\-\-dry\-run\fR
    Show the effects without changing anything
    .TP
    \fB\-\-keep\-times\fR
    Restore modification times
    .TP
    \fB\-\-skip\-failed\-undo\fR
    Continue if an undo command of a plan\*(Aqs step fails, and report it
    .TP
    \fB\-\-no\-undo\-commands\fR
    Run no undo command of a plan\*(Aqs steps, and report each
    .TP
    \fB\-h\fR, \fB\-\-help\fR
    Print help (see a summary with \*(Aq\-h\*(Aq)
    .TP
    [\fIPATH\fR]
    Only these paths
    .SH EVERYWHERE
    .TP
    \fB\-\-json\fR
    Print the result as JSON on standard output
    .TP
    \fB\-q\fR, \fB\-\-quiet\fR
    Print only the result
    .TP
    \fB\-C\fR \fI<DIR>\fR
    Work in this directory
    .TP
    \fB\-\-home\fR \fI<DIR>\fR
    Home directory of Safepoint [default: $SAFEPOINT_HOME or the XDG data directory]
    .TP
    \fB\-\-allow\-other\-owner\fR
    Allow a home that another user owns, such as a container volume; needs \-\-home
    .TP
    \fB\-\-no\-progress\fR
    Show no progress bars
    .TP
    \fB\-\-no\-pager\fR
    Print long answers without a pager [default: $SAFEPOINT_PAGER, $PAGER, or less]
    .TP
    \fB\-\-color\fR \fI<WHEN>\fR
    Use colours
    .br

    .br
    \fIPossible values:\fR
    .RS 14
    .IP \(bu 2
    auto: On a terminal
    .IP \(bu 2
    always: Always
    .IP \(bu 2
    never: Never
    .RE
    .TP
    \fB\-\-yes\fR
    Skip confirmation prompts
    .TP
    \fB\-\-utc\fR
    Show and read times in UTC [default: local time]
    .SH NOTES
    Where files changed since the last rollback, it shows them and asks; without a terminal it needs \-\-yes.
    .SH EXAMPLES
    .nf
      safepoint undo \-\-dry\-run
      safepoint undo
      safepoint undo src/main.rs    this path alone
    .fi
    "#);
}

#[test]
fn every_command_has_a_page_and_every_page_has_examples() {
    let sandbox = Sandbox::new();
    let value = sandbox.json(&["man", "pages", "--json"]);
    let files: Vec<&str> =
        value["data"]["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(files.len() > 15, "{files:?}");
    for file in &files {
        let page = fs::read_to_string(file).unwrap();
        assert!(page.contains(".TH SAFEPOINT") && page.contains(".SH EXAMPLES\n.nf\n"), "{file}: {page}");
    }
    // A second run overwrites the pages.
    assert_eq!(sandbox.json(&["man", "pages", "--json"])["data"]["files"], value["data"]["files"]);
    let page = String::from_utf8(sandbox.output(&["man"]).stdout).unwrap();
    assert_eq!(page, fs::read_to_string(files[0]).unwrap());
    assert_eq!(sandbox.json(&["man", "--json"])["data"]["page"], page);
}

#[test]
fn the_answer_to_a_program() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("project/pages")).unwrap();
    let mut answer = sandbox.json(&["man", "pages", "--json"]);
    answer["data"]["files"].as_array_mut().unwrap().truncate(2);
    let answer = format!("{:#}", answer["data"]).replace(sandbox.path("").to_str().unwrap(), "$T/");
    assert_snapshot!(answer, @r#"
    {
      "files": [
        "$T/project/pages/safepoint.1",
        "$T/project/pages/safepoint-init.1"
      ],
      "page": null
    }
    "#);
    assert_snapshot!(sandbox.json_text(&["man", "pages/safepoint.1", "--json"]), @r#"
    {
      "command": "man",
      "data": null,
      "error": {
        "causes": [
          "File exists (os error 17)"
        ],
        "code": "not_written",
        "hints": [
          "Name a folder that you may write."
        ],
        "kind": "failed",
        "message": "cannot write $T/project/pages/safepoint.1"
      },
      "exit_code": 1,
      "messages": [],
      "status": "error",
      "timing": {
        "duration_ms": N,
        "started": "2026-01-31T12:01:00.000000Z"
      },
      "version": 1
    }
    "#);
}

#[test]
fn a_folder_that_cannot_be_is_told() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "");
    assert_snapshot!(sandbox.run(&["man", "file"]), @"
    --- stderr
    error: cannot show man pages: cannot write $T/project/file
      because: File exists (os error 17)
    hint: Name a folder that you may write.
    --- exit 1
    ");
    fs::create_dir_all(sandbox.path("project/pages/safepoint.1")).unwrap();
    assert_snapshot!(sandbox.run(&["man", "pages"]), @"
    --- stderr
    error: cannot show man pages: cannot write $T/project/pages/safepoint.1
      because: Is a directory (os error 21)
    hint: Name a folder that you may write.
    --- exit 1
    ");
}

#[test]
fn the_page_of_one_command_is_shown_by_its_name() {
    let sandbox = Sandbox::new();
    let page = sandbox.run(&["man", "plan", "run"]);
    assert!(page.contains(".TH SAFEPOINT-PLAN-RUN 1") && page.ends_with("--- exit 0\n"), "{page}");
    assert_snapshot!(sandbox.run(&["man", "plan", "nothing"]), @"
    --- stderr
    error: cannot show man pages: there is no such command
    hint: `safepoint --help` lists the commands; name one folder to write all pages into it.
    --- exit 2
    ");
    let typo = sandbox.run(&["man", "rolback"]);
    assert!(typo.contains("safepoint man rollback") && typo.ends_with("--- exit 2\n"), "{typo}");
    assert!(!sandbox.path("project/rollback").exists() && !sandbox.path("project/rolback").exists());
    assert!(sandbox.run(&["man", "./rollback"]).contains("safepoint-rollback.1"));
}
