//! Directories that ranks write together, as threads on emulated nodes: what is read back is what was written, by
//! each scheme and route; the gain on a slow wire; and what happens when a rank fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;
use std::thread;
use std::time::Duration;

use ascot_io::{Action, Disk, DiskOptions, Effect};
use ascot_testing::faults::{FaultPlan, Faults};

use ascot_index::rank_writer::{RankEpoch, RankError, RankOptions, RankWriter};
use ascot_index::routing::{Route, RouteError, RoutingSettings, Topology};
use ascot_index::{
    Directory, IndexError, Layout, LayoutRequest, OpenMode, Opening, PartitionBy, Scan, Scheme,
};
use ascot_testing::in_process::{Endpoint, Order, in_process};
use ascot_testing::limited::{Limited, Wire, WireSpeed};

mod restart;

const RANKS: u32 = 8;
const RANKS_PER_NODE: u32 = 2;
const MEMORY: usize = 24 << 20;

fn options(scheme: Scheme, route: Route, key_bytes: Option<u32>, value_bytes: Option<u32>) -> RankOptions {
    let request = LayoutRequest { scheme: Some(scheme), key_bytes, value_bytes, ..LayoutRequest::default() };
    let routing = RoutingSettings {
        route,
        batch_bytes: 4096,
        spare_batches: 4,
        patience: Duration::from_secs(20),
        ..RoutingSettings::default()
    };
    let opening = Opening { request, ..Opening::default() };
    RankOptions { opening, memory_bytes: MEMORY, routing }
}

/// Others that go on with a directory.
fn going_on(options: RankOptions, rollback: Option<u64>) -> RankOptions {
    let opening = Opening { mode: OpenMode::Append, rollback, ..options.opening };
    RankOptions { opening, ..options }
}

