//! Everything written is found again; damage is reported or read around, and never yields a wrong value.

use std::collections::BTreeMap;
use std::path::Path;

use ascot_io::Disk;
use proptest::prelude::*;

use super::*;
use crate::format::layout::{Attribute, AuxiliaryKind, NumberKind, PartitionBy, Scheme};
use crate::format::manifest::Manifest;
use crate::hash::mix;
use crate::write::DirectoryWriter;
use crate::{IndexError, Layout};

const MEMORY: usize = 8 << 20;
type Oracle = BTreeMap<Vec<u8>, Vec<Value>>;

fn layouts() -> Vec<Layout> {
    let mut all = Vec::new();
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for fixed in [true, false] {
            let mut layout = Layout::new(scheme, 3, 1);
            layout.block_bytes = 4096;
            if fixed {
                (layout.key_bytes, layout.value_bytes) = (Some(8), Some(24));
            }
            if scheme == Scheme::Ranks && fixed {
                layout.auxiliary = AuxiliaryKind::Static;
            }
            layout.partition_by =
                if scheme == Scheme::Records && fixed { PartitionBy::Range } else { PartitionBy::Hash };
            all.push(layout);
        }
    }
    all
}

fn record(layout: &Layout, epoch: u64, number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = mix(number % 700).to_be_bytes();
    let key = if layout.key_bytes.is_some() { key.to_vec() } else { key[..1 + number as usize % 8].to_vec() };
    let long = if layout.value_bytes.is_some() {
        24
    } else {
        (mix(number) % 40) as usize + if number == 77 { 20_000 } else { 0 }
    };
    let value: Vec<u8> = (0..long as u64).map(|at| mix(at ^ number << 8 ^ epoch << 40) as u8).collect();
    (key, value)
}

fn write(path: &Path, layout: &Layout, epochs: u64, records: u64) -> Oracle {
    let mut writer = DirectoryWriter::create(&Disk::default(), path, layout.clone(), MEMORY).unwrap();
    let mut oracle = Oracle::new();
    for epoch in 0..epochs {
        for number in 0..records {
            let (key, value) = record(layout, epoch, number);
            writer.append_record(&key, &value).unwrap();
            oracle.entry(key).or_default().push(Value { epoch, bytes: value });
        }
        assert_eq!(writer.end_epoch().unwrap().partition_records, records);
    }
    assert!(writer.close().unwrap().closed);
    oracle
}

fn open(path: &Path) -> Directory {
    Directory::open(&Disk::default(), path, MEMORY).unwrap()
}

/// Looks up all keys together and checks their values.
fn check_all(directory: &Directory, oracle: &Oracle) {
    let keys: Vec<&Vec<u8>> = oracle.keys().collect();
    directory
        .get_many(&keys, None, |number, values| {
            assert_eq!(&values, &oracle[keys[number]], "{:?}", directory.layout().scheme);
            Ok(())
        })
        .unwrap();
}

fn check(directory: &Directory, oracle: &Oracle) {
    check_all(directory, oracle);
    for key in oracle.keys().take(20) {
        assert_eq!(directory.get(key).unwrap(), oracle[key]);
        let second: Vec<Value> = oracle[key].iter().filter(|value| value.epoch == 1).cloned().collect();
        assert_eq!(directory.get_at(key, 1).unwrap(), second);
        assert_eq!(directory.get_at(key, 99).unwrap(), vec![]);
    }
    for number in 5000..5100u64 {
        let absent = mix(number).to_be_bytes();
        assert_eq!(directory.get(&absent).unwrap(), vec![]);
    }
}

#[test]
fn every_scheme_gives_back_what_was_written() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 3, 2000);
        let directory = open(&path);
        check(&directory, &oracle);
        assert!(directory.take_notices().texts.is_empty());
        let verified = directory.verify().unwrap();
        assert!(verified.is_whole(), "{verified:?}");
        let (info, unread) = directory.info().unwrap();
        assert!(unread.is_nothing());
        assert_eq!(info.epochs.iter().map(EpochInfo::records).collect::<Vec<_>>(), vec![2000; 3]);
        assert_eq!(info.tail_bytes, 0);
    }
}

