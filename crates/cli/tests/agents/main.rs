//! The real coding agents, offline against a scripted model: every turn is covered, rolled back exactly and reported to the model.
//!
//! `.ci/agents` runs them. `.ci/agents-lab/lab.py` runs an agent against a scripted model and prints what the model was sent. The
//! agents are in `SAFEPOINT_LAB_AGENTS` [default: below `target`], and are installed there from the npm registry if missing.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start programs")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the turns of each agent are what it reports")]

mod world;

use serde_json::{Value, json};
use std::fs;
use world::World;

/// Second prompt of a session: one path of the first one again, and new ones.
fn second() -> Value {
    json!({ "main": [
        [{ "shell": "echo again >> notes.txt; mkdir -p deep/er; echo x > deep/er/x; test ! -e made.txt || rm made.txt" }],
        [{ "write": { "path": "later.txt", "content": "later\n" } }],
        [{ "text": "The second part is done." }],
    ] })
}

/// A prompt without changes, for the note.
fn third() -> Value {
    json!({ "main": [[{ "text": "Understood." }]] })
}

/// Settings that a project has before Safepoint comes, in the spelling of a person.
fn settings(agent: &str) -> (&'static str, &'static str) {
    match agent {
        "claude" => (".claude/settings.json", "{\n\t\"env\": { \"SHOP\": \"1\" }\n}"),
        "codex" => (".codex/config.toml", "# mine\nhide_agent_reasoning = true\n"),
        "gemini" => (".gemini/settings.json", "{\n  // mine\n  \"ui\": { \"hideTips\": true }\n}\n"),
        "copilot" => (".github/CODEOWNERS", "* @dev\n"),
        _ => ("opencode.json", "{ \"$schema\": \"https://opencode.ai/config.json\", \"username\": \"dev\" }"),
    }
}

/// Runs a scenario as one prompt, and a second prompt in the same session: two turns, not one more. Each goes back exactly, the note
/// arrives, and `uninstall` restores every file. `installed` is the agent, or `all`.
fn check(agent: &str, installed: &str, scenario: &str) {
    let world = World::new(agent);
    let (file, text) = settings(agent);
    world.write("keep.txt", "keep\n");
    world.write("notes.txt", "notes\n");
    world.write(file, text);
    if agent == "opencode" {
        // It writes this at its start, if it is missing.
        let ignored = "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore";
        world.write(".opencode/.gitignore", ignored);
    }
    let bare = world.image();
    world.run(&["install", installed, "--project"]);
    let mut images = vec![world.image()];
    let mut turns = vec![0];
    for (step, resume) in [(world.scenario(scenario), false), (second(), true)] {
        world.play(agent, &step, resume);
        images.push(world.image());
        turns.push(world.turns());
    }
    println!("{agent} {scenario}, {installed} installed: {turns:?} turns");
    world.run(&["list", "--turns"]).lines().for_each(|line| println!("    {line}"));
    assert_eq!(turns, [0, 1, 2], "{agent} {scenario}: a turn for each prompt");
    assert_eq!(world.uncovered(), 0, "{agent} {scenario}: every turn is covered");
    if scenario == "edits" {
        let steps = world.steps(agent);
        assert_eq!(steps, ["Change the files", "Report"], "{agent}: the plan of the agent");
    }
    for at in [0, 2, 1, 0, 1, 2] {
        match at {
            0 => world.run(&["rollback", "--before-turn", "1"]),
            at => world.run(&["rollback", "--turn", &turns[at].to_string()]),
        };
        world.assert_image(&images[at], &format!("{agent} {scenario}: after prompt {at}"));
    }
    world.run(&["rollback", "--before-turn", &(turns[1] + 1).to_string()]);
    world.assert_image(&images[1], &format!("{agent} {scenario}: before the second prompt"));
    world.run(&["rollback", "--turn", &turns[2].to_string()]);
    undo_one(&world, turns[2], &images);
    world.run(&["rollback", "--before-turn", "1"]);
    let told = world.play(agent, &third(), true);
    let note = told.iter().find(|text| text.contains("Safepoint rolled back"));
    let note = note.unwrap_or_else(|| panic!("{agent} {scenario}: no note in {told:#?}"));
    assert!(note.contains("\"notes.txt\"") && note.contains("turn 1"), "{note}");
    assert!(note.contains("Do the scripted work"), "{note}");
    world.assert_image(&images[0], &format!("{agent} {scenario}: after the note"));
    world.run(&["uninstall", installed, "--project"]);
    world.assert_image(&bare, &format!("{agent} {scenario}: uninstalled"));
    assert_eq!(fs::read_to_string(world.path(file)).unwrap(), text);
}

/// Undoes the last turn alone, and takes that back.
fn undo_one(world: &World, last: u64, images: &[safepoint_testkit::TreeImage]) {
    world.run(&["undo", "--turn", &last.to_string()]);
    world.assert_image(&images[1], "undo --turn");
    world.run(&["undo", "--yes"]);
    world.assert_image(&images[2], "undo of undo --turn");
}

macro_rules! agents {
    ($($agent:ident)*) => {$(
        #[test]
        #[ignore = "needs the real agents: .ci/agents"]
        fn $agent() {
            for scenario in ["edits", "parallel", "subagent"] {
                check(stringify!($agent), stringify!($agent), scenario);
            }
        }
    )*};
}

agents!(claude codex gemini copilot opencode);

#[test]
#[ignore = "needs the real agents: .ci/agents"]
fn agents_that_load_the_settings_of_others_report_each_prompt_as_one_turn() {
    for agent in ["claude", "codex", "gemini", "copilot", "opencode"] {
        check(agent, "all", "edits");
    }
}