/// Runs `each` for every rank in a thread of its own; the answers by rank.
fn on_ranks<R: Send>(order: Order, each: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let each = &each;
        let ends = in_process(&Topology::even(RANKS, RANKS_PER_NODE), order);
        let threads: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || each(end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The key of a particle, spread over all bytes.
fn key(particle: u64) -> [u8; 8] {
    ascot_index::hash::mix(particle + 1).to_be_bytes()
}

/// The value of a particle in an epoch.
fn value(particle: u64, epoch: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (particle.wrapping_mul(31) + epoch * 7 + at as u64) as u8).collect()
}

const VALUE_BYTES: usize = 56;

/// Seconds and bytes that writing took, on links a quarter as fast as the disk.
struct Written {
    seconds: f64,
    wire_bytes: u64,
    disk_bytes: u64,
}

/// Writes `per_rank` records from each rank, in virtual time.
fn written(path: &Path, scheme: Scheme, route: Route, per_rank: u64, disk_rate: f64) -> Written {
    let topology = Topology::even(RANKS, RANKS_PER_NODE);
    let speed = WireSpeed { bytes_per_second: disk_rate / 4.0, latency_seconds: 2e-6 };
    let wire = Wire::new(&topology, speed);
    let results = on_ranks(Order::OneAtATime { seed: 5 }, |end| {
        let disk = Disk::default();
        let rank = ascot_index::routing::Transport::rank(&end);
        let limited = Limited::new(end, &wire);
        let options = options(scheme, route, Some(8), Some(VALUE_BYTES as u32));
        let mut writer = RankWriter::open(limited, &disk, path, &options).unwrap();
        let mut counted = 0;
        let mut work = || {
            let bytes = disk.ledger().totals().written_bytes;
            wire.work(rank, (bytes - counted) as f64 / disk_rate);
            counted = bytes;
        };
        for number in 0..per_rank {
            let particle = number * u64::from(RANKS) + u64::from(rank);
            writer.append(&key(particle), &value(particle, 0, VALUE_BYTES)).unwrap();
            if number % 64 == 0 {
                work();
            }
        }
        writer.end_epoch().unwrap();
        let bytes = writer.counts().bytes_off_node();
        writer.close().unwrap();
        work();
        wire.wait_for_device(rank);
        (bytes, counted)
    });
    let (wire_bytes, disk_bytes) = results.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    Written { seconds: wire.last_seconds(), wire_bytes, disk_bytes }
}

#[test]
fn on_a_slow_wire_ranks_slow_writing_down_far_less_than_records() {
    let (per_rank, disk_rate) = (20_000u64, 1e9);
    let raw = u64::from(RANKS) * per_rank * (8 + VALUE_BYTES as u64);
    let nodes = f64::from(RANKS / RANKS_PER_NODE);
    let plain = raw as f64 / nodes / disk_rate;
    for route in [Route::Direct, Route::ThreeHop] {
        let slowdown = |scheme| {
            let directory = tempfile::tempdir().unwrap();
            let done = written(&directory.path().join("run.dir"), scheme, route, per_rank, disk_rate);
            let slowdown = done.seconds / plain - 1.0;
            println!(
                "{route:?} {scheme:?}: slowdown {slowdown:.3}, on the wire {:.3}, on disk {:.3} of the raw bytes",
                done.wire_bytes as f64 / raw as f64,
                done.disk_bytes as f64 / raw as f64
            );
            slowdown
        };
        let (records, pointers, ranks) =
            (slowdown(Scheme::Records), slowdown(Scheme::Pointers), slowdown(Scheme::Ranks));
        assert!(records >= 2.5 * ranks, "{route:?}: records {records}, ranks {ranks}");
        assert!(pointers > ranks, "{route:?}: pointers {pointers}, ranks {ranks}");
    }
}

/// A disk that is full after `writes` writes.
fn full_after(writes: u64) -> Disk {
    let plan = FaultPlan {
        at: writes,
        effect: Effect::NoSpace,
        operations: vec![Action::Write],
        path_contains: String::new(),
        lasting: true,
    };
    Disk::new(DiskOptions { faults: Some(Faults::new(plan).into()), ..DiskOptions::default() })
}

/// Appends one epoch from this rank: particles that are not the same at every rank in every epoch.
fn append_epoch<T: ascot_index::routing::Transport>(
    writer: &mut RankWriter<T>,
    epoch: u64,
    value_bytes: impl Fn(u64) -> usize,
) -> Result<(), RankError> {
    let rank = writer.rank();
    for particle in (0..PARTICLES).filter(|particle| home(*particle, epoch) == rank) {
        writer.append(&key(particle), &value(particle, epoch, value_bytes(particle)))?;
    }
    Ok(())
}

const PARTICLES: u64 = 4000;

/// The rank a particle is at in an epoch: they move.
fn home(particle: u64, epoch: u64) -> u32 {
    ((particle + epoch * 3) % u64::from(RANKS)) as u32
}

/// Checks that a directory holds `epochs` epochs of all particles, and nothing else.
fn check_directory(path: &Path, epochs: u64, value_bytes: impl Fn(u64) -> usize) {
    let directory = Directory::open(&Disk::default(), path, 16 << 20).unwrap();
    assert_eq!(directory.manifest().epochs, epochs);
    for particle in (0..PARTICLES).step_by(37) {
        let values = directory.get(&key(particle)).unwrap();
        assert_eq!(values.len() as u64, epochs, "particle {particle}");
        for (epoch, found) in (0..epochs).zip(&values) {
            assert_eq!((found.epoch, &found.bytes), (epoch, &value(particle, epoch, value_bytes(particle))));
            assert_eq!(directory.get_at(&key(particle), epoch).unwrap(), std::slice::from_ref(found));
        }
    }
    assert_eq!(directory.get(&key(PARTICLES + 5)).unwrap(), []);
    let mut records = 0;
    let count = |_: ascot_index::read::ScanRecord<'_>| {
        records += 1;
        Ok(())
    };
    directory.scan(&Scan::default(), count).unwrap();
    assert_eq!(records, epochs * PARTICLES);
}

/// The length of all values, if they have one, and of each.
type Lengths = (Option<u32>, fn(u64) -> usize);

#[test]
fn what_is_read_is_what_eight_ranks_wrote() {
    let lengths: [Lengths; 2] = [(Some(40), |_| 40), (None, |particle| (particle % 300) as usize)];
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for route in [Route::Direct, Route::ThreeHop] {
            for (fixed, value_bytes) in lengths {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("run.dir");
                on_ranks(Order::Free, |end| {
                    let options = options(scheme, route, fixed.map(|_| 8), fixed);
                    let mut writer = RankWriter::open(end, &Disk::default(), &path, &options).unwrap();
                    for epoch in 0..2 {
                        append_epoch(&mut writer, epoch, value_bytes).unwrap();
                        let ended = writer.end_epoch().unwrap();
                        assert_eq!(ended, RankEpoch { epoch, records: PARTICLES });
                    }
                    // The last epoch ends with the directory.
                    append_epoch(&mut writer, 2, value_bytes).unwrap();
                    let memory = writer.memory();
                    assert_eq!(memory.routing + memory.logs, MEMORY);
                    assert!(memory.logs_peak <= memory.logs);
                    assert!(writer.counts().bytes_off_node() > 0, "nodes are apart");
                    writer.close().unwrap();
                });
                check_directory(&path, 3, value_bytes);
            }
        }
    }
}

