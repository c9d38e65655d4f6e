//! Every back-end reads and writes what `std::fs` would, whatever the sizes and patterns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use ascot_io::{Backend, BlockPool, Buf, Direction, Disk, DiskOptions, IoError, Ledger, Pool};
use common::*;
use proptest::prelude::*;

/// Lengths around the boundaries that matter.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        Just(1),
        0..100usize,
        4000..4200usize,
        Just(4096),
        8192..70_000usize,
        (0..20usize).prop_map(|pages| pages * 4096),
    ]
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    let piece =
        prop_oneof![1..5000usize, (1..6usize).prop_map(|pages| pages * 4096), Just(16384), Just(12288)];
    prop::collection::vec(piece, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn written_files_are_the_bytes_given(len in length(), pieces in pieces()) {
        let directory = directory();
        let bytes = data(len);
        for (number, disk) in disks().into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            let written = create(&disk, &path, &bytes, &pieces).unwrap();
            prop_assert_eq!(written, len as u64);
            prop_assert!(std::fs::read(&path).unwrap() == bytes, "{:?}", disk.options().backend);
            prop_assert_eq!(disk.ledger().totals().written_bytes, len as u64);
        }
    }

    #[test]
    fn ranges_read_as_std_reads_them(
        len in length(),
        pieces in pieces(),
        depth in 1..5usize,
        range in (0..80_000u64, 0..80_000u64),
    ) {
        let directory = directory();
        let bytes = data(len);
        let path = directory.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let end = (range.1 as usize).min(len);
        let start = (range.0 as usize).min(end);
        for disk in disks() {
            let mut stream = disk.open_read(&path, range.0..range.1, "test").unwrap();
            prop_assert_eq!(stream.len_hint(), Some((end - start) as u64));
            let read = read_all(stream.as_mut(), &pieces, depth).unwrap();
            prop_assert!(read == bytes[start..end], "{:?}", disk.options().backend);
        }
    }

    #[test]
    fn appending_continues_a_file(len in 0..30_000usize, more in 0..30_000usize, pieces in pieces()) {
        let directory = directory();
        let bytes = data(len + more);
        for (number, disk) in disks().into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            create(&disk, &path, &bytes[..len], &pieces).unwrap();
            let kept = len / 4096 * 4096;
            let mut stream = disk.open_append(&path, kept as u64, "test").unwrap();
            write_all(stream.as_mut(), &bytes[kept..], &pieces).unwrap();
            stream.sync().unwrap();
            prop_assert_eq!(stream.finish().unwrap(), (len + more) as u64);
            prop_assert!(std::fs::read(&path).unwrap() == bytes, "{:?}", disk.options().backend);
        }
    }
}

/// A file that is past the page cache, so that O_DIRECT is really used.
fn uncached_file(path: &Path, bytes: &[u8]) -> Disk {
    let disk = disk(Backend::Direct, None);
    let mut stream = disk.create(path, "old").unwrap();
    write_all(stream.as_mut(), bytes, &[1 << 20]).unwrap();
    stream.sync().unwrap();
    stream.finish().unwrap();
    disk
}

#[test]
fn direct_reads_of_large_files_start_anywhere() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = data((3 << 20) + 1234);
    let disk = uncached_file(&path, &bytes);
    assert_eq!(disk.notices(), Vec::<String>::new());
    for threaded in [false, true] {
        let disk = if threaded { threaded_disk(None) } else { disk.clone() };
        for start in [0, 1, 4095, 4096, 5000, 1 << 20] {
            let mut stream = disk.open_read(&path, start..u64::MAX, "test").unwrap();
            stream.begin(Buf::heap(8192)).unwrap();
            let filled = stream.complete().unwrap();
            assert_eq!((filled.start, filled.end), (start as usize % 4096, 8192));
            let mut read = filled.bytes().to_vec();
            read.extend(read_all(stream.as_mut(), &[65536, 12288], 3).unwrap());
            assert!(read == bytes[start as usize..]);
        }
    }
}

#[test]
fn a_direct_stream_serves_odd_buffers_too() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = data((3 << 20) + 1234);
    let disk = uncached_file(&path, &bytes);
    let mut stream = disk.open_read(&path, 5..u64::MAX, "test").unwrap();
    assert!(read_all(stream.as_mut(), &[65536, 1000], 3).unwrap() == bytes[5..]);
    // That went through the page cache, from where the file is now read.
    let mut stream = disk.open_read(&path, 5..u64::MAX, "test").unwrap();
    stream.begin(Buf::heap(8192)).unwrap();
    assert_eq!(stream.complete().unwrap().start, 0);
}

