//! Reshapes n sorted inputs into m sorted files: one key orders the records, another decides on their files.
//!
//! ```text
//!   input 0 ─╮                             ╭─▶ file 0, sorted
//!      ...   ├─▶ merge ─▶ route by key ────┼─▶    ...
//!   input n ─╯                             ╰─▶ file m, sorted
//! ```
//!
//! A merge and a split in one pass: all inputs are needed at once and all files fill at once, so that they share one
//! memory, by A5 or A6 where switches cost much.
//!
//! Invariants: a file has its records in the order of the merge; the checksum of the records written is that of the
//! records read; no file gets its name before all are complete.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie, TooFewBlocks};
use ascot_bowtie::schedule::{FewestHeld, Split};
use ascot_bowtie::simulate::best_scheme;
use ascot_io::sync::Unpoisoned;
use ascot_io::{AtomicOutput, BlockPool, Buf, Growable, Pool};
use ascot_model::plan::{PassPlan, Plan};
use ascot_model::report::Report;
use ascot_model::run_length::{HALF, Scheme, Shape};
use ascot_record::checksum::RecordSum;

use crate::api::{Output, Result, Route, RouteBy, SortError, SortRequest};
use crate::job::Job;
use crate::merge::{Merge, MergeSink};
use crate::methods::merge_inputs::{RawInput, straddling};
use crate::partition::{PartFile, part_of_hash};
use crate::plan::{Budget, Buffers, MergeShare, scheduled_switches};
use crate::records::{AnyRecords, InputHead, MergedBlock, Records, Rules, groups_of, with_records};
use crate::report::PassFacts;
use crate::resources::{ChunkPool, descriptors};

/// Descriptors of a file being written: the file, twice, and its lock.
const DESCRIPTORS_PER_FILE: usize = 3;
/// Inverse of the share of a batch in the memory of all streams: the schedule sees inputs as they are consumed.
const BATCH_SHARE: usize = 32;

/// Calls a function with the byte range and the key of each record.
type EachKey = Box<dyn Fn(&[u8], &mut dyn FnMut(Range<usize>, &[u8])) + Send>;

/// Refuses files that cannot be open at once: all inputs and all parts are.
fn check_descriptors(inputs: usize, parts: usize, open_max: usize) -> Result<()> {
    let needed = inputs + DESCRIPTORS_PER_FILE * parts;
    if needed <= open_max {
        return Ok(());
    }
    let advice = if inputs > DESCRIPTORS_PER_FILE * parts {
        "merge some of the inputs first (ascot merge)"
    } else {
        "ask for fewer parts and reshape those again"
    };
    Err(SortError::Request(format!(
        "{inputs} inputs and {parts} parts need {needed} open files at once, and this process may have {open_max}\n  \
         raise the limit (ulimit -n), or {advice}"
    )))
}

