//! Jobs so small that setting up threads and a pool would take longer than sorting: one thread reads all inputs into
//! one buffer, sorts it and writes it. A sort of a few kilobytes then takes about half of the processor time.
//!
//! ```text
//!   inputs ─▶ [ bytes ] ─sort─▶ [ records in order ] ─choose, in place─▶ [ kept ] ─▶ file or pipe
//! ```
//!
//! Invariants: the result, the report and every error are the same as those of a large job. A job that turns out not to
//! be small, because a file has grown or has many records, has written nothing when it is done as a large job instead.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use ascot_io::clocks::{count, in_stage};
use ascot_io::{Backend, Buf, Disk, DiskOptions, Filled, PAGE_BYTES, WriteStream};
use ascot_model::account::PassAccount;
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;
use ascot_record::keys::KeyColumn;

use crate::api::{Caller, Method, Output, SortError, SortRequest};
use crate::job::predicted_disk;
use crate::output::OutputStream;
use crate::plan::{Budget, Lengths, MIN_MEMORY_BYTES, RunOptions, default_memory, make_plan};
use crate::read::{COMPLETION_BYTES, InputPosition, Inputs, RecordCutter};
use crate::records::{InputStart, Misfits, RawChunk, Records};
use crate::report::{JobSums, PassFacts, Passes, files_of, report_of_records};
use crate::resources::Lease;

/// Maximum bytes of records.
const BYTES_MAX: u64 = 4 << 20;

/// Inverse of the maximum memory share of records: they are held three times, beside their order.
const MEMORY_SHARE: u64 = 8;

/// Maximum number of records: they and their order fit in the minimum memory.
const RECORDS_MAX: usize = 1 << 18;

/// Bytes of a chunk per record for which its scratch memory is made, if records have no fixed length or a shorter one.
const SCRATCH_RECORD_BYTES: usize = 16;

/// Bytes moved by a system call.
const CALL_BYTES: usize = 1 << 20;

/// The memory of a small job; none if the job is not small. Without a cap the minimum is tried first.
pub(crate) fn memory_of(request: &SortRequest, inputs: &Inputs) -> Option<u64> {
    let one_file = !matches!(request.output, Output::Parts(_));
    let plain = inputs.are_files() && one_file && !request.merge_only && request.method != Method::Distribute;
    let bytes = inputs.record_bytes().filter(|&bytes| plain && bytes <= BYTES_MAX)?;
    let fits = |memory: &u64| *memory >= MIN_MEMORY_BYTES && bytes <= memory / MEMORY_SHARE;
    match request.memory_bytes {
        Some(memory) => Some(memory).filter(fits),
        None => Some(MIN_MEMORY_BYTES).filter(fits).or_else(|| Some(default_memory()).filter(fits)),
    }
}

/// A small job.
pub(crate) struct SmallJob<'a> {
    /// The request.
    pub(crate) request: &'a SortRequest,
    /// Its inputs, all of which are files.
    pub(crate) inputs: Inputs,
    /// The header of the output, if it has one.
    pub(crate) header: Option<Vec<u8>>,
    /// The cap, bytes.
    pub(crate) memory: u64,
    /// Injected faults, for tests.
    pub(crate) options: &'a RunOptions,
    /// The caller: observes when the output is complete, and may stop the job.
    pub(crate) caller: Caller<'a>,
}

/// Whole records as they were read.
struct Raw {
    buf: Buf,
    len: usize,
    records: usize,
    /// The start of the records of each input.
    starts: Vec<InputStart>,
}

/// Records in order, at the front of a buffer.
struct Sorted {
    lease: Lease,
    len: usize,
}

/// Sums of the records read, written and dropped.
#[derive(Default)]
struct Sums {
    read: RecordSum,
    out: RecordSum,
    dropped: RecordSum,
    misfits: Misfits,
}

