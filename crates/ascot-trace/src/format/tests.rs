//! Traces come back as they were written, and damaged ones give an error.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::error::{Result, TraceError};
use crate::event::{BlockCounts, Event, Kind, Recording, TracedFile, TracedProcess};
use crate::output::Output;
use crate::ranges::RangeSet;

struct Written {
    _dir: tempfile::TempDir,
    path: PathBuf,
    files: Vec<TracedFile>,
    processes: Vec<TracedProcess>,
    recording: Recording,
}

fn written(events: &[Event], files: u32) -> Written {
    written_as(events, files, section::NEWEST_VERSION)
}

/// A trace of a version.
fn written_as(events: &[Event], files: u32, version: u32) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    let files: Vec<TracedFile> = (0..files)
        .map(|n| TracedFile {
            path: format!("/data/part-{n:05}").into_bytes(),
            peak_bytes: u64::from(n) << 20,
            deleted: n % 2 == 1,
            held: held(n, version),
        })
        .collect();
    let processes: Vec<_> =
        (0..3).map(|n| TracedProcess { pid: 100 + n, program: b"/bin/sort".to_vec() }).collect();
    let recording = Recording {
        command: b"sort\0big.txt".to_vec(),
        source: b"strace 6.1".to_vec(),
        start_ns: 1_700_000_000_000_000_000,
        unseen_requests: 1,
        guessed_appends: 2,
        skipped_lines: 3,
        incomplete: true,
        block: Some(BlockCounts::from_numbers([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])),
    };
    let output = Output::create(&path, "trace").unwrap();
    let mut writer = TraceWriter::of_version(output, columns::MAX_EVENTS, version).unwrap();
    events.iter().for_each(|event| writer.push(event).unwrap());
    let bytes = writer.finish(&files, &processes, &recording).unwrap();
    assert_eq!(bytes, fs::metadata(&path).unwrap().len());
    Written { _dir: dir, path, files, processes, recording }
}

/// Unknown, empty, or a few ranges, as far as a version has a place for it.
fn held(n: u32, version: u32) -> Option<RangeSet> {
    let mut held = RangeSet::default();
    if version >= section::NEWEST_VERSION && n % 3 == 2 {
        for range in 0..u64::from(n % 50) {
            held.insert(range << 20, (range << 20) + 4096 * (range + 1), |_, _| ());
        }
    }
    let told = if version >= section::NEWEST_VERSION { !n.is_multiple_of(3) } else { n % 3 == 1 };
    (told && version >= section::HOLES_VERSION).then_some(held)
}

fn scan(count: u64) -> Vec<Event> {
    (0..count)
        .map(|n| Event {
            time_ns: n * 1000,
            process: 0,
            file: (n % 2) as u32,
            kind: if n % 2 == 0 { Kind::Read } else { Kind::Write },
            jumped: false,
            offset: n / 2 * 65536,
            size: 65536,
        })
        .collect()
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (any::<u64>(), 0..3_u32, 0..5_u32, kind, any::<bool>(), any::<u64>(), any::<u32>()).prop_map(
        |(time_ns, process, file, kind, jumped, offset, size)| Event {
            time_ns,
            process,
            file,
            kind,
            jumped,
            offset: offset.min(u64::MAX - u64::from(size)),
            size: u64::from(size),
        },
    )
}

/// Opens the trace and reads all events; the error of either.
fn read_all(path: &std::path::Path) -> Result<Vec<Event>> {
    TraceReader::open(path)?.events().collect()
}

proptest! {
    #[test]
    fn events_come_back(events in prop::collection::vec(any_event(), 0..300)) {
        let written = written(&events, 5);
        let reader = TraceReader::open(&written.path).unwrap();
        prop_assert_eq!(reader.files(), &written.files[..]);
        prop_assert_eq!(reader.processes(), &written.processes[..]);
        prop_assert_eq!(reader.recording(), &written.recording);
        prop_assert_eq!(reader.event_count(), events.len() as u64);
        let found: Vec<Event> = reader.events().map(Result::unwrap).collect();
        prop_assert_eq!(found, events);
    }
}

