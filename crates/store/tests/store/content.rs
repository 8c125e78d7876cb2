//! Files of any size can be stored and read, and a small change costs little.

use crate::kit::{Home, noise};
use proptest::prelude::*;
use safepoint_model::content::{
    Content, Form, HOLE_BYTES, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Stretch, WHOLE_BYTES_MAX,
};
use safepoint_model::{ObjectError, ObjectSink, ObjectSource, SparseRead};
use safepoint_store::{Store, Written};
use std::io::{self, Read};
use std::ops::Range;

const WHOLE: usize = WHOLE_BYTES_MAX as usize;

/// Returns its bytes in odd portions, with interruptions.
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
    let mut bytes = Vec::new();
    let keep = &mut |piece: &[u8]| -> Result<(), ObjectError> {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    content.read(source, keep).unwrap();
    bytes
}

/// File in memory: extents of data, with holes between them and at the end.
struct Holey {
    size: u64,
    data: Vec<(u64, Vec<u8>)>,
    at: u64,
    read: u64,
}

impl Holey {
    fn new(size: u64, data: Vec<(u64, Vec<u8>)>) -> Self {
        Self { size, data, at: 0, read: 0 }
    }
}

impl Read for Holey {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(usize::try_from(self.size.saturating_sub(self.at)).unwrap());
        buffer[..len].fill(0);
        for (at, data) in &self.data {
            let (from, to) = ((*at).max(self.at), (at + data.len() as u64).min(self.at + len as u64));
            if from < to {
                let (from_buffer, to_buffer) = ((from - self.at) as usize, (to - self.at) as usize);
                buffer[from_buffer..to_buffer]
                    .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
            }
        }
        self.at += len as u64;
        self.read += len as u64;
        Ok(len)
    }
}

impl SparseRead for Holey {
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        let ranges = self.data.iter().map(|(start, data)| *start..start + data.len() as u64);
        Ok(ranges.filter(|range| range.end > at).map(|range| range.start.max(at)..range.end).next())
    }

    fn go_to(&mut self, at: u64) {
        self.at = at;
    }
}

/// Extents of noise, or of zeros that are not a hole, with holes before, between and behind them.
fn layout() -> impl Strategy<Value = (u64, Vec<(u64, Vec<u8>)>)> {
    let gap = prop_oneof![0..3u64, 4000..70_000u64, HOLE_BYTES - 2..HOLE_BYTES + 2, 0..4 * HOLE_BYTES];
    let data = prop_oneof![1..5000usize, 1..200_000usize, 1..3_000_000usize];
    let stretch = (gap.clone(), any::<u64>(), data, 0..4u8);
    (prop::collection::vec(stretch, 0..5), gap).prop_map(|(stretches, tail)| {
        let (mut at, mut out) = (0, Vec::new());
        for (gap, seed, len, kind) in stretches {
            let bytes = if kind == 0 { vec![0; len] } else { noise(seed, len) };
            at += gap;
            out.push((at, bytes));
            at += len as u64;
        }
        (at + tail, out)
    })
}

#[test]
fn fifteen_terabytes_of_holes_are_counted_and_not_read() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let size = 15 << 40;
    for (data, read_most) in [
        (vec![], HOLE_BYTES),
        (vec![(0, vec![7; 10])], 2 * HOLE_BYTES),
        (vec![(7 << 40, vec![7; 5000]), (size - 1, vec![9])], 4 * HOLE_BYTES),
    ] {
        let mut file = Holey::new(size, data.clone());
        let content = writer.put_sparse(size, &mut file).unwrap();
        assert_eq!((content.size, content.form), (size, Form::Sparse));
        assert!(file.read <= read_most, "{} bytes were read", file.read);
        let mut at = 0;
        for stretch in content.stretches(&writer).unwrap() {
            if let Stretch::Data(piece) = stretch {
                let mut expected = vec![0; piece.size as usize];
                let mut look = Holey::new(size, data.clone());
                look.go_to(at);
                look.read_exact(&mut expected).unwrap();
                assert_eq!(piece.load(&writer).unwrap(), expected);
            }
            at += stretch.size();
        }
        assert_eq!(at, size);
        assert_eq!(store.measurer().put_sparse(size, &mut Holey::new(size, data)).unwrap(), content);
    }
    assert!(writer.finish().unwrap().stored_bytes < 100_000);
}

#[test]
fn a_file_that_ends_before_it_should_is_as_long_as_it_is() {
    let home = Home::new();
    let store = home.open();
    let writer = store.writer().unwrap();
    let mut cut = Holey::new(3 << 20, vec![(0, noise(1, 3 << 20))]);
    let content = writer.put_sparse(9 << 20, &mut cut).unwrap();
    assert_eq!(content.size, 3 << 20);
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
        let pieces = content.chunks(&store).unwrap();
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
    fn with_and_without_holes_the_same_bytes_compare_equal((size, data) in layout()) {
        let home = Home::new();
        let store = home.open();
        let writer = store.writer().unwrap();
        let mut dense = Vec::new();
        Holey::new(size, data.clone()).read_to_end(&mut dense).unwrap();
        let whole = writer.put_content(size, &mut &dense[..]).unwrap();
        let sparse = writer.put_sparse(size, &mut Holey::new(size, data.clone())).unwrap();
        prop_assert_eq!(sparse.size, size);
        prop_assert!(read_back(&writer, &sparse) == dense);
        if whole.form == Form::Pieces {
            prop_assert!(whole.same_bytes(&sparse, &writer).unwrap(), "{whole:?} {sparse:?}");
            // The last byte differs.
            *dense.last_mut().unwrap() ^= 1;
            let other = writer.put_content(size, &mut &dense[..]).unwrap();
            prop_assert!(!other.same_bytes(&sparse, &writer).unwrap());
        }
    }

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
