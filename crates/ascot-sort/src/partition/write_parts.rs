//! Dealing records out to parts: the flow of a 1 x m bowtie. What comes in has been read and grouped by
//! part beforehand, on threads of its own; this is its one path to the m outputs, through the engine.
//!
//! ```text
//!   grouped pieces, in input order ─▶ Dealing ─▶ [block] ─▶ part 0 ... part m
//! ```
//!
//! On a volume where switches cost nothing a block is written when it is full. Where they cost time, memory
//! fills up first and the fullest parts are written to their end (A2).
//!
//! Invariant: a part gets its records in the order of the inputs.

use ascot_bowtie::engine::{Bowtie, NoInput};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_bowtie::schedule::{FewestHeld, Schedule, Staircase};
use ascot_io::BlockPool;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::partition::parts::{BlockFacts, Part};
use crate::partition::route::{Grouped, InOrder};
use crate::records::Records;
use crate::resources::turns::Seat;

/// The bowtie of a dealing.
pub type Hands<P> = Bowtie<NoInput, P>;

/// Outputs that share `blocks`, driven by the schedule that suits the volume.
pub fn hands<P: Part>(
    outputs: Vec<P>,
    blocks: BlockPool,
    long_runs: Option<Algorithm>,
) -> Result<Hands<P>, SortError> {
    let outputs_count = outputs.len() as u32;
    let scheme = long_runs.and_then(|algorithm| {
        let (inputs, alpha) = if algorithm == Algorithm::A1 { (0, 0.0) } else { (1, 0.5) };
        Scheme::best_of(Shape { inputs, outputs: outputs_count, alpha }, algorithm)
    });
    let schedule: Box<dyn Schedule> = match scheme {
        Some(scheme) => Box::new(Staircase::new(scheme, 0)),
        // With no inputs to choose from, that writes whatever is full.
        None => Box::new(FewestHeld),
    };
    Bowtie::from_outputs(outputs, blocks, schedule)
        .map_err(|_| SortError::Internal("parts have too few blocks of memory"))
}

/// Deals everything `pieces` gives out to `hands`. `dealt` gets each piece when all of it is with them.
pub fn deal<R: Records, P: Part>(
    records: &R,
    pieces: &mut InOrder<'_>,
    hands: &mut Hands<P>,
    cancel: &Cancel,
    dealt: Dealt<'_, P>,
) -> Result<(), SortError> {
    let open = vec![Open::default(); hands.outputs()];
    let seat = pieces.writer();
    let mut flow = Dealing { records, pieces, open, current: None, seat, dealt };
    run(hands, &mut flow, || cancel.check())
}

/// What is done after each piece.
pub type Dealt<'a, P> = &'a mut dyn FnMut(&Grouped, &mut Table<'_, P>) -> Result<(), SortError>;

/// The outputs between two pieces.
pub struct Table<'a, P: Part> {
    hands: &'a mut Hands<P>,
    open: &'a mut [Open],
}

impl<P: Part> Table<'_, P> {
    /// Writes all that has been dealt, then asks each part for something.
    pub fn each_written<T>(
        &mut self,
        mut ask: impl FnMut(&mut P) -> Result<T, SortError>,
    ) -> Result<Vec<T>, SortError> {
        for (part, open) in self.open.iter_mut().enumerate() {
            open.describe(part, self.hands);
        }
        self.hands.flush()?;
        (0..self.open.len()).map(|part| ask(self.hands.output_stream(part))).collect()
    }
}

/// The block a part is filling.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    facts: BlockFacts,
    /// Bytes in it.
    bytes: usize,
    /// It ends here, as soon as there is room for the next.
    ends: bool,
    /// Bytes to come of a record longer than a block.
    long: usize,
    /// Length of that record.
    long_bytes: usize,
}

impl Open {
    /// Tells the part what is in the block, if anything is.
    fn describe<P: Part>(&mut self, part: usize, hands: &mut Hands<P>) {
        if std::mem::take(&mut self.bytes) > 0 {
            hands.output_stream(part).describe(std::mem::take(&mut self.facts));
        }
    }
}

