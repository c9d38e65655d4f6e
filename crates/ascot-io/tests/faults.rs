//! Faults on purpose: every operation of a small job is made to fail once; the outcome is the
//! right bytes or a clear error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::path::Path;
use std::sync::Arc;

use ascot_io::{Action, Backend, Buf, Codec, Disk, Effect, IoError};
use ascot_io::{AtomicOutput, RunId, RunReader, RunWriter, read_index};
use ascot_testing::faults::{FaultPlan, Faults};
use common::*;

fn plan(at: u64, effect: Effect, operations: &[Action]) -> Faults {
    let operations = operations.to_vec();
    Faults::new(FaultPlan { at, effect, operations, path_contains: String::new(), lasting: false })
}

/// Writes blocks to a run, reads them back and copies them to an output.
fn job(disk: &Disk, directory: &Path) -> Result<(), IoError> {
    let (run, out) = (directory.join("run"), directory.join("out"));
    let bytes = data(50_000);
    let mut writer = RunWriter::create(disk, &run, RunId(7), Codec::Lz4)?;
    for block in bytes.chunks(10_000) {
        writer.write_block(buf_of(block), block.len(), 0)?;
    }
    writer.checkpoint()?;
    writer.finish()?;
    let index = Arc::new(read_index(disk, &run)?);
    let mut reader = RunReader::open(disk, &run, Arc::clone(&index), 0)?;
    let mut output = AtomicOutput::create(disk, &out, "out")?;
    for block in &index.blocks {
        reader.begin(Buf::heap(block.buffer_bytes()))?;
        let filled = reader.complete()?;
        output.stream()?.begin(buf_of(filled.bytes()), filled.len())?;
    }
    output.commit()?;
    disk.remove_file(&run)
}

fn disk_kinds(faults: &Faults) -> Vec<Disk> {
    let on = |backend| disk(backend, Some(faults.clone()));
    vec![on(Backend::Sized(4096)), on(Backend::Direct)]
}

#[test]
fn every_operation_may_fail() {
    for kind in 0..disk_kinds(&Faults::counting()).len() {
        let counting = Faults::counting();
        let directory = directory();
        job(&disk_kinds(&counting)[kind], directory.path()).unwrap();
        assert!(counting.counted() > 25);
        for effect in [Effect::Eio, Effect::NoSpace, Effect::TooManyOpen] {
            for at in 0..counting.counted() {
                let faults = plan(at, effect, &[]);
                std::fs::write(directory.path().join("out"), b"old").unwrap();
                // Left by the failed job before.
                let _ = std::fs::remove_file(directory.path().join("run"));
                let result = job(&disk_kinds(&faults)[kind], directory.path());
                assert_eq!(faults.fired(), 1, "{effect:?} at {at}");
                check_outcome(result, directory.path(), effect, at);
            }
        }
    }
}

fn check_outcome(result: Result<(), IoError>, directory: &Path, effect: Effect, at: u64) {
    let error = result.expect_err("a failed operation is reported");
    assert_eq!(error.is_disk_full(), effect == Effect::NoSpace, "{error}");
    assert_eq!(error.is_too_many_open(), effect == Effect::TooManyOpen, "{error}");
    assert!(error.to_string().contains(&*directory.to_string_lossy()), "{error}");
    let out = std::fs::read(directory.join("out")).unwrap();
    assert!(out == b"old" || out == data(50_000), "{effect:?} at {at}: {} bytes", out.len());
    let strays = std::fs::read_dir(directory).unwrap().flatten();
    let strays = strays.filter(|entry| entry.path().extension().is_some_and(|it| it == "tmp")).count();
    // One may be left where the failing operation was its very removal.
    assert!(strays == 0, "{effect:?} at {at} left a temporary file");
}

#[test]
fn short_transfers_are_resumed() {
    for kind in 0..disk_kinds(&Faults::counting()).len() {
        let directory = directory();
        let faults = Faults::new(FaultPlan {
            at: 0,
            effect: Effect::Short,
            operations: vec![Action::Read, Action::Write],
            path_contains: String::new(),
            lasting: true,
        });
        job(&disk_kinds(&faults)[kind], directory.path()).unwrap();
        assert!(faults.fired() > 10);
        assert!(std::fs::read(directory.path().join("out")).unwrap() == data(50_000));
    }
}

#[test]
fn lying_writes_of_a_run_are_found_by_its_reader() {
    for effect in [Effect::Torn, Effect::Zeroed, Effect::Misdirected] {
        for kind in 0..disk_kinds(&Faults::counting()).len() {
            for at in 0..6 {
                let directory = directory();
                let faults = Faults::new(FaultPlan {
                    at,
                    effect,
                    operations: vec![Action::Write],
                    path_contains: "run".into(),
                    lasting: false,
                });
                let result = job(&disk_kinds(&faults)[kind], directory.path());
                assert_eq!(faults.fired(), 1);
                let error = result.expect_err("a block that lies is found");
                assert!(is_corrupt(&error), "{effect:?} at {at}: {error}");
                assert!(!directory.path().join("out").exists());
            }
        }
    }
}

/// A full volume is no error while files are being removed: the write waits for their space.
#[test]
fn a_write_to_a_full_volume_waits_for_removals() {
    let directory = directory();
    for removes in [true, false] {
        for backend in BACKENDS {
            let faults = Faults::new(FaultPlan {
                at: 1,
                effect: Effect::NoSpace,
                operations: vec![Action::Write],
                path_contains: String::new(),
                lasting: false,
            });
            let disk = disk(backend, Some(faults.clone()));
            let mut stream = disk.create(&directory.path().join("file"), "test").unwrap();
            stream.begin(buf_of(&[1; 4096]), 4096).unwrap();
            let removal = removes.then(|| disk.space().begin_removal());
            let remover = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                drop(removal);
            });
            let second = stream.begin(buf_of(&[2; 4096]), 4096);
            assert_eq!(faults.fired(), 1);
            remover.join().unwrap();
            if removes {
                second.unwrap();
                assert_eq!(stream.finish().unwrap(), 8192);
                assert_eq!(std::fs::read(directory.path().join("file")).unwrap()[4096..], [2; 4096]);
            } else {
                assert!(second.unwrap_err().is_disk_full());
            }
        }
    }
}

#[test]
fn a_failed_stream_keeps_failing() {
    let directory = directory();
    for lasting in [false, true] {
        for backend in BACKENDS {
            let faults = Faults::new(FaultPlan {
                at: 1,
                effect: Effect::NoSpace,
                operations: vec![Action::Write],
                path_contains: String::new(),
                lasting,
            });
            let disk = disk(backend, Some(faults));
            let mut stream = disk.create(&directory.path().join("file"), "test").unwrap();
            stream.begin(buf_of(&[1; 4096]), 4096).unwrap();
            assert!(stream.begin(buf_of(&[1; 4096]), 4096).unwrap_err().is_disk_full());
            assert!(stream.begin(buf_of(&[1; 4096]), 4096).unwrap_err().is_disk_full());
            assert!(stream.drain().unwrap_err().is_disk_full());
            assert!(stream.finish().unwrap_err().is_disk_full());
        }
    }
}
