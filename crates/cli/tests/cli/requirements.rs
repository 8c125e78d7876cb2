//! Agreement of the requirements page with the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of requirements in each section, from the first to the eighth.
const SECTIONS: [usize; 8] = [6, 7, 4, 4, 8, 9, 5, 2];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names of all tests.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![top().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let mut marked = false;
                for line in text.lines().map(str::trim) {
                    match line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
                        Some((name, _)) if marked => {
                            names.insert(name.to_owned());
                            marked = false;
                        }
                        _ => marked |= line == "#[test]",
                    }
                }
            }
        }
    }
    names
}

#[test]
fn every_requirement_is_on_the_page_and_every_name_on_the_page_is_a_test() {
    let page = fs::read_to_string(top().join("docs/requirements.md")).unwrap();
    let tests = tests();
    let mut seen = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| R")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        seen.push(cells[1].to_owned());
        let named: Vec<&str> = cells[4].split(", ").map(|name| name.trim_matches('`')).collect();
        assert!(!named.is_empty());
        for name in named {
            assert!(tests.contains(name), "{}: {name} is not a test", cells[1]);
        }
        for path in cells[3].split('`').filter(|word| word.starts_with("crates/")) {
            assert!(top().join(path).exists(), "{}: {path} is missing", cells[1]);
        }
    }
    let all: Vec<String> = (1..)
        .zip(SECTIONS)
        .flat_map(|(section, count)| (1..=count).map(move |number| format!("R{section}.{number}")))
        .collect();
    assert_eq!(seen, all);
}
