//! A copy of a part of a view to a file or to standard output.
//!
//! If a whole view is copied to a file, the sum of the records written must equal that of the records from which the
//! view was made, before the file gets its name.

use std::ops::Range;
use std::time::Instant;

use ascot_io::{BlockPool, PAGE_BYTES, WriteStream};
use ascot_model::account::{BufferAccount, PassAccount};
use ascot_model::plan::PassPlan;
use ascot_model::report::{REPORT_VERSION, Report};

use crate::api::{Cancel, Observer, Output, Result, SortError};
use crate::output::OutputStream;
use crate::plan::{RunOptions, check_output_space, output_disk};
use crate::report::{PassFacts, Passes, files_of, processors};
use crate::resources::peak_memory_bytes;
use crate::view::reader::View;
use crate::view::stream::{Reading, StreamPlan};

/// Inverse of the output's share of the memory.
const OUTPUT_SHARE: usize = 32;
/// Number of output blocks, and maximum size of each in bytes.
const BLOCKS: usize = 4;
const BLOCK_BYTES: usize = 1 << 20;

/// Writes the bytes `part` of `view`, which must not end before it starts. A file appears whole or not at all.
pub fn write_part(
    view: &dyn View,
    part: Range<u64>,
    output: &Output,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    let started = Instant::now();
    // One ledger for both ends: on the same device, a request of one ends a run of the other.
    let disk = output_disk(options, view.ledger());
    disk.stop_when(cancel.flag());
    let mut passes = Passes::from_start(disk.ledger().clone());
    observer.began(passes.began());
    passes.done("open", PassFacts { inputs: view.runs(), ..PassFacts::default() });
    if let Output::Path(path) = output {
        check_output_space(&disk, path, part.end - part.start)?;
    }
    let is_whole_file = matches!(output, Output::Path(_)) && part == (0..view.bytes());
    let outputs = u64::from(matches!(output, Output::Path(_)));
    let PartPlan { in_turns, pass, .. } = PartPlan::new(view, &part, output)?;
    let mut output = OutputStream::create(&disk, output, None)?;
    let reading = Reading { sums: is_whole_file, in_turns, ..Reading::default() };
    let buffers = Some(copy(view, part.clone(), reading, output.stream()?, cancel)?);
    output.seal()?;
    passes.done("read", PassFacts { inputs: view.runs(), outputs, buffers });
    let (streams, streams_left_out) = files_of(disk.ledger());
    let passes = passes.take_accounts(processors());
    let report = Report {
        version: REPORT_VERSION,
        verb: "read".into(),
        predicted_seconds: Some(pass.seconds()),
        seconds: started.elapsed().as_secs_f64(),
        // The records of a part are not counted.
        records_in: if is_whole_file { view.sum().count } else { 0 },
        records_out: if is_whole_file { view.sum().count } else { 0 },
        checksum: if is_whole_file { view.sum().to_string() } else { String::new() },
        bytes_in: part.end - part.start,
        bytes_out: part.end - part.start,
        moved: PassAccount::moved_by(&passes),
        passes,
        streams,
        streams_left_out,
        memory_bytes: view.pool().budget() as u64,
        peak_memory_bytes: peak_memory_bytes(),
        peak_disk_bytes: disk.space().peak(),
        notices: disk.notices(),
        ..Report::default()
    };
    observer.complete(&report)?;
    output.commit()?;
    Ok(report)
}

/// How a part of a view is read and written.
pub(super) struct PartPlan {
    /// How its runs are read.
    pub(super) reading: StreamPlan,
    /// Whether reading and writing the output take turns.
    pub(super) in_turns: bool,
    /// The prediction.
    pub(super) pass: PassPlan,
}

impl PartPlan {
    /// The plan of writing the bytes `part` of `view`.
    pub(super) fn new(view: &dyn View, part: &Range<u64>, output: &Output) -> Result<PartPlan> {
        let in_turns = matches!(output, Output::Path(path) if view.takes_turns_with(path));
        // Held while the rest is divided, as when the view is read.
        let held = output_blocks(view)?;
        let reading = Reading { memory: view.pool().available(), in_turns, ..Reading::default() };
        let reading = view.plan_stream(part.start, part.end, reading)?;
        let output_block = matches!(output, Output::Path(_)).then(|| held.block_bytes() as u64);
        drop(held);
        let pass = view.predicted(part.end - part.start, output_block, &reading);
        Ok(PartPlan { reading, in_turns, pass })
    }
}

/// The memory of the output. It comes from the view's pool, so that its cap includes the output.
fn output_blocks(view: &dyn View) -> Result<BlockPool> {
    let min_bytes = BLOCKS * PAGE_BYTES;
    let bytes = (view.pool().available() / OUTPUT_SHARE).clamp(min_bytes, BLOCKS * BLOCK_BYTES);
    let block = bytes / BLOCKS / PAGE_BYTES * PAGE_BYTES;
    Ok(BlockPool::new(view.pool().region(BLOCKS * block, "the output")?, block))
}

/// Copies the bytes `part` with all memory; returns that which the runs shared. If their sum is computed, which needs
/// all bytes, compares it with the view's.
fn copy(
    view: &dyn View,
    part: Range<u64>,
    reading: Reading,
    out: &mut dyn WriteStream,
    cancel: &Cancel,
) -> Result<BufferAccount> {
    let blocks = output_blocks(view)?;
    let reading = Reading { memory: view.pool().available(), ..reading };
    let mut stream = view.stream(part.start, part.end, reading)?;
    loop {
        cancel.check()?;
        let mut block = blocks.take(|| cancel.is_cancelled()).ok_or(SortError::Cancelled)?;
        let len = stream.read(&mut block)?;
        if len == 0 {
            break;
        }
        out.begin(block, len)?;
    }
    if reading.sums
        && let Some(written) = stream.sum()?
        && written != view.sum()
    {
        return Err(SortError::Checksum { read: view.sum(), written });
    }
    Ok(stream.buffers())
}
