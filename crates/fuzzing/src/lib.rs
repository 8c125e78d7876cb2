//! Laws over arbitrary bytes: no panic, bounded memory and time, and decoded values encode to the same bytes.
//!
//! Input: arbitrary bytes from a fuzzer. Output: nothing, or a panic that names the law. `fuzz/` runs the
//! targets with libFuzzer, and `tests/corpus.rs` replays the committed corpus `fuzz/corpus`, so that `cargo
//! test` needs no fuzzer.

#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a broken law is a panic")]
#![allow(clippy::disallowed_methods, reason = "imports are read from folders created here")]

mod documents;
mod hooks;
mod imports;
mod packs;
mod settings;

pub use documents::documents;
pub use hooks::hooks;
pub use imports::{bytes_of_layout, import, imports};
pub use packs::packs;
pub use safepoint_store::fuzzing::segments;
pub use safepoint_workspace::fuzzing::rules as ignore_files;
pub use settings::{configuration, plan_files};

use safepoint_model::content::{decode_pieces, decode_sparse, encode_pieces, encode_sparse};
use safepoint_model::path::RelPath;
use safepoint_model::tree::Tree;

/// Law over arbitrary bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their folders in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 10] = [
    ("objects", objects),
    ("trees", trees),
    ("segments", segments),
    ("packs", packs),
    ("documents", documents),
    ("plan_files", plan_files),
    ("configuration", configuration),
    ("ignore_files", ignore_files),
    ("imports", imports),
    ("hooks", hooks),
];

/// Checks chunk lists, paths and object frames.
pub fn objects(bytes: &[u8]) {
    if let Ok(pieces) = decode_pieces(bytes) {
        assert_eq!(encode_pieces(&pieces), bytes);
    }
    if let Ok(stretches) = decode_sparse(bytes) {
        assert_eq!(encode_sparse(&stretches), bytes);
    }
    if let Ok(path) = RelPath::new(bytes) {
        assert_eq!(path.as_bytes(), bytes);
        assert_eq!(path.names().collect::<Vec<_>>().join(&b'/'), bytes);
    }
    safepoint_store::fuzzing::frames(bytes);
}

/// Checks trees of any version: one tree has one encoding.
pub fn trees(bytes: &[u8]) {
    let Ok(tree) = Tree::decode(bytes) else { return };
    assert_eq!(tree.encode(), bytes);
    let again = Tree::new(tree.entries().to_vec()).expect("a decoded tree is valid");
    assert_eq!(again, tree);
    for entry in tree.entries() {
        assert_eq!(tree.get(&entry.name), Some(entry));
        assert!(Tree::decode(&Tree::single(entry)).is_ok_and(|one| one.entries() == [entry.clone()]));
    }
}