#[test]
fn by_key_range_partitions_are_balanced_after_the_first_epoch() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        // Keys that all begin alike: at first all of them are one rank's.
        let narrow = |particle: u64| (particle * 3).to_be_bytes();
        let write = |end: Endpoint, append, epochs: std::ops::Range<u64>| {
            let usual = options(scheme, Route::ThreeHop, Some(8), Some(16));
            let mut options = if append { going_on(usual, None) } else { usual };
            options.opening.request.partition_by = Some(PartitionBy::Range);
            let mut writer = RankWriter::open(end, &Disk::default(), &path, &options).unwrap();
            let rank = writer.rank();
            let mut delivered = Vec::new();
            for epoch in epochs {
                let before = writer.counts().delivered;
                for particle in (0..PARTICLES).filter(|&particle| home(particle, epoch) == rank) {
                    writer.append(&narrow(particle), &value(particle, epoch, 16)).unwrap();
                }
                writer.drain().unwrap();
                delivered.push(writer.counts().delivered - before);
                writer.end_epoch().unwrap();
            }
            writer.close().unwrap();
            delivered
        };
        let delivered = on_ranks(Order::Free, |end| write(end, false, 0..2));
        assert_eq!(
            delivered.iter().map(|rank| rank[0]).collect::<Vec<_>>(),
            [PARTICLES, 0, 0, 0, 0, 0, 0, 0]
        );
        // And what was learned is not forgotten.
        let again = on_ranks(Order::Free, |end| write(end, true, 2..3));
        let even = PARTICLES / u64::from(RANKS);
        for share in delivered.iter().map(|rank| rank[1]).chain(again.iter().map(|rank| rank[0])) {
            assert!((even * 3 / 4..even * 5 / 4).contains(&share), "{scheme:?}: {share} of {even}");
        }
        let found = Directory::open(&Disk::default(), &path, 16 << 20).unwrap();
        for particle in (0..PARTICLES).step_by(53) {
            let values = found.get(&narrow(particle)).unwrap();
            assert!((0..3).all(|epoch| values[epoch as usize].bytes == value(particle, epoch, 16)));
        }
        let (mut last, mut records) = (Vec::new(), 0);
        let ordered = Scan {
            from: narrow(100).to_vec(),
            end: Some(narrow(900).to_vec()),
            by_key: true,
            ..Scan::default()
        };
        let take = |record: ascot_index::read::ScanRecord<'_>| {
            assert!(last.as_slice() <= record.key);
            last = record.key.to_vec();
            records += 1;
            Ok(())
        };
        found.scan(&ordered, take).unwrap();
        assert_eq!(records, 3 * 800);
    }
}

#[test]
fn a_directory_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    for epoch in 0..2 {
        on_ranks(Order::Free, |end| {
            let usual = options(Scheme::Ranks, Route::ThreeHop, Some(8), Some(40));
            let options = if epoch > 0 { going_on(usual, None) } else { usual };
            let mut writer = RankWriter::open(end, &Disk::default(), &path, &options).unwrap();
            append_epoch(&mut writer, epoch, |_| 40).unwrap();
            writer.close().unwrap();
        });
    }
    check_directory(&path, 2, |_| 40);
}

#[test]
fn a_rank_that_dies_leaves_earlier_epochs() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        let results = on_ranks(Order::Free, |end| {
            let options = options(scheme, Route::ThreeHop, Some(8), Some(40));
            let mut writer = RankWriter::open(end, &Disk::default(), &path, &options).unwrap();
            append_epoch(&mut writer, 0, |_| 40).unwrap();
            // Rank 3 may be gone before another has heard that the epoch is complete.
            writer.end_epoch()?;
            if writer.rank() == 3 {
                writer.append(&key(1), &[0; 40]).unwrap();
                return Ok(());
            }
            append_epoch(&mut writer, 1, |_| 40)?;
            writer.end_epoch().map(drop)
        });
        for (rank, result) in results.iter().enumerate().filter(|(rank, _)| *rank != 3) {
            let error = result.as_ref().unwrap_err();
            assert!(matches!(error.cause(), RankError::Route(_)), "rank {rank}: {error}");
        }
        check_directory(&path, 1, |_| 40);
    }
}

