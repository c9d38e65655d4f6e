//! Checks that records are in order, counts them and their duplicate keys, and sums them up.
//!
//! Inputs are read forward, one after another, and count as one sequence:
//!
//! ```text
//!   pipeline: inputs ─▶ chunks of whole records ─▶ workers validate ─▶ Total, in input order
//! ```
//!
//! A view is an input like a file, merged as it is read, also one that is a part of a directory (parts.rs).
//!
//! Memory is bounded by `POOL_BYTES`, plus the longest record if records span chunks, plus that of one view.

pub mod is_sorted;
mod judge;
pub mod parts;

pub use parts::with_files_of_directories;

use std::fmt;

use ascot_io::{Disk, DiskOptions, Pool, ProgramStreams};
use ascot_record::gensort::Validation;
use ascot_record::layout::Layout;

use crate::api::{Cancel, Input, Keys, Observer, Result};
use crate::pipeline::{ChunkWork, Pipeline};
use crate::read::{InputFile, InputPosition, Inputs, RecordReader, refuse_unless_text};
use crate::records::InputStart;
use crate::report::Watch;
use crate::resources::{ChunkPool, compute_threads, lowered};
use crate::view::{input_of, is_view};
use judge::Judge;

/// Memory of all chunks, bytes.
const POOL_BYTES: usize = 64 << 20;

/// Minimum number of chunks in memory: some being read, some being checked.
const CHUNKS_MIN: usize = 3;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 2 << 20;

/// Maximum length of a record.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// A request for a check.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// The inputs, read in this order as one sequence.
    pub inputs: Vec<Input>,
    /// The layout of the records.
    pub layout: Layout,
    /// The keys that should order them.
    pub keys: Keys,
    /// Whether each input begins with a header, as it does if a key names a column.
    pub header: bool,
    /// Compute threads; none: one per core.
    pub threads: Option<usize>,
}

/// The result of a check. It is displayed like that of the benchmark's own validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Counts, order and checksum over all inputs.
    pub validation: Validation,
    /// Whether greater keys come first. The keys of the validation are normalised.
    pub descending: bool,
    /// Position of the first record that is less than the one before it.
    pub unordered: Option<RecordPosition>,
    /// Bytes of all inputs.
    pub bytes: u64,
}

/// The position of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// The input that contains it.
    pub input: String,
    /// Its number in the input, from 0.
    pub record: u64,
    /// Its offset in the input, bytes, if all records have the same length.
    pub offset: Option<u64>,
}

impl CheckReport {
    /// Whether all records are in order.
    pub fn is_ordered(&self) -> bool {
        self.validation.is_ordered()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Validation { records, duplicates, unordered, first_unordered, checksum, .. } = &self.validation;
        if let Some(number) = first_unordered {
            writeln!(f, "First unordered record is record {number}")?;
        }
        if let Some(place) = &self.unordered {
            write!(f, "  {}: record {}", place.input, place.record)?;
            if let Some(offset) = place.offset {
                write!(f, ", at offset {offset}")?;
            }
            writeln!(f, " (counted from 0)")?;
        }
        writeln!(f, "Records: {records}")?;
        writeln!(f, "Checksum: {checksum:x}")?;
        writeln!(f, "Duplicate keys: {duplicates}")?;
        match unordered {
            0 => write!(f, "SUCCESS - all records are in order"),
            _ => write!(f, "ERROR - there are {unordered} unordered records"),
        }
    }
}

/// Checks the inputs. Records out of order are not an error but part of the report.
pub fn check(request: &CheckRequest, observer: &dyn Observer, cancel: &Cancel) -> Result<CheckReport> {
    check_with(request, ProgramStreams::default(), observer, cancel)
}

/// Checks the inputs, some of which this process makes: those of `program`, for [`Input::Program`].
///
/// # Errors
/// Those of [`check`].
pub fn check_with(
    request: &CheckRequest,
    program: ProgramStreams,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<CheckReport> {
    let inputs = open(if request.inputs.is_empty() { &[Input::Stdin] } else { &request.inputs })?;
    // Lines are requested explicitly here, so only CSV has to be text.
    if matches!(request.layout, Layout::Csv { .. }) {
        refuse_unless_text(&inputs, request.layout)?;
    }
    let (judge, inputs) = judge::judge(request.layout, &request.keys, request.header, inputs)?;
    let pool = Pool::new(RECORD_BYTES_MAX + POOL_BYTES);
    let chunks = usize::try_from(lowered(POOL_BYTES as u64)).unwrap_or(POOL_BYTES) / CHUNK_BYTES;
    let chunks = ChunkPool::new(&pool, CHUNK_BYTES, chunks.max(CHUNKS_MIN), pool.budget());
    let disk = Disk::new(DiskOptions { program, ..DiskOptions::default() });
    disk.stop_when(cancel.flag());
    let reader = RecordReader::new(&judge, &disk, inputs.clone(), &chunks, InputPosition::default(), cancel);
    let mut watch = Watch::new(observer, cancel, "check", inputs.record_bytes());
    let mut total = Total::default();
    let threads = compute_threads(request.threads);
    Pipeline::new("check", threads, cancel).run_chunks(
        reader,
        None,
        || |work| validate(&*judge, work),
        |checked| {
            // A pipe may be silent for long, and the caller may want to stop.
            while let Some(chunk) = checked.next_result_or(&mut || watch.moved(0))? {
                watch.moved(chunk.bytes)?;
                total.add(chunk, &*judge);
            }
            Ok(())
        },
    )?;
    let unordered = total.place_of_unordered(&inputs, &*judge);
    Ok(CheckReport {
        validation: total.validation,
        descending: judge.descending(),
        unordered,
        bytes: watch.done_bytes(),
    })
}

/// Opens the inputs, files and views.
fn open(inputs: &[Input]) -> Result<Inputs> {
    let open = |input: &Input| match input {
        Input::Path(path) if is_view(path) => input_of(path),
        _ => InputFile::open(input),
    };
    Ok(Inputs::from_files(inputs.iter().map(open).collect::<Result<Vec<_>, _>>()?))
}

/// A chunk that has been validated.
struct Checked {
    validation: Validation,
    /// The start of the records of each input in it.
    starts: Vec<InputStart>,
    /// Bytes of the inputs in the chunk.
    bytes: usize,
}

fn validate(judge: &dyn Judge, work: ChunkWork) -> Checked {
    let ChunkWork { placed, .. } = work;
    let records = placed.chunk.record_bytes();
    Checked {
        validation: judge.validate(records),
        bytes: records.len() - placed.added,
        starts: placed.starts,
    }
}

/// The validation of all chunks so far.
#[derive(Default)]
struct Total {
    validation: Validation,
    /// Records before each input that has begun.
    before_input: Vec<u64>,
}

impl Total {
    fn add(&mut self, chunk: Checked, judge: &dyn Judge) {
        for start in &chunk.starts {
            let before = self.validation.records + start.at as u64;
            // Inputs without records begin together with the next one that has some.
            let begun = self.before_input.len().max(start.input + 1);
            self.before_input.resize(begun, before);
        }
        self.validation = judge.combine(std::mem::take(&mut self.validation), chunk.validation);
    }

    fn place_of_unordered(&self, inputs: &Inputs, judge: &dyn Judge) -> Option<RecordPosition> {
        let number = self.validation.first_unordered?;
        let input = self.before_input.partition_point(|&before| before <= number).checked_sub(1)?;
        let record = number - self.before_input.get(input)?;
        let offset = judge.record_bytes().map(|len| record * len as u64);
        Some(RecordPosition { input: inputs.get(input)?.name(), record, offset })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
