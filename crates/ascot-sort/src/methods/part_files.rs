//! The files of a split, opened with their headers and the blocks that they share.

use std::path::PathBuf;

use ascot_io::{AtomicOutput, BlockPool};
use ascot_model::run_length::Algorithm;

use crate::api::Result;
use crate::job::Job;
use crate::partition::{OpenParts, PartFile, open_parts};
use crate::plan::part_block;
use crate::records::Records;

/// The files of a split, each with the header. A block of each is filled while others are written. `names`: the path of
/// each, and its temporary name, if it has one already. `ahead_bytes`: memory left to reading ahead.
pub(super) fn open_files<R: Records>(
    job: &Job<'_, R>,
    names: Vec<(PathBuf, Option<PathBuf>)>,
    long_runs: Option<Algorithm>,
    ahead_bytes: usize,
) -> Result<OpenParts<PartFile<R>>> {
    let count = names.len();
    let (blocks_min, block) = part_block(&job.budget, count)?;
    let blocks = match long_runs {
        Some(_) => blocks_min.max(job.long_run_bytes(ahead_bytes) / block),
        None => blocks_min,
    };
    let blocks = BlockPool::new(job.pool.region(blocks * block, "blocks of parts")?, block);
    let mut files = Vec::with_capacity(count);
    for (path, temporary) in names {
        job.cancel.check()?;
        let file = match temporary {
            Some(temporary) => AtomicOutput::create_named(&job.disk, &path, &temporary, "output")?,
            None => AtomicOutput::create(&job.disk, &path, "output")?,
        };
        files.push(PartFile::new(&job.records, file));
    }
    let mut files = open_parts(files, blocks, long_runs)?.observing(job.disk.ledger(), "split");
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
