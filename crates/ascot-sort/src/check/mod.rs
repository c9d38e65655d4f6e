//! Checks that records are in order, counts them and their duplicate keys, and sums them up.
//!
//! Inputs are read forward, one after another, and count as one sequence; parts of it are
//! validated by several threads and put together in order:
//!
//! ```text
//! inputs ──> blocks ──> parts of whole records ──> workers ──> put together by number
//!            reader                                validate    one Validation
//! ```
//!
//! A part's validation is small, so that those that arrive early just wait; blocks return to the
//! pool as soon as they are validated, and memory is bounded by the pool (and by the longest
//! record, where records span blocks).

pub mod is_sorted;
mod judge;
mod keys;
mod reader;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ascot_io::waits::{Need, receive};
use ascot_io::{BlockPool, Disk, Pool, ReadStream, threads};
use ascot_record::gensort::Validation;
use ascot_record::layout::Layout;
use crossbeam_channel::{Receiver, Sender};

use crate::api::error::{Missing, SortError};
use crate::api::observe::{Cancel, Observer};
use crate::api::request::{Input, Keys};
use crate::read::file_format::refuse_unless_text;
use crate::read::inputs::{InputFile, Inputs};
use crate::report::watch::Watch;
use crate::resources::control_group::lowered;
use crate::resources::threads::compute_threads;
use judge::Judge;
use reader::{Cutter, Event, Part, Rest, read_blocks};

/// Memory of all blocks together.
const POOL_BYTES: usize = 64 << 20;

/// Blocks at least: some being read, some being checked.
const LEAST_BLOCKS: usize = 3;

/// Bytes read at a time: whole pages, and whole records of 100 bytes.
const BLOCK_BYTES: usize = 20 * 100 * 1024;

/// What to check.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// Read in this order, as one sequence.
    pub inputs: Vec<Input>,
    /// How bytes are cut into records.
    pub layout: Layout,
    /// What should order them.
    pub keys: Keys,
    /// Threads to compute with; none: one a core.
    pub threads: Option<usize>,
}

/// What came of it. Shown as the benchmark's own validator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Counts, order and checksum over all inputs.
    pub validation: Validation,
    /// Where the first record stands that is less than the one before it.
    pub unordered: Option<RecordPlace>,
    /// Bytes of all inputs.
    pub bytes: u64,
}

/// A record's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The input it is in.
    pub input: String,
    /// Its number there, from 0.
    pub record: u64,
    /// Its offset there in bytes, where all records have the same length.
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

/// Checks the inputs. Records out of order are no error but part of the report.
pub fn check(
    request: &CheckRequest,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<CheckReport, SortError> {
    let inputs = Inputs::open(if request.inputs.is_empty() { &[Input::Stdin] } else { &request.inputs })?;
    // Lines are named as such here.
    if matches!(request.layout, Layout::Csv { .. }) {
        refuse_unless_text(&inputs, request.layout)?;
    }
    let (judge, inputs) = keys::judge(request.layout, &request.keys, inputs)?;
    let blocks = usize::try_from(lowered(POOL_BYTES as u64)).unwrap_or(POOL_BYTES) / BLOCK_BYTES;
    let pool = Pool::new(blocks.max(LEAST_BLOCKS) * BLOCK_BYTES);
    let region = pool.region(pool.budget(), "blocks being checked")?;
    let blocks = BlockPool::new(region, BLOCK_BYTES);
    let assembly = Mutex::new(Assembly::default());
    let workers = compute_threads(request.threads);
    let mut reading = Reading {
        judge: &*judge,
        blocks: &blocks,
        watch: Watch::new(observer, cancel, "check", inputs.record_bytes()),
        parts: 0,
    };
    let ends = threads::scope(|scope| {
        let (sender, receiver) = crossbeam_channel::unbounded();
        threads::start_some(workers, |number| {
            let (receiver, assembly, judge) = (receiver.clone(), &assembly, &*judge);
            scope.spawn(&format!("check {number}"), move || work(&receiver, judge, assembly))
        })?;
        drop(receiver);
        reading.all(&inputs, &sender)
    })?;
    let mut assembly = assembly.into_inner().unwrap_or_else(PoisonError::into_inner);
    assembly.begin_inputs(inputs.iter().count());
    assembly.refuse_incomplete(&inputs, ends)?;
    let unordered = assembly.place_of_unordered(&inputs, &*judge);
    Ok(CheckReport { validation: assembly.total, unordered, bytes: reading.watch.done_bytes() })
}

/// A numbered part on its way to a worker.
struct Job {
    number: u64,
    input: usize,
    part: Part,
}

/// Validates parts until there are no more.
fn work(jobs: &Receiver<Job>, judge: &dyn Judge, assembly: &Mutex<Assembly>) {
    while let Ok(Job { number, input, part }) = receive(jobs, "parts to check", Need::Idle) {
        let validation = judge.validate(part.bytes());
        drop(part);
        lock(assembly).add(number, input, validation, judge);
    }
}

/// The reading side.
struct Reading<'a> {
    judge: &'a dyn Judge,
    blocks: &'a BlockPool,
    watch: Watch<'a>,
    parts: u64,
}

