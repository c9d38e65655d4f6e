//! Layouts, rounding and replays of traces whose requests are known.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use ascot_io::Buf;
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;
use proptest::prelude::*;

use super::moves::{Move, for_each_move};
use super::*;
use crate::blocks::{BLOCK_BYTES, Extent, LiveData, blocks};
use crate::error::TraceError;
use crate::event::{Event, Kind, Recording, TracedFile, TracedProcess};
use crate::format::{TraceReader, TraceWriter};
use crate::ranges::RangeSet;

const B: u64 = BLOCK_BYTES;

fn event(file: u32, kind: Kind, offset: u64, size: u64) -> Event {
    Event { time_ns: 0, process: 0, file, kind, jumped: false, offset, size }
}

struct Written {
    _dir: tempfile::TempDir,
    directory: PathBuf,
    trace: TraceReader,
}

fn written(events: &[Event]) -> Written {
    written_of(events, &files())
}

fn written_of(events: &[Event], files: &[TracedFile]) -> Written {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("run.trace");
    let mut writer = TraceWriter::create(&path).unwrap();
    for (n, event) in events.iter().enumerate() {
        writer.push(&Event { time_ns: n as u64 * 10_000_000, ..*event }).unwrap();
    }
    let processes = [TracedProcess::default(), TracedProcess::default()];
    writer.finish(files, &processes, &Recording::default()).unwrap();
    Written { directory: dir.path().to_owned(), trace: TraceReader::open(&path).unwrap(), _dir: dir }
}

/// From number 32 on, files were empty at their first request.
fn files() -> Vec<TracedFile> {
    (0..64).map(|n| TracedFile { held: (n >= 32).then(RangeSet::default), ..TracedFile::default() }).collect()
}

fn moves(written: &Written) -> (Vec<Move>, Rounding, Layout) {
    let layout = Layout::new(&written.trace).unwrap();
    let mut moves = Vec::new();
    let rounding = for_each_move(&written.trace, &layout, |next| {
        moves.push(next);
        Ok(())
    })
    .unwrap();
    (moves, rounding, layout)
}

use Kind::{Delete, Hole, Read, Resize, Write};

#[test]
fn the_volume_is_as_large_as_the_peak_of_live_data() {
    let written = written(&[
        event(0, Write, 0, 3 * B),
        event(1, Write, 0, 2 * B),
        event(0, Delete, 0, 0),
        event(2, Write, 10 * B, 2 * B),
        event(3, Write, 0, B),
        event(1, Delete, 0, 0),
        event(4, Write, 0, 2 * B),
    ]);
    let (moves, _, layout) = moves(&written);
    assert_eq!(
        (layout.volume.volume_bytes, layout.volume.live_bytes, layout.volume.files),
        (5 * B, 5 * B, 5)
    );
    let offsets: Vec<u64> = moves.iter().map(|next| next.offset / B).collect();
    assert_eq!(offsets, [0, 3, 0, 2, 3]);
}

/// Requests of 1,000 bytes: each block is moved once, and requests within it not at all.
#[test]
fn a_scan_in_odd_requests_moves_every_block_once() {
    let events: Vec<Event> = (0..100).map(|n| event(0, Read, 500 + n * 1000, 1000)).collect();
    let (moves, rounding, _) = moves(&written(&events));
    assert_eq!(rounding.requests, 100);
    assert_eq!(rounding.bytes, 100_000);
    assert_eq!(rounding.read_bytes, 100_500_u64.next_multiple_of(B));
    assert_eq!(rounding.volume_requests, moves.len() as u64);
    assert!(moves.windows(2).all(|pair| pair[0].offset + pair[0].bytes == pair[1].offset));
}

#[test]
fn other_requests_are_rounded_outward() {
    let (moves, ..) = moves(&written(&[
        event(0, Read, 100, 10),
        event(0, Write, 110, 10),
        event(0, Read, 5000, 10_000),
        event(0, Read, 100, 10),
    ]));
    let shapes: Vec<_> = moves.iter().map(|next| (next.writes, next.offset / B, next.bytes / B)).collect();
    assert_eq!(shapes, [(false, 0, 1), (true, 0, 1), (false, 1, 3), (false, 0, 1)]);
}

