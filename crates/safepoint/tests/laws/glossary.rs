//! One word for one thing: every public type has a name of its own, and the glossary explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CRATES: [&str; 8] = ["model", "store", "catalog", "workspace", "git", "agents", "remote", "safepoint"];

/// The public types of a source text: those that are declared, and those that a macro of the model declares.
fn types(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_macro = false;
    for line in text.lines() {
        if line.starts_with("word_type! {") || line.starts_with("id_type! {") {
            in_macro = true;
            continue;
        }
        let name = |rest: &str| -> String {
            rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
        };
        let rest = line.trim_start();
        if in_macro && !rest.starts_with("///") && !rest.starts_with("#[") {
            found.push(name(rest));
            in_macro = false;
        }
        for word in ["pub struct ", "pub enum ", "pub trait ", "pub type ", "pub union "] {
            found.extend(line.strip_prefix(word).map(name));
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains("tests"));
        if is_test {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(types(&fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_public_type_has_a_name_of_its_own_and_is_in_the_glossary() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut homes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for member in CRATES {
        let mut found = Vec::new();
        sources(&top.join("crates").join(member).join("src"), &mut found);
        found.into_iter().for_each(|name| homes.entry(name).or_default().push(member));
    }
    assert!(homes.len() > 300, "{} types were found", homes.len());
    let twice: Vec<_> = homes.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "one name for several types: {twice:?}");
    let glossary = fs::read_to_string(top.join("docs/glossary.md")).unwrap();
    let (_, table) = glossary.split_once("## Types\n").unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
    let explained: BTreeSet<&str> = rows.map(|(name, _)| name).collect();
    let known: BTreeSet<&str> = homes.keys().map(String::as_str).collect();
    let missing: Vec<_> = known.difference(&explained).collect();
    assert!(missing.is_empty(), "not in docs/glossary.md: {missing:?}");
    let gone: Vec<_> = explained.difference(&known).collect();
    assert!(gone.is_empty(), "in docs/glossary.md and not in the code: {gone:?}");
}
