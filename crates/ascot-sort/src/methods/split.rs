//! Splits inputs into several files: by ranges of keys, by a hash of the key, or by position.
//!
//! ```text
//!   by size    inputs ─▶ chunks ─▶ one file after another
//!   by key     inputs ─▶ chunks ─▶ records grouped by part ─▶ [block] ─▶ file 0
//!                                                         ├▶ [block] ─▶ file 1 ...
//! ```
//!
//! Invariants: every record is in one file, and files hold records in the order of the inputs. No file gets its name
//! before all of them are sealed.
//!
//! A user may name the boundaries: a file of records, whose keys are the first keys of the parts. They must ascend in
//! the requested order, so that every part can have records.
//!
//! ```text
//!   boundaries   c     g     t
//!   parts      a..b | c..f | g..s | t..z       a record whose key is a boundary's begins a part
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ascot_io::clocks::in_stage;
use ascot_io::{Action, During};
use ascot_model::account::BufferAccount;
use ascot_model::report::Report;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;

use crate::api::{Output, Parts, Result, SortError, SplitBy};
use crate::job::Job;
use crate::methods::part_files::open_files;
use crate::methods::split_in_passes::split_in_passes;
use crate::partition::{
    BetweenChunks, Grouped, PartFile, Router, SPLIT_CHUNK_BYTES, split_chunks, write_partitioned,
};
use crate::plan::partition_in_long_runs;
use crate::records::{Records, Splitters};
use crate::report::PassFacts;
use crate::resources::ChunkPool;

/// Maximum number of chunks in memory.
const CHUNKS: usize = 64;

/// Splits the inputs of a job into the parts of its output.
pub fn split_inputs<R: Records>(mut job: Job<'_, R>, by: SplitBy) -> Result<Report> {
    let Output::Parts(parts) = &job.request.output else {
        return Err(SortError::Internal("a split without parts"));
    };
    let parts = parts.clone();
    job.verb = Some("split");
    match by {
        SplitBy::Size => by_size(job, &parts),
        _ => {
            let several = job.plan.chosen.factors.len() > 1;
            let bounds = match (by, &job.manifest.split) {
                (SplitBy::Range, None) => bounds_of(&job, &parts)?,
                _ => Vec::new(),
            };
            if several || job.manifest.split.is_some() {
                split_in_passes(job, &parts, by, bounds)
            } else if by == SplitBy::Hash {
                by_key(job, &parts, Router::Hash(parts.count))
            } else {
                let splitters = Splitters::new(&bounds, job.records.descending());
                by_key(job, &parts, Router::Ranges(&splitters))
            }
        }
    }
}

/// The first keys of the parts of a split by range, except the first part: the user's, or sampled ones.
fn bounds_of<R: Records>(job: &Job<'_, R>, parts: &Parts) -> Result<Vec<Vec<u8>>> {
    if let Some(path) = job.request.boundaries.as_deref() {
        return read_boundaries(job, path, parts.count);
    }
    let total = job.inputs.record_bytes().filter(|_| job.inputs.are_files()).ok_or_else(|| {
        SortError::Request(
            "ranges of keys are sampled, and what comes through a pipe is read only once\n  \
             write it to a file first, or split --by hash"
                .into(),
        )
    })?;
    let mut bounds = job.sampled_bounds(parts.count as usize, total)?;
    // A frequent key gets no part of its own, because the number of files is given.
    bounds.dedup();
    Ok(bounds)
}

fn by_size<R: Records>(mut job: Job<'_, R>, parts: &Parts) -> Result<Report> {
    let blocks = job.output_blocks()?;
    let mut output = job.open_rolling_output(parts, blocks, false)?;
    let chunks = chunk_pool(&job);
    let mut reader = job.reader(&chunks);
    let mut out = RecordSum::new();
    let mut next = || {
        let _stage = in_stage(stages::READ);
        reader.next(&|| ())
    };
    let _stage = in_stage(stages::WRITE);
    while let Some(mut placed) = next()? {
        job.cancel.check()?;
        let range = placed.chunk.bytes.clone();
        let bytes = &mut placed.chunk.lease.bytes_mut()[range];
        job.records.normalise(bytes);
        let mut sum = RecordSum::new();
        job.records.sum(bytes, &mut sum);
        job.manifest.sum_in.combine(&sum);
        output.write_records(bytes, 0, true)?;
        out.combine(&sum);
    }
    account_split(&mut job, parts, None);
    job.finish(output, &out, &RecordSum::new())
}

