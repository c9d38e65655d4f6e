//! Splitting: records go to several files, by ranges of keys, by hash, or by place.
//!
//! ```text
//!   by size    inputs ─▶ pieces ─▶ one file after the other
//!   by key     inputs ─▶ pieces ─▶ records grouped by part ─▶ [block] ─▶ file 0
//!                                                         ├▶ [block] ─▶ file 1 ...
//! ```
//!
//! Invariants: every record is in one file, and files hold records in the order of the inputs; no file
//! appears before all of them are whole.

use std::path::{Path, PathBuf};

use ascot_io::{AtomicOutput, BlockPool};
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_model::sort_plan::long_run_bytes;
use ascot_record::checksum::RecordSum;

use crate::api::error::SortError;
use crate::api::request::{Output, Parts, SplitBy};
use crate::job::Job;
use crate::methods::boundaries;
use crate::output::target::Commit;
use crate::partition::parts::FilePart;
use crate::partition::route::{Grouped, Router, SPLIT_PIECE_BYTES, SplitTimes, split_pieces, split_stages};
use crate::partition::write_parts::{Hands, Table, deal, hands};
use crate::plan::budget::part_block;
use crate::plan::long_runs::deal_in_long_runs;
use crate::records::misfits::Misfits;
use crate::records::{Records, Splitters};
use crate::report::account::PassFacts;
use crate::resources::limits::descriptors;
use crate::resources::pieces::PiecePool;

/// Pieces in memory at most.
const PIECES: usize = 64;
/// Descriptors of an output being written: its file, twice, and its lock.
const DESCRIPTORS_PER_PART: usize = 3;

/// Splits the inputs of a job into the parts of its output.
pub fn split_inputs<R: Records>(
    job: Job<'_, R>,
    by: SplitBy,
    plan: Option<Plan>,
) -> Result<Report, SortError> {
    let Output::Parts(parts) = &job.request.output else {
        return Err(SortError::Internal("a split without parts"));
    };
    let parts = parts.clone();
    let report = match by {
        SplitBy::Size => by_size(job, &parts, plan),
        SplitBy::Hash => by_key(job, &parts, Router::Hash(parts.count), plan),
        SplitBy::Range if job.request.boundaries.is_some() => {
            let path = job.request.boundaries.as_deref().unwrap_or(Path::new(""));
            let splitters =
                Splitters::new(&boundaries::read(&job, path, parts.count)?, job.records.descending());
            by_key(job, &parts, Router::Ranges(&splitters), plan)
        }
        SplitBy::Range => {
            let total = job.inputs.record_bytes().filter(|_| job.inputs.are_files()).ok_or_else(|| {
                SortError::Request(
                    "ranges of keys are sampled, and what comes through a pipe is read only once\n  write it to a file first, or split --by hash"
                        .into(),
                )
            })?;
            let mut bounds = job.sampled_bounds(parts.count as usize, total)?;
            // A frequent key has no part of its own here: all parts are files that were asked for.
            bounds.dedup();
            let splitters = Splitters::new(&bounds, job.records.descending());
            by_key(job, &parts, Router::Ranges(&splitters), plan)
        }
    };
    report.map(|report| Report { verb: "split".into(), ..report })
}

fn by_size<R: Records>(mut job: Job<'_, R>, parts: &Parts, plan: Option<Plan>) -> Result<Report, SortError> {
    let region = job.pool.region(job.budget.target_blocks * job.budget.block, "the output")?;
    let blocks = BlockPool::new(region, job.budget.block);
    let mut target = job.target_in_parts(parts, blocks, false)?;
    let pieces = pieces_of(&job);
    let mut reader = job.reader(&pieces);
    let mut out = RecordSum::new();
    while let Some(mut placed) = reader.next(&|| ())? {
        job.cancel.check()?;
        let range = placed.piece.bytes.clone();
        let bytes = &mut placed.piece.lease.bytes_mut()[range];
        job.records.normalise(bytes);
        let mut sum = RecordSum::new();
        job.records.sum(bytes, &mut sum);
        job.manifest.sum_in.combine(&sum);
        target.write_records(bytes, 0, true)?;
        out.combine(&sum);
    }
    let times = SplitTimes {
        device: reader.waited_device,
        memory: reader.waited_memory,
        room: target.waited,
        ..SplitTimes::default()
    };
    account(&mut job, parts, &times);
    job.finish(target, &out, &RecordSum::new(), plan)
}

