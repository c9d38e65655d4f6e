//! Element streams: every kind carries the same elements, makes the requests of its formula, and reports faults.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use ascot_io::elements::{BUFFERED_BYTES, Element, ElementReader, ElementWriter, StreamKind, Written};
use ascot_io::{Action, Disk, DiskOptions, Effect, IoError};
use ascot_testing::faults::{FaultPlan, Faults};
use proptest::prelude::*;

const KINDS: [StreamKind; 9] = [
    StreamKind::Plain,
    StreamKind::Buffered,
    StreamKind::Sized { block_bytes: 1 },
    StreamKind::Sized { block_bytes: 7 },
    StreamKind::Sized { block_bytes: 1 << 16 },
    StreamKind::Mapped { window_bytes: 3 },
    StreamKind::Mapped { window_bytes: 5000 },
    StreamKind::Mapped { window_bytes: 1 << 20 },
    StreamKind::Direct { block_bytes: 4096, depth: 3 },
];

fn write<E: Element>(path: &Path, kind: StreamKind, elements: impl IntoIterator<Item = E>) -> Written {
    let mut writer = ElementWriter::create(path, kind).unwrap();
    elements.into_iter().for_each(|element| writer.write(element).unwrap());
    writer.close().unwrap()
}

/// The elements of a file, and the requests made to read them.
fn read<E: Element>(path: &Path, kind: StreamKind) -> (Vec<E>, u64) {
    let mut reader = ElementReader::open(path, kind).unwrap();
    let mut elements = Vec::new();
    while !reader.end_of_stream() {
        assert!(reader.remaining() > 0);
        elements.push(reader.read_next().unwrap());
    }
    assert_eq!(reader.remaining(), 0);
    (elements, reader.close())
}

fn kinds() -> impl Strategy<Value = StreamKind> {
    prop_oneof![
        Just(StreamKind::Plain),
        Just(StreamKind::Buffered),
        (1_usize..10_000).prop_map(|block_bytes| StreamKind::Sized { block_bytes }),
        (1_usize..20_000).prop_map(|window_bytes| StreamKind::Mapped { window_bytes }),
        (1_usize..4, 1_usize..5)
            .prop_map(|(pages, depth)| StreamKind::Direct { block_bytes: pages * 4096, depth }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_kind_reads_the_elements_that_each_kind_wrote(
        numbers in proptest::collection::vec(any::<u32>(), 0..6000),
        writing in kinds(),
        reading in kinds(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        let written = write(&path, writing, numbers.iter().copied());
        prop_assert_eq!(written.elements, numbers.len() as u64);
        prop_assert_eq!(fs::metadata(&path).unwrap().len(), 4 * numbers.len() as u64);
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        prop_assert_eq!(fs::read(&path).unwrap(), bytes);
        prop_assert_eq!(read::<u32>(&path, reading).0, numbers);
    }

    #[test]
    fn the_requests_are_those_of_the_formula(count in 0_u64..6000, kind in kinds()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        let expected = (4 * count).div_ceil(kind.request_bytes(4) as u64);
        let written = write(&path, kind, (0..count).map(|number| number as u32));
        prop_assert_eq!(written, Written { elements: count, requests: expected });
        prop_assert_eq!(read::<u32>(&path, kind).1, expected);
    }
}

/// Read and write system calls that this thread has made.
fn system_calls() -> [u64; 2] {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    ["syscr: ", "syscw: "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse().unwrap()
    })
}

#[test]
fn a_plain_stream_makes_exactly_one_system_call_for_each_element() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    let [reads_of_the_counter, _] = {
        let before = system_calls();
        let after = system_calls();
        [after[0] - before[0], 0]
    };
    for count in [1_u32, 2, 1000, 12_345] {
        let mut writer = ElementWriter::create(&path, StreamKind::Plain).unwrap();
        let before = system_calls()[1];
        for number in 0..count {
            writer.write(number).unwrap();
            assert_eq!(writer.requests(), u64::from(number) + 1, "an element is written at once");
        }
        assert_eq!(system_calls()[1] - before, u64::from(count));
        assert_eq!(writer.close().unwrap().requests, u64::from(count));

        let mut reader = ElementReader::<u32>::open(&path, StreamKind::Plain).unwrap();
        let before = system_calls()[0];
        for number in 0..count {
            assert_eq!(reader.read_next().unwrap(), number);
        }
        assert!(reader.end_of_stream());
        assert_eq!(system_calls()[0] - before - reads_of_the_counter, u64::from(count));
        assert_eq!(reader.close(), u64::from(count));
    }
}

#[test]
fn elements_of_other_types_and_lengths_pass_through_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("elements");
    for kind in KINDS {
        let records: Vec<[u8; 100]> = (0..200).map(|number| [number; 100]).collect();
        write(&path, kind, records.iter().copied());
        assert_eq!(read::<[u8; 100]>(&path, kind).0, records, "{kind}");
        let numbers = [0.5_f64, -3.25, f64::MAX];
        write(&path, kind, numbers);
        assert_eq!(read::<f64>(&path, kind).0, numbers, "{kind}");
        write(&path, kind, [i128::MIN, -1, i128::MAX]);
        assert_eq!(read::<i128>(&path, kind).0, [i128::MIN, -1, i128::MAX], "{kind}");
        write(&path, kind, [1_u8, 2, 255]);
        assert_eq!(read::<u8>(&path, kind).0, [1, 2, 255], "{kind}");
    }
}