impl SmallJob<'_> {
    /// Runs the job. Returns its report; none if the job turns out not to be small.
    pub(crate) fn run<R: Records>(self, records: &Arc<R>) -> Result<Option<Report>, SortError> {
        let backend = Backend::Sized(CALL_BYTES);
        let disk = Disk::new(DiskOptions { backend, ..self.options.of_disks() });
        disk.stop_when(self.caller.cancel.flag());
        let mut passes = Passes::new(disk.ledger().clone());
        self.caller.observer.began(passes.began());
        let stage = in_stage(stages::READ);
        let Some(raw) = self.read(records, &disk)? else { return Ok(None) };
        drop(stage);
        let stage = in_stage(stages::SORT);
        count(raw.len as u64);
        self.caller.cancel.check()?;
        let records = &**records;
        let Some(plan) = self.plan(records, &raw)? else { return Ok(None) };
        let mut sums = Sums::default();
        let Some(mut sorted) = sort(records, raw, &mut sums) else { return Ok(None) };
        if self.request.checks.strict {
            sums.misfits.refuse(records.key_columns(), &self.inputs, self.request.header)?;
        }
        self.choose(records, &mut sorted, &mut sums);
        sums.check()?;
        drop(stage);
        let stage = in_stage(stages::WRITE);
        // Not before the job is known to be small: a program takes the records once.
        let mut output = OutputStream::create(&disk, &self.request.output, None)?;
        self.write(sorted, output.stream()?)?;
        output.seal()?;
        drop(stage);
        let inputs = self.inputs.iter().count() as u64;
        passes.done("sort", PassFacts { inputs, outputs: 0, buffers: None });
        // It has one thread. Counting the processors took 4 percent of the time of a few hundred bytes.
        let accounts = passes.take_accounts(1);
        let report = self.report(plan, &sums, accounts, &disk, records.key_columns());
        self.caller.observer.complete(&report)?;
        output.commit()?;
        Ok(Some(report))
    }

    /// Reads all inputs; none if they have grown.
    fn read<R: Records>(&self, records: &Arc<R>, disk: &Disk) -> Result<Option<Raw>, SortError> {
        let inputs = self.inputs.iter().count();
        let expected = self.inputs.record_bytes().unwrap_or(0) as usize;
        // Space for the completion of a last record, and for detecting that a file has grown.
        let bytes_max = expected + COMPLETION_BYTES * inputs;
        let buf = Buf::heap_at_hand(bytes_max + PAGE_BYTES);
        let mut raw = Raw { buf, len: 0, records: 0, starts: Vec::with_capacity(inputs) };
        let start = InputPosition::default();
        let mut cutter = RecordCutter::new(records, self.inputs.clone(), start, self.caller.cancel);
        for input in 0..inputs {
            raw.starts.push(InputStart { at: raw.records, input, before: 0 });
            if !raw.append(&mut cutter, disk)? || raw.len > bytes_max {
                return Ok(None);
            }
        }
        Ok(Some(raw))
    }

    /// The plan; none if memory is too small for it.
    fn plan<R: Records>(&self, records: &R, raw: &Raw) -> Result<Option<Plan>, SortError> {
        let budget = Budget::new(self.memory, 1, self.inputs.record_bytes(), false)?;
        let mean_bytes = (raw.records > 0).then(|| raw.len as f64 / raw.records as f64);
        let lengths = Lengths::from_mean(mean_bytes, self.header.as_deref());
        let plan = make_plan(self.request, &self.inputs, &budget, &lengths, records, true)?;
        Ok(Some(plan).filter(|plan| plan.chosen.method == "in memory"))
    }

    /// Drops duplicates and all but the first records if the request says so, and converts the others to the form of
    /// the output.
    fn choose<R: Records>(&self, records: &R, sorted: &mut Sorted, sums: &mut Sums) {
        if self.request.unique {
            sorted.keep_distinct(records, &mut sums.dropped);
        }
        let bytes = &mut sorted.lease.bytes_mut()[..sorted.len];
        if let Some(top) = self.request.top {
            let first = records.cut(bytes, usize::try_from(top).unwrap_or(usize::MAX));
            records.sum(&bytes[first.bytes..], &mut sums.dropped);
            sorted.len = first.bytes;
        }
        let bytes = &mut bytes[..sorted.len];
        records.sum(bytes, &mut sums.out);
        records.finish(bytes);
    }

    /// Writes the header and the records.
    fn write(&self, mut sorted: Sorted, stream: &mut dyn WriteStream) -> Result<(), SortError> {
        self.caller.cancel.check()?;
        if let Some(header) = &self.header {
            let mut first = Buf::heap(header.len());
            first.copy_from_slice(header);
            stream.begin(first, header.len())?;
        }
        let all = 0..sorted.lease.bytes().len();
        let bytes =
            sorted.lease.lend(all).ok_or(SortError::Internal("the sorted records are lent already"))?;
        stream.begin(bytes, sorted.len)?;
        self.caller.cancel.check()
    }

    fn report(
        &self,
        plan: Plan,
        sums: &Sums,
        passes: Vec<PassAccount>,
        disk: &Disk,
        columns: &[KeyColumn],
    ) -> Report {
        let (streams, streams_left_out) = files_of(disk.ledger());
        let records = JobSums { read: &sums.read, out: &sums.out, dropped: &sums.dropped };
        Report {
            predicted_seconds: Some(plan.chosen.seconds()),
            predicted_peak_disk_bytes: predicted_disk(&plan),
            plan: Some(plan),
            seconds: passes.iter().map(|pass| pass.seconds).sum(),
            memory_bytes: self.memory,
            peak_disk_bytes: disk.space().peak(),
            moved: PassAccount::moved_by(&passes),
            passes,
            streams,
            streams_left_out,
            columns: sums.misfits.accounts(columns, &self.inputs, self.request.header),
            ..report_of_records(self.request, records)
        }
    }
}

