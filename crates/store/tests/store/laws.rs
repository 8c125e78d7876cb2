//! Laws of a store without faults.

use crate::kit::{Home, noise, put, put_chunks};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Depth, Health, Limits, Store, StoreError, Written};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_was_finished_reads_back_in_this_process_and_the_next() {
    let home = Home::new();
    let store = home.open();
    let incompressible = noise(1, 5000);
    let (written, known) = put(
        &store,
        &[
            (ObjectKind::Chunk, b""),
            (ObjectKind::Chunk, &[0; 100_000]),
            (ObjectKind::Tree, &incompressible),
            (ObjectKind::Document, b"{}"),
        ],
    );
    assert_eq!(written.objects, 4);
    assert_eq!(written.raw_bytes, 105_002);
    assert_eq!(written.stored_bytes + 16, home.pack_bytes());
    for store in [&store, &home.open()] {
        for (kind, id, bytes) in &known {
            assert_eq!(&store.get(*kind, *id).unwrap(), bytes);
            assert!(store.contains(*id).unwrap());
            assert_eq!(store.check(Depth::Quick, *id).unwrap(), Health::Intact);
            assert_eq!(store.check(Depth::Deep, *id).unwrap(), Health::Intact);
        }
        assert_eq!(store.stored_bytes(known[2].1).unwrap(), Some(5000));
        let report = store.validate(Depth::Deep, &|_, _| {}).unwrap();
        assert_eq!((report.packs, report.objects, report.bytes), (1, 4, home.pack_bytes()));
        assert_eq!(report.damaged, []);
        let usage = store.usage().unwrap();
        assert_eq!((usage.packs, usage.objects, usage.pack_bytes), (1, 4, home.pack_bytes()));
    }
}

#[test]
fn what_was_never_stored_is_missing() {
    let home = Home::new();
    let store = home.open();
    let id = ObjectId::of(ObjectKind::Chunk, b"never");
    assert!(matches!(store.get(ObjectKind::Chunk, id), Err(ObjectError::Missing { .. })));
    assert!(!store.contains(id).unwrap());
    assert_eq!(store.stored_bytes(id).unwrap(), None);
    assert_eq!(store.check(Depth::Quick, id).unwrap(), Health::Missing);
    assert_eq!(store.check(Depth::Deep, id).unwrap(), Health::Missing);
    assert!(!store.forget_damaged(id).unwrap());
}

#[test]
fn an_object_of_another_kind_is_not_given_out() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let id = writer.put(ObjectKind::Chunk, b"x").unwrap();
    assert!(matches!(writer.get(ObjectKind::Tree, id), Err(ObjectError::Damaged { .. })));
    writer.finish().unwrap();
    assert!(matches!(store.get(ObjectKind::Tree, id), Err(ObjectError::Damaged { .. })));
}

#[test]
fn nothing_counts_before_finish_and_nothing_is_left_after_a_drop() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[b"before"]);
    let size = home.pack_bytes();
    let writer = store.writer().unwrap();
    let ids: Vec<_> = (0..10).map(|i| writer.put(ObjectKind::Chunk, &noise(i, 1_000_000)).unwrap()).collect();
    assert!(home.pack_bytes() > size, "a full segment is written at once");
    for id in &ids {
        assert!(writer.get(ObjectKind::Chunk, *id).is_ok());
        assert!(!store.contains(*id).unwrap());
        assert!(matches!(store.get(ObjectKind::Chunk, *id), Err(ObjectError::Missing { .. })));
        assert!(!home.open().contains(*id).unwrap(), "an opener ignores the pack of an active writer");
    }
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
    drop(writer);
    assert_eq!(home.pack_bytes(), size);
    assert!(!home.open().contains(ids[0]).unwrap());
    put_chunks(&store, &[b"after"]);
    assert_eq!(home.packs().len(), 1);
}

