//! Jobs so small that setting up a large one would take longer than doing them: inputs are read,
//! sorted and written on the calling thread, without a pool, threads or a device's queue.
//!
//! ```text
//!   inputs ─▶ [ bytes ] ─sort─▶ [ records in order ] ─choose, in place─▶ [ kept ] ─▶ file or pipe
//! ```
//!
//! Invariants: the result, its report and every error are those of the large way; a job that turns
//! out not to be small (a file has grown, its records are many) has written nothing when it is left
//! to the large way.

mod output;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{Backend, Buf, Disk, DiskOptions, Filled, PAGE_BYTES};
use ascot_model::account::{PassAccount, StreamAccount};
use ascot_model::plan::Plan;
use ascot_model::report::{REPORT_VERSION, Report};
use ascot_record::checksum::RecordSum;
use ascot_record::keys::KeyColumn;

use crate::api::error::SortError;
use crate::api::observe::{Cancel, Observer};
use crate::api::request::{Method, Output, SortRequest};
use crate::job::predicted_disk;
use crate::plan::budget::{Budget, LEAST_MEMORY_BYTES, default_memory};
use crate::plan::planner::{Lengths, make_plan};
use crate::plan::volumes::RunOptions;
use crate::read::damage::RecordStart;
use crate::read::inputs::{COMPLETION_BYTES, InputFile, Inputs};
use crate::records::misfits::{InputStart, Misfits};
use crate::records::{RawPiece, Records, Visitor};
use crate::report::account::{Passes, files_of, stage};
use crate::resources::limits::peak_memory_bytes;
use crate::resources::pieces::Lease;
use output::Sink;

/// Most bytes of records.
const MOST_BYTES: u64 = 4 << 20;

/// Records take at most this part of memory: they are held three times, beside their order.
const PART_OF_MEMORY: u64 = 8;

/// Most records; so many, and their order, fit the least memory.
const MOST_RECORDS: usize = 1 << 18;

/// Bytes of a piece for each record that its scratch has room for.
const SCRATCH_RECORD_BYTES: usize = 16;

/// Bytes moved by a system call.
const CALL_BYTES: usize = 1 << 20;

/// The memory of a small job; none where the job is not small. Without a cap the least will do.
pub(crate) fn memory_of(request: &SortRequest, inputs: &Inputs) -> Option<u64> {
    let one_file = !matches!(request.output, Output::Parts(_));
    let plain = inputs.are_files() && one_file && !request.merge_only && request.method != Method::Distribute;
    let bytes = inputs.record_bytes().filter(|&bytes| plain && bytes <= MOST_BYTES)?;
    let fits = |memory: &u64| *memory >= LEAST_MEMORY_BYTES && bytes <= memory / PART_OF_MEMORY;
    match request.memory_bytes {
        Some(memory) => Some(memory).filter(fits),
        None => Some(LEAST_MEMORY_BYTES).filter(fits).or_else(|| Some(default_memory()).filter(fits)),
    }
}

/// A small job. As a visitor it gives the report, or nothing where the large way has to be gone.
pub(crate) struct SmallJob<'a> {
    /// What is asked for.
    pub(crate) request: &'a SortRequest,
    /// Its inputs, all of them files.
    pub(crate) inputs: Inputs,
    /// The header of the output, if it has one.
    pub(crate) header: Option<Vec<u8>>,
    /// The cap, bytes.
    pub(crate) memory: u64,
    /// Faults, for tests.
    pub(crate) options: &'a RunOptions,
    /// Is told when the output is complete.
    pub(crate) observer: &'a dyn Observer,
    /// Who may stop it.
    pub(crate) cancel: &'a Cancel,
}

impl Visitor for SmallJob<'_> {
    type Output = Result<Option<Report>, SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        self.run(&*records)
    }
}

/// Bytes of whole records, as they were read.
struct Raw {
    buf: Buf,
    len: usize,
    records: usize,
    /// Where the records of each input begin.
    starts: Vec<InputStart>,
}

/// Records in order, at the front of a buffer.
struct Sorted {
    lease: Lease,
    len: usize,
}

/// What became of them.
#[derive(Default)]
struct Sums {
    read: RecordSum,
    out: RecordSum,
    dropped: RecordSum,
    misfits: Misfits,
}

/// When each stage ended.
struct Clock {
    started: Instant,
    read: Duration,
    sorted: Duration,
    written: Duration,
}