/// Several scans of one file, whichever process makes them, move every block once each; a scan goes on in another
/// process.
#[test]
fn every_scan_of_a_file_moves_its_blocks_once() {
    let scan = |process: u32, n: u64| Event { process, ..event(0, Read, n * 1000, 1000) };
    let in_turns: Vec<Event> =
        (0..100).flat_map(|n| [scan(0, n), scan(1, n), scan((n % 2) as u32, n)]).collect();
    let (_, rounding, _) = moves(&written(&in_turns));
    assert_eq!(rounding.read_bytes, 3 * 100_000_u64.next_multiple_of(B));
    let apart: Vec<Event> = (0..100).flat_map(|n| [scan(0, n), scan(1, n + 500)]).collect();
    let (_, rounding, _) = moves(&written(&apart));
    let second = blocks(500_000, 600_000);
    assert_eq!(rounding.read_bytes, 100_000_u64.next_multiple_of(B) + second.1 - second.0);
}

/// What truncation and holes give back is used again, and gaps take no space.
#[test]
fn space_that_is_given_back_during_the_life_of_a_file_is_used_again() {
    let shorter = written(&[
        event(0, Write, 0, 8 * B),
        event(0, Resize, 2 * B, 0),
        event(1, Write, 0, 5 * B),
        event(1, Hole, 0, 4 * B),
        event(2, Write, 0, 5 * B),
        event(0, Read, 0, 2 * B),
    ]);
    let (moves_of_shorter, _, layout) = moves(&shorter);
    assert_eq!((layout.volume.volume_bytes, layout.volume.live_bytes), (8 * B, 8 * B));
    assert_eq!(moves_of_shorter.last().unwrap().offset, 0, "what is left of it keeps its place");
    let gap = |file| {
        written(&[event(file, Write, 0, B), event(file, Write, 100 * B, B), event(file, Resize, 1 << 50, 0)])
    };
    let (_, _, layout) = moves(&gap(32));
    assert_eq!(
        (layout.volume.volume_bytes, layout.volume.files),
        (3 * B, 1),
        "a hole, of which one block stays"
    );
    let (moves_of_gap, _, layout) = moves(&gap(0));
    assert_eq!(
        (layout.volume.volume_bytes, layout.volume.files, layout.volume.pieces),
        (101 * B, 1, 1),
        "data of before"
    );
    assert_eq!(moves_of_gap.last().unwrap().offset, 100 * B);
}

/// 200 reads of separate blocks are as many runs on the volume, whatever else is true of their file: it has a hole, it
/// grows before them, or it was written whole and is cut to what reads it. Blocks that it never had are apart, too.
#[test]
fn reads_across_gaps_are_switches_on_the_volume() {
    let order = (0..200_u64).map(|n| n * 77 % 200);
    let shuffled: Vec<Event> = order.map(|n| event(0, Read, n * 10 * B + B, B)).collect();
    let in_turn: Vec<Event> = (0..200).map(|n| event(0, Read, (2 * n + 1) * B, B)).collect();
    let mut full = RangeSet::default();
    full.insert(0, 2048 * B, |_, _| ());
    let file = |held| [TracedFile { held: Some(held), ..TracedFile::default() }];
    let grown = [vec![event(0, Resize, 4096 * B, 0)], shuffled.clone()].concat();
    for (events, held) in [
        (&shuffled, full.clone()),
        (&grown, full.clone()),
        (&in_turn, full),
        (&shuffled, RangeSet::default()),
        (&in_turn, RangeSet::default()),
    ] {
        let written = written_of(events, &file(held.clone()));
        let runs = crate::census::census(&written.trace).unwrap().counts.runs;
        let replayed = replay_on_virtual(&written.trace, &array(0)).unwrap();
        assert_eq!((runs, replayed.switches, replayed.switches_without_cache), (200, 200, 200), "{held:?}");
    }
    let whole: Vec<Event> = [vec![event(0, Write, 0, 401 * B)], in_turn].concat();
    let written = written_of(&whole, &file(RangeSet::default()));
    let part = written.directory.join("part.trace");
    crate::cut::cut(&written.trace, 10_000_000, u64::MAX, &part).unwrap();
    let part = TraceReader::open(&part).unwrap();
    let held: Vec<_> = part.files()[0].held.as_ref().unwrap().ranges().collect();
    assert_eq!(held, [(0, 401 * B)]);
    assert_eq!(replay_on_virtual(&part, &array(0)).unwrap().switches, 200);
}

