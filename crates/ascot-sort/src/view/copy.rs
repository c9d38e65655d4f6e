//! A part of a view written to a file or to standard output.
//!
//! Where all of a view becomes a file, the sum of the records written, whatever their order, must be that
//! of the records the view was made of, before the file gets its name.

use std::os::fd::AsFd;
use std::path::Path;

use ascot_io::{Action, AtomicOutput, BlockPool, IoError, PAGE_BYTES, STANDARD_OUTPUT, WriteStream};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Output;
use crate::plan::disk_space::room_for_output;
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
    match output {
        Output::Path(path) => {
            room_for_output(&disk, path, to - from)?;
            let mut file = AtomicOutput::create(&disk, path, "output")?;
            let whole = from == 0 && to == view.bytes();
            copy(view, (from, to), whole, file.stream()?, cancel)?;
            Ok(file.commit()?)
        }
        Output::Stdout => {
            let name = Path::new(STANDARD_OUTPUT);
            let fd = std::io::stdout().as_fd().try_clone_to_owned();
            let fd = fd.map_err(|error| IoError::from_os(Action::Open, name, 0, error))?;
            let mut pipe = disk.to_writer(fd, name, "output")?;
            copy(view, (from, to), false, pipe.as_mut(), cancel)?;
            Ok(pipe.finish()?)
        }
        Output::Parts(_) => Err(SortError::Internal("a view in parts")),
    }
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
