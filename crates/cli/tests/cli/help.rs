//! Help: short, friendly, with examples everywhere.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

#[test]
fn the_first_page() {
    assert_snapshot!(Sandbox::new().run(&["--help"]), @r#"
    Checkpoints and rollback for the work of AI agents: exact, all or nothing, and crash-safe

    Usage: safepoint [OPTIONS] <COMMAND>

    Commands:
      init         Register a folder, and show what a checkpoint of it will hold
      create       Take a checkpoint [alias: save]
      list         List checkpoints, newest first [aliases: log, ls]
      show         Show one checkpoint [alias: get]
      cat          Write out a file as it was
      diff         Show what differs between a checkpoint and another one, or the present
      rollback     Make the workspace equal to a checkpoint again: all of it, or the paths you choose
                   [aliases: restore, rewind]
      run          Take a checkpoint, then run a command; with --rollback-on-fail, go back if it fails
      plan         Plans: what is to be done, what is done and decided, and the way back, files and plan
                   together
      session      Sessions: what somebody asked for, how far it is, and what was counted on the way
      agent        Agents: whose configuration and memory checkpoints keep
      workspace    List, move and forget registered folders
      emergency    Take a checkpoint now, whatever is wrong, and say what it missed
      undo         Undo the last rollback; repeat to undo earlier ones
      redo         Do the rollback again that was last undone
      delete       Delete checkpoints [alias: rm]
      pin          Keep a checkpoint for good: it is never pruned
      unpin        Let a checkpoint be pruned again
      prune        Delete checkpoints that are old and not needed, as each `create` does by itself
      gc           Free the space of what no checkpoint needs any more
      usage        Show where the space is, by workspace and by checkpoint
      purge        Take a path out of every checkpoint, for good: a secret, or something huge
      repair       Mend what is damaged as far as that can be done, and say what is lost
      export       Write a checkpoint as a folder that others can read
      import       Make a checkpoint of a folder that `export` wrote
      validate     Check that all is whole: checkpoints, store, workspace [alias: verify]
      summary      Count checkpoints, by kind and by reason
      history      Show rollbacks, undos, redos and corrections, newest first
      status       Say whether the workspace is covered, what changed, and what is left out
      recover      Finish or undo what a crash left. Work on a workspace begins with it anyway
      doctor       Look everything over that Safepoint relies on, and say what to do
      demo         Tell the story in a temporary folder: a project, a disaster, and the way back
      completions  Print a completion script for your shell
      man          Show the man page of a command, or write all pages into a folder
      version      Print the version
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Everywhere:
          --json
              Answer as JSON on standard output

      -q, --quiet
              Say only what was asked for

      -C <DIR>
              Work in this directory

          --home <DIR>
              Where the checkpoints are kept [default: $SAFEPOINT_HOME or the XDG data directory]

          --allow-other-owner
              Write a home of another user, such as a volume of a container; needs --home

          --no-progress
              Show no progress bars

          --color <WHEN>
              Use colours

              Possible values:
              - auto:   On a terminal
              - always: Always
              - never:  Never

          --yes
              Answer yes to whatever is asked

    Examples:
      safepoint create -m "before the refactoring"   take a checkpoint of this project
      safepoint status                               what changed since
      safepoint rollback @                           go back to the newest checkpoint
      safepoint undo                                 take that back
      safepoint demo                                 see it all happen in a temporary folder
    --- exit 0
    "#);
}

#[test]
fn every_command_has_examples_and_no_long_lines() {
    let sandbox = Sandbox::new();
    for command in [
        "init",
        "create",
        "list",
        "show",
        "cat",
        "diff",
        "rollback",
        "run",
        "plan",
        "plan new",
        "plan list",
        "plan show",
        "plan tree",
        "plan log",
        "plan step",
        "plan step start",
        "plan step finish",
        "plan step fail",
        "plan step add",
        "plan decide",
        "plan context",
        "plan context set",
        "plan context get",
        "plan context unset",
        "plan output",
        "plan output set",
        "plan checkpoint",
        "plan checkpoint create",
        "plan checkpoint list",
        "plan checkpoint show",
        "plan checkpoint delete",
        "plan rollback",
        "plan pause",
        "plan cancel",
        "plan apply",
        "undo",
        "redo",
        "delete",
        "pin",
        "unpin",
        "prune",
        "gc",
        "usage",
        "purge",
        "repair",
        "export",
        "import",
        "validate",
        "summary",
        "history",
        "status",
        "recover",
        "doctor",
        "demo",
        "completions",
        "man",
        "version",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["-h"]).collect();
        let told = sandbox.run(&words);
        assert!(told.contains("Examples:") && told.ends_with("--- exit 0\n"), "{told}");
        assert!(!told.contains("SAFEPOINT_TEST"), "{told}");
    }
}

