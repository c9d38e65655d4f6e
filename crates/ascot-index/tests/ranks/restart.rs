//! Ranks that start again: as many as before or not, after the last epoch or before it, and what they may not ask for.

use std::path::Path;
use std::thread;

use ascot_io::Disk;

use super::{MEMORY, PARTICLES, check_directory, going_on, key, on_ranks, options, value};
use ascot_index::rank_writer::{RankEpoch, RankOptions, RankWriter};
use ascot_index::routing::{Route, Topology};
use ascot_index::{Directory, Manifest, OpenMode, PartitionBy, Scheme};
use ascot_testing::in_process::{Order, in_process};

/// Writes the epochs of a range with `ranks` ranks. They continue an existing directory and keep its earlier epochs.
fn write_with(path: &Path, ranks: u32, scheme: Scheme, by: PartitionBy, epochs: std::ops::Range<u64>) {
    let topology = Topology::even(ranks, 2);
    thread::scope(|scope| {
        for end in in_process(&topology, Order::Free) {
            let epochs = epochs.clone();
            scope.spawn(move || {
                let mut options = options(scheme, Route::ThreeHop, Some(8), Some(40));
                options.opening.mode = OpenMode::Auto;
                options.opening.rollback = Some(epochs.start);
                options.opening.request.partition_by = Some(by);
                let mut writer = RankWriter::open(end, &Disk::default(), path, &options).unwrap();
                assert_eq!(writer.epochs(), epochs.start);
                let rank = u64::from(writer.rank());
                for epoch in epochs {
                    let mine = (0..PARTICLES).filter(|particle| particle % u64::from(ranks) == rank);
                    for particle in mine {
                        writer.append(&key(particle), &value(particle, epoch, 40)).unwrap();
                    }
                    assert_eq!(writer.end_epoch().unwrap(), RankEpoch { epoch, records: PARTICLES });
                    assert_eq!(writer.epochs(), epoch + 1);
                }
                writer.close().unwrap();
            });
        }
    });
}

/// More and fewer, one process among them; some start again from before the last epochs.
#[test]
fn other_numbers_of_ranks_go_on() {
    thread::scope(|scope| {
        for (scheme, by) in [
            (Scheme::Records, PartitionBy::Hash),
            (Scheme::Pointers, PartitionBy::Range),
            (Scheme::Ranks, PartitionBy::Hash),
        ] {
            scope.spawn(move || go_on_with_other_numbers(scheme, by));
        }
    });
}

fn go_on_with_other_numbers(scheme: Scheme, by: PartitionBy) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let shapes = |path: &Path| {
        let manifest = Manifest::read(path).unwrap();
        manifest.sections().map(|(epochs, shape)| (epochs.end, shape.partitions)).collect::<Vec<_>>()
    };
    write_with(&path, 4, scheme, by, 0..2);
    assert_eq!(Manifest::read(&path).unwrap().version, 1);
    write_with(&path, 2, scheme, by, 2..4);
    write_with(&path, 6, scheme, by, 4..6);
    assert_eq!(shapes(&path), [(2, 4), (4, 2), (6, 6)]);
    check_whole(&path, 6);
    // From before the last change: what six ranks wrote is gone, and half of what two wrote.
    write_with(&path, 3, scheme, by, 3..5);
    assert_eq!(shapes(&path), [(2, 4), (3, 2), (5, 3)]);
    check_whole(&path, 5);
    // Four again: two of them have logs with old tails behind a gap.
    write_with(&path, 4, scheme, by, 5..6);
    let mut one = ascot_index::DirectoryWriter::append(&Disk::default(), &path, MEMORY).unwrap();
    for particle in 0..PARTICLES {
        one.append_record(&key(particle), &value(particle, 6, 40)).unwrap();
    }
    one.close().unwrap();
    check_whole(&path, 7);
    write_with(&path, 4, scheme, by, 2..3);
    assert_eq!(Manifest::read(&path).unwrap().version, 1, "the number of the first two epochs again");
    check_whole(&path, 3);
}

/// All epochs are read, and all is sound.
fn check_whole(path: &Path, epochs: u64) {
    check_directory(path, epochs, |_| 40);
    let directory = Directory::open(&Disk::default(), path, 16 << 20).unwrap();
    let verified = directory.verify().unwrap();
    assert!(verified.is_whole(), "{:?}", verified.problems);
    let (info, unread) = directory.info().unwrap();
    assert!(unread.is_nothing());
    assert_eq!(info.epochs.len() as u64, epochs);
    assert!(info.epochs.iter().all(|epoch| epoch.records() == PARTICLES));
}

#[test]
fn another_scheme_is_no_going_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let open = |options: &RankOptions| {
        on_ranks(Order::Free, |end| RankWriter::open(end, &Disk::default(), &path, options).map(drop))
    };
    let usual = options(Scheme::Records, Route::Direct, Some(8), None);
    on_ranks(Order::Free, |end| {
        RankWriter::open(end, &Disk::default(), &path, &usual).unwrap().close().unwrap();
    });
    let other = going_on(options(Scheme::Ranks, Route::Direct, Some(8), None), None);
    for result in open(&other) {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("made with scheme records, and scheme ranks was given"), "{text}");
    }
}
