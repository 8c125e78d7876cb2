//! Teeth: bugs planted in the product, and the test that detects each.
//!
//! The laws in `laws.rs` are ordinary tests: each passes with the unchanged product. For each row of the
//! table, its test runs again in a separate process, with the bug planted in it and in every `safepoint` that
//! it starts; it must fail. An undetected bug, and a name that is only in the code or only in the table, are
//! failures.
//!
//! Bugs can be planted in debug builds only: `crates/planted`.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod laws;
#[allow(dead_code, reason = "the crash loops use more of it")]
#[path = "../crash/scene.rs"]
mod scene;
mod world;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

/// Planted bug, and the law that detects it.
const TABLE: &[(&str, &str)] = &[
    // The store.
    ("store-pack-not-synced", "create_after_a_power_cut_is_there_or_not"),
    ("store-pack-name-not-synced", "the_first_checkpoint_after_a_power_cut_is_there_or_not"),
    ("store-sync-failure-ignored", "a_failed_sync_is_never_success"),
    ("store-hash-not-checked", "a_flipped_byte_is_never_given_out"),
    ("store-tail-not-synced", "a_tail_of_a_killed_writer_is_durable_before_it_is_indexed"),
    ("store-cap-ignored", "the_store_stays_within_its_cap"),
    // The catalog.
    ("catalog-commit-not-synced", "create_after_a_power_cut_is_there_or_not"),
    ("catalog-events-not-chained", "the_history_is_a_chain"),
    ("catalog-chain-not-checked", "an_edited_history_is_noticed"),
    ("catalog-head-not-moved", "the_head_follows_every_checkpoint_and_rollback"),
    ("catalog-deletes-what-is-needed", "what_an_unfinished_rollback_needs_is_not_deleted"),
    ("guard-rolls-back-what-was-applied", "an_applied_plan_is_not_rolled_back"),
    // A capture.
    ("create-commits-before-it-is-durable", "create_killed_anywhere_is_there_or_not"),
    ("cache-believes-anything", "an_edit_is_captured"),
    ("cache-ignores-the-change-time", "an_edit_with_the_old_time_is_captured"),
    ("scan-does-not-look-twice", "a_file_that_never_holds_still_is_unsettled"),
    ("workspace-not-locked", "a_workspace_that_another_process_holds_is_busy"),
    // The protocol of a rollback.
    ("stage-files-not-synced", "rollback_after_a_power_cut_is_old_or_new"),
    ("stage-of-many-not-synced", "rollback_of_many_files_after_a_power_cut_is_old_or_new"),
    ("swap-folders-not-synced", "rollback_after_a_power_cut_is_old_or_new"),
    ("swap-modes-not-synced", "rollback_after_a_power_cut_is_old_or_new"),
    ("swap-of-many-not-synced", "rollback_of_many_files_after_a_power_cut_is_old_or_new"),
    ("publish-before-sync", "rollback_after_a_power_cut_is_old_or_new"),
    ("swap-sync-failure-ignored", "a_failed_sync_is_never_success"),
    ("verify-left-out", "a_disk_that_changes_what_was_staged_is_noticed"),
    ("swap-moves-over-others", "a_file_that_appears_in_the_instant_of_the_swap_is_kept"),
    ("plan-removes-what-was-not-captured", "what_was_never_captured_is_not_touched"),
    ("plan-ignores-obstacles", "what_was_never_captured_is_not_replaced"),
    ("rollback-without-safety", "every_rollback_can_be_undone"),
    ("intent-after-swaps", "rollback_killed_anywhere_is_old_or_new"),
    ("intent-without-steps", "rollback_killed_anywhere_is_old_or_new"),
    ("abort-without-the-way-back", "a_rollback_that_fails_halfway_puts_everything_back"),
    // Recovery.
    ("recovery-left-out", "rollback_killed_anywhere_is_old_or_new"),
    ("recovery-leaves-what-was-displaced", "rollback_killed_anywhere_is_old_or_new"),
    ("recovery-deletes-what-it-does-not-know", "a_stage_that_is_not_known_is_left_alone"),
    ("way-back-skips-a-step", "rollback_killed_anywhere_is_old_or_new"),
    ("way-back-not-synced", "recovery_after_a_power_cut_is_old_or_new"),
    // Settling.
    ("settle-ignores-writers", "what_is_written_into_a_displaced_file_is_kept"),
    ("settle-does-not-compare", "an_edit_in_the_instant_of_the_swap_is_rescued"),
    ("settle-keeps-no-record", "an_edit_in_the_instant_of_the_swap_is_rescued"),
    ("settle-deletes-before-the-record", "an_edit_that_is_rescued_survives_a_kill_anywhere"),
    // Conversations.
    ("state-saved-before-its-files", "a_state_killed_anywhere_is_there_with_its_files_or_not"),
    ("thread-head-not-moved", "rollback_of_a_conversation_killed_anywhere_is_old_or_new"),
    // Collecting and retention.
    ("collect-does-not-wait", "a_capture_that_is_under_way_keeps_what_it_found"),
    ("collect-marks-once", "a_capture_that_ends_while_collecting_waits_keeps_what_it_found"),
    ("collect-deletes-before-copy", "collecting_killed_anywhere_loses_nothing"),
    ("mark-skips-safety", "an_undo_works_after_collecting"),
    ("mark-skips-pieces", "large_files_survive_collecting"),
    ("mark-skips-ancestors", "conversations_are_whole_after_collecting"),
    ("mark-skips-records", "what_a_rollback_changed_is_known_after_collecting"),
    ("mark-skips-coverage", "checkpoints_are_whole_after_collecting"),
    ("prune-takes-what-is-pinned", "what_is_pinned_is_not_pruned"),
    ("prune-takes-what-is-needed", "an_undo_works_after_pruning"),
    ("prune-takes-the-newest", "the_newest_is_not_pruned"),
];