impl SmallJob<'_> {
    fn run<R: Records>(self, records: &R) -> Result<Option<Report>, SortError> {
        let mut clock = Clock::start();
        let faults = self.options.faults.clone();
        let disk =
            Disk::new(DiskOptions { backend: Backend::Sized(CALL_BYTES), faults, ..DiskOptions::default() });
        disk.stop_when(self.cancel.flag());
        let mut passes = Passes::new(disk.ledger().clone());
        let sink = Sink::create(&disk, &self.request.output)?;
        let Some(raw) = self.read(records, &disk)? else { return Ok(None) };
        clock.read = clock.started.elapsed();
        self.cancel.check()?;
        let Some(plan) = self.plan(records, &raw)? else { return Ok(None) };
        let mut sums = Sums::default();
        let Some(mut sorted) = sort(records, raw, &mut sums) else { return Ok(None) };
        if self.request.checks.strict {
            sums.misfits.refuse(records.key_columns(), &self.inputs, self.request.header)?;
        }
        self.choose(records, &mut sorted, &mut sums);
        sums.check()?;
        clock.sorted = clock.started.elapsed();
        let header = self.header.as_deref().unwrap_or_default();
        let bytes = sorted.lease.lend().unwrap_or_else(|| Buf::heap(0));
        let output = sink.write(header, bytes, sorted.len, self.cancel)?;
        clock.written = clock.started.elapsed();
        let pass = clock.pass(self.inputs.iter().count() as u64, passes.moved());
        let report = self.report(plan, &sums, pass, &disk, records.key_columns());
        self.observer.complete(&report)?;
        if let Some(output) = output {
            output.commit()?;
        }
        Ok(Some(report))
    }

    /// Reads all inputs, as long as they are as small as they were.
    fn read<R: Records>(&self, records: &R, disk: &Disk) -> Result<Option<Raw>, SortError> {
        let inputs = self.inputs.iter().count();
        let expected = self.inputs.record_bytes().unwrap_or(0) as usize;
        // Room for what completes a last record, and for seeing that a file has grown.
        let most = expected + COMPLETION_BYTES * inputs;
        let buf = Buf::heap_at_hand(most + PAGE_BYTES);
        let mut raw = Raw { buf, len: 0, records: 0, starts: Vec::with_capacity(inputs) };
        for (input, file) in self.inputs.iter().enumerate() {
            raw.starts.push(InputStart { at: raw.records, input, before: 0 });
            if !raw.append(records, file, disk)? || raw.len > most {
                return Ok(None);
            }
        }
        Ok(Some(raw))
    }

    /// The plan it is carried out by; none where memory would not do.
    fn plan<R: Records>(&self, records: &R, raw: &Raw) -> Result<Option<Plan>, SortError> {
        let budget = Budget::new(self.memory, 1, self.inputs.record_bytes())?;
        let mean_bytes = (raw.records > 0).then(|| raw.len as f64 / raw.records as f64);
        let lengths = Lengths::of_mean(mean_bytes, self.header.as_deref());
        let plan = make_plan(self.request, &self.inputs, &budget, &lengths, records)?;
        Ok(Some(plan).filter(|plan| plan.chosen.method == "in memory"))
    }

    /// Leaves out what is not wanted and brings the rest into the form of the output.
    fn choose<R: Records>(&self, records: &R, sorted: &mut Sorted, sums: &mut Sums) {
        if self.request.unique {
            sorted.keep_distinct(records, &mut sums.dropped);
        }
        let bytes = &mut sorted.lease.bytes_mut()[..sorted.len];
        if let Some(most) = self.request.top {
            let first = records.cut(bytes, usize::try_from(most).unwrap_or(usize::MAX));
            records.sum(&bytes[first.bytes..], &mut sums.dropped);
            sorted.len = first.bytes;
        }
        let bytes = &mut bytes[..sorted.len];
        records.sum(bytes, &mut sums.out);
        records.finish(bytes);
    }

    fn report(
        &self,
        plan: Plan,
        sums: &Sums,
        pass: PassAccount,
        disk: &Disk,
        columns: &[KeyColumn],
    ) -> Report {
        let (streams, streams_left_out) = files_of(disk.ledger());
        let passes = vec![pass];
        Report {
            version: REPORT_VERSION,
            verb: "sorted".into(),
            request: serde_json::to_value(self.request).unwrap_or_default(),
            predicted_seconds: Some(plan.chosen.seconds()),
            predicted_peak_disk_bytes: predicted_disk(Some(&plan)),
            plan: Some(plan),
            seconds: passes.iter().map(|pass| pass.seconds).sum(),
            records_in: sums.read.count,
            bytes_in: sums.read.bytes,
            records_out: sums.out.count,
            bytes_out: sums.out.bytes,
            records_dropped: sums.dropped.count,
            checksum: sums.read.to_string(),
            memory_bytes: self.memory,
            peak_memory_bytes: peak_memory_bytes(),
            peak_spill_bytes: 0,
            peak_disk_bytes: disk.peak_bytes(),
            moved: PassAccount::moved_by(&passes),
            passes,
            streams,
            streams_left_out,
            resumed: false,
            columns: sums.misfits.accounts(columns, &self.inputs, self.request.header),
            notices: Vec::new(),
        }
    }
}