/// Merges the sorted inputs of a job, and writes each record to the file that its other key names.
pub fn reshape_by<R: Records>(mut job: Job<'_, R>, route: &Route, head: &InputHead) -> Result<Report> {
    let Output::Parts(parts) = &job.request.output else {
        return Err(SortError::Internal("a reshape without parts"));
    };
    let count = job.inputs.iter().count();
    check_descriptors(count, parts.count as usize, descriptors())?;
    parts.check(usize::MAX)?;
    let files = parts.paths().map(|path| {
        job.cancel.check()?;
        Ok(PartFile::new(&job.records, AtomicOutput::create(&job.disk, &path, "output")?))
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    let fault = Arc::new(Mutex::new(None));
    let long_records = ChunkPool::new(&job.pool, job.budget.block, 0, job.pool.budget());
    let scratch = job.pool.region(job.budget.block, "records by file")?;
    let available = job.pool.available();
    let share = share_of(job.request, available, job.budget.block, job.records.record_bytes());
    let blocks = share.blocks(available, job.budget.block);
    let straddling = straddling(&job.pool, share, blocks)?;
    let open = |number| RawInput::open(&job, number, share, &long_records, straddling.as_ref(), &fault);
    let inputs = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut streams = open_streams(&job, inputs, files, blocks)?;
    let buffers = job.buffers_of(&streams);
    let header = job.header.clone().unwrap_or_default();
    let memory = streams.pool().total() * streams.pool().block_bytes();
    let mut target = Routed {
        records: &*job.records,
        each_key: each_key(&job, route, head)?,
        file_of: FileOf { by: route.by, files: streams.outputs(), known: HashMap::new() },
        scratch,
        long: None,
        pool: job.pool.clone(),
        sum: RecordSum::new(),
        batch_bytes: (memory / BATCH_SHARE) as u64,
    };
    let rules = Rules { unique: false, sum: true };
    let merge = Merge::new(&*job.records, &job.emitters, rules, job.cancel);
    // Inputs are read from the first write on, so that either step may find a fault of theirs.
    let headed = (0..streams.outputs()).try_for_each(|file| streams.write_all(file, &header));
    let result = match headed {
        Ok(()) => merge.run(&mut streams, vec![0; count], &mut target),
        Err(error) => Err(error.into()),
    };
    let fault = fault.lock().unpoisoned().take();
    let merged = result.map_err(|error| fault.unwrap_or(error))?;
    let out = target.sum;
    streams.streams().for_each(|input| job.manifest.sum_in.combine(&input.sum()));
    job.manifest.misfits.combine(&merged.misfits);
    let facts = PassFacts { inputs: count as u64, outputs: streams.outputs() as u64, buffers: Some(buffers) };
    job.passes.done("reshape", facts);
    let files: Vec<_> = streams.into_outputs().map(PartFile::into_file).collect();
    job.finish(files, &out, &RecordSum::new())
}

/// The scheme of `inputs` and `outputs` on one volume, if long runs are better.
fn scheme_of(request: &SortRequest, inputs: usize, outputs: usize, blocks: usize) -> Option<Scheme> {
    let shape = Shape { inputs: inputs as u32, outputs: outputs as u32, alpha: HALF };
    request.volumes.wants_runs(inputs + outputs).then(|| best_scheme(shape, blocks as u32))
}

/// The streams of a reshape, which share `blocks`.
fn open_streams<R: Records>(
    job: &Job<'_, R>,
    inputs: Vec<RawInput<R>>,
    files: Vec<PartFile<R>>,
    blocks: usize,
) -> Result<Bowtie<RawInput<R>, PartFile<R>>> {
    let block = job.budget.block;
    let scheme = scheme_of(job.request, inputs.len(), files.len(), blocks);
    let blocks = BlockPool::new(job.pool.region(blocks * block, "blocks of streams")?, block);
    let few = |error: TooFewBlocks| SortError::Request(error.to_string());
    let bowtie = match scheme {
        // All bytes read are written, so the share of reading is one half and need not be measured.
        Some(scheme) => Bowtie::new(inputs, files, blocks, &scheme),
        None => {
            let read = blocks.total() as u32 / 2;
            let split = Split { read, write: blocks.total() as u32 - read };
            Bowtie::with_schedule(inputs, files, blocks, HALF, split, Box::new(FewestHeld))
        }
    };
    Ok(bowtie.map_err(few)?.observing(job.disk.ledger(), "reshape"))
}

/// How a reshape divides `available` bytes.
fn share_of(
    request: &SortRequest,
    available: usize,
    block: usize,
    record_bytes: Option<usize>,
) -> MergeShare {
    let inputs = request.inputs.len();
    let long_runs = request.volumes.wants_runs(inputs + request.output.parts_held());
    MergeShare::new(available, block, inputs, record_bytes, long_runs)
}

/// The function that finds the routing key of each record.
fn each_key<R: Records>(job: &Job<'_, R>, route: &Route, head: &InputHead) -> Result<EachKey> {
    let Some(keys) = &route.keys else {
        let records = Arc::clone(&job.records);
        return Ok(Box::new(move |bytes, each| records.each_key(bytes, each)));
    };
    let request = SortRequest { keys: keys.clone(), ..job.request.clone() };
    with_records!(AnyRecords::new(&request, head)?, records => {
        Ok(Box::new(move |bytes, each| records.each_key(bytes, each)))
    })
}

/// The file of a key.
struct FileOf {
    by: RouteBy,
    files: usize,
    /// By value: the keys so far, and their files.
    known: HashMap<Vec<u8>, usize>,
}

impl FileOf {
    /// The file of `key`; none if there is none left for another value.
    fn find(&mut self, key: &[u8]) -> Option<usize> {
        if self.by == RouteBy::Hash {
            return Some(part_of_hash(key, self.files as u32) as usize);
        }
        if let Some(&file) = self.known.get(key) {
            return Some(file);
        }
        let file = self.known.len();
        (file < self.files).then(|| {
            self.known.insert(key.to_vec(), file);
            file
        })
    }
}

/// A record longer than a block, as merged so far.
struct Long {
    memory: Growable,
    len: usize,
}

/// Merged records on their way to their files.
struct Routed<'a, R> {
    records: &'a R,
    each_key: EachKey,
    file_of: FileOf,
    /// Records of a block, grouped by file.
    scratch: Buf,
    long: Option<Long>,
    pool: Pool,
    /// Sum of the records written.
    sum: RecordSum,
    batch_bytes: u64,
}

impl<R: Records, I: BlockInput, O: BlockOutput> MergeSink<I, O> for Routed<'_, R> {
    fn block(&mut self, block: MergedBlock, streams: &mut Bowtie<I, O>) -> Result<()> {
        let bytes = &block.buf[..block.len];
        // Blocks hold whole records, or part of one that is longer.
        if self.long.is_none() && self.records.cut(bytes, usize::MAX).bytes == bytes.len() {
            return self.route(bytes, streams);
        }
        let mut long = match self.long.take() {
            Some(long) => long,
            None => Long { memory: self.pool.growable("one very long record")?, len: 0 },
        };
        long.memory.grow_to(long.len + bytes.len())?;
        long.memory[long.len..long.len + bytes.len()].copy_from_slice(bytes);
        long.len += bytes.len();
        let whole = &long.memory[..long.len];
        if self.records.cut(whole, usize::MAX).bytes < whole.len() {
            self.long = Some(long);
            return Ok(());
        }
        let file = self.files_of(whole)?.first().map_or(0, |(file, _)| *file);
        self.records.sum(whole, &mut self.sum);
        Ok(streams.write_all(file, whole)?)
    }

    fn batch_bytes_max(&self) -> u64 {
        self.batch_bytes
    }
}