/// Runs one law in a separate process, with a bug planted.
fn with_bug(bug: &str, law: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("laws::{law}"), "--test-threads", "1"]);
    command.env(safepoint_planted::VARIABLE, bug).env("RUST_BACKTRACE", "0").output().unwrap()
}

#[test]
fn every_planted_bug_is_noticed() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: every_planted_bug_is_noticed: no bug can be planted in a release build");
    }
    let (next, missed, reports) = (Mutex::new(TABLE.iter()), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let row = next.lock().unwrap().next();
                    let Some((bug, law)) = row else { break };
                    let output = with_bug(bug, law);
                    let told = String::from_utf8_lossy(&output.stdout);
                    let failed = told.contains("test result: FAILED. 0 passed; 1 failed");
                    let why = told.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
                    reports.lock().unwrap().push(format!(
                        "planted {bug}: {} by {law}: {}",
                        if failed { "caught" } else { "MISSED" },
                        why.unwrap_or_default().chars().take(150).collect::<String>()
                    ));
                    if !failed {
                        missed.lock().unwrap().push(format!("{bug} by {law}: {told}"));
                    }
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap();
    reports.sort();
    reports.iter().for_each(|report| eprintln!("{report}"));
    let missed = missed.into_inner().unwrap();
    eprintln!("planted bugs: {} of {} caught", TABLE.len() - missed.len(), TABLE.len());
    assert!(missed.is_empty(), "not detected: {missed:#?}");
}

#[test]
fn the_table_names_every_planted_bug_once() {
    let mut in_code = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for member in std::fs::read_dir(crates).unwrap() {
        let member = member.unwrap();
        // The remote has a table of its own, beside its laws: crates/remote/tests/remote/teeth.rs.
        if !["planted", "remote"].iter().any(|other| member.file_name() == *other) {
            names_in(&member.path().join("src"), &mut in_code);
        }
    }
    let in_table: BTreeSet<String> = TABLE.iter().map(|(bug, _)| (*bug).to_owned()).collect();
    assert_eq!(in_table, in_code);
    assert_eq!(in_table.len(), TABLE.len(), "a bug is listed twice");
    assert!(TABLE.len() >= 30);
    let laws = include_str!("laws.rs");
    for (_, law) in TABLE {
        assert!(laws.contains(&format!("#[test]\nfn {law}()")), "{law} is not a law");
    }
}

fn names_in(folder: &Path, names: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_in(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.split("planted!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(found.map(str::to_owned));
        }
    }
}
