//! Whether an input is sorted already (`-c`).

use std::sync::Arc;

use ascot_io::Pool;

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::SortRequest;
use crate::plan::budget::{Budget, default_memory};
use crate::plan::volumes::{RunOptions, job_disk};
use crate::read::inputs::InputPosition;
use crate::read::inputs::Inputs;
use crate::read::open::open_inputs;
use crate::read::record_reader::PieceReader;
use crate::records::{Records, Visitor, with_records};
use crate::resources::pieces::PiecePool;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sortedness {
    /// Every record is in its place.
    Sorted,
    /// The first that is not.
    Disorder {
        /// The input.
        input: String,
        /// Its number, from 1; a header counts.
        record: u64,
        /// Its offset, bytes.
        offset: u64,
        /// The record itself.
        line: Vec<u8>,
    },
}

/// Pieces in memory at once.
const PIECES: usize = 6;

/// Checks the one input of `request`.
pub fn is_sorted(request: &SortRequest, cancel: &Cancel) -> Result<Sortedness, SortError> {
    if request.inputs.len() != 1 {
        return Err(SortError::Request(
            "one input at a time can be checked for order\n  give one file, or none for standard input"
                .into(),
        ));
    }
    let (inputs, head) = open_inputs(request)?;
    with_records(request, &head, Checking { request, inputs, cancel })?
}

struct Checking<'a> {
    request: &'a SortRequest,
    inputs: Inputs,
    cancel: &'a Cancel,
}

impl Visitor for Checking<'_> {
    type Output = Result<Sortedness, SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let Checking { request, inputs, cancel } = self;
        read_in_order(&records, request, inputs, cancel, &mut ())
    }
}

/// Takes the pieces of an input while its order is checked.
pub(crate) trait Taker {
    /// Whole records as they stand in the file.
    fn as_read(&mut self, bytes: &[u8]) -> Result<(), SortError>;
    /// The same in the form of spills; they are in order.
    fn in_order(&mut self, bytes: &[u8]) -> Result<(), SortError>;
}

impl Taker for () {
    fn as_read(&mut self, _: &[u8]) -> Result<(), SortError> {
        Ok(())
    }

    fn in_order(&mut self, _: &[u8]) -> Result<(), SortError> {
        Ok(())
    }
}

/// Reads the one input from its start to its end, as long as its records are in order.
pub(crate) fn read_in_order<R: Records>(
    records: &Arc<R>,
    request: &SortRequest,
    inputs: Inputs,
    cancel: &Cancel,
    taker: &mut dyn Taker,
) -> Result<Sortedness, SortError> {
    let memory = request.memory_bytes.unwrap_or_else(default_memory);
    let budget = Budget::new(memory, 1, None)?;
    let pool = Pool::new(budget.memory);
    // The other half is for the record before, if that is long.
    let share = budget.memory / 2;
    let pieces = PiecePool::with_share(&pool, (share / PIECES).min(4 << 20) / 4096 * 4096, PIECES, share);
    let disk = job_disk(&RunOptions::default());
    disk.stop_when(cancel.flag());
    let input = inputs.get(0).map(|input| (input.name(), input.start));
    let (name, start) = input.unwrap_or_default();
    let mut reader = PieceReader::new(records, &disk, inputs, &pieces, InputPosition::default(), cancel);
    let (mut previous, mut number, mut offset) = (None::<Vec<u8>>, u64::from(request.header), start);
    while let Some(mut placed) = reader.next(&|| ())? {
        cancel.check()?;
        let range = placed.piece.bytes.clone();
        taker.as_read(&placed.piece.lease.bytes()[range.clone()])?;
        records.normalise(&mut placed.piece.lease.bytes_mut()[range.clone()]);
        let bytes = &placed.piece.lease.bytes()[range];
        if let Some(at) = records.disorder(previous.as_deref(), bytes, request.unique) {
            let before = records.cut(&bytes[..at], usize::MAX).records as u64;
            let mut line = bytes[at..at + records.cut(&bytes[at..], 1).bytes].to_vec();
            records.finish(&mut line);
            return Ok(Sortedness::Disorder {
                input: name,
                record: number + before + 1,
                offset: offset + at as u64,
                line,
            });
        }
        taker.in_order(bytes)?;
        previous = Some(bytes[records.last_record(bytes)..].to_vec());
        number += placed.records as u64;
        offset += bytes.len() as u64;
    }
    Ok(Sortedness::Sorted)
}
