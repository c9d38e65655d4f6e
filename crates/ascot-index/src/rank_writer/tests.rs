//! Directories that ranks write together, as threads on emulated nodes: what is read back is what was written, by
//! each scheme and route; the gain on a slow wire; and what happens when a rank fails.

use std::path::Path;
use std::thread;
use std::time::Duration;

use ascot_io::Disk;

use super::*;
use crate::routing::{Endpoint, Limited, Order, Pace, Route, Topology, Wire, WireSpeed, in_process};

const RANKS: u32 = 8;
const RANKS_PER_NODE: u32 = 2;
const MEMORY: usize = 24 << 20;

fn options(scheme: Scheme, route: Route, key_bytes: Option<u32>, value_bytes: Option<u32>) -> RankOptions {
    let layout = Layout { key_bytes, value_bytes, ..Layout::new(scheme, 0, 0) };
    let routing = RoutingSettings {
        route,
        batch_bytes: 4096,
        spare_batches: 4,
        patience: Duration::from_secs(20),
        ..RoutingSettings::default()
    };
    RankOptions { layout, memory_bytes: MEMORY, routing, append: false }
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
    crate::hash::mix(particle + 1).to_be_bytes()
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
    let wire = Wire::new(&topology, speed, Pace::Virtual);
    let results = on_ranks(Order::Turns { seed: 5 }, |end| {
        let disk = Disk::default();
        let rank = crate::routing::Transport::rank(&end);
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
        wire.settle(rank);
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
