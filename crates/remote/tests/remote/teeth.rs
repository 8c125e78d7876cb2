//! Teeth: bugs planted in the remote, and the law that notices each.

use crate::world::{postgres, seaweed};
use std::process::Command;

/// Planted bug, and the test that fails with it.
const TABLE: [(&str, &str); 6] = [
    ("remote-publish-before-put", "faults::nothing_is_published_before_its_packs_are_answered"),
    ("remote-no-lock", "upkeep::a_pack_that_a_push_names_meanwhile_is_not_condemned"),
    ("remote-reused-name", "publish::of_two_copies_of_a_machine_one_publishes_and_the_other_is_fenced"),
    ("remote-leaves-out-by-pack", "publish::objects_of_kept_packs_bring_what_they_name"),
    ("remote-seq-not-compared", "publish::of_two_copies_of_a_machine_one_publishes_and_the_other_is_fenced"),
    ("remote-token-not-compared", "publish::a_takeover_returns_the_final_head_and_fences_the_old_holder"),
];

#[test]
fn every_planted_bug_is_noticed() {
    if postgres().is_none() || seaweed().is_none() || std::env::var_os("SAFEPOINT_PLANTED").is_some() {
        return;
    }
    for (bug, law) in TABLE {
        let run = |planted: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", law]).env("SAFEPOINT_PLANTED", planted);
            command.output().unwrap()
        };
        let output = run(bug);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("1 failed"), "{law} does not notice {bug}:\n{text}");
    }
}

#[test]
fn the_table_names_every_planted_bug() {
    let mut found = Vec::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(
                    text.split("planted!(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()),
                );
            }
        }
    }
    found.sort();
    found.dedup();
    let mut table = TABLE.map(|(bug, _)| bug.to_owned());
    table.sort();
    assert_eq!(found, table);
}