#[test]
fn a_direct_range_may_end_inside_a_block() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = data(3 << 20);
    let disk = uncached_file(&path, &bytes);
    let end = (2 << 20) + 777;
    let mut stream = disk.open_read(&path, 10..end as u64, "test").unwrap();
    assert!(read_all(stream.as_mut(), &[16384], 2).unwrap() == bytes[10..end]);
}

#[test]
fn a_file_cut_short_while_read_is_an_error() {
    let directory = directory();
    for (number, disk) in disks().into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        std::fs::write(&path, data(100_000)).unwrap();
        let mut stream = disk.open_read(&path, 0..u64::MAX, "test").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(50_000).unwrap();
        let error = read_all(stream.as_mut(), &[8192], 1).unwrap_err();
        match error {
            IoError::Truncated { offset, expected, .. } => assert_eq!((offset, expected), (50_000, 100_000)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_file_that_grows_while_read_ends_where_it_ended() {
    let directory = directory();
    for (number, disk) in disks().into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        std::fs::write(&path, data(10_000)).unwrap();
        let mut stream = disk.open_read(&path, 0..u64::MAX, "test").unwrap();
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(&[1; 9000]).unwrap();
        assert!(read_all(stream.as_mut(), &[4096], 2).unwrap() == data(10_000));
    }
}

#[test]
fn blocks_come_back_once_written() {
    let directory = directory();
    for disk in disks() {
        let pool = Pool::new(4 * 16384);
        let blocks = BlockPool::new(pool.region(4 * 16384, "blocks").unwrap(), 16384);
        let mut stream = disk.create(&directory.path().join("out"), "test").unwrap();
        for number in 0..40 {
            let mut block = blocks.take(|| false).unwrap();
            block.fill(number);
            let len = block.len();
            stream.begin(block, len).unwrap();
        }
        assert_eq!(stream.finish().unwrap(), 40 * 16384);
        assert_eq!(blocks.free(), 4);
    }
}

#[test]
fn pipes_carry_bytes_both_ways() {
    let disk = disk(Backend::Direct, None);
    let (reader, writer) = std::io::pipe().unwrap();
    let bytes = data(3_000_000);
    let mut from = disk.from_reader(OwnedFd::from(reader), Vec::new(), Path::new("<in>"), "in").unwrap();
    let mut to = disk.to_writer(OwnedFd::from(writer), Path::new("<out>"), "out").unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || {
        write_all(to.as_mut(), &sent, &[100_000, 7]).unwrap();
        to.sync().unwrap();
        to.finish().unwrap()
    });
    assert_eq!(from.len_hint(), None);
    assert!(read_all(from.as_mut(), &[65536, 999], 3).unwrap() == bytes);
    assert_eq!(sender.join().unwrap(), 3_000_000);
    let totals = disk.ledger().totals();
    assert_eq!((totals.read_bytes, totals.written_bytes), (3_000_000, 3_000_000));
}

#[test]
fn a_closed_pipe_is_an_error_of_its_own() {
    let disk = disk(Backend::Direct, None);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut to = disk.to_writer(OwnedFd::from(writer), Path::new("<out>"), "out").unwrap();
    to.begin(buf_of(b"hello"), 5).unwrap();
    assert!(to.drain().unwrap_err().is_broken_pipe());
    assert!(to.begin(buf_of(b"hello"), 5).unwrap_err().is_broken_pipe());
    assert!(to.finish().unwrap_err().is_broken_pipe());
}

#[test]
fn a_silent_pipe_can_be_given_up() {
    let disk = disk(Backend::Direct, None);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut from = disk.from_reader(OwnedFd::from(reader), Vec::new(), Path::new("<in>"), "in").unwrap();
    from.begin(Buf::heap(4096)).unwrap();
    assert!(!from.ready());
    drop(from);
    drop(writer);
}

#[test]
fn fifos_and_devices_are_streams_too() {
    let directory = directory();
    let path = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let disk = disk(Backend::Direct, None);
    let (to, fifo) = (disk.clone(), path.clone());
    let writer = std::thread::spawn(move || create(&to, &fifo, &data(100_000), &[30_000]).unwrap());
    let mut from = disk.open_read(&path, 0..u64::MAX, "in").unwrap();
    assert!(read_all(from.as_mut(), &[16384], 2).unwrap() == data(100_000));
    assert_eq!(writer.join().unwrap(), 100_000);
    assert_eq!(create(&disk, Path::new("/dev/null"), &data(5000), &[4096]).unwrap(), 5000);
    let full = create(&disk, Path::new("/dev/full"), &data(5000), &[4096]).unwrap_err();
    assert!(matches!(full, IoError::DeviceFull { .. }), "{full}");
    let error = disk.open_read(Path::new("/dev/zero"), 5..9, "in").err().unwrap();
    assert!(matches!(error, IoError::Misuse { .. }), "{error}");
    assert!(disk.open_read(directory.path(), 0..9, "in").is_err());
}

#[test]
fn misuse_is_an_error() {
    let directory = directory();
    let path = directory.path().join("file");
    for disk in disks() {
        let mut stream = disk.create(&path, "test").unwrap();
        assert!(stream.begin(Buf::heap(10), 11).is_err());
        drop(stream);
        let mut stream = disk.open_read(&path, 0..10, "test").unwrap();
        assert!(stream.complete().is_err());
        assert!(disk.open_append(&path, 100, "test").is_err());
        let error = disk.open_append(&path, 4096, "test").err().unwrap();
        assert!(matches!(error, IoError::Truncated { .. }), "{error}");
        let error = disk.open_read(&directory.path().join("none"), 0..10, "test").err().unwrap();
        assert!(is_not_found(&error) && error.to_string().contains("none"), "{error}");
    }
}

#[test]
fn the_ledger_counts_runs_between_files() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    for backend in [Backend::Sized(8192), Backend::Direct] {
        let ledger = Ledger::new();
        let options = DiskOptions { backend, request_bytes: 8192, ledger, ..Default::default() };
        let disk = Disk::new(options);
        let mut a = disk.create(&path("a"), "a").unwrap();
        let mut b = disk.create(&path("b"), "b").unwrap();
        for round in 0..4 {
            a.begin(buf_of(&[1; 16384]), 16384).unwrap();
            a.begin(buf_of(&[1; 16384]), 16384).unwrap();
            if round % 2 == 0 {
                b.begin(buf_of(&[1; 4096]), 4096).unwrap();
            }
        }
        a.finish().unwrap();
        b.finish().unwrap();
        let account = disk.ledger().account();
        let of = |name: &str| account.iter().find(|one| one.name == name).unwrap().clone();
        let (a, b) = (of("a"), of("b"));
        assert_eq!((a.bytes, a.requests, a.runs, a.file_runs), (8 * 16384, 16, 3, 1));
        assert_eq!((b.bytes, b.requests, b.runs, b.file_runs), (2 * 4096, 2, 2, 1));
        assert_eq!((a.direction, a.streams), (Direction::Write, 1));
        assert_eq!(disk.ledger().totals().runs, 5);
    }
}

