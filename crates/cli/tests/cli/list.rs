//! `list`: the table and the history graph.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

/// Two attempts from one checkpoint, with rollbacks between them, an undo, and a path rollback.
/// path.
fn with_history() -> Sandbox {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("notes.txt", "first try\n");
    sandbox.run(&["create", "-m", "first try"]);
    sandbox.write("notes.txt", "worse\n");
    sandbox.run(&["rollback", "first"]);
    sandbox.write("notes.txt", "second try\n");
    sandbox.run(&["create", "-m", "second try", "--pin"]);
    sandbox.run(&["rollback", "first try"]);
    sandbox.run(&["undo"]);
    sandbox.write("notes.txt", "on from here\n");
    sandbox.run(&["create"]);
    sandbox.run(&["rollback", "first", "--path", "notes.txt"]);
    sandbox
}

#[test]
fn the_graph_shows_where_each_rollback_went() {
    let sandbox = with_history();
    assert_snapshot!(sandbox.run(&["list", "--graph"]), @"
    *      01KG9Z63  57 seconds ago  rollback of 1 path -> 01KG9YS9 first
    o      01KG9Z47  1 minute ago
    | .    01KG9Z2E  2 minutes ago   undo -> 01KG9Z0K
    . |    01KG9Z0K  3 minutes ago   rollback -> 01KG9YV2 first try
    o |    01KG9YYQ  4 minutes ago   second try (pinned)
    | | .  01KG9YWY  5 minutes ago   rollback -> 01KG9YS9 first
    | |-'
    | o    01KG9YV2  6 minutes ago   first try
    |-'
    o      01KG9YS9  7 minutes ago   first
    * is where the workspace is now
    --- exit 0
    ");
    let mut unicode = sandbox.command(&["list", "--graph", "-q"]);
    assert_snapshot!(sandbox.told(&unicode.env("LANG", "en_GB.UTF-8").output().unwrap()), @"
    ●      01KG9Z63  1 minute ago   rollback of 1 path → 01KG9YS9 first
    ○      01KG9Z47  2 minutes ago
    │ ·    01KG9Z2E  3 minutes ago  undo → 01KG9Z0K
    · │    01KG9Z0K  4 minutes ago  rollback → 01KG9YV2 first try
    ○ │    01KG9YYQ  5 minutes ago  second try (pinned)
    │ │ ·  01KG9YWY  6 minutes ago  rollback → 01KG9YS9 first
    │ ├─╯
    │ ○    01KG9YV2  7 minutes ago  first try
    ├─╯
    ○      01KG9YS9  8 minutes ago  first
    --- exit 0
    ");
    // The first set variable decides.
    let mut plain = sandbox.command(&["list", "--graph"]);
    let plain = plain.env("LANG", "en_GB.UTF-8").env("LC_ALL", "C").output().unwrap();
    assert!(plain.stdout.is_ascii());
}

#[test]
fn a_graph_of_some_draws_what_is_listed() {
    let sandbox = with_history();
    assert_snapshot!(sandbox.run(&["list", "--graph", "-n", "4"]), @"
    *    01KG9Z63  57 seconds ago  rollback of 1 path -> 01KG9YS9
    o    01KG9Z47  1 minute ago
    | .  01KG9Z2E  2 minutes ago   undo -> 01KG9Z0K
    .    01KG9Z0K  3 minutes ago   rollback -> 01KG9YV2
    * is where the workspace is now
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list", "--graph", "--kind", "emergency"]), @"
    No checkpoint fits what you asked for.
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["list", "--graph", "--all"]), @"
    --- stderr
    error: the argument '--graph' cannot be used with '--all'

    Usage: safepoint list --graph

    For more information, try '--help'.
    --- exit 2
    ");
}

#[test]
fn a_graph_on_a_terminal_fits() {
    let sandbox = with_history();
    sandbox.run(&["create", "-m", &"a long label ".repeat(9)]);
    let seen = sandbox.terminal(sandbox.command(&["list", "--graph"]));
    assert!(seen.lines().all(|line| line.chars().count() <= 80), "{seen}");
    let mut colourful = sandbox.command(&["list", "--graph", "-n", "3"]);
    colourful.env_remove("NO_COLOR").env("LANG", "C.UTF-8");
    assert_snapshot!(sandbox.terminal(colourful), @"
    ●  ^[[1m01KG9Z7W^[[0m  1 minute ago   a long label a long label a long label a long label…
    ·  ^[[2m01KG9Z63^[[0m  2 minutes ago  ^[[36mrollback of 1 path → 01KG9YS9^[[0m
    ○  ^[[1m01KG9Z47^[[0m  3 minutes ago
    ^[[2m● is where the workspace is now^[[0m
    ");
}

#[test]
fn programs_get_the_head_and_the_rollbacks() {
    let sandbox = Sandbox::with_checkpoint();
    let value = sandbox.json(&["list", "--json"]);
    assert_eq!(value["data"]["head"], value["data"]["checkpoints"][0]["id"]);
    assert!(value["data"]["rollbacks"].is_null());
    sandbox.wreck();
    sandbox.run(&["rollback", "@"]);
    let value = sandbox.json(&["list", "--graph", "--json"]);
    let rollback = &value["data"]["rollbacks"][0];
    assert_eq!((&rollback["to"], &rollback["state"]), (&value["data"]["head"], &"settled".into()));
    assert_eq!(rollback["safety_checkpoint"], value["data"]["checkpoints"][0]["id"]);
}

#[test]
fn a_piped_table_stays_under_100_columns() {
    let sandbox = with_history();
    let told = sandbox.run(&["list"]);
    assert!(told.lines().all(|line| line.chars().count() < 100), "{told}");
    assert_snapshot!(told, @"
    CHECKPOINT                  WHEN            KIND      CHANGED   STORED  LABEL
    01KG9Z63KGCREED620G2XB2AG2  57 seconds ago  (safety)  +0 ~0 -0  SIZE  before rollback to 01KG9YS9
    01KG9Z47206DPBTS55V6PYZR00  1 minute ago    manual    +0 ~1 -0  SIZE
    01KG9YYQ9053R1T2RMWKDG33ZD  4 minutes ago   manual    +0 ~1 -0  SIZE  second try (pinned)
    01KG9YV2300QJS22HDXJ4G4Q61  6 minutes ago   manual    +0 ~1 -0  SIZE  first try
    01KG9YS9EGCQT0DH2X3200JHAF  7 minutes ago   manual    +6 ~0 -0  SIZE  first
    3 safety checkpoints are not shown: safepoint list --all-roles
    --- exit 0
    ");
}

#[test]
fn people_see_the_newest_hundred_and_programs_all() {
    let sandbox = Sandbox::new();
    for at in 0..102 {
        sandbox.write("file", format!("{at}"));
        assert!(sandbox.output(&["create", "-q"]).status.success());
    }
    let shown = sandbox.run(&["list"]);
    assert_eq!(shown.lines().filter(|line| line.starts_with("01")).count(), 100, "{shown}");
    assert!(shown.contains("2 more: safepoint list -n 102"), "{shown}");
    let all = sandbox.run(&["list", "-n", "102"]);
    assert_eq!(all.lines().filter(|line| line.starts_with("01")).count(), 102);
    assert!(!all.contains("more:"), "{all}");
    let told = sandbox.json(&["list", "--json"]);
    assert_eq!(told["data"]["checkpoints"].as_array().unwrap().len(), 102);
}