struct Dealing<'a, 'p, R, P: Part> {
    records: &'a R,
    pieces: &'a mut InOrder<'p>,
    open: Vec<Open>,
    /// A piece being dealt: the group that is next, and how much of it has been put.
    current: Option<(Grouped, usize, usize)>,
    /// Writes take turns with the reader.
    seat: Seat,
    dealt: Dealt<'a, P>,
}

impl<R: Records, P: Part> Flow<NoInput, P> for Dealing<'_, '_, R, P> {
    type Error = SortError;

    fn step(&mut self, hands: &mut Hands<P>) -> Result<Step, SortError> {
        self.seat.give_back();
        let taken = match self.current.take() {
            Some(current) => Some(current),
            None => self.pieces.next()?.map(|grouped| (grouped, 0, 0)),
        };
        let Some((grouped, mut group, mut put)) = taken else {
            for (part, open) in self.open.iter_mut().enumerate() {
                open.describe(part, hands);
            }
            return Ok(Step::Done);
        };
        while let Some((part, range)) = grouped.groups.get(group) {
            let bytes = &grouped.lease.bytes()[range.clone()][put..];
            if bytes.is_empty() {
                (group, put) = (group + 1, 0);
                continue;
            }
            let more = if P::WHOLE_RECORDS { self.put(*part, bytes, hands) } else { hands.put(*part, bytes) };
            if more == 0 {
                self.current = Some((grouped, group, put));
                self.seat.take();
                return Ok(Step::Full);
            }
            put += more;
        }
        (self.dealt)(&grouped, &mut Table { hands, open: &mut self.open })?;
        Ok(Step::Progress)
    }
}

impl<R: Records, P: Part> Dealing<'_, '_, R, P> {
    /// Appends to the block of `part` what records of `bytes` fit, or a share of one that is longer than a
    /// block; says how many bytes that was. None: there is no room.
    fn put(&mut self, part: usize, bytes: &[u8], hands: &mut Hands<P>) -> usize {
        let open = &mut self.open[part];
        loop {
            if open.ends {
                if !hands.end_block(part) {
                    return 0;
                }
                open.ends = false;
            }
            let left = hands.left_in_block(part);
            if left == 0 {
                return 0;
            }
            if open.long > 0 {
                return open.put_long(part, &bytes[..open.long.min(left)], hands);
            }
            let cut = self.records.cut(&bytes[..left.min(bytes.len())], usize::MAX);
            if cut.bytes > 0 {
                let facts = BlockFacts {
                    records: open.facts.records + cut.records as u64,
                    longest: open.facts.longest.max(self.records.record_bytes().unwrap_or(cut.bytes)),
                    first_record: 0,
                };
                return open.put(part, &bytes[..cut.bytes], facts, hands);
            }
            if open.bytes > 0 {
                open.describe(part, hands);
                open.ends = true;
            } else {
                open.long_bytes = self.records.cut(bytes, 1).bytes;
                open.long = open.long_bytes;
            }
        }
    }
}

impl Open {
    /// Appends `bytes`, which the block has room for; `facts` are then those of the block.
    fn put<P: Part>(&mut self, part: usize, bytes: &[u8], facts: BlockFacts, hands: &mut Hands<P>) -> usize {
        let left = hands.left_in_block(part);
        let taken = hands.put(part, bytes);
        if taken > 0 {
            (self.bytes, self.facts) = (self.bytes + taken, facts);
            if taken == left {
                self.describe(part, hands);
            }
        }
        taken
    }

    /// A share of a long record, which has its blocks to itself.
    fn put_long<P: Part>(&mut self, part: usize, bytes: &[u8], hands: &mut Hands<P>) -> usize {
        let first = self.long == self.long_bytes;
        let last = self.long == bytes.len();
        let facts = BlockFacts {
            records: u64::from(last),
            longest: self.long_bytes,
            first_record: if first { 0 } else { bytes.len() },
        };
        let taken = self.put(part, bytes, facts, hands);
        self.long -= taken;
        if taken > 0 && last && self.bytes > 0 {
            self.describe(part, hands);
            self.ends = true;
        }
        taken
    }
}
