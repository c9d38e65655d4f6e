//! Tests that cut the bytes of an input into records, the carry, and long records.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ascot_io::{ByteSource, DiskOptions, Pool, ProgramStreams};
use ascot_record::framing::{Framing, LineFraming};

use super::*;
use crate::api::Input;
use crate::records::Keyless;
use crate::resources::ChunkPool;

/// Lines; an empty one is shorter than its key.
struct Lines;

impl RecordEnds for Lines {
    fn record_bytes(&self) -> Option<usize> {
        None
    }

    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        LineFraming(b'\n').cut(bytes, max_records)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        LineFraming(b'\n').go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        Some(b'\n')
    }

    fn cut_keyed(&self, bytes: &[u8]) -> (Cut, Option<Keyless>) {
        let mut offset = 0;
        for (before, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            if line == b"\n" {
                let cut = Cut { records: before, bytes: offset };
                return (cut, Some(Keyless { before, offset, have: 0, needed: 1 }));
            }
            offset += line.len();
        }
        (self.cut(bytes, usize::MAX), None)
    }
}

fn cutter(file: &tempfile::NamedTempFile) -> RecordCutter<Lines> {
    let inputs = Inputs::open(&[Input::Path(file.path().into())]).unwrap();
    RecordCutter::new(&Arc::new(Lines), inputs, InputPosition::default(), &Cancel::new())
}

#[test]
fn an_error_after_a_carry_names_its_record_and_offset() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut cutter = cutter(&file);
    cutter.at.offset = 8;
    assert_eq!(cutter.cut(b"ab\ncd\nef", 8).unwrap(), Cut { records: 2, bytes: 6 });
    cutter.carry = b"ef".to_vec();
    let mut bytes = *b"....g\n\nhi\n";
    cutter.at.offset += 6;
    assert_eq!(cutter.put_carry(&mut bytes, 4), Some(2));
    assert_eq!(&bytes[2..], b"efg\n\nhi\n");
    match cutter.cut(&bytes[2..], 8) {
        Err(SortError::KeyBeyond { record, offset, .. }) => assert_eq!((record, offset), (4, 10)),
        other => panic!("{other:?}"),
    }
    cutter.carry = b"too long".to_vec();
    assert_eq!(cutter.put_carry(&mut bytes, 4), None);
    assert_eq!(cutter.carry, b"too long", "it starts a long record instead");
}

#[test]
fn a_long_record_ends_in_later_bytes_or_with_its_input() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut cutter = cutter(&file);
    let pool = Pool::new(1 << 20);
    let chunks = ChunkPool::new(&pool, 4096, 0, pool.budget());
    cutter.start_long(chunks.long().unwrap(), b"abc", 0, Patience::NONE).unwrap();
    assert_eq!(cutter.lengthen(b"de", Patience::NONE).unwrap(), None);
    assert_eq!(cutter.lengthen(b"f\ngh", Patience::NONE).unwrap(), Some(2));
    assert_eq!(cutter.long.take().unwrap().memory.bytes(), 7);
    cutter.start_long(chunks.long().unwrap(), b"gh", 0, Patience::NONE).unwrap();
    assert_eq!(cutter.complete_long(Patience::NONE).unwrap(), 1);
    assert_eq!(&cutter.long.take().unwrap().memory.into_lease().bytes()[..3], b"gh\n");
    cutter.start_long(chunks.long().unwrap(), b"x", 0, Patience::NONE).unwrap();
    let refused = cutter.lengthen(&[b'y'; 2 << 20], Patience::NONE);
    assert!(matches!(refused, Err(SortError::CutShort { .. } | SortError::TooLong { .. })), "{refused:?}");
}

/// Lines of three bytes that this process makes, which tells each time when it is asked for some.
struct Made {
    bytes: usize,
    left: usize,
    asked: Sender<()>,
}

impl ByteSource for Made {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        self.asked.send(()).ok()?;
        let count = out.len().min(self.left);
        for byte in &mut out[..count] {
            *byte = if self.bytes % 3 == 2 { b'\n' } else { b'a' };
            self.bytes += 1;
        }
        self.left -= count;
        Some(count)
    }
}