#[test]
fn a_read_past_the_end_and_a_cut_element_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    for kind in KINDS {
        write(&path, kind, [1_u32, 2]);
        let mut reader = ElementReader::<u32>::open(&path, kind).unwrap();
        assert_eq!([reader.read_next().unwrap(), reader.read_next().unwrap()], [1, 2]);
        for _ in 0..2 {
            let error = reader.read_next().unwrap_err().to_string();
            assert!(
                error.contains("after the end of the stream") && error.contains("numbers"),
                "{kind}: {error}"
            );
        }
        fs::write(&path, [0; 7]).unwrap();
        let error = ElementReader::<u32>::open(&path, kind).err().unwrap().to_string();
        assert!(error.contains("not a multiple of the length of an element"), "{kind}: {error}");
    }
}

#[test]
fn impossible_values_are_refused_before_a_file_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    for kind in [
        StreamKind::Sized { block_bytes: 0 },
        StreamKind::Mapped { window_bytes: 0 },
        StreamKind::Direct { block_bytes: 4096, depth: 0 },
        StreamKind::Direct { block_bytes: 5000, depth: 1 },
        StreamKind::Direct { block_bytes: 0, depth: 1 },
        StreamKind::Mapped { window_bytes: usize::MAX },
        StreamKind::Sized { block_bytes: usize::MAX },
    ] {
        let refused = ElementWriter::<u32>::create(&path, kind).err().unwrap();
        assert!(matches!(refused, IoError::Misuse { .. }), "{kind}: {refused}");
        assert!(!path.exists(), "{kind}");
    }
}

#[test]
fn a_file_cut_short_while_it_is_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    for kind in KINDS {
        let count = 2 * BUFFERED_BYTES as u32 * 8;
        write(&path, StreamKind::Buffered, 0..count);
        let mut reader = ElementReader::<u32>::open(&path, kind).unwrap();
        if let StreamKind::Mapped { window_bytes } = kind
            && window_bytes as u64 >= 4 * u64::from(count)
        {
            // The whole file is in one window, whose pages would be gone.
            continue;
        }
        reader.read_next().unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
        let error = (1..count).find_map(|_| reader.read_next().err()).unwrap();
        assert!(matches!(error, IoError::Truncated { .. }), "{kind}: {error}");
    }
}

/// A disk that fails as planned.
fn faulty(at: u64, effect: Effect, operation: Action) -> Disk {
    let plan =
        FaultPlan { at, effect, operations: vec![operation], path_contains: String::new(), lasting: false };
    Disk::new(DiskOptions { faults: Some(Faults::new(plan).into()), ..DiskOptions::default() })
}

