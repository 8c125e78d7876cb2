//! Files of any size go in and come out, and a small change costs little.

use crate::kit::{Home, noise};
use proptest::prelude::*;
use safepoint_model::content::{Content, Form, PIECE_BYTES_MAX, PIECE_BYTES_MIN, WHOLE_BYTES_MAX};
use safepoint_model::{ObjectError, ObjectKind, ObjectSink, ObjectSource};
use safepoint_store::{Store, Written};
use std::io::{self, Read};

const WHOLE: usize = WHOLE_BYTES_MAX as usize;

/// Gives its bytes in odd portions, and is interrupted now and then.
struct Drip<'a> {
    rest: &'a [u8],
    portion: usize,
    turn: usize,
}

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = self.portion.min(buffer.len());
        self.rest.read(&mut buffer[..len])
    }
}

fn store_bytes(store: &Store, bytes: &[u8]) -> (Content, Written) {
    let writer = store.writer().unwrap();
    let content = writer.put_content(bytes.len() as u64, &mut &bytes[..]).unwrap();
    (content, writer.finish().unwrap())
}

fn read_back(source: &dyn ObjectSource, content: &Content) -> Vec<u8> {
    let pieces = content.pieces(source).unwrap();
    pieces.iter().flat_map(|piece| source.get(ObjectKind::Chunk, piece.id).unwrap()).collect()
}

#[test]
fn sizes_around_the_threshold_read_back() {
    let home = Home::new();
    let store = home.open();
    for size in [0, 1, WHOLE - 1, WHOLE, WHOLE + 1, PIECE_BYTES_MAX, 4 * PIECE_BYTES_MAX + 1] {
        let bytes = noise(size as u64, size);
        let (content, _) = store_bytes(&store, &bytes);
        assert_eq!(content.size, size as u64);
        assert_eq!(content.form, if size <= WHOLE { Form::Whole } else { Form::Pieces });
        assert_eq!(read_back(&store, &content), bytes);
        if content.form == Form::Whole {
            assert_eq!(content, Content::whole(&bytes));
        }
    }
}

#[test]
fn the_same_bytes_give_the_same_content_however_they_come() {
    let home = Home::new();
    let store = home.open();
    let bytes = noise(5, 30_000_000);
    let (content, written) = store_bytes(&store, &bytes);
    assert!(written.objects > 50);
    for (portion, hint) in [(7001, 0), (1_000_003, u64::MAX), (usize::MAX, 5), (usize::MAX, u64::MAX)] {
        let writer = store.writer().unwrap();
        let mut drip = Drip { rest: &bytes, portion, turn: 0 };
        assert_eq!(writer.put_content(hint, &mut drip).unwrap(), content);
        assert_eq!(writer.finish().unwrap().objects, 0);
    }
}

#[test]
fn a_huge_file_that_two_threads_keep_reads_back() {
    let home = Home::new();
    let store = home.open();
    let bytes = [noise(6, 15_000_000), vec![7; 9_000_000], noise(8, 9_000_001)].concat();
    let writer = store.writer().unwrap();
    let content = writer.put_content(u64::MAX, &mut &bytes[..]).unwrap();
    writer.finish().unwrap();
    assert_eq!(content.size, bytes.len() as u64);
    assert!(read_back(&store, &content) == bytes);
}

#[test]
fn pieces_keep_their_bounds() {
    let home = Home::new();
    let store = home.open();
    for bytes in [vec![0; 5_000_000], noise(9, 5_000_000)] {
        let (content, _) = store_bytes(&store, &bytes);
        let pieces = content.pieces(&store).unwrap();
        let (last, others) = pieces.split_last().unwrap();
        assert!(last.size > 0);
        let bounds = PIECE_BYTES_MIN as u64..=PIECE_BYTES_MAX as u64;
        assert!(others.iter().all(|piece| bounds.contains(&piece.size)));
    }
}

#[test]
fn an_insert_in_the_middle_of_a_large_file_stores_only_a_little_more() {
    let home = Home::new();
    let store = home.open();
    let mut bytes = noise(2, 20_000_000);
    let (_, first) = store_bytes(&store, &bytes);
    assert!(first.stored_bytes >= 20_000_000);
    bytes.splice(10_000_000..10_000_000, *b"a few bytes more");
    let (content, second) = store_bytes(&store, &bytes);
    assert!(second.stored_bytes < 2_000_000, "{second:?}");
    assert_eq!(read_back(&store, &content), bytes);
}

#[test]
fn a_reader_that_fails_is_the_callers_error_and_the_writer_goes_on() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    assert!(matches!(writer.put_content(1, &mut Broken), Err(ObjectError::Input(_))));
    let long = noise(1, 10_000_000);
    for hint in [1, u64::MAX] {
        let mut reader = (&long[..]).chain(Broken);
        assert!(matches!(writer.put_content(hint, &mut reader), Err(ObjectError::Input(_))));
    }
    writer.put_content(1, &mut &b"fine"[..]).unwrap();
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_content_reads_back(
        files in prop::collection::vec(
            (any::<u64>(), prop_oneof![0..5000usize, WHOLE - 5..WHOLE + 5, 0..1_500_000usize], any::<bool>()),
            1..6,
        )
    ) {
        let home = Home::new();
        let store = home.open();
        let writer = store.writer().unwrap();
        let mut known = Vec::new();
        for (seed, size, even) in files {
            let bytes = if even { vec![seed as u8; size] } else { noise(seed, size) };
            let content = writer.put_content(0, &mut &bytes[..]).unwrap();
            prop_assert_eq!(read_back(&writer, &content), &bytes[..]);
            known.push((content, bytes));
        }
        writer.finish().unwrap();
        let store = home.open();
        for (content, bytes) in &known {
            prop_assert_eq!(&read_back(&store, content), bytes);
        }
    }
}
