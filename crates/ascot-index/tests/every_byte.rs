//! Every byte of a directory is covered by a checksum, or is padding that must be zero: whichever byte is another,
//! `verify` names the file and the place. And a reader opens each file once, whatever becomes of its descriptors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use ascot_index::hash::mix;
use ascot_index::{Directory, DirectoryWriter, IndexError, Layout, Scan, Scheme};
use ascot_io::{Action, Disk, DiskOptions, Effect};
use ascot_testing::faults::{FaultPlan, Faults};

const MEMORY: usize = 4 << 20;
const EPOCHS: u64 = 3;
const PAGE: usize = 4096;
/// Set to look at every byte, which takes minutes; otherwise at those around the bounds of pages and at one in `STEP`.
const ALL: &str = "ASCOT_TEST_EVERY_BYTE";
const STEP: usize = 151;

fn key(number: u64) -> [u8; 8] {
    mix(number).to_be_bytes()
}

/// The value of a key: one is longer than a block, and with `long` one is longer than what a reader has in memory at
/// once.
fn value(number: u64, epoch: u64, long: bool) -> Vec<u8> {
    let bytes = match number {
        3 => 5000,
        5 if long => 300_000,
        _ => 20 + number % 9,
    };
    (0..bytes).map(|at| mix(at ^ number << 30 ^ epoch << 50) as u8).collect()
}

fn write(disk: &Disk, path: &Path, scheme: Scheme, partitions: u32, epochs: u64, long: bool) {
    let mut layout = Layout::new(scheme, partitions, 1);
    layout.block_bytes = PAGE as u32;
    let mut writer = DirectoryWriter::create(disk, path, layout, 8 << 20).unwrap();
    for epoch in 0..epochs {
        for number in 0..40 {
            writer.append_record(&key(number), &value(number, epoch, long)).unwrap();
        }
        writer.end_epoch().unwrap();
    }
    writer.close().unwrap();
}

/// The places of problems that name the file.
fn places(disk: &Disk, path: &Path, file: &Path) -> Vec<usize> {
    let problems = match Directory::open(disk, path, MEMORY) {
        Ok(directory) => directory.verify().unwrap().problems,
        Err(error) => vec![error.to_string()],
    };
    let name = format!("{} is damaged at byte ", file.display());
    let place = |problem: &String| problem.strip_prefix(&name)?.split(':').next()?.parse().ok();
    problems.iter().filter_map(place).collect()
}

#[test]
fn another_byte_anywhere_is_told_with_its_place() {
    let (disk, all) = (Disk::default(), std::env::var_os(ALL).is_some());
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for long in [false, true] {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("run.dir");
            write(&disk, &path, scheme, 1, EPOCHS, long);
            assert!(Directory::open(&disk, &path, MEMORY).unwrap().verify().unwrap().is_whole());
            let mut files: Vec<PathBuf> =
                std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            for file in files {
                let whole = std::fs::read(&file).unwrap();
                let step = if long { whole.len() / 25 + STEP } else { STEP };
                // Where bytes meet padding, and footers.
                let run = |at: usize| whole[at..].iter().take(8).all(|&byte| byte == 0);
                let edge = |at: usize| at > 0 && (whole[at - 1] != 0 && run(at)) || at % PAGE > PAGE - 4;
                for at in
                    (0..whole.len()).filter(|&at| (all && !long) || at % step == 0 || (!long && edge(at)))
                {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << (at % 8);
                    std::fs::write(&file, &bytes).unwrap();
                    let places = places(&disk, &path, &file);
                    assert!(
                        places.iter().any(|&place| place <= at),
                        "{scheme:?} long {long}: byte {at} of {}: {places:?}",
                        file.display()
                    );
                }
                std::fs::write(&file, &whole).unwrap();
            }
        }
    }
}

#[test]
fn a_lock_has_no_bytes() {
    let (disk, scratch) = (Disk::default(), tempfile::tempdir().unwrap());
    let path = scratch.path().join("run.dir");
    write(&disk, &path, Scheme::Records, 1, 1, false);
    std::fs::write(path.join("LOCK"), b"x").unwrap();
    assert_eq!(places(&disk, &path, &path.join("LOCK")), [0]);
}

/// Opening files is counted at the fault seam, which every open of a reader but that of the manifest goes through.
fn counting_opens(effect: Effect, at: u64) -> (Disk, Faults) {
    let operations = vec![Action::Open];
    let faults =
        Faults::new(FaultPlan { at, effect, operations, path_contains: String::new(), lasting: false });
    (Disk::new(DiskOptions { faults: Some(faults.clone().into()), ..DiskOptions::default() }), faults)
}

#[test]
fn each_file_is_opened_once() {
    for (scheme, files) in [(Scheme::Records, 2), (Scheme::Pointers, 3), (Scheme::Ranks, 3)] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        write(&Disk::default(), &path, scheme, 1, 10, false);
        let (disk, opens) = counting_opens(Effect::Eio, u64::MAX);
        let directory = Directory::open(&disk, &path, MEMORY).unwrap();
        assert_eq!(directory.get(&key(7)).unwrap().len(), 10);
        let counts = directory.counts();
        assert_eq!((opens.counted(), counts.files_opened), (files, files + 1), "{scheme:?}");
        // The stamp, the manifest twice, and once each file.
        assert_eq!(counts.files_inspected, files + 3, "{scheme:?}");
        // Of each index the footer with its root, and heads.
        let logs = if scheme == Scheme::Ranks { 2 } else { 1 };
        assert_eq!(counts.opening_reads, logs * 11, "{scheme:?}");
        for number in 0..40 {
            assert_eq!(directory.get(&key(number)).unwrap().len(), 10);
        }
        directory.scan(&Scan::default(), |_| Ok(())).unwrap();
        let now = directory.counts();
        assert_eq!((now.files_opened, now.files_inspected), (counts.files_opened, counts.files_inspected));
    }
}

#[test]
fn one_descriptor_too_few_is_no_error() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run.dir");
    write(&Disk::default(), &path, Scheme::Records, 8, 2, false);
    let keys: Vec<[u8; 8]> = (0..40).map(key).collect();
    for at in 0..16 {
        let (disk, faults) = counting_opens(Effect::TooManyOpen, at);
        let directory = Directory::open(&disk, &path, MEMORY).unwrap();
        let mut found = 0;
        let take = |_, values: Vec<_>| {
            found += values.len();
            Ok::<(), IndexError>(())
        };
        directory.get_many(&keys, None, take).unwrap();
        assert_eq!((found, faults.fired()), (80, 1), "{at}");
    }
}