#[test]
fn short_system_calls_are_continued_and_failures_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    let sized = StreamKind::Sized { block_bytes: 1000 };
    let numbers = || 0..5000_u32;
    for kind in [StreamKind::Plain, sized, StreamKind::direct(4096)] {
        for at in [0, 3] {
            let mut writer = faulty(at, Effect::Short, Action::Write).write_elements(&path, kind).unwrap();
            numbers().for_each(|number| writer.write(number).unwrap());
            writer.close().unwrap();
            let mut reader =
                faulty(at, Effect::Short, Action::Read).read_elements::<u32>(&path, kind).unwrap();
            assert!(numbers().all(|number| reader.read_next().unwrap() == number), "{kind}");

            let mut writer = faulty(at, Effect::NoSpace, Action::Write).write_elements(&path, kind).unwrap();
            let failed = numbers().find_map(|number| writer.write(number).err());
            let failed = failed.or_else(|| writer.close().err()).unwrap();
            assert!(matches!(failed, IoError::DiskFull { .. }), "{kind}: {failed}");
            write(&path, kind, numbers());
            let mut reader = faulty(at, Effect::Eio, Action::Read).read_elements::<u32>(&path, kind).unwrap();
            let failed = numbers().find_map(|_| reader.read_next().err()).unwrap().to_string();
            assert!(failed.contains("cannot read") && failed.contains("numbers"), "{kind}: {failed}");
        }
    }
}

#[test]
fn a_stream_that_failed_never_goes_on_after_the_gap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    let numbers = || 0..5000_u32;
    let kinds = [StreamKind::Plain, StreamKind::Sized { block_bytes: 1001 }, StreamKind::direct(4096)];
    for kind in kinds {
        let mut writer = faulty(2, Effect::Eio, Action::Write).write_elements(&path, kind).unwrap();
        let failed = numbers().filter(|&number| writer.write(number).is_err()).count();
        assert!(failed != 1, "{kind}: elements after the failed block were accepted");
        assert!(writer.close().is_err(), "{kind}: a file with a gap was closed");

        write(&path, StreamKind::Buffered, numbers());
        let mut reader = faulty(2, Effect::Eio, Action::Read).read_elements::<u32>(&path, kind).unwrap();
        let mut expected = numbers();
        let good = expected
            .by_ref()
            .take_while(|&number| reader.read_next().is_ok_and(|read| read == number))
            .count();
        assert!(good < 5000 && !reader.end_of_stream(), "{kind}");
        assert!((0..5000).all(|_| reader.read_next().is_err()), "{kind}: elements after the gap were read");
    }
    let mapped = StreamKind::Mapped { window_bytes: 1001 };
    let mut writer = faulty(2, Effect::Eio, Action::Map).write_elements(&path, mapped).unwrap();
    assert!(numbers().any(|number| writer.write(number).is_err()) && writer.close().is_err());
}

#[test]
fn a_writer_that_is_dropped_leaves_no_space_allocated_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    for kind in KINDS {
        let mut writer = ElementWriter::create(&path, kind).unwrap();
        (0..3_u32).for_each(|number| writer.write(number).unwrap());
        drop(writer);
        assert!(fs::metadata(&path).unwrap().len() <= 12, "{kind}");
    }
}

#[test]
fn bytes_pass_through_the_blocks_that_callers_fill_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    let bytes: Vec<u8> = (0..20_000_u32).map(|number| (number % 251) as u8).collect();
    for kind in KINDS {
        let mut writer = ElementWriter::<u8>::create(&path, kind).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let space = writer.space().unwrap();
            let some = rest.len().min(space.len()).min(777);
            space[..some].copy_from_slice(&rest[..some]);
            writer.advance(some).unwrap();
            rest = &rest[some..];
        }
        let expected = bytes.len().div_ceil(kind.request_bytes(1)) as u64;
        assert_eq!(
            writer.close().unwrap(),
            Written { elements: bytes.len() as u64, requests: expected },
            "{kind}"
        );
        let mut reader = ElementReader::<u8>::open(&path, kind).unwrap();
        let mut found = Vec::new();
        loop {
            let block = reader.fill().unwrap();
            let some = block.len().min(777);
            if some == 0 {
                break;
            }
            found.extend_from_slice(&block[..some]);
            reader.consume(some);
        }
        assert!(found == bytes, "{kind}");
        assert!(reader.end_of_stream() && reader.close() == expected, "{kind}");
    }
}

#[test]
fn only_a_synced_stream_waits_for_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    for kind in KINDS {
        let syncs = |sync: bool| {
            let faults = Faults::recording();
            let options = DiskOptions { faults: Some(faults.clone().into()), ..DiskOptions::default() };
            let mut writer = Disk::new(options).write_elements(&path, kind).unwrap();
            writer.write(7_u32).unwrap();
            if sync {
                writer.sync_and_close().unwrap()
            } else {
                writer.close().unwrap()
            };
            faults.recorded().iter().filter(|(action, _)| *action == Action::Sync).count()
        };
        assert_eq!((syncs(true), syncs(false)), (1, 0), "{kind}");
    }
}
