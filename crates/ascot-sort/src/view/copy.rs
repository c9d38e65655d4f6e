//! A part of a view written to a file or to standard output; and keys as a user writes them.
//!
//! Where all of a view becomes a file, the sum of the records written, whatever their order, must be that
//! of the records the view was made of, before the file gets its name.

use std::os::fd::AsFd;
use std::path::Path;

use ascot_io::{Action, AtomicOutput, BlockPool, IoError, PAGE_BYTES, STANDARD_OUTPUT, WriteStream};
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::{Keys, Output, SortRequest};
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

/// A record that has the key a user wrote, in the form of a user's file: 0x and hexadecimal digits, or the
/// text itself; a number as such.
pub fn record_with_key(request: &SortRequest, text: &str) -> Result<Vec<u8>, SortError> {
    let bytes = match text.strip_prefix("0x").map(super::manifest::from_hex) {
        Some(Some(bytes)) if !matches!(request.layout, Layout::Number(_)) => bytes,
        Some(None) if !matches!(request.layout, Layout::Number(_)) => {
            return Err(SortError::Request(format!(
                "'{text}' is no key in hexadecimal\n  write two digits for each byte, as in 0x41ff"
            )));
        }
        _ => text.as_bytes().to_vec(),
    };
    match (request.layout, &request.keys) {
        (Layout::Lines { delimiter }, Keys::Command(options)) if options.keys.is_empty() => {
            Ok([&bytes[..], &[delimiter]].concat())
        }
        (Layout::Fixed { len }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map_or(len, |range| range.end.min(len));
            too_long(text, bytes.len(), end.saturating_sub(start))?;
            let mut record = vec![0; len];
            record[start..start + bytes.len()].copy_from_slice(&bytes);
            Ok(record)
        }
        (Layout::Prefixed { width, endian }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map(|range| range.end).filter(|&end| end != usize::MAX);
            too_long(text, bytes.len(), end.map_or(usize::MAX, |end| end - start))?;
            let mut body = vec![0; start];
            body.extend_from_slice(&bytes);
            body.resize(body.len().max(end.unwrap_or(0)), 0);
            let length = (body.len() as u64).to_le_bytes();
            let mut record = length[..usize::from(width)].to_vec();
            if endian == Endian::Big {
                record.reverse();
            }
            record.extend_from_slice(&body);
            Ok(record)
        }
        (Layout::Number(format), _) => number_bytes(format, text).ok_or_else(|| {
            SortError::Request(format!("'{text}' is no number of the view's format, {}\n  write it in decimal digits", request.layout))
        }),
        _ => Err(SortError::Request(
            "a range of keys is understood for numbers, for lines ordered as a whole, and for one byte range\n  ask for records or bytes instead: --at-record N, --range A..B".into(),
        )),
    }
}

/// A number as it stands in a file.
fn number_bytes(format: NumberFormat, text: &str) -> Option<Vec<u8>> {
    let mut bytes = match (format.kind, text.strip_prefix("0x")) {
        (NumberType::U32, Some(digits)) => u32::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, Some(digits)) => u64::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U32, None) => text.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, None) => text.parse::<u64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I32, _) => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I64, _) => text.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F32, _) => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F64, _) => text.parse::<f64>().ok()?.to_le_bytes().to_vec(),
    };
    if format.endian == Endian::Big {
        bytes.reverse();
    }
    Some(bytes)
}

fn too_long(text: &str, have: usize, most: usize) -> Result<(), SortError> {
    if have <= most {
        return Ok(());
    }
    Err(SortError::Request(format!(
        "the key '{text}' has {have} bytes, and keys of the view have {most}\n  give fewer"
    )))
}