/// A file that grows while another shrinks takes its space, so that the volume is not the sum of both.
#[test]
fn a_file_takes_the_space_that_another_leaves_block_by_block() {
    let mut events: Vec<Event> = vec![event(0, Write, 0, 64 * B)];
    for n in 0..64 {
        events.extend([event(0, Read, n * B, B), event(0, Hole, n * B, B), event(1, Write, n * B, B)]);
    }
    let (_, rounding, layout) = moves(&written(&events));
    assert_eq!((layout.volume.volume_bytes, rounding.volume_requests), (64 * B, 129));
    assert!(layout.volume.pieces <= 3, "{}", layout.volume.pieces);
}

/// Files that grow at the same time lie in one piece each if there is space for it.
#[test]
fn files_that_grow_at_the_same_time_are_contiguous() {
    let events: Vec<Event> = (0..400).map(|n| event(n % 8, Write, u64::from(n / 8) * 1000, 1000)).collect();
    let (_, _, layout) = moves(&written(&events));
    assert_eq!((layout.volume.files, layout.volume.pieces), (8, 8));
    assert_eq!(layout.volume.volume_bytes, 8 * 50_000_u64.next_multiple_of(B));
}

proptest! {
    /// Blocks that live at the same time do not overlap, keep their contents, and fit a volume that is as large as the
    /// most live data at a time.
    #[test]
    fn living_blocks_do_not_overlap(
        steps in prop::collection::vec((29..35_u32, 0..10_u8, 0..40_u64, 1..50_000_u64), 1..120),
    ) {
        let mut gone = [false; 64];
        let mut events = Vec::new();
        for (file, kind, offset, size) in steps {
            if gone[file as usize] {
                continue;
            }
            gone[file as usize] = kind == 0;
            events.push(match kind {
                0 => event(file, Delete, 0, 0),
                1 => event(file, Resize, offset * 1000, 0),
                2 | 3 => event(file, Hole, offset * 1000, size),
                _ => event(file, Write, offset * 1000, size),
            });
        }
        let written = written(&events);
        let layout = Layout::new(&written.trace).unwrap();
        let used = &layout.volume;
        for (peak, make) in
            [(used.volume_bytes, Extent::apart as fn(&TracedFile) -> Extent), (used.live_bytes, Extent::of)]
        {
            let mut live = LiveData::new(files().iter().map(make).collect());
            events.iter().for_each(|event| live.add(event));
            prop_assert_eq!(peak, live.peak_bytes);
        }
        // The blocks of the volume with the file and the offset that they hold, and those that should be there.
        let mut volume = vec![None; (used.volume_bytes / B) as usize];
        let mut there = std::collections::BTreeSet::new();
        let mut places = layout.places();
        for event in &events {
            places.apply(event);
            if !event.moves() {
                let (low, high) = crate::blocks::given_back(event).unwrap_or_default();
                there.retain(|(file, at)| *file != event.file || *at < low || *at >= high);
                continue;
            }
            let (low, high) = blocks(event.offset, event.end());
            there.extend((low..high).step_by(B as usize).map(|at| (event.file, at)));
            let mut at = low;
            places.for_each_piece(event.file, low, high, |start, bytes| {
                for block in start / B..(start + bytes) / B {
                    volume[block as usize] = Some((event.file, at));
                    at += B;
                }
                Ok::<(), TraceError>(())
            }).unwrap();
            prop_assert_eq!(at, high);
            for &(file, at) in &there {
                let mut found = None;
                places.for_each_piece(file, at, at + B, |start, _| {
                    found = volume[(start / B) as usize];
                    Ok::<(), TraceError>(())
                }).unwrap();
                prop_assert_eq!(found, Some((file, at)));
            }
        }
    }
}