#[test]
fn a_writer_sees_its_own_objects_and_those_of_the_store() {
    let home = Home::new();
    let store = home.open();
    let known = put_chunks(&store, &[b"stored"]);
    let writer = store.writer().unwrap();
    let bytes: Vec<_> = (0..20).map(|i| noise(i, 900_000)).collect();
    let ids: Vec<_> = bytes.iter().map(|bytes| writer.put(ObjectKind::Chunk, bytes).unwrap()).collect();
    for (id, bytes) in ids.iter().zip(&bytes) {
        assert_eq!(&writer.get(ObjectKind::Chunk, *id).unwrap(), bytes);
    }
    assert_eq!(writer.get(ObjectKind::Chunk, known[0].1).unwrap(), b"stored");
    let other = ObjectId::of(ObjectKind::Chunk, b"other");
    assert!(matches!(writer.get(ObjectKind::Chunk, other), Err(ObjectError::Missing { .. })));
    assert_eq!(writer.finish().unwrap().objects, 20);
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn the_same_content_is_stored_once() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[b"same", b"same", b"other"]);
    let size = home.pack_bytes();
    assert_eq!(put(&store, &[(ObjectKind::Chunk, b"same")]).0, Written::default());
    assert_eq!(put(&home.open(), &[(ObjectKind::Chunk, b"other")]).0, Written::default());
    assert_eq!(home.pack_bytes(), size);
    assert_eq!(store.usage().unwrap().objects, 2);
}

#[test]
fn a_directory_is_stored_once_whether_or_not_it_was_looked_for() {
    let home = Home::new();
    let store = home.open();
    let keep = |file: &[u8], tree: &[u8]| {
        let writer = store.writer().unwrap();
        let below = writer.put(ObjectKind::Chunk, file).unwrap();
        let ids = [(); 2].map(|()| writer.put_tree(tree, &[below]).unwrap());
        assert_eq!(ids, [ObjectId::of(ObjectKind::Tree, tree); 2]);
        writer.finish().unwrap().objects
    };
    assert_eq!(keep(b"file", b"tree"), 2, "all objects are new");
    assert_eq!(keep(b"file", b"tree"), 0, "all objects exist");
    assert_eq!(keep(b"another", b"another tree"), 2, "a new tree with a new chunk");
    assert_eq!(keep(b"file", b"a third"), 1, "only the directory is new");
    assert_eq!(home.open().usage().unwrap().objects, 5);
}

#[test]
fn a_capture_with_many_small_objects_counts_as_a_whole() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let ids: Vec<_> =
        (0..5_000u32).map(|i| writer.put(ObjectKind::Chunk, &i.to_le_bytes()).unwrap()).collect();
    assert_eq!(writer.finish().unwrap().objects, 5_000);
    let again = home.open();
    assert!(ids.iter().all(|id| again.contains(*id).unwrap()));
    assert_eq!(again.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
}

#[test]
fn an_empty_capture_touches_nothing() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(store.writer().unwrap().finish().unwrap(), Written::default());
    assert_eq!(home.packs().len(), 0);
    assert_eq!(store.usage().unwrap().pack_bytes, 0);
}

#[test]
fn small_captures_share_one_pack() {
    let home = Home::new();
    let store = home.open();
    for i in 0..20u8 {
        put_chunks(&store, &[&[i; 50]]);
    }
    assert_eq!(home.packs().len(), 1);
    assert_eq!(home.open().usage().unwrap().objects, 20);
}

#[test]
fn packs_stay_near_their_size_however_much_comes_at_once() {
    let home = Home::new();
    let store = home.open();
    let pack_bytes = 600_000;
    store.limit(Limits { pack_bytes, ..Limits::default() });
    let chunks: Vec<Vec<u8>> = (0..200).map(|seed| noise(seed, 50_000)).collect();
    put_chunks(&store, &chunks.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let sizes: Vec<u64> = home.packs().iter().map(|pack| fs::metadata(pack).unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size < pack_bytes * 3 / 2 + 100_000), "{sizes:?}");
    assert!(sizes.len() > 10, "{sizes:?}");
}

#[test]
fn an_object_over_the_limit_is_refused_and_the_writer_goes_on() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let huge = vec![0; safepoint_store::OBJECT_BYTES_MAX + 1];
    let Err(ObjectError::Store(error)) = writer.put(ObjectKind::Tree, &huge) else { panic!("taken") };
    assert!(matches!(error.downcast_ref(), Some(StoreError::TooLarge { .. })));
    writer.put(ObjectKind::Tree, b"small").unwrap();
    assert_eq!(writer.finish().unwrap().objects, 1);
}

