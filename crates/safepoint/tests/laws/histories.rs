//! Random histories compared with a plain copy: a rollback to any checkpoint restores its exact state.

use crate::bench::{Bench, assert_same};
use proptest::prelude::*;
use safepoint_testkit::TreeImage;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Change of a project.
#[derive(Debug, Clone)]
pub(crate) enum Deed {
    Write { at: Spot, size: usize, seed: u8 },
    Append { at: Spot, size: usize },
    WriteInPlace { at: Spot, seed: u8 },
    Truncate { at: Spot },
    Delete { at: Spot },
    MakeDir { at: Spot },
    Link { at: Spot, target: Vec<u8> },
    Rename { from: Spot, to: Spot },
    Mode { at: Spot, mode: u32 },
    Xattr { at: Spot, value: Option<Vec<u8>> },
    HardLink { from: Spot, to: Spot },
    Checkpoint,
    Rollback { to: usize },
    RollbackPath { to: usize, at: Spot },
    Undo,
    Redo,
}

/// Path in the project: few names, so that changes collide.
#[derive(Debug, Clone)]
pub(crate) struct Spot(Vec<usize>);

fn names() -> Vec<Vec<u8>> {
    vec![
        b"a".to_vec(),
        b"b.txt".to_vec(),
        b"dir".to_vec(),
        b"-rf".to_vec(),
        b"new\nline".to_vec(),
        b"not \xff\xfe utf8".to_vec(),
        "\u{fc}ml\u{e4}ut \u{1f600}".as_bytes().to_vec(),
        vec![b'n'; 255],
        b"..hidden".to_vec(),
    ]
}

impl Spot {
    fn below(&self, root: &std::path::Path) -> PathBuf {
        let names = names();
        self.0.iter().fold(root.to_owned(), |path, name| path.join(OsStr::from_bytes(&names[*name])))
    }
}

fn spot() -> impl Strategy<Value = Spot> {
    prop::collection::vec(0..names().len(), 1..4).prop_map(Spot)
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..300,
        2 => 4_000usize..70_000,
        1 => prop::sample::select(vec![262_143usize, 262_144, 262_145, 700_000, 2_500_000]),
    ]
}

pub(crate) fn deed() -> impl Strategy<Value = Deed> {
    let modes = prop::sample::select(vec![0o644, 0o755, 0o600, 0o444, 0o700, 0o1777, 0o4755, 0o2750, 0o555]);
    prop_oneof![
        8 => (spot(), size(), any::<u8>()).prop_map(|(at, size, seed)| Deed::Write { at, size, seed }),
        3 => (spot(), 1usize..100).prop_map(|(at, size)| Deed::Append { at, size }),
        2 => (spot(), any::<u8>()).prop_map(|(at, seed)| Deed::WriteInPlace { at, seed }),
        1 => spot().prop_map(|at| Deed::Truncate { at }),
        4 => spot().prop_map(|at| Deed::Delete { at }),
        3 => spot().prop_map(|at| Deed::MakeDir { at }),
        2 => (spot(), prop::collection::vec(1u8..=255, 1..40)).prop_map(|(at, target)| Deed::Link { at, target }),
        3 => (spot(), spot()).prop_map(|(from, to)| Deed::Rename { from, to }),
        3 => (spot(), modes).prop_map(|(at, mode)| Deed::Mode { at, mode }),
        2 => (spot(), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))).prop_map(|(at, value)| Deed::Xattr { at, value }),
        1 => (spot(), spot()).prop_map(|(from, to)| Deed::HardLink { from, to }),
        5 => Just(Deed::Checkpoint),
        4 => (0usize..40).prop_map(|to| Deed::Rollback { to }),
        2 => ((0usize..40), spot()).prop_map(|(to, at)| Deed::RollbackPath { to, at }),
        2 => Just(Deed::Undo),
        1 => Just(Deed::Redo),
    ]
}

