//! A section of turns: the buckets of bowties, one turn after the other.
//!
//! ```text
//!   time          difference to the time of the turn before; the first to that of the section
//!   bowtie        number
//!   next          number of the stream of the next block plus one, 0 for none
//!   steps         bits: 1 inputs have a staircase, 2 in groups; 4 outputs have one, 8 in groups
//!   staircases    of inputs, of outputs: streams; f64 memory; f64 group
//!   occupancies   of each stream, difference to its last one in this section, 0 at first
//! ```
//!
//! Sections do not depend on each other.

use std::collections::HashMap;

use ascot_model::bucket_steps::Steps;

use super::varint;
use crate::buckets::{TracedBowtie, Turn};

/// A section ends at this length: one more turn fits below [`super::section::MAX_SECTION_BYTES`].
pub const SECTION_BYTES: usize = 64 << 10;
/// Streams of a bowtie, at most.
pub const MAX_STREAMS: usize = 16_384;
/// Turns of a section, at most: each takes at least this many bytes.
const LEAST_TURN_BYTES: usize = 4;

/// The turns of a section that is being written.
#[derive(Default)]
pub struct TurnsSection {
    pub raw: Vec<u8>,
    pub turns: u32,
    pub first_ns: u64,
    pub last_ns: u64,
    time_ns: u64,
    last: HashMap<u32, Vec<u64>>,
}

impl TurnsSection {
    /// Adds a turn. Its bowtie has at most [`MAX_STREAMS`] streams.
    pub fn add(&mut self, turn: &Turn) {
        if self.turns == 0 {
            (self.first_ns, self.last_ns, self.time_ns) = (turn.time_ns, turn.time_ns, turn.time_ns);
        }
        // The index needs the earliest time, and the first turn counts from it.
        let time_ns = turn.time_ns.max(self.first_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let raw = &mut self.raw;
        varint::put_difference(raw, time_ns, self.time_ns);
        self.time_ns = time_ns;
        varint::put(raw, u64::from(turn.bowtie));
        varint::put(raw, turn.next.map_or(0, |next| u64::from(next) + 1));
        let bits = |steps: Option<Steps>| match steps {
            None => 0,
            Some(Steps { group: None, .. }) => 1,
            Some(Steps { group: Some(_), .. }) => 3,
        };
        raw.push(bits(turn.input_steps) | bits(turn.output_steps) << 2);
        for steps in [turn.input_steps, turn.output_steps].into_iter().flatten() {
            varint::put(raw, u64::from(steps.streams));
            raw.extend_from_slice(&steps.memory.to_le_bytes());
            raw.extend(steps.group.iter().flat_map(|group| group.to_le_bytes()));
        }
        let last = self.last.entry(turn.bowtie).or_default();
        last.resize(turn.bytes.len(), 0);
        for (last, bytes) in last.iter_mut().zip(&turn.bytes) {
            varint::put_difference(raw, *bytes, std::mem::replace(last, *bytes));
        }
        self.turns += 1;
    }
}

/// The `count` turns of a section; an error states the contradiction.
pub fn decode(
    raw: &[u8],
    count: usize,
    first_ns: u64,
    bowties: &[TracedBowtie],
) -> Result<Vec<Turn>, &'static str> {
    if count > raw.len() / LEAST_TURN_BYTES {
        return Err("a section has too many turns");
    }
    let mut rest = raw;
    let mut last: HashMap<u32, Vec<u64>> = HashMap::new();
    let mut time_ns = first_ns;
    let mut turns = Vec::with_capacity(count);
    for _ in 0..count {
        let turn = next(&mut rest, time_ns, bowties, &mut last);
        let turn = turn.ok_or("a turn does not have its form, or names a bowtie that is not in the table")?;
        time_ns = turn.time_ns;
        turns.push(turn);
    }
    if rest.is_empty() { Ok(turns) } else { Err("a section has bytes after its turns") }
}

fn next(
    rest: &mut &[u8],
    time_ns: u64,
    bowties: &[TracedBowtie],
    last: &mut HashMap<u32, Vec<u64>>,
) -> Option<Turn> {
    let time_ns = varint::take_difference(rest, time_ns)?;
    let number = u32::try_from(varint::take(rest)?).ok()?;
    let bowtie = bowties.get(number as usize)?;
    let next = match varint::take(rest)? {
        0 => None,
        next => Some(u32::try_from(next - 1).ok().filter(|next| (*next as usize) < bowtie.streams())?),
    };
    let (bits, after) = rest.split_first()?;
    *rest = after;
    if *bits > 15 {
        return None;
    }
    let input_steps = steps(rest, bits & 3, bowtie.inputs)?;
    let output_steps = steps(rest, bits >> 2, bowtie.outputs)?;
    // Every stream takes a byte at least: a table cannot make this allocate more than the section has.
    if bowtie.streams() > rest.len() {
        return None;
    }
    let bytes = last.entry(number).or_default();
    bytes.resize(bowtie.streams(), 0);
    for bytes in bytes.iter_mut() {
        *bytes = varint::take_difference(rest, *bytes)?;
    }
    Some(Turn { time_ns, bowtie: number, next, input_steps, output_steps, bytes: bytes.clone() })
}

/// A staircase by its bits; none at the outside if it does not have its form.
fn steps(rest: &mut &[u8], bits: u8, streams_of_side: u32) -> Option<Option<Steps>> {
    if bits == 0 {
        return Some(None);
    }
    let streams = u32::try_from(varint::take(rest)?).ok().filter(|streams| *streams <= streams_of_side)?;
    let memory = float(rest)?;
    let group = match bits {
        1 => None,
        3 => Some(float(rest).filter(|group| *group >= 1.0)?),
        _ => return None,
    };
    (streams > 0).then_some(Some(Steps { streams, group, memory }))
}

/// A finite number that is not negative.
fn float(rest: &mut &[u8]) -> Option<f64> {
    let (bytes, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(f64::from_le_bytes(*bytes)).filter(|value| value.is_finite() && *value >= 0.0)
}