impl Raw {
    /// Reads an input behind what is there, and completes its last record; false where there is
    /// more of it than there should be.
    fn append<R: Records>(&mut self, records: &R, file: &InputFile, disk: &Disk) -> Result<bool, SortError> {
        let start = self.len;
        let mut stream = file.open(disk, file.start)?;
        stream.begin(self.buf.split_off(start))?;
        let Filled { buf, start: _, end } = stream.complete()?;
        if self.buf.unsplit(buf).is_err() {
            return Err(SortError::Internal("a buffer came back from elsewhere"));
        }
        self.len += end;
        if self.len >= self.buf.len() {
            return Ok(false);
        }
        let cut = records.cut(&self.buf[start..self.len], MOST_RECORDS - self.records);
        self.records += cut.records;
        let at = |records: usize, bytes: usize| RecordStart {
            input: file.name(),
            record: records as u64 + 1,
            offset: file.start + bytes as u64,
        };
        let rest = start + cut.bytes..self.len;
        if !rest.is_empty() {
            if self.records == MOST_RECORDS {
                return Ok(false);
            }
            let last = self.buf[rest.clone()].last().copied();
            let bytes = file.completion(records.completion(), last).unwrap_or_default();
            let completed = rest.start..rest.end + bytes.len();
            if completed.end > self.buf.len() {
                return Ok(false);
            }
            self.buf[rest.end..completed.end].copy_from_slice(&bytes);
            if bytes.is_empty() || records.cut(&self.buf[completed.clone()], 1).bytes < completed.len() {
                return Err(at(cut.records, cut.bytes).cut_short_at(records, &self.buf[rest]));
            }
            self.len = completed.end;
            self.records += 1;
        }
        match records.keyless(&self.buf[start..self.len]) {
            Some(keyless) => Err(at(0, 0).keyless(keyless)),
            None => Ok(true),
        }
    }
}

/// Sorts what was read, sums it up; nothing comes of it where its order takes too much memory.
fn sort<R: Records>(records: &R, raw: Raw, sums: &mut Sums) -> Option<Sorted> {
    if raw.records == 0 {
        return Some(Sorted { lease: Lease::plain(raw.buf), len: 0 });
    }
    let mut scratch = records.scratch(raw.records * SCRATCH_RECORD_BYTES);
    let out = records.gathers().then(|| Lease::plain(Buf::heap_at_hand(raw.buf.len())));
    let piece = RawPiece { lease: Lease::plain(raw.buf), bytes: 0..raw.len, spilled: false, grouping: None };
    let mut parts = records.sort(piece, out, &mut scratch, &mut sums.read).into_iter();
    sums.misfits = records.take_misfits(&mut scratch).placed(&raw.starts);
    let whole = parts.next().filter(|part| part.bytes == (0..raw.len))?;
    let lease = Arc::into_inner(whole).and_then(|sorted| Arc::into_inner(sorted.lease))?;
    Some(Sorted { lease, len: raw.len })
}

impl Sorted {
    /// Moves the first of equal records to the front, and adds up the others.
    fn keep_distinct<R: Records>(&mut self, records: &R, dropped: &mut RecordSum) {
        let bytes = &mut self.lease.bytes_mut()[..self.len];
        let (mut kept, mut at, mut last) = (0, 0, None);
        while at < bytes.len() {
            // In sorted records all that is not strictly in order is equal.
            let previous = last.clone().map(|last: Range<usize>| &bytes[last]);
            let fresh = records.disorder(previous, &bytes[at..], true).unwrap_or(bytes.len() - at);
            bytes.copy_within(at..at + fresh, kept);
            if fresh > 0 {
                last = Some(kept + records.last_record(&bytes[kept..kept + fresh])..kept + fresh);
            }
            (kept, at) = (kept + fresh, at + fresh);
            let equal = records.cut(&bytes[at..], 1).bytes;
            records.sum(&bytes[at..at + equal], dropped);
            at += equal;
        }
        self.len = kept;
    }
}

impl Sums {
    /// An error unless all that was read is accounted for.
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

impl Clock {
    fn start() -> Clock {
        let none = Duration::ZERO;
        Clock { started: Instant::now(), read: none, sorted: none, written: none }
    }

    /// The account of the one pass.
    fn pass(&self, inputs: u64, streams: Vec<StreamAccount>) -> PassAccount {
        let none = Duration::ZERO;
        let (sorting, writing) = (self.sorted - self.read, self.written - self.sorted);
        let longest = self.read.max(sorting).max(writing);
        let bound_by = match longest {
            time if time == sorting => "computing",
            time if time == writing => "writing",
            _ => "reading",
        };
        PassAccount {
            name: "sort".into(),
            times: 1,
            seconds: self.written.as_secs_f64(),
            streams,
            stages: vec![
                stage("read", 1, none, none, none, self.read),
                stage("sort", 1, sorting, none, none, none),
                stage("write", 1, none, none, none, writing),
            ],
            bound_by: bound_by.into(),
            inputs,
            outputs: 0,
        }
    }
}