#[test]
fn a_full_disk_at_one_rank_is_told_to_all_and_earlier_epochs_stay() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        let results = on_ranks(Order::Free, |end| {
            let rank = ascot_index::routing::Transport::rank(&end);
            let disk = full_after(if rank == 5 { 6 } else { u64::MAX });
            let options = options(scheme, Route::ThreeHop, Some(8), Some(40));
            let mut writer = RankWriter::open(end, &disk, &path, &options).unwrap();
            let mut epoch = 0;
            let failed = loop {
                let appended = append_epoch(&mut writer, epoch, |_| 40);
                match writer.end_epoch() {
                    Ok(_) => appended.unwrap(),
                    Err(error) => break error,
                }
                epoch += 1;
            };
            assert!(writer.append(&key(1), &[0; 40]).is_err(), "nothing more is taken");
            let _ = writer.close();
            (epoch, failed.to_string())
        });
        let epochs = results[0].0;
        for (rank, (epoch, text)) in results.iter().enumerate() {
            assert_eq!(*epoch, epochs, "all ranks stop at the same epoch");
            assert!(text.contains("no space left"), "rank {rank}: {text}");
            assert!(rank == 5 || text.contains("rank 5 failed"), "rank {rank}: {text}");
        }
        assert!(epochs > 0);
        check_directory(&path, epochs, |_| 40);
    }
}

#[test]
fn two_jobs_on_one_directory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let usual = options(Scheme::Records, Route::Direct, Some(8), Some(40));
    let alone = || in_process(&Topology::even(1, 1), Order::Free).swap_remove(0);
    let mut first = RankWriter::open(alone(), &Disk::default(), &path, &usual).unwrap();
    first.append(&key(1), &[1; 40]).unwrap();
    for options in [usual.clone(), going_on(usual.clone(), None)] {
        let error = RankWriter::open(alone(), &Disk::default(), &path, &options).err().unwrap();
        assert!(matches!(error, RankError::Index(IndexError::Locked { .. })), "{error}");
    }
    first.close().unwrap();
    let results = on_ranks(Order::Free, |end| {
        RankWriter::open(end, &Disk::default(), &path, &usual).err().unwrap().to_string()
    });
    assert!(results[0].contains("exists already"), "{}", results[0]);
    assert!(
        results[1..].iter().all(|text| text.contains("rank 0 failed") && text.contains("exists already"))
    );
}

#[test]
fn records_that_cannot_be_are_refused_and_the_writer_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let usual = options(Scheme::Records, Route::Direct, Some(8), None);
    on_ranks(Order::Free, |end| {
        let mut writer = RankWriter::open(end, &Disk::default(), &path, &usual).unwrap();
        assert!(matches!(writer.append(b"short", b""), Err(RankError::Index(IndexError::Length { .. }))));
        let long = vec![0; usual.routing.max_message_bytes + 1];
        assert!(matches!(writer.append(&key(1), &long), Err(RankError::Route(RouteError::TooLong { .. }))));
        if writer.rank() == 2 {
            writer.append(&key(1), b"fits").unwrap();
        }
        assert_eq!(writer.end_epoch().unwrap().records, 1);
        writer.close().unwrap();
    });
    let directory = Directory::open(&Disk::default(), &path, 16 << 20).unwrap();
    assert_eq!(directory.get(&key(1)).unwrap()[0].bytes, b"fits");
}