fn array(cache_blocks: u64) -> VolumeProfile {
    VolumeProfile {
        cache_bytes: cache_blocks * B,
        ..VolumeProfile::simple("array", 1000.0 * B as f64, 500.0 * B as f64, 0.5)
    }
}

/// A merge of eight files in blocks: with and without a cache it takes the switches and the time that the virtual disk
/// takes for the same merge of streams.
#[test]
fn a_merge_takes_what_the_virtual_disk_takes() {
    for cache in [0, 64] {
        let disk = VirtualDisk::new(array(cache));
        let inputs = 8;
        let mut events = Vec::new();
        let names: Vec<String> = (0..inputs).map(|n| format!("in-{n}")).collect();
        names.iter().for_each(|name| disk.store(name, vec![0; 40 * B as usize]));
        let mut streams: Vec<_> = names.iter().map(|name| disk.open_read(name, 0..u64::MAX)).collect();
        let mut output = disk.create("out");
        for block in 0..40 {
            for (file, stream) in streams.iter_mut().enumerate() {
                stream.begin(Buf::heap(B as usize)).unwrap();
                stream.complete().unwrap();
                events.push(event(file as u32, Read, block * B, B));
                output.begin(Buf::heap(B as usize), B as usize).unwrap();
                output.complete().unwrap();
                events.push(event(63, Write, (block * inputs + file as u64) * B, B));
            }
        }
        let replayed = replay_on_virtual(&written(&events).trace, &array(cache)).unwrap();
        assert_eq!(replayed.streams, inputs + 1);
        assert_eq!(replayed.switches_without_cache, 40 * inputs * 2);
        assert!(
            (replayed.switches as i64 - disk.switches() as i64).unsigned_abs() <= inputs,
            "cache {cache}"
        );
        assert!(
            (replayed.seconds / disk.seconds() - 1.0).abs() < 0.05,
            "{} {}",
            replayed.seconds,
            disk.seconds()
        );
        assert!((cache > 0) == (replayed.switches < replayed.switches_without_cache / 4));
    }
}

/// Streams that are not continued end, so that their number does not grow with the trace.
#[test]
fn old_streams_end() {
    let events: Vec<Event> = (0..10_000).map(|n| event(0, Read, n * 2 * B, B)).collect();
    let replayed = replay_on_virtual(&written(&events).trace, &array(0)).unwrap();
    assert_eq!(replayed.switches, 10_000);
    assert!((4096..4200).contains(&replayed.streams), "{}", replayed.streams);
}

#[test]
fn a_real_volume_moves_the_same_blocks_and_keeps_the_recorded_time() {
    let written = written(&[
        event(0, Write, 0, 9 << 20),
        event(0, Read, 100, 1000),
        event(1, Write, 1, 5),
        event(0, Read, 1 << 20, 1 << 20),
    ]);
    let (_, rounding, layout) = moves(&written);
    let request =
        DiskReplayRequest { directory: written.directory.clone(), pace: Pace::Recorded, repetitions: 3 };
    let replayed = match replay_on_disk(&written.trace, &request, &AtomicBool::new(false)) {
        // File systems in memory have no direct access.
        Err(TraceError::NoDirect { .. }) => return,
        replayed => replayed.unwrap(),
    };
    assert_eq!((replayed.rounding, replayed.volume.volume_bytes), (rounding, layout.volume.volume_bytes));
    assert!(replayed.seconds.len() == 3 && replayed.seconds.iter().all(|seconds| *seconds >= 0.03));
    assert!(replayed.extents.is_none_or(|extents| extents.pieces >= 1));
    assert_eq!(fs::read_dir(&written.directory).unwrap().count(), 1, "only the trace is there");
    let stopped = replay_on_disk(&written.trace, &request, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(TraceError::Stopped)));
}

#[test]
fn a_volume_that_is_too_small_is_refused() {
    let written = written(&[event(0, Write, 0, 1 << 60)]);
    let request =
        DiskReplayRequest { directory: written.directory.clone(), pace: Pace::Fast, repetitions: 1 };
    let refused = replay_on_disk(&written.trace, &request, &AtomicBool::new(false)).err().unwrap();
    assert!(matches!(refused, TraceError::VolumeTooSmall { needed, .. } if needed == 1 << 60), "{refused}");
}
