//! A part of a view written to a file or to standard output.
//!
//! Where all of a view becomes a file, the sum of the records written, whatever their order, must be that
//! of the records the view was made of, before the file gets its name.

use ascot_io::{BlockPool, PAGE_BYTES, WriteStream};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Output;
use crate::output::stream::OutputStream;
use crate::plan::disk_space::check_output_space;
use crate::plan::volumes::{RunOptions, job_disk};
use crate::view::View;

/// Share of the memory for the output: one in so many.
const OUTPUT_SHARE: usize = 8;
/// Blocks of the output, and bytes of each at most.
const BLOCKS: usize = 4;
const BLOCK_BYTES: usize = 1 << 20;

/// Writes the bytes of `view` from `from` to `to`, which is not before it. A file appears whole or not at all.
pub fn write_part(
    view: &dyn View,
    (from, to): (u64, u64),
    output: &Output,
    options: &RunOptions,
    cancel: &Cancel,
) -> Result<u64, SortError> {
    let disk = job_disk(options);
    disk.stop_when(cancel.flag());
    if let Output::Path(path) = output {
        check_output_space(&disk, path, to - from)?;
    }
    let is_whole_file = matches!(output, Output::Path(_)) && from == 0 && to == view.bytes();
    let mut output = OutputStream::create(&disk, output, None)?;
    copy(view, (from, to), is_whole_file, output.stream()?, cancel)?;
    Ok(output.commit()?)
}

/// Copies the bytes from `from` to `to`; `verifies` them against the view's sum, where they are all.
fn copy(
    view: &dyn View,
    (from, to): (u64, u64),
    verifies: bool,
    out: &mut dyn WriteStream,
    cancel: &Cancel,
) -> Result<(), SortError> {
    // Memory is the view's, so that its cap holds for what is written, too.
    let least = BLOCKS * PAGE_BYTES;
    let bytes = (view.memory_left() / OUTPUT_SHARE).clamp(least, BLOCKS * BLOCK_BYTES);
    let block = bytes / BLOCKS / PAGE_BYTES * PAGE_BYTES;
    let blocks = BlockPool::new(view.pool().region(BLOCKS * block, "the output")?, block);
    let mut stream = view.stream(from, to, view.memory_left(), verifies)?;
    loop {
        cancel.check()?;
        let mut block = blocks.take(|| cancel.is_cancelled()).ok_or(SortError::Cancelled)?;
        let mut len = 0;
        while len < block.len() {
            let bytes = stream.next_bytes()?;
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len().min(block.len() - len);
            block[len..len + count].copy_from_slice(&bytes[..count]);
            stream.consume(count);
            len += count;
        }
        if len == 0 {
            break;
        }
        out.begin(block, len)?;
    }
    if verifies
        && let Some(written) = stream.sum()?
        && written != view.sum()
    {
        return Err(SortError::Checksum { read: view.sum(), written });
    }
    Ok(())
}