impl Reading<'_> {
    /// Reads all inputs. Stops at the first that does not end with a record, and says which.
    fn all(&mut self, inputs: &Inputs, jobs: &Sender<Job>) -> Result<Option<(usize, Rest)>, SortError> {
        let disk = Disk::default();
        disk.stop_when(self.watch.cancel().flag());
        for (number, input) in inputs.iter().enumerate() {
            let stream = input.open(&disk, input.start)?;
            let rest = self.one(number, input.start, stream, jobs)?;
            if rest != Rest::Nothing {
                return Ok(Some((number, rest)));
            }
        }
        Ok(None)
    }

    fn one(
        &mut self,
        input: usize,
        start: u64,
        mut stream: Box<dyn ReadStream>,
        jobs: &Sender<Job>,
    ) -> Result<Rest, SortError> {
        let parts = &mut self.parts;
        let mut emit = |part| {
            // Where all workers have died nobody listens; their scope says so.
            let _ = jobs.send(Job { number: *parts, input, part });
            *parts += 1;
        };
        let mut cutter = Cutter::new(self.judge, start);
        let mut fits = true;
        let watch = &mut self.watch;
        let cancel = watch.cancel().clone();
        read_blocks(&mut *stream, self.blocks, &cancel, |event| {
            let Event::Block(filled) = event else { return watch.moved(0).map(|()| true) };
            watch.moved(filled.len())?;
            fits = cutter.take(filled, &mut emit);
            Ok(fits)
        })?;
        Ok(if fits { cutter.finish(&mut emit) } else { cutter.too_long() })
    }
}

/// Validations put together in order.
#[derive(Default)]
struct Assembly {
    total: Validation,
    /// Number of the part that comes next.
    next: u64,
    early: BTreeMap<u64, (usize, Validation)>,
    /// Records before each input.
    before_input: Vec<u64>,
}

impl Assembly {
    fn add(&mut self, number: u64, input: usize, validation: Validation, judge: &dyn Judge) {
        self.early.insert(number, (input, validation));
        while let Some((input, validation)) = self.early.remove(&self.next) {
            self.begin_inputs(input + 1);
            self.total = judge.combine(std::mem::take(&mut self.total), validation);
            self.next += 1;
        }
    }

    /// Notes that the inputs up to the `count`th have begun.
    fn begin_inputs(&mut self, count: usize) {
        while self.before_input.len() < count {
            self.before_input.push(self.total.records);
        }
    }

    /// The error of an input that does not end with a record.
    fn refuse_incomplete(&self, inputs: &Inputs, end: Option<(usize, Rest)>) -> Result<(), SortError> {
        let Some((number, rest)) = end else { return Ok(()) };
        let input = inputs.get(number).map(InputFile::name).unwrap_or_default();
        let before = self.before_input.get(number).copied().unwrap_or_default();
        match rest {
            Rest::Nothing => Ok(()),
            Rest::CutShort { offset, have } => {
                let record = self.total.records - before + 1;
                Err(SortError::CutShort { input, record, offset, have, missing: Missing::End })
            }
            Rest::TooLong { offset, have } => {
                Err(SortError::TooLong { input, offset, have, whole: false, least: 2 * have })
            }
        }
    }

    fn place_of_unordered(&self, inputs: &Inputs, judge: &dyn Judge) -> Option<RecordPlace> {
        let number = self.total.first_unordered?;
        let input = self.before_input.partition_point(|&before| before <= number).checked_sub(1)?;
        let record = number - self.before_input.get(input)?;
        let offset = judge.record_len().map(|len| record * len as u64);
        Some(RecordPlace { input: inputs.get(input)?.name(), record, offset })
    }
}

fn lock(assembly: &Mutex<Assembly>) -> MutexGuard<'_, Assembly> {
    assembly.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
