//! Walls between the rooms, read from the sources.

use std::fs;
use std::path::Path;

/// The verbs: they loop over the list of kinds (`parts/kinds.rs`).
const VERBS: [&str; 7] = [
    "checkpoint/create.rs",
    "places.rs",
    "rollback.rs",
    "rollback/carry.rs",
    "rollback/recover.rs",
    "rollback/scene.rs",
    "rollback/undo.rs",
];

/// Names of kinds in a source text other than files, which every folder has.
fn kinds_named(text: &str) -> Vec<&str> {
    let names = text.split("PartKind::").skip(1);
    let names = names.map(|rest| rest.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or(rest));
    names.filter(|name| *name != "Files").collect()
}

#[test]
fn verbs_know_no_kind_of_part_by_name() {
    assert_eq!(kinds_named("a PartKind::Files b PartKind::Plan; PartKind::Outside(_)"), ["Plan", "Outside"]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for verb in VERBS {
        let text = fs::read_to_string(sources.join(verb)).unwrap();
        assert!(kinds_named(&text).is_empty(), "{verb} names {:?}", kinds_named(&text));
        for part in
            ["PlanPart", "SessionPart", "ThreadPart", "AgentPart", "GitPart", "GitFolderPart", "OutsidePart"]
        {
            assert!(!text.contains(part), "{verb} names {part}");
        }
    }
}
