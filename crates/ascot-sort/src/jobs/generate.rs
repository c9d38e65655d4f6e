//! Writes the sort benchmark's records to a file or a pipe.
//!
//! Records are pure functions of their numbers, so workers make blocks in any order, and the caller writes them in the
//! right one:
//!
//! ```text
//!   pipeline: free block n ─▶ workers: records of block n ─▶ in order ─▶ write stream
//! ```
//!
//! Invariant: blocks get their numbers in the order in which they are taken from the pool. So the block to be written
//! next always has its memory, and a full pool waits for writes only.

use std::time::Duration;

use ascot_io::{BlockPool, Buf, Disk, Pool, WriteStream};
use ascot_record::gensort::{Encoding, RECORD_LEN, RecordGenerator};

use crate::api::{Cancel, Observer, Output, Result, SortError};
use crate::output::OutputStream;
use crate::pipeline::{InOrder, Pipeline};
use crate::plan::disk_space::check_output_space;
use crate::report::Watch;
use crate::resources::{compute_threads, lowered};

/// Memory of all blocks, bytes.
const POOL_BYTES: usize = 64 << 20;

/// Bytes of a block: whole records and whole pages, so that blocks can be written directly.
const BLOCK_BYTES: usize = 20 * RECORD_LEN * 1024;

/// Records of a block.
const BLOCK_RECORDS: u64 = (BLOCK_BYTES / RECORD_LEN) as u64;

/// Time between two checks whether all blocks are written.
const PATIENCE: Duration = Duration::from_millis(2);

/// The records to make, and their output.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Number of records.
    pub count: u64,
    /// Number of the first one.
    pub start: u128,
    /// Binary or printable records.
    pub encoding: Encoding,
    /// Whether many keys share hot prefixes.
    pub skewed: bool,
    /// The output; a file appears whole or not at all.
    pub output: Output,
    /// Compute threads; none: one per core.
    pub threads: Option<usize>,
}

/// Writes the requested records and returns their length in bytes.
pub fn generate(request: &GenerateRequest, observer: &dyn Observer, cancel: &Cancel) -> Result<u64> {
    let total_bytes = request
        .count
        .checked_mul(RECORD_LEN as u64)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(|| {
            SortError::Request(format!("{} records are more than a file can hold", request.count))
        })?;
    let bytes = pool_bytes(total_bytes, lowered(POOL_BYTES as u64));
    let pool = Pool::new(bytes);
    let blocks = BlockPool::new(pool.region(bytes, "records being made")?, BLOCK_BYTES);
    let mut watch = Watch::new(observer, cancel, "make records", Some(total_bytes));
    let disk = Disk::default();
    disk.stop_when(cancel.flag());
    if let Output::Path(path) = &request.output {
        check_output_space(&disk, path, total_bytes)?;
    }
    disk.space().reserve(total_bytes);
    let mut output = OutputStream::create(&disk, &request.output, None)?;
    make(request, &blocks, output.stream()?, &mut watch)?;
    Ok(output.commit()?)
}

/// Memory for the blocks, bytes: no more than there are bytes to make, and at least one block within `max_bytes`.
fn pool_bytes(total_bytes: u64, max_bytes: u64) -> usize {
    let blocks = total_bytes.div_ceil(BLOCK_BYTES as u64).min(max_bytes / BLOCK_BYTES as u64).max(1);
    usize::try_from(blocks).unwrap_or(1) * BLOCK_BYTES
}

/// Makes all records, on several threads, and writes them in order.
fn make(
    request: &GenerateRequest,
    blocks: &BlockPool,
    stream: &mut dyn WriteStream,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let threads = compute_threads(request.threads).min(blocks.total());
    let cancel = &watch.cancel().clone();
    Pipeline::new("make", threads, cancel).run(
        |feed| {
            for first in (0..request.count).step_by(BLOCK_RECORDS as usize) {
                let Some(block) = blocks.take(|| feed.is_closed()) else { break };
                if !feed.hand_on(Numbered { first, block }) {
                    break;
                }
            }
            Ok(())
        },
        || |numbered| fill(request, numbered),
        |made| write_in_order(made, stream, blocks, watch),
    )?;
    Ok(())
}

/// A block for the records from number `first` on.
struct Numbered {
    first: u64,
    block: Buf,
}

/// A block of records.
struct Made {
    block: Buf,
    len: usize,
}

fn fill(request: &GenerateRequest, numbered: Numbered) -> Made {
    let Numbered { first, mut block } = numbered;
    let len = (request.count - first).min(BLOCK_RECORDS) as usize * RECORD_LEN;
    let start = request.start.wrapping_add(u128::from(first));
    RecordGenerator::new(request.encoding, request.skewed, start).fill(&mut block[..len]);
    Made { block, len }
}

/// Passes blocks to the stream in order, and waits until they are written.
fn write_in_order(
    made: &mut InOrder<'_, Made>,
    stream: &mut dyn WriteStream,
    blocks: &BlockPool,
    watch: &mut Watch<'_>,
) -> Result<()> {
    // The reader of a pipe may be slow, and the caller may want to stop.
    while let Some(Made { block, len }) = made.next_result_or(&mut || watch.moved(0))? {
        stream.begin(block, len)?;
        watch.moved(len)?;
    }
    while blocks.free() < blocks.total() {
        std::thread::sleep(PATIENCE);
        watch.moved(0)?;
    }
    Ok(stream.drain()?)
}
