//! Bowties and their turns come back as they were written, also cut; damaged ones give an error.

use std::fs;
use std::path::Path;

use ascot_model::bucket_steps::Steps;
use proptest::prelude::*;

use super::*;
use crate::bucket_census::bowties;
use crate::buckets::{TracedBowtie, Turn};
use crate::cut::cut;
use crate::error::Result;
use crate::event::{Recording, TracedProcess};

fn table() -> Vec<TracedBowtie> {
    let bowtie =
        |name: &str, inputs, outputs| TracedBowtie { name: name.into(), inputs, outputs, block_bytes: 4096 };
    vec![bowtie("merge", 3, 0), bowtie("split", 1, 4)]
}

fn any_steps(streams: u32) -> impl Strategy<Value = Option<Steps>> {
    let steps = (1..=streams, prop::option::of(1.0_f64..9.0), 0.0_f64..1e12);
    prop::option::of(steps.prop_map(|(streams, group, memory)| Steps { streams, group, memory }))
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let of_merge = (any_steps(3), Just(None), prop::collection::vec(any::<u64>(), 3));
    let of_split = (any_steps(1), any_steps(4), prop::collection::vec(any::<u64>(), 5));
    let either = prop_oneof![
        of_merge.prop_map(|(inputs, outputs, bytes)| (0, inputs, outputs, bytes)),
        of_split.prop_map(|(inputs, outputs, bytes)| (1, inputs, outputs, bytes)),
    ];
    (any::<u32>(), prop::option::of(0..3_u32), either).prop_map(
        |(time_ns, next, (bowtie, input_steps, output_steps, bytes))| Turn {
            time_ns: u64::from(time_ns),
            bowtie,
            next,
            input_steps,
            output_steps,
            bytes,
        },
    )
}

fn write(path: &Path, turns: &[Turn]) {
    let mut writer = TraceWriter::create(path).unwrap();
    table().into_iter().for_each(|bowtie| assert!(writer.add_bowtie(bowtie) < 2));
    turns.iter().for_each(|turn| writer.push_turn(turn).unwrap());
    let processes = [TracedProcess::default()];
    writer.finish(&[], &processes, &Recording::default()).unwrap();
}

fn read(path: &Path) -> Result<Vec<Turn>> {
    TraceReader::open(path)?.turns().collect()
}

/// Turns of growing buckets, one a microsecond.
fn growing(count: u64) -> Vec<Turn> {
    let steps = Some(Steps { streams: 3, group: None, memory: 6e6 });
    (0..count)
        .map(|n| Turn {
            time_ns: n * 1000,
            next: Some((n % 3) as u32),
            input_steps: steps,
            bytes: vec![4_000_000 + n, 2_000_000, 0],
            ..Turn::default()
        })
        .collect()
}

proptest! {
    #[test]
    fn turns_come_back(mut turns in prop::collection::vec(any_turn(), 0..60)) {
        turns.sort_by_key(|turn| turn.time_ns);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.trace");
        write(&path, &turns);
        let reader = TraceReader::open(&path).unwrap();
        prop_assert_eq!(reader.bowties(), &table()[..]);
        prop_assert_eq!(reader.turn_count(), turns.len() as u64);
        prop_assert_eq!(read(&path).unwrap(), turns);
    }

    /// Anything behind a checksum that matches: an error or turns, never a panic.
    #[test]
    fn turns_of_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..40_usize) {
        if let Ok(turns) = turns::decode(&bytes, count, 0, &table()) {
            prop_assert_eq!(turns.len(), count);
        }
    }
}

#[test]
fn a_table_makes_a_reader_allocate_no_more_than_its_section_has() {
    let huge = [TracedBowtie { inputs: u32::MAX, outputs: u32::MAX, ..TracedBowtie::default() }];
    assert!(turns::decode(&[0; 100], 1, 0, &huge).is_err());
    assert!(turns::decode(&[0; 100], usize::MAX, 0, &huge).is_err());
}

/// Many turns take several sections, and a range reads the ones that it touches.
#[test]
fn a_cut_keeps_the_turns_of_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let (path, part) = (dir.path().join("run.trace"), dir.path().join("part.trace"));
    let turns = growing(40_000);
    write(&path, &turns);
    assert!(fs::metadata(&path).unwrap().len() < 400_000, "turns are compressed");
    cut(&TraceReader::open(&path).unwrap(), 7_000_000, 9_000_000, &part).unwrap();
    let kept = TraceReader::open(&part).unwrap();
    assert_eq!(kept.bowties(), &table()[..1], "the split has no turn in the range");
    let expected: Vec<Turn> = turns[7000..9000]
        .iter()
        .map(|turn| Turn { time_ns: turn.time_ns - 7_000_000, ..turn.clone() })
        .collect();
    assert_eq!(read(&part).unwrap(), expected);
}

#[test]
fn the_census_of_buckets_follows_from_the_turns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    let turns = growing(1000);
    let emptier = Turn { bytes: vec![1, 2, 3], ..turns[0].clone() };
    write(&path, &[&turns[..], &[emptier]].concat());
    let counted = bowties(&TraceReader::open(&path).unwrap()).unwrap();
    let merge = &counted[0];
    assert_eq!((merge.turns, merge.largest_bucket_bytes, merge.peak_bytes), (1001, 4_000_999, 6_000_999));
    // The staircase has 4, 2 and 0 MB; the turn with 6 bytes has no full memory.
    assert_eq!(merge.input_distance.turns, 1000);
    assert!((merge.input_distance.mean - 499.5 / 6e6).abs() < 1e-12, "{:?}", merge.input_distance);
    assert_eq!((counted[1].turns, counted[1].output_distance.turns), (0, 0));
}

/// Every byte, altered: an error or, never, other turns.
#[test]
fn no_altered_byte_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    write(&path, &growing(20));
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).filter(|at| !(12..16).contains(at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err(), "byte {at}");
    }
}

/// A trace of version 1 has no place for bowties.
#[test]
fn bowties_need_version_2() {
    let bytes = |version| {
        let footer = section::Footer { version, bowties: 1, index: 16, ..section::Footer::default() };
        let found = section::Section {
            contents: section::Contents::Bowties,
            entries: 1,
            stored: 0,
            raw: 0,
            crc: 0,
            offset: 16,
            first_ns: 0,
            last_ns: 0,
        };
        section::check(&[found], &footer)
    };
    assert_eq!(bytes(2), Ok(()));
    assert!(bytes(1).is_err());
}
