//! Whatever operation fails while a directory is written: an error, and the epochs that were complete before are there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;

use ascot_index::{Directory, DirectoryWriter, IndexError, Layout, Manifest, Scheme};
use ascot_io::{Disk, DiskOptions, Effect};
use ascot_testing::faults::{FaultPlan, Faults};

const MEMORY: usize = 8 << 20;

fn value(epoch: u64, number: u64) -> Vec<u8> {
    [epoch.to_le_bytes(), number.to_le_bytes()].concat()
}

fn write(disk: &Disk, path: &Path, scheme: Scheme, epochs: u64) -> Result<(), IndexError> {
    let mut layout = Layout::new(scheme, 2, 1);
    layout.block_bytes = 4096;
    let mut writer = DirectoryWriter::create(disk, path, layout, MEMORY)?;
    for epoch in 0..epochs {
        for number in 0..500u64 {
            writer.append_record(&number.to_be_bytes(), &value(epoch, number))?;
        }
        writer.end_epoch()?;
    }
    writer.close().map(|_| ())
}

/// What is there is all of some number of epochs, and everything checks.
fn check(path: &Path, at_most: u64) -> u64 {
    let Ok(manifest) = Manifest::read(path) else { return 0 };
    let directory = Directory::open(&Disk::default(), path, MEMORY).unwrap();
    assert!(manifest.epochs <= at_most);
    assert!(directory.verify().unwrap().is_whole(), "{:?}", directory.verify());
    for number in [0u64, 77, 499] {
        let values = directory.get(&number.to_be_bytes()).unwrap();
        assert!(
            values
                .iter()
                .map(|value| value.bytes.clone())
                .eq((0..manifest.epochs).map(|epoch| value(epoch, number)))
        );
    }
    manifest.epochs
}

fn disk_with(faults: &Faults) -> Disk {
    Disk::new(DiskOptions { faults: Some(faults.clone().into()), ..DiskOptions::default() })
}

#[test]
fn every_operation_may_fail() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let scratch = tempfile::tempdir().unwrap();
        let counting = Faults::counting();
        write(&disk_with(&counting), &scratch.path().join("whole"), scheme, 3).unwrap();
        assert_eq!(check(&scratch.path().join("whole"), 3), 3);
        let mut seen = [0; 4];
        for at in 0..counting.counted() {
            for (effect, lasting) in [(Effect::Eio, false), (Effect::NoSpace, true)] {
                let plan =
                    FaultPlan { at, effect, operations: vec![], path_contains: String::new(), lasting };
                let path = scratch.path().join(format!("{at}-{lasting}"));
                let faults = Faults::new(plan);
                let failed = write(&disk_with(&faults), &path, scheme, 3).is_err();
                assert!(failed, "{scheme:?}: operation {at} failed and nobody said so");
                seen[check(&path, 3) as usize] += 1;
                let _ = std::fs::remove_dir_all(&path);
            }
        }
        assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    }
}

#[test]
fn short_writes_go_on_by_themselves() {
    let scratch = tempfile::tempdir().unwrap();
    let plan = FaultPlan {
        at: 0,
        effect: Effect::Short,
        operations: vec![],
        path_contains: ".data".into(),
        lasting: true,
    };
    write(&disk_with(&Faults::new(plan)), &scratch.path().join("run.dir"), Scheme::Records, 2).unwrap();
    assert_eq!(check(&scratch.path().join("run.dir"), 2), 2);
}

/// Readers find writes that were reported done and were not.
#[test]
fn lies_of_the_volume_are_found() {
    for effect in [Effect::Torn, Effect::Zeroed, Effect::Misdirected] {
        for at in 0..4 {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("run.dir");
            let operations = vec![ascot_io::Action::Write];
            let plan = FaultPlan { at, effect, operations, path_contains: "part-".into(), lasting: false };
            let faults = Faults::new(plan);
            write(&disk_with(&faults), &path, Scheme::Records, 2).unwrap();
            let directory = Directory::open(&Disk::default(), &path, MEMORY).unwrap();
            let mut refused = 0;
            for number in (0..500u64).step_by(7) {
                match directory.get(&number.to_be_bytes()) {
                    Ok(values) => {
                        assert!(
                            values.iter().map(|one| &one.bytes).eq(&[value(0, number), value(1, number)])
                        );
                    }
                    Err(_) => refused += 1,
                }
            }
            // A lie about zeros behind a block is none.
            assert!(refused == 0 || !directory.verify().unwrap().is_whole(), "{effect:?} {at}");
            assert!(faults.fired() == 1);
        }
    }
}