#[test]
fn ranges_are_all_and_only_what_is_asked() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 2, 2000);
        let directory = open(&path);
        for (from, end) in
            [(vec![], None), (vec![0x20], Some(vec![0x60])), (vec![0x61, 3], None), (vec![9], Some(vec![9]))]
        {
            for (by_key, epoch) in [(true, None), (false, None), (true, Some(1))] {
                let scan = Scan { from: from.clone(), end: end.clone(), epoch, by_key, condition: None };
                let mut found: Vec<(Vec<u8>, Value)> = Vec::new();
                directory
                    .scan(&scan, |record| {
                        found.push((
                            record.key.to_vec(),
                            Value { epoch: record.epoch, bytes: record.value.to_vec() },
                        ));
                        Ok(())
                    })
                    .unwrap();
                let inside = |key: &Vec<u8>| *key >= from && end.as_ref().is_none_or(|end| key < end);
                let mut wanted: Vec<(Vec<u8>, Value)> = oracle
                    .iter()
                    .filter(|(key, _)| inside(key))
                    .flat_map(|(key, values)| values.iter().map(|value| (key.clone(), value.clone())))
                    .filter(|(_, value)| epoch.is_none_or(|epoch| value.epoch == epoch))
                    .collect();
                if !by_key {
                    let order = |one: &(Vec<u8>, Value)| (one.0.clone(), one.1.epoch, one.1.bytes.clone());
                    found.sort_by_key(order);
                    wanted.sort_by_key(order);
                }
                assert!(found == wanted, "{} {} {scan:?} {layout:?}", found.len(), wanted.len());
            }
        }
    }
}

#[test]
fn numbers_in_values_leave_blocks_out() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run.dir");
    let mut layout = Layout::new(Scheme::Records, 2, 1);
    layout.block_bytes = 4096;
    layout.attribute = Some(Attribute { name: "energy".into(), offset: 8, kind: NumberKind::F64 });
    let mut writer = DirectoryWriter::create(&Disk::default(), &path, layout, MEMORY).unwrap();
    for number in 0..20_000u64 {
        // Adjacent keys have similar energies.
        let value = [&[0; 8][..], &(number as f64).to_le_bytes()].concat();
        writer.append_record(&number.to_be_bytes(), &value).unwrap();
    }
    writer.end_epoch().unwrap();
    writer.close().unwrap();
    let directory = open(&path);
    let ask = |sign, number| {
        let before = directory.counts().bytes;
        let mut found = 0;
        let scan = Scan { condition: Some(Condition { sign, number }), ..Scan::default() };
        directory
            .scan(&scan, |_| {
                found += 1;
                Ok(())
            })
            .unwrap();
        (found, directory.counts().bytes - before)
    };
    let (all, all_bytes) = ask(Sign::AtLeast, 0.0);
    let (few, few_bytes) = ask(Sign::Above, 19_900.0);
    assert_eq!((all, few), (20_000, 99));
    assert!(few_bytes * 20 < all_bytes, "{few_bytes} of {all_bytes}");
    assert_eq!((ask(Sign::Below, 5.0).0, ask(Sign::AtMost, 5.0).0, ask(Sign::Above, 1e9).0), (5, 6, 0));
}

#[test]
fn a_query_reads_a_block_of_filters_and_a_block() {
    for (scheme, most) in [(Scheme::Records, 2), (Scheme::Pointers, 3), (Scheme::Ranks, 3)] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let mut layout = Layout::new(scheme, 2, 1);
        (layout.key_bytes, layout.value_bytes, layout.block_bytes) = (Some(8), Some(40), 4096);
        let mut writer = DirectoryWriter::create(&Disk::default(), &path, layout, MEMORY).unwrap();
        let (epochs, records) = (3, 120_000u64);
        for _ in 0..epochs {
            for number in 0..records {
                writer.append_record(&mix(number).to_be_bytes(), &[7; 40]).unwrap();
            }
            writer.end_epoch().unwrap();
        }
        writer.close().unwrap();
        let directory = open(&path);
        let tables = directory.info().unwrap().0.epochs[0].tables;
        assert!(tables > 1, "{tables}");
        let mut joined = 0;
        for number in 0..300u64 {
            let before = directory.counts();
            assert_eq!(directory.get(&mix(number * 399).to_be_bytes()).unwrap().len(), epochs);
            let now = directory.counts();
            let reads = now.auxiliary_reads + now.filter_reads + now.block_reads + now.value_reads
                - now.false_positives;
            let reads = reads
                - (before.auxiliary_reads + before.filter_reads + before.block_reads + before.value_reads
                    - before.false_positives);
            assert!(reads <= most * epochs as u64, "{scheme:?}: {now:?}");
            assert_eq!(now.opening_reads, before.opening_reads);
            joined += now.bytes - before.bytes;
        }
        assert!(joined / 300 < 3 * (64 << 10), "{} bytes a query", joined / 300);
    }
}