/// Counts of devices have a place since version 2, the mark of an incomplete recording since version 3.
#[test]
fn older_versions_are_read_without_what_they_have_no_place_for() {
    for version in section::OLDEST_VERSION..=section::NEWEST_VERSION {
        let written = written_as(&scan(10), 2, version);
        assert_eq!(u32::from(fs::read(&written.path).unwrap()[8]), version);
        let reader = TraceReader::open(&written.path).unwrap();
        let block = written.recording.block.filter(|_| version >= 2);
        assert_eq!(reader.recording(), &Recording { block, incomplete: version >= 3, ..written.recording });
        assert_eq!(reader.events().map(Result::unwrap).collect::<Vec<_>>(), scan(10));
        assert_eq!(reader.files(), written.files);
    }
    let newer = written(&scan(10), 2);
    let mut bytes = fs::read(&newer.path).unwrap();
    bytes[8] = 5;
    fs::write(&newer.path, bytes).unwrap();
    let error = TraceReader::open(&newer.path).unwrap_err();
    assert!(matches!(&error, TraceError::Version { found: 5, known: 4, .. }));
    assert!(error.to_string().contains("a newer ascot made it: update"), "{error}");
}

#[test]
fn sections_outside_a_range_are_not_read() {
    let written = written(&scan(40_000), 2);
    let mut bytes = fs::read(&written.path).unwrap();
    // The first section of events follows the header.
    bytes[20] ^= 1;
    fs::write(&written.path, &bytes).unwrap();
    let reader = TraceReader::open(&written.path).unwrap();
    let late: Vec<Event> = reader.events_between(20_000_000, 20_999_000).map(Result::unwrap).collect();
    assert_eq!(late, scan(40_000)[20_000..=20_999].to_vec());
    let early: Result<Vec<Event>> = reader.events_between(0, 10).collect();
    assert!(matches!(early, Err(TraceError::Damaged { offset: 16, .. })));
}

/// Two scans, one event a microsecond: less than a bit an event beside the tables.
#[test]
fn sequential_scans_compress_to_almost_nothing() {
    let written = written(&scan(1_000_000), 2);
    let bytes = fs::metadata(&written.path).unwrap().len();
    assert!(bytes < 1_000_000 / 8, "{bytes} bytes");
}

/// Many names take several sections.
#[test]
fn large_tables_come_back() {
    let written = written(&scan(10), 100_000);
    let reader = TraceReader::open(&written.path).unwrap();
    assert_eq!(reader.files(), &written.files[..]);
}

/// Every byte of a small trace, altered in two ways: an error or, never, other events.
#[test]
fn no_altered_byte_is_believed() {
    let events = scan(100);
    let written = written(&events, 2);
    let whole = fs::read(&written.path).unwrap();
    for at in 0..whole.len() {
        for flip in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&written.path, &bytes).unwrap();
            // The last four bytes of the header mean nothing.
            let found = read_all(&written.path);
            assert!(found.is_err() || (12..16).contains(&at), "byte {at}");
        }
    }
}

#[test]
fn no_shortened_trace_is_believed() {
    let written = written(&scan(100), 2);
    let whole = fs::read(&written.path).unwrap();
    for length in 0..whole.len() {
        fs::write(&written.path, &whole[..length]).unwrap();
        assert!(read_all(&written.path).is_err(), "{length} bytes");
    }
}

proptest! {
    /// Checksums that match, and anything within them: an error or events, never a panic.
    #[test]
    fn columns_of_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..400), count in 0..40_usize) {
        let limits = columns::Limits { files: 3, processes: 3 };
        if let Ok(events) = columns::decode(&bytes, count, 0, limits) {
            prop_assert_eq!(events.len(), count);
        }
    }

    /// Lengths of columns that fit, and any bytes in them.
    #[test]
    fn columns_of_any_numbers_end(columns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 6)) {
        let mut bytes: Vec<u8> = columns.iter().flat_map(|column| (column.len() as u32).to_le_bytes()).collect();
        columns.iter().for_each(|column| bytes.extend_from_slice(column));
        let limits = columns::Limits { files: 3, processes: 3 };
        if let Ok(events) = columns::decode(&bytes, columns[3].len(), 0, limits) {
            prop_assert!(events.iter().all(|event| event.file < 3 && event.process < 3));
        }
    }

    #[test]
    fn an_index_of_any_bytes_ends(bytes in prop::collection::vec(any::<u8>(), 48), footer: [u8; 32]) {
        if let Some(found) = section::Section::from_bytes(&bytes) {
            let footer = section::Footer {
                sections: 1,
                index: u64::from_le_bytes(footer[..8].try_into().unwrap()),
                ..Default::default()
            };
            let _ = section::check(&[found], &footer);
        }
    }
}