#[test]
fn rollback_explains_how_a_checkpoint_is_named() {
    assert_snapshot!(Sandbox::new().run(&["rollback", "-h"]), @r#"
    Make the workspace equal to a checkpoint again: all of it, or the paths you choose

    Usage: safepoint rollback [OPTIONS] [CHECKPOINT|PATH]... [-- <PATH>...]

    Arguments:
      [CHECKPOINT|PATH]...  The checkpoint, then paths; a first argument that names no checkpoint is a
                            path
      [PATH]...             Only these paths

    Options:
          --checkpoint-id <ID>   The checkpoint, for programs; it may begin with a hyphen
          --session-id <ID>      Refuse a checkpoint of another session
          --strategy <STRATEGY>  How: at once; tried beside the workspace first; only what is chosen; or
                                 back until a command passes [possible values: immediate, staged,
                                 selective, progressive]
          --path <PATH>          Only this path. Can be given again
          --part <PART>          Only this part: files, plan, agent, session (its record), or git (its
                                 branch, HEAD and index)
          --strict               With several folders: refuse where a plan was applied or a folder is
                                 missing
          --dry-run              Show what would happen, and change nothing
          --keep-times           Give restored files the time they had; otherwise it is the present, so
                                 that build tools notice
          --skip-failed-undo     Where a plan goes back: go on where an undo command of a step fails,
                                 and report it
          --no-undo-commands     Where a plan goes back: run no undo command of its steps, and report
                                 what they would have undone
          --to <DIR>             Build the files of the checkpoint in this new or empty folder; the
                                 workspace stays as it is
          --verify <CMD>         Build the target beside the workspace, run this there, show the
                                 difference, and ask
          --until <CMD>          Roll back to the newest checkpoint where CMD passes, tried in a copy
          --bisect               With --until: binary search; checkpoints older than a good one are good
          --in-place             With --until: try in the workspace itself, where CMD needs its path
          --hard-reset           Set the git branch, the index and the files to the checkpoint;
                                 uncommitted work goes into the safety checkpoint
          --mixed                Set the git branch and the index to the checkpoint; the files stay
      -h, --help                 Print help (see more with '--help')

    Everywhere:
          --json               Answer as JSON on standard output
      -q, --quiet              Say only what was asked for
      -C <DIR>                 Work in this directory
          --home <DIR>         Where the checkpoints are kept [default: $SAFEPOINT_HOME or the XDG data
                               directory]
          --allow-other-owner  Write a home of another user, such as a volume of a container; needs
                               --home
          --no-progress        Show no progress bars
          --color <WHEN>       Use colours [possible values: auto, always, never]
          --yes                Answer yes to whatever is asked

    A checkpoint is named by its id, the first 4 or more letters of it, its label, a time such as "10
    minutes ago" or 14:30, or :3 (row 3 of the last `list` on this terminal).
    @ is the newest checkpoint; @here is the position, which the workspace was last captured as or
    rolled back to (* in `list`); @~2 is two before the newest.
    An argument that names no checkpoint is a path; after -- everything is. Paths alone go back to @.
    The current state is kept first, so that `safepoint undo` brings it back.

    Examples:
      safepoint rollback                       choose on a terminal, else list
      safepoint rollback src/main.rs           one file, from the newest checkpoint
      safepoint rollback "10 minutes ago"
      safepoint rollback @ --dry-run           show what would happen
      safepoint rollback @ --path src          only this path
      safepoint rollback @ --to ../then        build it in another folder
      safepoint rollback @ --hard-reset        a commit: branch, index and files
      safepoint rollback @ --verify "make test"       try it beside the workspace first
      safepoint rollback --until "make test"          back to the newest that passes
      safepoint rollback --until "make test" --bisect --dry-run   only show it
    --- exit 0
    "#);
}