impl<R: Records> Routed<'_, R> {
    /// The file of each record.
    fn files_of(&mut self, bytes: &[u8]) -> Result<Vec<(usize, Range<usize>)>> {
        let mut files = Vec::new();
        let mut is_lost = false;
        let file_of = &mut self.file_of;
        (self.each_key)(bytes, &mut |range, key| match file_of.find(key) {
            Some(file) => files.push((file, range)),
            None => is_lost = true,
        });
        if is_lost {
            return Err(SortError::Request(format!(
                "the key of --by value has more than {} values, and each has a file of its own\n  ask for more \
                 files (--parts N), or use --by hash",
                self.file_of.files
            )));
        }
        Ok(files)
    }

    /// Groups the records of a block by file, and gives them to the files.
    fn route<I: BlockInput, O: BlockOutput>(
        &mut self,
        bytes: &[u8],
        streams: &mut Bowtie<I, O>,
    ) -> Result<()> {
        let records = self.files_of(bytes)?;
        let mut sizes = vec![0; self.file_of.files];
        records.iter().for_each(|(file, range)| sizes[*file] += range.len());
        let (mut ends, groups) = groups_of(&sizes);
        for (file, range) in records {
            let end = &mut ends[file];
            self.scratch[*end..*end + range.len()].copy_from_slice(&bytes[range.clone()]);
            *end += range.len();
        }
        for (file, range) in groups {
            let group = &self.scratch[range];
            self.records.sum(group, &mut self.sum);
            streams.write_all(file, group)?;
        }
        Ok(())
    }
}

/// The buffers of a reshape by another key.
pub(crate) fn reshape_buffers(
    request: &SortRequest,
    budget: &Budget,
    record_bytes: Option<usize>,
) -> Buffers {
    // Beside the blocks of the merging threads, and the records grouped by file.
    let block = budget.block;
    let available = budget.memory.saturating_sub((budget.threads * budget.emit_blocks + 1) * block);
    let blocks = share_of(request, available, block, record_bytes).blocks(available, block);
    Buffers { bytes: (blocks * block) as u64, block: block as u64 }
}

/// The plan of a reshape by another key: one pass, n x m. `merging` is the plan of a merge of the same inputs.
pub fn plan_reshape_by(
    merging: Plan,
    request: &SortRequest,
    budget: &Budget,
    record_bytes: Option<usize>,
) -> Plan {
    let inputs = request.inputs.len();
    let outputs = request.output.parts_held();
    let Some(last) = merging.chosen.passes.last() else { return merging };
    let bytes = last.written_bytes;
    let mut pass = PassPlan {
        name: "reshape".into(),
        read_bytes: bytes,
        inputs: inputs as u64,
        outputs: outputs as u64,
        times: 1,
        requests: 2 * bytes / budget.block as u64,
        checkpoints: 0,
        ..last.clone()
    };
    let buffers = reshape_buffers(request, budget, record_bytes);
    let by = match scheme_of(request, inputs, outputs, (buffers.bytes / buffers.block) as usize) {
        None => {
            pass.set_switches(2 * bytes / budget.block as u64, &merging.volume);
            String::new()
        }
        Some(scheme) => {
            let switches = scheduled_switches(&scheme, buffers, 2 * bytes);
            pass.set_switches(switches, &merging.volume);
            format!(" by {}", scheme.algorithm.name().to_uppercase())
        }
    };
    let mut plan = merging;
    plan.chosen.method = "reshape".into();
    plan.chosen.summary =
        format!("merge {inputs} sorted files and split them into {outputs}, in one pass{by}");
    plan.chosen.factors = Vec::new();
    plan.chosen.merge_factor = None;
    plan.chosen.passes = vec![pass];
    plan.others = Vec::new();
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_are_too_many_are_named() {
        assert!(check_descriptors(600, 3, 609).is_ok());
        let told = check_descriptors(600, 3, 608).unwrap_err().to_string();
        assert!(told.starts_with("600 inputs and 3 parts need 609 open files at once"), "{told}");
        assert!(told.ends_with("or merge some of the inputs first (ascot merge)"), "{told}");
        let told = check_descriptors(3, 600, 99).unwrap_err().to_string();
        assert!(told.ends_with("or ask for fewer parts and reshape those again"), "{told}");
    }
}