fn bytes(size: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    (0..size)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Applies a change of files; ignores changes that the file system refuses.
pub(crate) fn touch(bench: &Bench, deed: &Deed) {
    let at = |spot: &Spot| spot.below(&bench.root());
    let _ = match deed {
        Deed::Write { at: spot, size, seed } => {
            let _ = at(spot).parent().map(fs::create_dir_all);
            fs::write(at(spot), bytes(*size, *seed)).ok()
        }
        Deed::Append { at: spot, size } => fs::OpenOptions::new()
            .append(true)
            .open(at(spot))
            .and_then(|mut file| file.write_all(&vec![b'+'; *size]))
            .ok(),
        Deed::WriteInPlace { at: spot, seed } => fs::OpenOptions::new()
            .write(true)
            .open(at(spot))
            .and_then(|mut file| file.write_all(&[*seed]))
            .ok(),
        Deed::Truncate { at: spot } => {
            fs::OpenOptions::new().write(true).open(at(spot)).and_then(|file| file.set_len(1)).ok()
        }
        Deed::Delete { at: spot } => fs::remove_file(at(spot)).or_else(|_| fs::remove_dir_all(at(spot))).ok(),
        Deed::MakeDir { at: spot } => fs::create_dir_all(at(spot)).ok(),
        Deed::Link { at: spot, target } => symlink(OsStr::from_bytes(target), at(spot)).ok(),
        Deed::Rename { from, to } => fs::rename(at(from), at(to)).ok(),
        Deed::Mode { at: spot, mode } => match fs::symlink_metadata(at(spot)) {
            Ok(metadata) if !metadata.is_symlink() => {
                // Ordinary users must keep access.
                let mode = if metadata.is_dir() { mode | 0o700 } else { *mode };
                fs::set_permissions(at(spot), Permissions::from_mode(mode)).ok()
            }
            _ => None,
        },
        Deed::Xattr { at: spot, value } => match (fs::symlink_metadata(at(spot)), value) {
            (Ok(metadata), Some(value)) if !metadata.is_symlink() => {
                xattr::set(at(spot), "user.note", value).ok()
            }
            (Ok(metadata), None) if !metadata.is_symlink() => xattr::remove(at(spot), "user.note").ok(),
            _ => None,
        },
        Deed::HardLink { from, to } => fs::hard_link(at(from), at(to)).ok(),
        _ => None,
    };
}

/// Model of the history: checkpoints with plain copies, and both stacks.
#[derive(Default)]
struct Model {
    checkpoints: Vec<(safepoint::model::CheckpointId, TreeImage)>,
    undo: Vec<TreeImage>,
    redo: Vec<TreeImage>,
    /// True if the last undo concerned one path, whose redo this model does not follow.
    redo_is_a_path: bool,
}

fn run(bench: &Bench, model: &mut Model, deed: &Deed) {
    match deed {
        Deed::Checkpoint => model.checkpoints.push((bench.create().id, bench.image())),
        Deed::Rollback { to } if !model.checkpoints.is_empty() => {
            let (id, expected) = &model.checkpoints[to % model.checkpoints.len()];
            let before = bench.image();
            let restored = bench.rollback(*id);
            assert!(restored.verified && restored.record().rescued.is_empty(), "{restored:?}");
            assert_same(&bench.image(), expected);
            model.undo.push(before);
            model.redo.clear();
            model.redo_is_a_path = false;
        }
        Deed::Undo if !model.undo.is_empty() && !model.redo_is_a_path => {
            let before = bench.image();
            bench.undo();
            assert_same(&bench.image(), &model.undo.pop().unwrap());
            model.redo.push(before);
        }
        Deed::Redo if !model.redo.is_empty() && !model.redo_is_a_path => {
            let before = bench.image();
            bench.redo();
            assert_same(&bench.image(), &model.redo.pop().unwrap());
            model.undo.push(before);
        }
        Deed::RollbackPath { to, at } if !model.checkpoints.is_empty() => {
            let (id, then) = &model.checkpoints[to % model.checkpoints.len()];
            let before = bench.image();
            if rollback_path(bench, *id, then, at) {
                // Nothing else changed, so an undo restores the whole tree.
                bench.undo();
                assert_same(&bench.image(), &before);
                model.redo.clear();
                model.redo_is_a_path = true;
            }
        }
        deed => touch(bench, deed),
    }
}

/// Restores one path and checks that only it changed. Returns false if the path did not exist.
fn rollback_path(bench: &Bench, id: safepoint::model::CheckpointId, then: &TreeImage, at: &Spot) -> bool {
    let chosen: Vec<u8> = at.below("".as_ref()).as_os_str().as_bytes().to_vec();
    let within = |path: &[u8]| path == chosen || path.starts_with(&[&chosen[..], b"/"].concat());
    let before = bench.image();
    let options = safepoint::RollbackOptions {
        paths: vec![safepoint::model::RelPath::new(chosen.clone()).unwrap()],
        ..Default::default()
    };
    let result = bench.manager.rollback(&bench.workspace, id, &options, &safepoint::Silent);
    let after = bench.image();
    if result.is_err() {
        assert_same(&after, &before);
        return false;
    }
    for (path, node) in &after.0 {
        if within(path) {
            assert_eq!(Some(node), then.0.get(path), "{}", String::from_utf8_lossy(path));
        } else if before.0.contains_key(path) {
            assert_eq!(Some(node), before.0.get(path), "{}", String::from_utf8_lossy(path));
        }
    }
    for path in then.0.keys().filter(|path| within(path)) {
        assert!(after.0.contains_key(path), "{}", String::from_utf8_lossy(path));
    }
    true
}

/// Number of histories; `PROPTEST_CASES` overrides it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

static STEPS: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rollback_to_any_checkpoint_is_identical_to_a_plain_copy(deeds in prop::collection::vec(deed(), 20..140)) {
        let bench = Bench::new();
        let mut model = Model::default();
        for deed in &deeds {
            run(&bench, &mut model, deed);
        }
        // At the end every checkpoint is intact and reachable from any other.
        for (id, expected) in model.checkpoints.iter().rev() {
            bench.rollback(*id);
            assert_same(&bench.image(), expected);
        }
        prop_assert!(!bench.path(".safepoint").exists());
        let validation = bench.manager.upkeep().validate(None, safepoint::Depth::Deep, &safepoint::Silent).unwrap();
        prop_assert!(validation.is_valid(), "{validation:?}");
        let steps = STEPS.fetch_add(deeds.len() as u64, Ordering::Relaxed) + deeds.len() as u64;
        eprintln!("histories: {steps} steps so far, all rollbacks identical");
    }
}