fn by_key<R: Records>(
    mut job: Job<'_, R>,
    parts: &Parts,
    router: Router<'_>,
    plan: Option<Plan>,
) -> Result<Report, SortError> {
    let turns = job.turns(&job.inputs.paths(), &job.output_dirs());
    let mut hands = open_files(&job, parts)?.alternating(turns.is_some());
    let pieces = pieces_of(&job);
    let reader = job.reader(&pieces).in_turn(turns);
    let (records, mut sum_in, mut out) = (job.records.clone(), RecordSum::new(), RecordSum::new());
    let (inputs, request, mut misfits) = (job.inputs.clone(), job.request, Misfits::default());
    let mut dealt = |grouped: &Grouped, _: &mut Table<'_, FilePart<R>>| {
        sum_in.combine(&grouped.sum);
        misfits.combine(&grouped.misfits);
        if request.checks.strict {
            misfits.refuse(records.key_columns(), &inputs, request.header)?;
        }
        for (_, range) in &grouped.groups {
            records.sum(&grouped.lease.bytes()[range.clone()], &mut out);
        }
        Ok(())
    };
    let (cancel, threads) = (job.cancel, job.budget.threads);
    let times = split_pieces(&records, reader, &pieces, router, threads, cancel, |pieces| {
        deal(&*records, pieces, &mut hands, cancel, &mut dealt)?;
        Ok(hands.waited())
    })?;
    (job.manifest.sum_in, job.manifest.misfits) = (sum_in, misfits);
    account(&mut job, parts, &times);
    let bytes = (0..hands.outputs()).map(|part| hands.written(part)).sum();
    let files = hands.into_outputs().map(FilePart::into_file).collect();
    job.finish(Files { files, bytes }, &out, &RecordSum::new(), plan)
}

/// Memory that the outputs do not take, in pieces.
fn pieces_of<R: Records>(job: &Job<'_, R>) -> PiecePool {
    let share = job.pool.available();
    let piece = SPLIT_PIECE_BYTES.min(share / 16).max(64 << 10) / 4096 * 4096;
    PiecePool::with_share(&job.pool, piece, (share / piece).clamp(4, PIECES), share)
}

fn account<R: Records>(job: &mut Job<'_, R>, parts: &Parts, times: &SplitTimes) {
    let inputs = job.inputs.iter().count() as u64;
    let stages = split_stages(times, job.budget.threads);
    job.passes.done("split", PassFacts { inputs, outputs: u64::from(parts.count), stages });
}

/// The files of a split, each with the header. A block of each is filled while others are written.
fn open_files<R: Records>(job: &Job<'_, R>, parts: &Parts) -> Result<Hands<FilePart<R>>, SortError> {
    let (count, most) = (parts.count as usize, descriptors() / DESCRIPTORS_PER_PART);
    parts.check(most)?;
    let long_runs = deal_in_long_runs(job.request, count);
    let (least, block) = part_block(&job.budget, count)?;
    let most = long_run_bytes(job.budget.streams() as u64) as usize / block;
    let blocks = if long_runs.is_some() { most.max(least) } else { least };
    let blocks = BlockPool::new(job.pool.region(blocks * block, "blocks of parts")?, block);
    let open = |path: PathBuf| {
        job.cancel.check()?;
        Ok(FilePart::new(&job.records, AtomicOutput::create(&job.disk, &path, "output")?))
    };
    let files = parts.paths().map(open).collect::<Result<Vec<_>, SortError>>()?;
    let mut hands = hands(files, blocks, long_runs)?;
    for part in 0..count {
        let mut header = job.header.as_deref().unwrap_or_default();
        while !header.is_empty() {
            let taken = hands.put(part, header);
            header = &header[taken..];
            if taken == 0 {
                hands.flush()?;
            }
        }
    }
    Ok(hands)
}

/// Files that are whole, but for their names.
struct Files {
    files: Vec<AtomicOutput>,
    bytes: u64,
}

impl Commit for Files {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn temporary(&self) -> Option<&Path> {
        None
    }

    /// Each was sealed when its last block was written.
    fn seal(&mut self) -> Result<(), SortError> {
        Ok(self.files.iter_mut().try_for_each(|file| file.seal().map(|_| ()))?)
    }

    fn commit(self) -> Result<u64, SortError> {
        AtomicOutput::commit_all(self.files)?;
        Ok(self.bytes)
    }
}
