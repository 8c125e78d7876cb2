//! Live view of a run on a terminal.

use crate::plan_run::planned;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use regex_lite::Regex;
use std::process::Command;

fn live(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command(args);
    command.env("TERM", "xterm");
    command
}

/// Returns the drawn frames, without times and ids.
fn frames(seen: &str) -> Vec<String> {
    let times = Regex::new(r",? N ms|,? +\d+\.\d s").unwrap();
    let ids = Regex::new(r"checkpoint \w{10}").unwrap();
    let moves = Regex::new(r"\r?\^\[\[\d+A").unwrap();
    seen.split("^[[J")
        .map(|frame| {
            let frame = moves.replace_all(frame, "");
            let frame = times.replace_all(&frame, " TIME");
            ids.replace_all(&frame, "checkpoint ID").into_owned()
        })
        .collect()
}

#[test]
fn the_tree_stays_below_what_the_steps_print() {
    let sandbox = planned(
        "[[step]]
         id = 'one'
         title = 'The first'
         run = 'echo hello; sleep 0.7; echo bye'
         [[step]]
         id = 'sub'
         [[step.step]]
         id = 'flaky'
         retries = 1
         run = 'echo x >> tries; [ $(wc -l < tries) = 2 ]'
         [[step.step]]
         id = 'bad'
         run = 'echo oops; false'",
    );
    let seen = sandbox.terminal(live(&sandbox, &["plan", "run", "work"]));
    let frames = frames(&seen);
    assert!(frames.len() > 4, "{seen}");
    let running = frames
        .iter()
        .find(|frame| frame.starts_with("  [>] one  The first TIME"))
        .unwrap_or_else(|| panic!("{seen}"));
    assert_snapshot!(running, @"
    [>] one  The first TIME  checkpoint ID
    [ ] sub
        [ ] flaky
        [ ] bad
    0 of 3 steps done TIME
    ");
    assert_eq!(seen.matches("one: hello").count(), 1, "{seen}");
    let last = frames.last().unwrap();
    assert_snapshot!(&last[last.find("  [x] one").unwrap()..], @r#"
      [x] one  The first TIME  checkpoint ID
      [!] sub TIME
          [x] flaky TIME  attempt 2  checkpoint ID
          [!] bad TIME  checkpoint ID
    Plan work "Some work" is failed, 2 of 3 steps done
    error: cannot finish plan "work": step sub/bad failed: exit status 1: oops
    hint: Fix what is wrong in $T/project and resume:
        safepoint plan resume work
    hint: Or roll back to before the first error:
        safepoint plan correct work --mode revert
    hint: Or to any checkpoint: safepoint plan rollback work
    "#);
}

#[test]
fn a_large_plan_is_cut_to_what_happens() {
    let step = |number: usize| match number {
        70 => "[[step]]\nid = 's70'\nrun = 'sleep 0.6'\n".to_owned(),
        _ => format!("[[step]]\nid = 's{number}'\nrun = 'true'\n"),
    };
    let steps: String = (0..100).map(step).collect();
    let sandbox = planned(&format!("[checkpoints]\non = []\n{steps}"));
    let seen = sandbox.terminal(live(&sandbox, &["plan", "run", "work"]));
    let frames = frames(&seen);
    let running = frames.iter().find(|frame| frame.contains("[>] s70")).unwrap_or_else(|| panic!("{seen}"));
    // The terminal has 40 rows.
    assert!(running.lines().count() <= 22, "{running}");
    assert!(running.contains("  ... 61 more\n") && running.contains("  ... 21 more\n"), "{running}");
    assert!(frames.last().unwrap().contains("is done, 100 of 100 steps done"), "{seen}");
}

#[test]
fn what_a_step_prints_cannot_act_on_the_terminal() {
    let sandbox = planned(
        "[[step]]\nid = 'a'\nrun = 'printf \"\\\\033]0;title\\\\007\\\\033[2Jclear \\\\033[32mgreen\\\\033[0m\\\\n10%%\\\\r99%%\\\\n\"'",
    );
    let mut command = live(&sandbox, &["plan", "run", "work"]);
    command.env_remove("NO_COLOR");
    let seen = sandbox.terminal(command);
    assert!(seen.contains("^[[2ma:^[[0m clear ^[[32mgreen^[[0m^[[0m\n"), "{seen}");
    assert!(seen.contains("^[[2ma:^[[0m 99%\n"), "{seen}");
    assert!(!seen.contains("title") && !seen.contains("^[[2Jclear"), "{seen}");
    let mut dumb = sandbox.command(&["plan", "log", "work", "a"]);
    dumb.env("TERM", "dumb");
    assert_eq!(sandbox.terminal(dumb), "clear green\n99%\n");
}

#[test]
fn whoever_wants_no_progress_gets_lines() {
    for (args, term) in
        [(&["plan", "run", "work", "--no-progress"][..], "xterm"), (&["plan", "run", "work"], "dumb")]
    {
        let sandbox = planned("[[step]]\nid = 'a'\nrun = 'echo hello'");
        let mut command = sandbox.command(args);
        command.env("TERM", term);
        let seen = sandbox.terminal(command);
        assert!(!seen.contains("^[") && seen.contains("[>] a\n    hello\n[x] a  done in N ms\n"), "{seen}");
    }
}