fn by_key<R: Records>(mut job: Job<'_, R>, parts: &Parts, router: Router<'_>) -> Result<Report> {
    let turns = job.turns(&job.inputs.paths(), &job.output_dirs());
    let long_runs = partition_in_long_runs(&job.request.volumes, parts.count as usize);
    let names = parts.paths().map(|path| (path, None)).collect();
    let mut files = open_files(&job, names, long_runs, 0)?.alternating(turns.is_some());
    let buffers = job.buffers_of(&files);
    let chunks = chunk_pool(&job);
    let reader = job.reader(&chunks).in_turn(turns);
    let records = job.records.clone();
    let threads = job.budget.threads;
    let cancel = job.cancel;
    let mut out = RecordSum::new();
    let mut after_chunk = |grouped: &Grouped, _: &mut BetweenChunks<'_, PartFile<R>>| {
        job.manifest.sum_in.combine(&grouped.sum);
        job.take_in(&grouped.misfits)?;
        for (_, range) in &grouped.groups {
            records.sum(&grouped.lease.bytes()[range.clone()], &mut out);
        }
        Ok(())
    };
    split_chunks(&records, reader, &chunks, router, threads, cancel, |chunks| {
        write_partitioned(&*records, chunks, &mut files, cancel, &mut after_chunk)
    })?;
    account_split(&mut job, parts, Some(buffers));
    let files: Vec<_> = files.into_outputs().map(PartFile::into_file).collect();
    job.finish(files, &out, &RecordSum::new())
}

/// A chunk pool of the memory that the outputs leave.
fn chunk_pool<R: Records>(job: &Job<'_, R>) -> ChunkPool {
    let share = job.pool.available();
    let chunk = SPLIT_CHUNK_BYTES.min(share / 16).max(64 << 10) / 4096 * 4096;
    ChunkPool::new(&job.pool, chunk, (share / chunk).clamp(4, CHUNKS), share)
}

fn account_split<R: Records>(job: &mut Job<'_, R>, parts: &Parts, buffers: Option<BufferAccount>) {
    let inputs = job.inputs.iter().count() as u64;
    job.passes.done("split", PassFacts { inputs, outputs: u64::from(parts.count), buffers });
}

/// Inverse of the maximum memory share of the boundaries.
const MEMORY_SHARE: usize = 16;

/// The normalised keys of the records in `path`, one fewer than `parts`.
fn read_boundaries<R: Records>(job: &Job<'_, R>, path: &Path, parts: u32) -> Result<Vec<Vec<u8>>> {
    let max_bytes = job.budget.memory / MEMORY_SHARE;
    let refused = |what: String| SortError::Request(format!("{}: {what}", path.display()));
    // The length of a pipe is not known in advance.
    let mut bytes = Vec::new();
    let file = File::open(path).during(Action::Read, path)?;
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).during(Action::Read, path)?;
    if bytes.len() > max_bytes {
        return Err(refused(
            "boundaries of more than a sixteenth of the memory\n  allow more memory, or name fewer".into(),
        ));
    }
    let mut whole = job.records.cut(&bytes, usize::MAX).bytes;
    if whole < bytes.len() {
        bytes.extend(job.records.completion());
        whole = job.records.cut(&bytes, usize::MAX).bytes;
    }
    if whole < bytes.len() {
        return Err(refused(format!("its last boundary, at offset {whole}, is cut short")));
    }
    if job.records.cut_keyed(&bytes).1.is_some() {
        return Err(refused("a boundary ends before its key does".into()));
    }
    job.records.normalise(&mut bytes);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    job.records.each_key(&bytes, &mut |_, key| keys.push(key.to_vec()));
    check(&keys, job.records.descending(), parts).map_err(refused)?;
    Ok(keys)
}

/// Refuses boundaries of the wrong number or order, with a message.
fn check(keys: &[Vec<u8>], descending: bool, parts: u32) -> Result<(), String> {
    if keys.len() + 1 != parts as usize {
        let count = keys.len();
        let wanted = keys.len() + 1;
        return Err(format!(
            "it has {count} boundaries, which make {wanted} parts\n  write: --parts {wanted}"
        ));
    }
    let ascend = |pair: &[Vec<u8>]| if descending { pair[0] > pair[1] } else { pair[0] < pair[1] };
    match keys.windows(2).position(|pair| !ascend(pair)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "boundary {} does not come after the one ahead of it\n  sort them by the same keys and options, each once \
             (ascot sort -u)",
            at + 2
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_ascend_and_are_one_fewer_than_parts() {
        let keys = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        assert_eq!(check(&keys("cgt"), false, 4), Ok(()));
        assert_eq!(check(&keys("tgc"), true, 4), Ok(()));
        assert_eq!(check(&[], false, 1), Ok(()));
        assert!(check(&keys("cgt"), false, 3).is_err_and(|told| told.contains("--parts 4")));
        for (wrong, at) in [("cgg", "boundary 3"), ("gct", "boundary 2")] {
            assert!(check(&keys(wrong), false, 4).is_err_and(|told| told.contains(at)), "{wrong}");
        }
    }
}
