//! Help: short, friendly, with examples everywhere.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

#[test]
fn the_first_page() {
    assert_snapshot!(Sandbox::new().run(&["--help"]), @r#"
    Checkpoints and rollback for the work of AI agents: exact, all or nothing, and crash-safe

    Usage: safepoint [OPTIONS] <COMMAND>

    First steps:
      safepoint create -m "before refactoring"   take a checkpoint of this project
      safepoint status                           show changes since then
      safepoint rollback @                       roll back to the newest checkpoint
      safepoint undo                             undo the rollback
      safepoint demo                             see it in a temporary folder

    Take checkpoints:
      create       Take a checkpoint [alias: save]
      run          Take a checkpoint, then run a command; roll back if it fails, on request
      emergency    Take a checkpoint despite errors, and report what it misses
      init         Register a folder and show what a checkpoint of it contains

    Look:
      status       Show changes since the position, and what is not captured
      list         List checkpoints, newest first [aliases: log, ls]
      show         Show one checkpoint [alias: get]
      cat          Print a file from a checkpoint
      diff         Compare a checkpoint with another one or with the current state
      history      Show rollbacks, undos, redos and corrections, newest first
      summary      Count checkpoints, by kind and by reason
      ui           Show the timeline, differences, plans and rollbacks in a browser

    Roll back:
      rollback     Restore the workspace, or chosen paths, from a checkpoint [aliases: restore, rewind]
      undo         Undo the last rollback; repeat to undo earlier ones
      redo         Redo the rollback that was undone last

    Attempts:
      try          Run a command in an attempt; outside of the project everything is real
      attempt      Work in attempts; outside of the project everything is real
      metric       Report numbers of the work, such as accuracy=0.93; the next checkpoint holds them

    Plans and sessions:
      plan         Run plans; roll back files and plan state together
      session      Track a request, its status and its checkpoints

    Agents:
      install      Cover coding agents: a checkpoint for every turn, by hooks and an MCP server
      uninstall    Remove hooks and MCP server from the settings of coding agents
      hook         Answer an event of a coding agent; `safepoint install` puts this into its settings
      mcp          Serve checkpoints and rollback to an agent (Model Context Protocol)
      agent        Register agents, whose configuration and memory are captured

    Retention and disk space:
      pin          Protect a checkpoint from pruning
      unpin        Allow pruning of a checkpoint again
      delete       Delete checkpoints [alias: rm]
      prune        Delete checkpoints by the retention policy, as each `create` does
      gc           Collect garbage: free the space of deleted checkpoints
      usage        Show disk usage by workspace and by checkpoint
      purge        Remove a path from every checkpoint, such as a secret or a huge file

    Check and repair:
      validate     Verify checkpoints, store and workspace [alias: verify]
      repair       Repair damage as far as possible, and report what is lost
      recover      Finish or undo work that a crash interrupted; other commands do so first
      doctor       Check this machine, and show how to fix problems

    Folders and copies:
      workspace    List, move and forget registered folders
      export       Export a checkpoint as a folder of plain files
      import       Import a folder that `export` wrote

    Other machines:
      remote       Add, list, remove and check remotes, where checkpoints are published
      push         Publish the checkpoints of this workspace that a remote lacks
      sync         Publish what remotes lack, and try again until they have it
      pull         Bring the newest checkpoint of other machines here; files do not change
      fetch        Bring a published checkpoint into this home; files do not change
      clone        Build a published checkpoint in a new folder, with its plan and session

    Help:
      demo         Show a disaster and its rollback in a temporary folder
      completions  Print a completion script for your shell
      man          Show the man page of a command, or write all pages into a folder
      version      Print the version

    Options of every command:
          --json
              Print the result as JSON on standard output

      -q, --quiet
              Print only the result

      -C <DIR>
              Work in this directory

          --home <DIR>
              Home directory of Safepoint [default: $SAFEPOINT_HOME or the XDG data directory]

          --allow-other-owner
              Allow a home that another user owns, such as a container volume; needs --home

          --no-progress
              Show no progress bars

          --no-pager
              Print long answers without a pager [default: $SAFEPOINT_PAGER, $PAGER, or less]

          --color <WHEN>
              Use colours

              Possible values:
              - auto:   On a terminal
              - always: Always
              - never:  Never

          --yes
              Skip confirmation prompts

          --utc
              Show and read times in UTC [default: local time]

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    `safepoint COMMAND --help` explains a command, `safepoint man COMMAND` shows its page.
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
        "install",
        "uninstall",
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
    Restore the workspace, or chosen paths, from a checkpoint

    Usage: safepoint rollback [OPTIONS] [CHECKPOINT|PATH]... [-- <PATH>...]

    Arguments:
      [CHECKPOINT|PATH]...  Checkpoint, then paths; a first argument that names no checkpoint is a path
      [PATH]...             Only these paths

    Options:
          --checkpoint-id <ID>   Checkpoint, for scripts; it may begin with a hyphen
          --session-id <ID>      Fail if the checkpoint belongs to another session
          --turn <N>             State after turn N of an agent
          --before-turn <N>      State before the first change of turn N
          --strategy <STRATEGY>  Strategy: immediate, staged (tried first), selective, or progressive (a
                                 search) [possible values: immediate, staged, selective, progressive]
          --path <PATH>          Only this path; repeatable
          --part <PART>          Only this part: files, plan, agent, session, thread, or git (branch,
                                 HEAD, index); repeatable
          --strict               With several folders: fail if a part cannot be rolled back
          --dry-run              Show the effects without changing anything
          --keep-times           Restore modification times [default: now, so that build tools notice]
          --skip-failed-undo     Continue if an undo command of a plan's step fails, and report it
          --no-undo-commands     Run no undo command of a plan's steps, and report each
          --to <DIR>             Build the files in this new or empty folder; the workspace is not
                                 changed
          --verify <CMD>         Build the target beside the workspace, run CMD there, show the changes,
                                 and ask
          --until <CMD>          Roll back to the newest checkpoint where CMD passes, tried apart
          --bisect               With --until: binary search; checkpoints older than a good one are good
          --in-place             With --until: try in the workspace itself
          --copy                 With --until: try in a copy at another path, not in an overlay
          --hard-reset           Set git branch, index and files; uncommitted work goes into the safety
                                 checkpoint
          --mixed                Set git branch and index to the checkpoint; the files stay
      -h, --help                 Print help (see more with '--help')

    Everywhere:
          --json               Print the result as JSON on standard output
      -q, --quiet              Print only the result
      -C <DIR>                 Work in this directory
          --home <DIR>         Home directory of Safepoint [default: $SAFEPOINT_HOME or the XDG data
                               directory]
          --allow-other-owner  Allow a home that another user owns, such as a container volume; needs
                               --home
          --no-progress        Show no progress bars
          --no-pager           Print long answers without a pager [default: $SAFEPOINT_PAGER, $PAGER, or
                               less]
          --color <WHEN>       Use colours [possible values: auto, always, never]
          --yes                Skip confirmation prompts
          --utc                Show and read times in UTC [default: local time]

    A checkpoint is named by its id, the first 4 or more letters of it, its label, a time such as "10
    minutes ago" or 14:30, or :3 (row 3 of the last `list` on this terminal).
    @ is the newest checkpoint; @here is the position, which the workspace was last captured as or
    rolled back to (* in `list`); @~2 is two before the newest.
    An argument that names no checkpoint is a path; after -- everything is. Paths alone go back to @.
    The current state is kept first, so that `safepoint undo` brings it back.
    --session-id with --checkpoint-id moves git and keeps the files; with --hard-reset, the files too.

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
