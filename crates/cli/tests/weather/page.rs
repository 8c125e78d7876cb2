//! Agreement of the page about faults with the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_test_is_on_the_page_and_every_name_on_the_page_is_a_test() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weather");
    let page = fs::read_to_string(here.join("../../../../docs/weather.md")).unwrap();
    let named: BTreeSet<String> = page
        .split('`')
        .filter(|word| word.contains(".rs::") && !word.contains(' '))
        .map(str::to_owned)
        .collect();
    let mut written = BTreeSet::new();
    for entry in fs::read_dir(here).unwrap().map(Result::unwrap) {
        let file = entry.file_name().into_string().unwrap();
        let source = fs::read_to_string(entry.path()).unwrap();
        let tests = source.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split_once('('));
        written.extend(tests.map(|(name, _)| format!("{file}::{name}")));
    }
    written.retain(|name| !name.starts_with("page.rs"));
    assert_eq!(named, written);
}
