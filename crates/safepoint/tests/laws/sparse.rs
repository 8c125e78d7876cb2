//! Sparse files: captured, compared and restored by their data; and large files that need no read.

use crate::bench::{Bench, ParsePath, noise};
use safepoint::model::change::ChangeKind;
use safepoint::model::coverage::Why;
use safepoint::model::tree::Node;
use safepoint::{Depth, ImportOptions, Silent, Thoroughness};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;
const HUGE: u64 = 15 << 40;

/// Creates a file of this size with data at some offsets and holes elsewhere.
fn lay_out(path: &Path, size: u64, data: &[(u64, &[u8])]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for (at, bytes) in data {
        file.write_all_at(bytes, *at).unwrap();
    }
}

fn at(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn disk_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn changes(bench: &Bench) -> Vec<(ChangeKind, String)> {
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    status.changes.iter().map(|change| (change.kind, change.path.to_string())).collect()
}

/// Accepts a limited number of bytes.
struct Limited(Vec<u8>, usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1 - self.0.len();
        if room == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len = room.min(bytes.len());
        self.0.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of the holes would never finish.
#[test]
fn fifteen_terabytes_of_holes_go_through_everything() {
    let bench = Bench::new();
    let path = bench.path("disk.img");
    lay_out(&path, HUGE, &[(0, b"begin"), (7 << 40, b"middle"), (HUGE - 3, b"end")]);
    bench.write("small", "1");
    let then = bench.create();
    assert_eq!((then.files.bytes, then.warnings.len()), (HUGE + 1, 0));
    assert!(then.size_bytes < 100_000, "{}", then.size_bytes);
    assert_eq!(changes(&bench), []);

    lay_out(&path, HUGE, &[(0, b"begin"), (7 << 40, b"MIDDLE"), (3 << 40, b"more"), (HUGE - 3, b"end")]);
    assert_eq!(changes(&bench), [(ChangeKind::Modified, "disk.img".to_owned())]);
    let restored = bench.rollback(then.id);
    assert!(restored.verified && restored.folders[0].changed_meanwhile.is_empty());
    let check = |middle: &[u8], more: &[u8]| {
        assert_eq!(fs::metadata(&path).unwrap().len(), HUGE);
        assert_eq!((at(&path, 0, 5), at(&path, HUGE - 3, 3)), (b"begin".to_vec(), b"end".to_vec()));
        assert_eq!((at(&path, 7 << 40, 6), at(&path, 3 << 40, 4)), (middle.to_vec(), more.to_vec()));
        assert!(disk_bytes(&path) < MIB, "{}", disk_bytes(&path));
    };
    check(b"middle", &[0; 4]);
    assert_eq!(changes(&bench), []);
    bench.undo();
    check(b"MIDDLE", b"more");
    bench.redo();
    check(b"middle", &[0; 4]);
    fs::remove_file(&path).unwrap();
    bench.restore_paths(then.id, &["disk.img"]);
    check(b"middle", &[0; 4]);

    let mut out = Limited(Vec::new(), 3 << 20);
    assert!(bench.manager.checkpoints().cat(&then, &"disk.img".parse_path(), &mut out).is_err());
    assert!(out.0.starts_with(b"begin") && out.0[5..].iter().all(|byte| *byte == 0));
    let validation = bench.manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();

    let folder = crate::bench::scratch();
    let exported = bench
        .manager
        .export_checkpoint(&then, folder.path(), safepoint::OutsideMemory::Omitted, &Silent)
        .unwrap();
    let imported =
        bench.manager.import(&bench.workspace, &exported.path, &ImportOptions::default(), &Silent).unwrap();
    let documents = |checkpoint: &safepoint::model::checkpoint::Checkpoint| checkpoint.parts[0].document;
    assert_eq!(documents(&imported.checkpoint), documents(&then));
    // A different data byte makes a different file.
    let file = exported.path.join("files/disk.img");
    File::options().write(true).open(&file).unwrap().write_all_at(b"M", 7 << 40).unwrap();
    let refused = bench.manager.import(&bench.workspace, &exported.path, &ImportOptions::default(), &Silent);
    assert!(refused.is_err());
}

#[test]
fn with_and_without_holes_equal_bytes_are_no_difference() {
    let bench = Bench::new();
    let data = noise(1, 300_000);
    let layout: &[(u64, &[u8])] = &[(3 * MIB + 17, &data), (9 * MIB, &data)];
    for name in ["becomes-dense", "changes"] {
        lay_out(&bench.path(name), 20 * MIB, layout);
    }
    let dense = fs::read(bench.path("changes")).unwrap();
    bench.write("becomes-sparse", &dense);
    let then = bench.create();
    fs::remove_file(bench.path("becomes-dense")).unwrap();
    bench.write("becomes-dense", &dense);
    fs::remove_file(bench.path("becomes-sparse")).unwrap();
    lay_out(&bench.path("becomes-sparse"), 20 * MIB, layout);
    assert_eq!(changes(&bench), []);
    let nothing = bench.rollback(then.id);
    assert!(nothing.outline().paths.is_empty(), "{:?}", nothing.outline());
    assert!(disk_bytes(&bench.path("becomes-dense")) >= 20 * MIB, "the file stays dense");
    // A different byte makes a different file.
    let mut other = dense.clone();
    other[2 * MIB as usize] = 1;
    bench.write("changes", &other);
    assert_eq!(changes(&bench), [(ChangeKind::Modified, "changes".to_owned())]);
    bench.rollback(then.id);
    assert!(fs::read(bench.path("changes")).unwrap() == dense);
    assert!(disk_bytes(&bench.path("changes")) < 2 * MIB);
    bench.undo();
    assert!(fs::read(bench.path("changes")).unwrap() == other);
}

#[test]
fn a_large_file_whose_size_tells_is_not_read_by_status() {
    let bench = Bench::new();
    let large = noise(1, 17 << 20);
    bench.write("grows", &large);
    bench.write("same", &large);
    let then = bench.create();
    bench.write("grows", [&large[..], b"more"].concat());
    bench.write("same", &large);
    bench.write("new", &large);
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    let told: Vec<(String, ChangeKind)> =
        status.changes.iter().map(|change| (change.path.to_string(), change.kind)).collect();
    assert_eq!(told, [("grows".to_owned(), ChangeKind::Modified), ("new".to_owned(), ChangeKind::Added)]);
    for change in &status.changes {
        let Some(Node::File(content)) = change.new.as_ref().map(|entry| &entry.node) else {
            panic!("not a file")
        };
        assert!(content.is_unread(), "{change:?}");
        assert_eq!(content.size, fs::metadata(bench.path(&change.path.to_string())).unwrap().len());
    }
    bench.rollback(then.id);
    assert!(fs::read(bench.path("grows")).unwrap() == large);
    assert!(!bench.path("new").exists());
}

#[test]
fn a_rollback_of_a_path_does_not_read_large_files_elsewhere() {
    let bench = Bench::new();
    let large = noise(1, 17 << 20);
    for name in ["large", "chosen/large", "unchanged"] {
        bench.write(name, &large);
    }
    bench.write("chosen/small", "1");
    bench.write("small", "1");
    std::thread::sleep(std::time::Duration::from_millis(70));
    let then = bench.create();
    let edited = noise(2, 17 << 20);
    for name in ["large", "chosen/large"] {
        bench.write(name, &edited);
    }
    bench.write("chosen/small", "2");
    bench.write("small", "2");
    let restored = bench.restore_paths(then.id, &["chosen"]);
    assert!(fs::read(bench.path("chosen/large")).unwrap() == large);
    assert!(fs::read(bench.path("large")).unwrap() == edited);
    let safety = bench.manager.checkpoints().get(restored.record().safety_checkpoint.unwrap()).unwrap();
    let coverage = bench.manager.checkpoints().coverage(&safety).unwrap();
    let left_out: Vec<(String, Why)> =
        coverage.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.why)).collect();
    assert!(left_out.contains(&("large".to_owned(), Why::NotChosen)), "{left_out:?}");
    // An unchanged file is known from before, unless a program started by another test had it open then.
    assert!(left_out.iter().all(|(path, _)| path == "large" || path == "unchanged"), "{left_out:?}");
    assert!(safety.warnings.iter().any(|warning| warning.starts_with("large ")), "{:?}", safety.warnings);
    // It is not covered, and status reports it.
    let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
    assert!(!status.uncovered.is_empty() || !status.changes.is_empty());
    // Undo restores everything that the rollback displaced, and changes nothing else.
    bench.undo();
    assert!(fs::read(bench.path("chosen/large")).unwrap() == edited);
    assert_eq!((bench.read("chosen/small"), bench.read("small")), ("2".to_owned(), "2".to_owned()));
    assert!(fs::read(bench.path("large")).unwrap() == edited);
    // A full rollback to the safety checkpoint keeps files that it does not hold.
    bench.rollback(safety.id);
    assert!(fs::read(bench.path("large")).unwrap() == edited);
    bench.rollback(then.id);
    assert!(fs::read(bench.path("large")).unwrap() == large);
}