impl Raw {
    /// Appends the records of an input, and completes the last one. False if there are more than expected.
    fn append<R: Records>(&mut self, cutter: &mut RecordCutter<R>, disk: &Disk) -> Result<bool, SortError> {
        let start = self.len;
        let Some(mut stream) = cutter.open(disk)? else { return Ok(false) };
        stream.begin(self.buf.split_off(start))?;
        let Filled { buf, start: _, end } = stream.complete()?;
        if self.buf.unsplit(buf).is_err() {
            return Err(SortError::Internal("a buffer came back from elsewhere"));
        }
        self.len += end;
        if self.len + COMPLETION_BYTES > self.buf.len() {
            return Ok(false);
        }
        cutter.at.offset += end as u64;
        let cut = cutter.cut(&self.buf[start..self.len], end)?;
        self.records += cut.records;
        let last = start + cut.bytes;
        if last < self.len {
            self.len += cutter.complete(&mut self.buf, last, self.len)?;
            self.records += cutter.cut(&self.buf[last..self.len], end - cut.bytes)?.records;
        }
        cutter.next_input();
        Ok(self.records <= RECORDS_MAX)
    }
}

/// Sorts and sums the records; none if their order takes too much memory.
fn sort<R: Records>(records: &R, raw: Raw, sums: &mut Sums) -> Option<Sorted> {
    if raw.records == 0 {
        return Some(Sorted { lease: Lease::plain(raw.buf), len: 0 });
    }
    let record_bytes = records.record_bytes().unwrap_or(0).max(SCRATCH_RECORD_BYTES);
    let mut scratch = records.scratch(raw.records * record_bytes);
    let out = records.gathers().then(|| Lease::plain(Buf::heap_at_hand(raw.buf.len())));
    let chunk = RawChunk { lease: Lease::plain(raw.buf), bytes: 0..raw.len, spilled: false, grouping: None };
    let mut parts = records.sort(chunk, out, &mut scratch, &mut sums.read).into_iter();
    sums.misfits = records.take_misfits(&mut scratch).placed(&raw.starts);
    let whole = parts.next().filter(|part| part.bytes == (0..raw.len))?;
    let lease = Arc::into_inner(whole).and_then(|sorted| Arc::into_inner(sorted.lease))?;
    Some(Sorted { lease, len: raw.len })
}

impl Sorted {
    /// Keeps the first of equal records, and sums the others.
    fn keep_distinct<R: Records>(&mut self, records: &R, dropped: &mut RecordSum) {
        let bytes = &mut self.lease.bytes_mut()[..self.len];
        let mut kept = 0;
        let mut at = 0;
        let mut last = None;
        while at < bytes.len() {
            // Sorted records that are not strictly in order are equal.
            let previous = last.clone().map(|last: Range<usize>| &bytes[last]);
            let fresh = records.disorder(previous, &bytes[at..], true).unwrap_or(bytes.len() - at);
            bytes.copy_within(at..at + fresh, kept);
            if fresh > 0 {
                last = Some(kept + records.last_record(&bytes[kept..kept + fresh])..kept + fresh);
            }
            kept += fresh;
            at += fresh;
            let equal = records.cut(&bytes[at..], 1).bytes;
            records.sum(&bytes[at..at + equal], dropped);
            at += equal;
        }
        self.len = kept;
    }
}

impl Sums {
    /// An error unless every record read was written or dropped.
    fn check(&self) -> Result<(), SortError> {
        let mut accounted = self.out;
        accounted.combine(&self.dropped);
        if accounted == self.read {
            Ok(())
        } else {
            Err(SortError::Checksum { read: self.read, written: accounted })
        }
    }
}