#[test]
fn a_newer_format_is_refused_and_so_is_something_else() {
    let home = Home::new();
    drop(home.open());
    let format = home.dir().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "safepoint store 1\n");
    fs::write(&format, "safepoint store 2\n").unwrap();
    let Err(error) = Store::open(&home.dir()) else { panic!("opened") };
    assert!(matches!(error, StoreError::NewerFormat { found: 2, known: 1, .. }));
    for other in ["", "safepoint store 0\n", "safepoint store x\n", "safepoint store 1", "hello"] {
        fs::write(&format, other).unwrap();
        assert!(matches!(Store::open(&home.dir()), Err(StoreError::NotAStore { .. })), "{other:?}");
    }
}

#[test]
fn everything_is_private_even_where_the_folder_was_not() {
    let home = Home::new();
    fs::create_dir(home.dir()).unwrap();
    fs::set_permissions(home.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    put_chunks(&home.open(), &[b"secret"]);
    let mode = |name: &str| fs::metadata(home.dir().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("packs"), 0o700);
    for name in ["format", "index.db", "index.db-wal"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(fs::metadata(&home.packs()[0]).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let home = Home::new();
    fs::write(home.dir(), "a file").unwrap();
    let Err(error) = Store::open(&home.dir()) else { panic!("opened") };
    assert!(error.to_string().contains("store"));
    assert!(matches!(error, StoreError::Open { .. }));
    assert!(!error.is_full());
}

#[test]
fn validation_tells_how_far_it_is() {
    let home = Home::new();
    let store = home.open();
    put_chunks(&store, &[b"one"]);
    put_chunks(&store, &[b"two"]);
    let seen = std::cell::RefCell::new(Vec::new());
    store.validate(Depth::Deep, &|done, total| seen.borrow_mut().push((done, total))).unwrap();
    let seen = seen.into_inner();
    assert!(seen.is_sorted());
    assert_eq!(seen.last(), Some(&(home.pack_bytes(), home.pack_bytes())));
}

#[test]
fn validation_beside_writers_reports_no_damage() {
    let home = Home::new();
    let store = home.open();
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..3u32)
            .map(|writer| {
                let store = home.open();
                threads.spawn(move || {
                    (0..150u32)
                        .for_each(|round| drop(put_chunks(&store, &[&(writer << 16 | round).to_le_bytes()])));
                })
            })
            .collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().damaged, []);
        }
    });
    assert_eq!(store.validate(Depth::Deep, &|_, _| {}).unwrap().objects, 450);
}

#[test]
fn a_failed_write_fails_the_whole_capture() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    fs::remove_dir(home.dir().join("packs")).unwrap();
    let first = noise(1, 9 << 20);
    writer.put(ObjectKind::Chunk, &first).unwrap();
    let Err(ObjectError::Store(error)) = writer.put(ObjectKind::Chunk, b"goes on") else { panic!("written") };
    assert!(matches!(error.downcast_ref(), Some(StoreError::ListPacks { .. })));
    assert!(writer.put(ObjectKind::Chunk, b"more").is_err());
    fs::create_dir(home.dir().join("packs")).unwrap();
    assert!(matches!(writer.finish(), Err(StoreError::WriterFailed)));
    assert_eq!(home.pack_bytes(), 0);
    let id = ObjectId::of(ObjectKind::Chunk, &first);
    assert!(!home.open().contains(id).unwrap());
}

#[test]
fn a_full_pack_is_followed_by_a_new_one() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    // Sparse: a long pack that takes no space, whose end is not a readable segment.
    writer.put(ObjectKind::Chunk, b"one").unwrap();
    writer.finish().unwrap();
    let pack = fs::File::options().write(true).open(&home.packs()[0]).unwrap();
    pack.set_len(safepoint_store::PACK_BYTES_MAX).unwrap();
    put_chunks(&store, &[b"two"]);
    assert_eq!(home.packs().len(), 2);
    assert_eq!(fs::metadata(&home.packs()[0]).unwrap().len(), safepoint_store::PACK_BYTES_MAX);
}