#[test]
fn punched_files_keep_their_length() {
    let directory = directory();
    let path = directory.path().join("file");
    let disk = disk(Backend::Direct, None);
    create(&disk, &path, &data(100_000), &[65536]).unwrap();
    if disk.punch(&path, 65536).unwrap() {
        let read = std::fs::read(&path).unwrap();
        assert!(read[..65536].iter().all(|byte| *byte == 0));
        assert!(read[65536..] == data(100_000)[65536..]);
    }
    assert!(disk.free_space(&directory.path().join("not there")).unwrap() > 0);
    disk.rename(&path, &directory.path().join("new")).unwrap();
    disk.sync_dir(directory.path()).unwrap();
    disk.remove_file(&directory.path().join("new")).unwrap();
    assert!(is_not_found(&disk.remove_file(&path).unwrap_err()));
}

#[test]
fn a_stream_given_up_leaves_no_allocation_behind() {
    let directory = directory();
    for (number, disk) in disks().into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        let mut stream = disk.create(&path, "test").unwrap();
        stream.begin(buf_of(&data(8192)), 8192).unwrap();
        drop(stream);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    }
}

#[test]
fn a_small_file_takes_no_space_ahead_of_its_data() {
    let directory = directory();
    let disk = disk(Backend::Direct, None);
    let mut lengths = [("small", true), ("other", false)].map(|(name, small)| {
        let path = directory.path().join(name);
        let created = if small { disk.create_small(&path, "test") } else { disk.create_new(&path, "test") };
        let mut stream = created.unwrap();
        stream.begin(buf_of(&data(8192)), 8192).unwrap();
        stream.drain().unwrap();
        (std::fs::metadata(&path).unwrap().len(), stream)
    });
    assert_eq!(lengths[0].0, 8192);
    if lengths[1].0 == 8192 {
        println!("not tested: this volume allocates nothing ahead");
    }
    lengths.iter_mut().for_each(|(_, stream)| stream.sync().unwrap());
    assert!(std::fs::read(directory.path().join("small")).unwrap() == data(8192));
}