#[test]
fn the_tail_of_a_writer_that_was_stopped_is_ignored_and_written_over() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let disk = Disk::default();
        let mut oracle = write(&path, &layout, 2, 600);
        let mut writer = DirectoryWriter::append(&disk, &path, MEMORY).unwrap();
        assert!(matches!(DirectoryWriter::append(&disk, &path, MEMORY), Err(IndexError::Locked { .. })));
        for number in 0..900 {
            let (key, value) = record(&layout, 2, number);
            writer.append_record(&key, &value).unwrap();
        }
        drop(writer);
        check(&open(&path), &oracle);
        let mut writer = DirectoryWriter::append(&disk, &path, MEMORY).unwrap();
        for number in 0..600 {
            let (key, value) = record(&layout, 2, number);
            writer.append_record(&key, &value).unwrap();
            oracle.entry(key).or_default().push(Value { epoch: 2, bytes: value });
        }
        writer.end_epoch().unwrap();
        writer.close().unwrap();
        let directory = open(&path);
        check(&directory, &oracle);
        assert!(directory.verify().unwrap().is_whole());
    }
}

/// If a file is truncated while its third epoch is written, two epochs remain readable; a shorter file is an
/// error.
#[test]
fn every_length_of_every_file_is_two_epochs_or_an_error() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 2, 60);
        let two = Manifest::read(&path).unwrap();
        let before: BTreeMap<_, u64> =
            files(&path).map(|file| (file.clone(), std::fs::metadata(&file).unwrap().len())).collect();
        let mut writer = DirectoryWriter::append(&Disk::default(), &path, MEMORY).unwrap();
        for number in 0..60 {
            let (key, value) = record(&layout, 2, number);
            writer.append_record(&key, &value).unwrap();
        }
        writer.end_epoch().unwrap();
        writer.close().unwrap();
        two.write(&Disk::default(), &path).unwrap();
        for (file, &length) in
            before.iter().filter(|(file, _)| !file.ends_with("MANIFEST") && !file.ends_with("LOCK"))
        {
            let whole = std::fs::read(file).unwrap();
            for cut in (length..=whole.len() as u64).step_by(97).chain([whole.len() as u64]) {
                std::fs::write(file, &whole[..cut as usize]).unwrap();
                check_all(&open(&path), &oracle);
            }
            for cut in (0..length).step_by(1003) {
                std::fs::write(file, &whole[..cut as usize]).unwrap();
                let directory = open(&path);
                for (key, values) in &oracle {
                    if let Ok(found) = directory.get(key) {
                        assert_eq!(&found, values);
                    }
                }
                assert!(!directory.verify().unwrap().is_whole(), "{} cut to {cut}", file.display());
            }
            std::fs::write(file, &whole).unwrap();
        }
    }
}

/// The tail of an uncommitted epoch may have a footer although parts before it are missing.
#[test]
fn the_end_of_an_epoch_that_is_not_complete_is_not_believed() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 2, 600);
        let two = Manifest::read(&path).unwrap();
        let lengths: Vec<(std::path::PathBuf, u64)> =
            files(&path).map(|file| (file.clone(), std::fs::metadata(&file).unwrap().len())).collect();
        let mut writer = DirectoryWriter::append(&Disk::default(), &path, MEMORY).unwrap();
        for number in 0..600 {
            let (key, value) = record(&layout, 2, number);
            writer.append_record(&key, &value).unwrap();
        }
        writer.end_epoch().unwrap();
        writer.close().unwrap();
        two.write(&Disk::default(), &path).unwrap();
        // The data of the third epoch did not reach the disk; its indexes did.
        for (file, length) in
            lengths.iter().filter(|(file, _)| file.extension().is_some_and(|is| is == "data"))
        {
            std::fs::File::options().write(true).open(file).unwrap().set_len(*length).unwrap();
        }
        check(&open(&path), &oracle);
        let verified = open(&path).verify().unwrap();
        assert!(verified.is_whole(), "{verified:?}");
        // Its root is missing too: only the footer is there.
        for (file, length) in lengths
            .iter()
            .filter(|(file, _)| file.extension().is_some_and(|kind| kind == "index" || kind == "aux"))
        {
            let mut bytes = std::fs::read(file).unwrap();
            let end = bytes.len() - 64;
            bytes[*length as usize..end].fill(0);
            std::fs::write(file, bytes).unwrap();
        }
        check(&open(&path), &oracle);
        assert!(open(&path).verify().unwrap().is_whole());
    }
}

