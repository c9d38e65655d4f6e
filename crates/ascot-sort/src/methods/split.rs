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
use ascot_io::{Action, AtomicOutput, BlockPool, IoError};
use ascot_model::account::BufferAccount;
use ascot_model::report::Report;
use ascot_model::sort_plan::long_run_bytes;
use ascot_record::checksum::RecordSum;

use crate::api::{Output, Parts, SortError, SplitBy};
use crate::job::Job;
use crate::partition::{
    BetweenChunks, Grouped, PartFile, Parts as OpenParts, Router, SPLIT_CHUNK_BYTES, open_parts,
    split_chunks, write_partitioned,
};
use crate::plan::{part_block, partition_in_long_runs};
use crate::records::{Records, Splitters};
use crate::report::PassFacts;
use crate::resources::{ChunkPool, descriptors};

/// Maximum number of chunks in memory.
const CHUNKS: usize = 64;
/// Descriptors of a file being written: the file, twice, and its lock.
const DESCRIPTORS_PER_PART: usize = 3;

/// Splits the inputs of a job into the parts of its output.
pub fn split_inputs<R: Records>(job: Job<'_, R>, by: SplitBy) -> Result<Report, SortError> {
    let Output::Parts(parts) = &job.request.output else {
        return Err(SortError::Internal("a split without parts"));
    };
    let parts = parts.clone();
    let report = match by {
        SplitBy::Size => by_size(job, &parts),
        SplitBy::Hash => by_key(job, &parts, Router::Hash(parts.count)),
        SplitBy::Range if job.request.boundaries.is_some() => {
            let path = job.request.boundaries.as_deref().unwrap_or(Path::new(""));
            let splitters =
                Splitters::new(&read_boundaries(&job, path, parts.count)?, job.records.descending());
            by_key(job, &parts, Router::Ranges(&splitters))
        }
        SplitBy::Range => {
            let total = job.inputs.record_bytes().filter(|_| job.inputs.are_files()).ok_or_else(|| {
                SortError::Request(
                    "ranges of keys are sampled, and what comes through a pipe is read only once\n  write it to a file first, or split --by hash"
                        .into(),
                )
            })?;
            let mut bounds = job.sampled_bounds(parts.count as usize, total)?;
            // A frequent key gets no part of its own, because the number of files is given.
            bounds.dedup();
            let splitters = Splitters::new(&bounds, job.records.descending());
            by_key(job, &parts, Router::Ranges(&splitters))
        }
    };
    report.map(|report| Report { verb: "split".into(), ..report })
}

fn by_size<R: Records>(mut job: Job<'_, R>, parts: &Parts) -> Result<Report, SortError> {
    let mut output = job.open_rolling_output(parts, false)?;
    let chunks = chunk_pool(&job);
    let mut reader = job.reader(&chunks);
    let mut out = RecordSum::new();
    let mut next = || {
        let _stage = in_stage("read");
        reader.next(&|| ())
    };
    let _stage = in_stage("write");
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

fn by_key<R: Records>(mut job: Job<'_, R>, parts: &Parts, router: Router<'_>) -> Result<Report, SortError> {
    let turns = job.turns(&job.inputs.paths(), &job.output_dirs());
    let mut files = open_files(&job, parts)?.alternating(turns.is_some());
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

/// The files of a split, each with the header. A block of each is filled while others are written.
fn open_files<R: Records>(job: &Job<'_, R>, parts: &Parts) -> Result<OpenParts<PartFile<R>>, SortError> {
    let count = parts.count as usize;
    parts.check(descriptors() / DESCRIPTORS_PER_PART)?;
    let long_runs = partition_in_long_runs(&job.request.volumes, count);
    let (blocks_min, block) = part_block(&job.budget, count)?;
    let blocks = match long_runs {
        Some(_) => blocks_min.max(long_run_bytes(job.budget.streams() as u64) as usize / block),
        None => blocks_min,
    };
    let blocks = BlockPool::new(job.pool.region(blocks * block, "blocks of parts")?, block);
    let mut files = Vec::with_capacity(count);
    for path in parts.paths() {
        job.cancel.check()?;
        files.push(PartFile::new(&job.records, AtomicOutput::create(&job.disk, &path, "output")?));
    }
    let mut files = open_parts(files, blocks, long_runs)?;
    for part in 0..count {
        let mut header = job.header.as_deref().unwrap_or_default();
        while !header.is_empty() {
            let taken = files.put(part, header);
            header = &header[taken..];
            if taken == 0 {
                files.flush()?;
            }
        }
    }
    Ok(files)
}

/// Inverse of the maximum memory share of the boundaries.
const MEMORY_SHARE: usize = 16;

/// The normalised keys of the records in `path`, one fewer than `parts`.
fn read_boundaries<R: Records>(job: &Job<'_, R>, path: &Path, parts: u32) -> Result<Vec<Vec<u8>>, SortError> {
    let most = job.budget.memory / MEMORY_SHARE;
    let refused = |what: String| SortError::Request(format!("{}: {what}", path.display()));
    let failed = |error| SortError::from(IoError::from_os(Action::Read, path, 0, error));
    // The length of a pipe is not known in advance.
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
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
    if job.records.keyless(&bytes).is_some() {
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
