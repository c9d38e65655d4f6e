//! Reads inputs forward and cuts them into parts of whole records.
//!
//! Blocks end anywhere. The record that a block cuts in two is put together in `carry` and is a
//! part of its own; what lies between stays where it was read:
//!
//! ```text
//! block   ...──┐┌── block ────────────────────┐┌── ...
//! records │ r │ r │ r │ r │ r │ r │ r │ r │ r │ r
//!              └─┬─┘└───────── part ─────────┘└─┬─┘
//!              carry                          carry
//! ```

use std::ops::Range;
use std::time::Duration;

use ascot_io::{BlockPool, Filled, ReadStream};

use super::judge::Judge;
use crate::api::error::SortError;
use crate::api::observe::Cancel;

/// Reads in flight at a time.
const READS_AHEAD: usize = 8;

/// How long to leave a silent pipe alone: much shorter than the blocks asked for take to come.
const PATIENCE: Duration = Duration::from_millis(1);

/// Bytes a carried record is lengthened by at first while its end is looked for.
const CARRY_STEP: usize = 4 << 10;

/// Longest record that is put together.
const CARRY_MOST: usize = 1 << 30;

/// Whole records on their way to a worker.
pub(super) enum Part {
    /// Records of a block, in place.
    Block {
        /// The block.
        filled: Filled,
        /// Where in its valid bytes the records are.
        records: Range<usize>,
    },
    /// A record, or the last ones, put together.
    Carried(Vec<u8>),
}

impl Part {
    /// The records.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Part::Block { filled, records } => &filled.bytes()[records.clone()],
            Part::Carried(bytes) => bytes,
        }
    }
}

/// What was left when an input ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing: it ended with a record.
    Nothing,
    /// A record cut short.
    CutShort { offset: u64, have: u64 },
    /// A record longer than can be put together.
    TooLong { offset: u64, have: u64 },
}

/// Cuts one input.
pub(super) struct Cutter<'a> {
    judge: &'a dyn Judge,
    carry: Vec<u8>,
    /// The byte of the input that comes next.
    offset: u64,
}

impl<'a> Cutter<'a> {
    /// For an input read from byte `start` on.
    pub(super) fn new(judge: &'a dyn Judge, start: u64) -> Self {
        Cutter { judge, carry: Vec::new(), offset: start }
    }

    /// Takes the next block; gives its parts to `emit`, in order. False: the record being put
    /// together is too long.
    pub(super) fn take(&mut self, filled: Filled, emit: &mut dyn FnMut(Part)) -> bool {
        let bytes = filled.bytes();
        self.offset += bytes.len() as u64;
        let head = self.complete_carry(bytes, emit);
        if self.carry.len() > CARRY_MOST {
            return false;
        }
        let whole = self.judge.whole(&bytes[head..]);
        let records = head..head + whole;
        self.carry.extend_from_slice(&bytes[records.end..]);
        if whole > 0 {
            emit(Part::Block { filled, records });
        }
        true
    }

    /// Moves bytes from the front of a block to the carried record until it is whole; says how
    /// many.
    fn complete_carry(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Part)) -> usize {
        if self.carry.is_empty() {
            return 0;
        }
        let before = self.carry.len();
        let mut taken = 0;
        let mut step = CARRY_STEP;
        while taken < bytes.len() {
            let known = self.carry.len();
            let more = step.min(bytes.len() - taken);
            self.carry.extend_from_slice(&bytes[taken..taken + more]);
            taken += more;
            step *= 2;
            if let Some(end) = self.judge.first_end(&self.carry, known) {
                self.carry.truncate(end);
                emit(Part::Carried(std::mem::take(&mut self.carry)));
                return end - before;
            }
        }
        taken
    }

    /// The input has ended.
    pub(super) fn finish(mut self, emit: &mut dyn FnMut(Part)) -> Rest {
        if self.carry.is_empty() {
            return Rest::Nothing;
        }
        let have = self.carry.len() as u64;
        let cut_short = Rest::CutShort { offset: self.offset - have, have };
        let Some(completion) = self.judge.completion() else { return cut_short };
        self.carry.push(completion);
        if self.judge.whole(&self.carry) < self.carry.len() {
            return cut_short;
        }
        emit(Part::Carried(self.carry));
        Rest::Nothing
    }

    /// What to say of a record that is too long.
    pub(super) fn too_long(&self) -> Rest {
        let have = self.carry.len() as u64;
        Rest::TooLong { offset: self.offset - have, have }
    }
}

/// What a reader has to say.
pub(super) enum Event {
    /// The next block.
    Block(Filled),
    /// Nothing comes for the moment.
    Silence,
}

/// Reads a stream to its end, with several reads in flight, and tells `take` of it; `take` says
/// whether to go on.
pub(super) fn read_blocks(
    stream: &mut dyn ReadStream,
    blocks: &BlockPool,
    cancel: &Cancel,
    mut take: impl FnMut(Event) -> Result<bool, SortError>,
) -> Result<(), SortError> {
    let block_bytes = blocks.block_bytes() as u64;
    let is_pipe = stream.len_hint().is_none();
    let mut wanted = stream.len_hint().map_or(u64::MAX, |len| len.div_ceil(block_bytes));
    loop {
        while wanted > 0 && stream.in_flight() < READS_AHEAD {
            let block = match blocks.try_take() {
                Some(block) => block,
                None if stream.in_flight() == 0 => {
                    blocks.take(|| cancel.is_cancelled()).ok_or(SortError::Cancelled)?
                }
                None => break,
            };
            stream.begin(block)?;
            wanted -= 1;
        }
        if stream.in_flight() == 0 {
            return Ok(());
        }
        // A pipe may be silent for long, and its caller may want to stop.
        while is_pipe && !stream.ready() {
            std::thread::sleep(PATIENCE);
            if !take(Event::Silence)? {
                return Ok(());
            }
        }
        let filled = stream.complete()?;
        if filled.is_empty() {
            wanted = 0;
        } else if !take(Event::Block(filled))? {
            return Ok(());
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