/// A reader of `bytes` bytes that this process makes, in chunks of 64 KiB; the receiver gets each request for them.
fn reader_of(bytes: usize, asked: Sender<()>) -> RecordReader<Lines> {
    let source = Made { bytes: 0, left: bytes, asked };
    let program = ProgramStreams::new([Box::new(source) as Box<dyn ByteSource>], None);
    let disk = Disk::new(DiskOptions { program, ..DiskOptions::default() });
    let inputs = Inputs::open(&[Input::Program]).unwrap();
    let pool = Pool::new(1 << 20);
    let chunks = ChunkPool::new(&pool, 64 << 10, 8, pool.budget());
    RecordReader::new(&Arc::new(Lines), &disk, inputs, &chunks, InputPosition::default(), &Cancel::new())
}

#[test]
fn a_pipe_that_filled_a_chunk_is_read_while_chunks_are_cut() {
    let (asked, requests) = channel();
    let mut reader = reader_of(1 << 20, asked);
    let mut next = || reader.next(&|| ()).unwrap().unwrap();
    let _first = next();
    requests.recv_timeout(Duration::from_secs(60)).expect("the first chunk");
    let _second = next();
    for _ in 0..CHUNKS_READ {
        requests.recv_timeout(Duration::from_secs(60)).expect("requested before the second chunk was taken");
    }
}

#[test]
fn a_pipe_gives_all_of_its_records_wherever_it_ends() {
    for bytes in [0, 3, 65_500, 65_536, 131_072, 200_001, 300_000, 1_000_000] {
        let (asked, _requests) = channel();
        let mut reader = reader_of(bytes, asked);
        let (mut records, mut found) = (0, Vec::new());
        while let Some(placed) = reader.next(&|| ()).unwrap() {
            records += placed.records;
            found.extend_from_slice(&placed.chunk.lease.bytes()[placed.chunk.bytes.clone()]);
        }
        let mut expected: Vec<u8> = b"aa\n".iter().copied().cycle().take(bytes).collect();
        expected.extend((bytes % 3 != 0).then_some(b'\n'));
        assert!(found == expected, "{bytes} bytes");
        assert_eq!(records, bytes.div_ceil(3), "{bytes} bytes");
    }
}

/// Files of lines of `sizes` bytes; every other one lacks the end of its last line.
fn files_of(sizes: &[usize]) -> Vec<tempfile::NamedTempFile> {
    let file_of = |(number, &size): (usize, &usize)| {
        let line = |at: usize| format!("{number} {at} {}\n", "x".repeat(at * 7 % 90));
        let mut text: String = (0..size / 20).map(line).collect();
        text.truncate(text.floor_char_boundary(size));
        let end = if number % 2 == 0 { "x" } else { "x\n" };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text.trim_end().to_owned() + end).unwrap();
        file
    };
    sizes.iter().enumerate().map(file_of).collect()
}

/// The ranges are of one input or of several, and of inputs smaller and larger than a chunk.
#[test]
fn the_byte_ranges_of_a_chunk_are_its_bytes() {
    let files = files_of(&[100, 70, 9_000, 30_000, 300_000, 5, 64_000, 66_000, 10, 200_000, 4_096, 40]);
    let paths = files.iter().map(|file| Input::Path(file.path().into())).collect::<Vec<_>>();
    let bytes: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file.path()).unwrap()).collect();
    let pool = Pool::new(1 << 20);
    let chunks = ChunkPool::new(&pool, 64 << 10, 8, pool.budget());
    let inputs = Inputs::open(&paths).unwrap();
    let disk = Disk::default();
    let start = InputPosition::default();
    let mut reader = RecordReader::new(&Arc::new(Lines), &disk, inputs, &chunks, start, &Cancel::new());
    let mut several = 0;
    let mut all = 0;
    while let Some(chunk) = reader.next(&|| ()).unwrap() {
        let mut read = Vec::new();
        for span in &chunk.spans {
            let range = span.offset as usize..(span.offset + span.len) as usize;
            read.extend_from_slice(&bytes[span.input][range]);
            read.extend(span.unfinished.then_some(b'\n'));
        }
        assert!(chunk.chunk.record_bytes() == read, "{:?}", chunk.spans);
        several += usize::from(chunk.spans.len() > 1);
        all += read.len();
    }
    let unfinished = bytes.iter().filter(|bytes| !bytes.ends_with(b"\n")).count();
    assert_eq!(all, bytes.iter().map(Vec::len).sum::<usize>() + unfinished);
    assert!(several >= 2, "some chunks are shared");
}