fn files(path: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())
}

#[test]
fn a_damaged_filter_is_read_around_and_told() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 2, 600);
        for file in
            files(&path).filter(|file| file.extension().is_some_and(|kind| kind == "index" || kind == "aux"))
        {
            let mut bytes = std::fs::read(&file).unwrap();
            // The first region of the first epoch starts the file.
            bytes[9] ^= 0xff;
            std::fs::write(&file, bytes).unwrap();
        }
        let directory = open(&path);
        check_all(&directory, &oracle);
        let notices = directory.take_notices();
        assert!(
            notices.texts.iter().any(|notice| notice.contains("damaged") && notice.contains("byte 0")),
            "{notices:?}"
        );
        assert!(!directory.verify().unwrap().is_whole());
    }
}

#[test]
fn a_missing_file_is_named() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout, 1, 600);
        for file in files(&path).filter(|file| !file.ends_with("LOCK")).collect::<Vec<_>>() {
            let aside = file.with_extension("aside");
            std::fs::rename(&file, &aside).unwrap();
            let found = Directory::open(&Disk::default(), &path, MEMORY).and_then(|directory| {
                oracle
                    .keys()
                    .try_for_each(|key| directory.get(key).map(|values| assert_eq!(&values, &oracle[key])))
            });
            // The index of values is for writers that continue, and for verify.
            let spare = layout.scheme == Scheme::Pointers && file.ends_with("writer-00000000.index");
            let verified =
                Directory::open(&Disk::default(), &path, MEMORY).and_then(|directory| directory.verify());
            assert!(verified.is_err() || verified.is_ok_and(|verified| !verified.is_whole()));
            let error = match found {
                Err(error) => error,
                Ok(()) if spare => IndexError::Missing { path: file.clone() },
                Ok(()) => panic!("{} is not missed: {layout:?}", file.display()),
            };
            assert!(matches!(error, IndexError::Missing { .. } | IndexError::NotIndexed { .. }), "{error}");
            std::fs::rename(&aside, &file).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Changing any byte of any file gives an error or the right values; never a panic, never a wrong value.
    #[test]
    fn no_damage_gives_a_wrong_value(seed: u64, scheme in 0usize..6) {
        let layout = &layouts()[scheme];
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, layout, 2, 300);
        let all: Vec<_> = files(&path).collect();
        for round in 0..60u64 {
            let random = mix(seed ^ mix(round));
            let file = &all[random as usize % all.len()];
            let whole = std::fs::read(file).unwrap();
            if whole.is_empty() {
                continue;
            }
            let mut bytes = whole.clone();
            let at = (random >> 20) as usize % bytes.len();
            match random >> 60 {
                0..6 => bytes[at] ^= 1 << (random >> 50 & 7),
                6..9 => bytes[at..].iter_mut().take(64).for_each(|byte| *byte = 0),
                9..12 => bytes[at..].iter_mut().take(16).for_each(|byte| *byte = 0xff),
                _ => bytes.truncate(at),
            }
            std::fs::write(file, &bytes).unwrap();
            if let Ok(directory) = Directory::open(&Disk::default(), &path, MEMORY) {
                for (key, values) in oracle.iter().step_by(7) {
                    if let Ok(found) = directory.get(key) {
                        prop_assert_eq!(&found, values);
                    }
                }
                let _ = directory.scan(&Scan { by_key: true, ..Scan::default() }, |record| {
                    let known = &oracle[record.key];
                    assert!(known.iter().any(|value| value.epoch == record.epoch && value.bytes == record.value));
                    Ok(())
                });
                let _ = (directory.info(), directory.verify());
            }
            std::fs::write(file, &whole).unwrap();
        }
    }
}