/// Whatever keeps one rank from opening, all others hear of it at once, and nothing is made.
#[test]
fn a_rank_that_cannot_open_is_told_to_all() {
    let usual = options(Scheme::Records, Route::ThreeHop, Some(8), Some(40));
    let little = RankOptions { memory_bytes: 1 << 10, ..usual.clone() };
    let wrong = RoutingSettings { batch_bytes: 1, ..usual.routing.clone() };
    let wrong = RankOptions { routing: wrong, ..usual.clone() };
    for (bad, wanted) in [
        (Some(&little), "batches of messages"),
        (Some(&wrong), "batch cannot be 1"),
        (None, "no such option"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        let errors = on_ranks(Order::Free, |end| {
            let options = match ascot_index::routing::Transport::rank(&end) {
                5 => bad,
                _ => Some(&usual),
            };
            match options {
                Some(options) => RankWriter::open(end, &Disk::default(), &path, options).err().unwrap(),
                None => RankWriter::decline(end, IndexError::Request("no such option".into())),
            }
        });
        for (rank, error) in errors.iter().enumerate() {
            assert!(error.to_string().contains(wanted), "rank {rank}: {error}");
            let told = matches!(error, RankError::Peer { rank: 5, .. });
            assert_eq!(told, rank != 5, "rank {rank}: {error}");
        }
        assert!(!path.exists());
    }
}

#[test]
fn options_that_differ_are_named_at_all_ranks() {
    let usual = options(Scheme::Records, Route::ThreeHop, Some(8), Some(40));
    let other = |change: &dyn Fn(&mut RankOptions)| {
        let mut options = usual.clone();
        change(&mut options);
        options
    };
    let attribute =
        ascot_index::Attribute { name: "e".into(), offset: 0, kind: ascot_index::NumberKind::F64 };
    for (options, wanted) in [
        (other(&|options| options.opening.request.scheme = Some(Scheme::Ranks)), "scheme=ranks"),
        (other(&|options| options.opening.request.key_bytes = Some(16)), "key=16"),
        (other(&|options| options.opening.request.value_bytes = None), "value=any"),
        (other(&|options| options.opening.request.block_bytes = Some(4096)), "block=4096"),
        (other(&|options| options.opening.request.partitions = Some(3)), "partitions=3"),
        (other(&|options| options.opening.request.attribute = Some(attribute.clone())), "attribute=e:0:f64"),
        (other(&|options| options.routing.batch_bytes = 8192), "batch=8192"),
        (other(&|options| options.routing.ranks_per_node = Some(4)), "ranks_per_node=4"),
        (other(&|options| options.opening.mode = OpenMode::Auto), "open=auto"),
        (other(&|options| options.opening.rollback = Some(0)), "rollback=0"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        let errors = on_ranks(Order::Free, |end| {
            let options = if ascot_index::routing::Transport::rank(&end) == 6 { &options } else { &usual };
            RankWriter::open(end, &Disk::default(), &path, options).err().unwrap()
        });
        for error in errors {
            assert!(matches!(error, RankError::Options { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("rank 6 has {wanted} and rank 2 has")), "{text}");
        }
        assert!(!path.exists());
    }
    // What is each rank's own may differ.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let own = other(&|options| (options.memory_bytes, options.routing.spare_batches) = (32 << 20, 9));
    on_ranks(Order::Free, |end| {
        let options = if ascot_index::routing::Transport::rank(&end) == 6 { &own } else { &usual };
        RankWriter::open(end, &Disk::default(), &path, options).unwrap().close().unwrap();
    });
}

#[test]
fn other_lengths_than_those_of_the_directory_are_no_going_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.dir");
    let alone = || in_process(&Topology::even(1, 1), Order::Free).swap_remove(0);
    let usual = options(Scheme::Records, Route::Direct, Some(8), None);
    RankWriter::open(alone(), &Disk::default(), &path, &usual).unwrap().close().unwrap();
    for (key_bytes, value_bytes) in [(Some(9), None), (Some(8), Some(40))] {
        let mut options = going_on(usual.clone(), None);
        (options.opening.request.key_bytes, options.opening.request.value_bytes) = (key_bytes, value_bytes);
        let error = RankWriter::open(alone(), &Disk::default(), &path, &options).err().unwrap();
        assert!(error.to_string().contains("or name another directory"), "{error}");
    }
}

#[test]
fn one_rank_alone_takes_records_of_any_length() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.dir");
        let alone = in_process(&Topology::even(1, 1), Order::Free).swap_remove(0);
        let usual = options(scheme, Route::ThreeHop, None, None);
        let mut writer = RankWriter::open(alone, &Disk::default(), &path, &usual).unwrap();
        let lengths = [0, 16 << 10, (32 << 10) + 1, 3 << 20];
        for length in lengths {
            writer.append(format!("{length}").as_bytes(), &value(length as u64, 0, length)).unwrap();
        }
        writer.append(&[7; 100_000], b"a long key").unwrap();
        assert_eq!(writer.records(), 5);
        writer.close().unwrap();
        let found = Directory::open(&Disk::default(), &path, 16 << 20).unwrap();
        for length in lengths {
            let values = found.get(format!("{length}").as_bytes()).unwrap();
            assert_eq!(values[0].bytes, value(length as u64, 0, length), "{scheme:?}");
        }
        assert_eq!(found.get(&[7; 100_000]).unwrap()[0].bytes, b"a long key");
    }
}

/// More memory than there is: buffers have a size beyond which they gain nothing, and what is refused is an error.
#[test]
fn any_memory_is_written_within_or_refused() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for memory in [64 << 30, 1 << 45, 1 << 60, usize::MAX] {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("run.dir");
            let layout = Layout::new(scheme, 2, 1);
            match ascot_index::DirectoryWriter::create(&Disk::default(), &path, layout, memory) {
                Ok(mut writer) => {
                    writer.append_record(b"key", b"value").unwrap();
                    writer.close().unwrap();
                }
                Err(error) => assert!(matches!(error, IndexError::Memory(_)), "{error}"),
            }
        }
    }
}
