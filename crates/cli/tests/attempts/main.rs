//! Attempts with the real program: each means of sharing files, root and an ordinary user, real file systems. Random edits are
//! compared with a plain copy.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

mod crowd;
mod histories;
mod plans;
mod rules;
mod sandboxes;
mod searches;
mod story;
mod weather;
mod world;

/// The section about attempts names no test that is gone.
#[test]
fn the_laws_of_attempts_name_tests_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let proof = std::fs::read_to_string(root.join("docs/proof.md")).unwrap();
    let (_, section) = proof.split_once("\n## Attempts\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (mut laws, mut names) = (0, Vec::new());
    for row in section.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        laws += 1;
        for word in row.split('`').skip(1).step_by(2) {
            match word.contains('/') {
                // The file of the tests before it.
                true => {
                    let text = std::fs::read_to_string(root.join(word)).unwrap();
                    for name in names.drain(..) {
                        assert!(text.contains(&format!("{name}(")), "{name} is not in {word}");
                    }
                }
                false if word.contains('_') => names.push(word.to_owned()),
                false => {}
            }
        }
        assert!(names.is_empty(), "without a file: {names:?}");
    }
    assert!(laws >= 10, "{laws} laws");
}
