//! The account of a job's passes: bytes from the ledger, and times from the clocks of the stages.

use std::time::{Duration, Instant};

use ascot_io::{Direction, Ledger};
use ascot_model::account::{BufferAccount, FileAccount, PassAccount, StageAccount, StreamAccount};
use ascot_model::report::{REPORT_VERSION, Report};
use ascot_record::checksum::RecordSum;

use crate::api::SortRequest;
use crate::resources::peak_memory_bytes;

/// The passes done, and the current one.
pub struct Passes {
    ledger: Ledger,
    before: Vec<ascot_io::StreamAccount>,
    since: Instant,
    done: Vec<PassAccount>,
    /// The latest of them.
    latest: usize,
    spilled: u64,
    peak_spilled: u64,
}

/// Facts that a pass adds to its account.
#[derive(Clone, Debug, Default)]
pub struct PassFacts {
    /// Files read at once.
    pub inputs: u64,
    /// Files written to.
    pub outputs: u64,
    /// Its stages.
    pub stages: Vec<StageAccount>,
    /// The buffers of its streams, if a schedule divides them.
    pub buffers: Option<BufferAccount>,
}

/// The account of a stage: its time at work and waiting.
pub fn stage(
    name: &str,
    threads: usize,
    busy: Duration,
    data: Duration,
    memory: Duration,
    device: Duration,
) -> StageAccount {
    StageAccount {
        name: name.into(),
        threads,
        busy_seconds: busy.as_secs_f64(),
        waiting_data_seconds: data.as_secs_f64(),
        waiting_memory_seconds: memory.as_secs_f64(),
        waiting_device_seconds: device.as_secs_f64(),
    }
}

impl Passes {
    /// No passes yet.
    pub fn new(ledger: Ledger) -> Self {
        Passes {
            before: ledger.account(),
            ledger,
            since: Instant::now(),
            done: Vec::new(),
            latest: 0,
            spilled: 0,
            peak_spilled: 0,
        }
    }

    /// No passes yet; the first one includes everything that the ledger has counted before.
    pub fn from_start(ledger: Ledger) -> Self {
        Passes { before: Vec::new(), ..Passes::new(ledger) }
    }

    /// Ends the current pass. A pass that a job repeats, for each part or group of runs, has one account.
    pub fn done(&mut self, name: &str, facts: PassFacts) {
        let seconds = self.since.elapsed().as_secs_f64();
        let pass = PassAccount {
            name: name.into(),
            times: 1,
            seconds,
            streams: self.moved(),
            bound_by: bound_by(&facts.stages, seconds),
            stages: facts.stages,
            inputs: facts.inputs,
            outputs: facts.outputs,
            buffers: facts.buffers,
        };
        match self.done.iter_mut().find(|done| done.name == name) {
            Some(done) => done.add(pass),
            None => self.done.push(pass),
        }
        self.latest = self.done.iter().position(|done| done.name == name).unwrap_or(0);
        self.since = Instant::now();
    }

    /// The bytes that streams have moved since the latest call.
    pub fn moved(&mut self) -> Vec<StreamAccount> {
        let now = self.ledger.account();
        let mut streams: Vec<StreamAccount> = Vec::new();
        for account in &now {
            let same = |other: &&ascot_io::StreamAccount| {
                (&other.name, other.device, other.direction)
                    == (&account.name, account.device, account.direction)
            };
            let (bytes, runs) =
                self.before.iter().find(same).map_or((0, 0), |before| (before.bytes, before.runs));
            // A run counts when it is requested, its bytes when they have moved.
            if (account.bytes, account.runs) == (bytes, runs) {
                continue;
            }
            let name = stream_name(&account.name);
            let at = streams.iter().position(|stream| stream.name == name).unwrap_or_else(|| {
                streams.push(StreamAccount { name: name.into(), ..StreamAccount::default() });
                streams.len() - 1
            });
            let stream = &mut streams[at];
            let (moved, started) = match account.direction {
                Direction::Read => (&mut stream.read_bytes, &mut stream.read_runs),
                Direction::Write => (&mut stream.written_bytes, &mut stream.written_runs),
            };
            *moved += account.bytes - bytes;
            *started += account.runs - runs;
        }
        self.before = now;
        streams
    }

    /// Adds to the latest pass the time in which its output was sealed.
    pub fn committed(&mut self, took: Duration) {
        let streams = self.moved();
        if let Some(last) = self.done.get_mut(self.latest) {
            last.seconds += took.as_secs_f64();
            last.add_streams(&streams);
        }
    }

    /// Spills have grown by `bytes`.
    pub fn spilled(&mut self, bytes: u64) {
        self.spilled += bytes;
        self.peak_spilled = self.peak_spilled.max(self.spilled);
    }

    /// `bytes` of spills have been freed.
    pub fn freed(&mut self, bytes: u64) {
        self.spilled = self.spilled.saturating_sub(bytes);
    }

    /// Peak of the bytes of spills.
    pub fn peak_spill_bytes(&self) -> u64 {
        self.peak_spilled
    }

    /// The passes.
    pub fn into_accounts(self) -> Vec<PassAccount> {
        self.done
    }
}

/// Sums of the records of a job.
#[derive(Clone, Copy)]
pub struct JobSums<'a> {
    /// Records read.
    pub read: &'a RecordSum,
    /// Records written.
    pub out: &'a RecordSum,
    /// Records left out.
    pub dropped: &'a RecordSum,
}

/// The part of a report that needs no passes: the request and the sums of the records.
pub fn report_of_records(request: &SortRequest, sums: JobSums<'_>) -> Report {
    let JobSums { read, out, dropped } = sums;
    Report {
        version: REPORT_VERSION,
        verb: if request.merge_only { "merged" } else { "sorted" }.into(),
        request: serde_json::to_value(request).unwrap_or_default(),
        records_in: read.count,
        bytes_in: read.bytes,
        records_out: out.count,
        bytes_out: out.bytes,
        records_dropped: dropped.count,
        checksum: read.to_string(),
        peak_memory_bytes: peak_memory_bytes(),
        moved: PassAccount::moved_by(&[]),
        ..Report::default()
    }
}

/// The I/O of files: those that are listed one by one, and the sums of the others.
pub fn files_of(ledger: &Ledger) -> (Vec<FileAccount>, Vec<FileAccount>) {
    let files = ledger.files().into_iter().map(|file| {
        let is_run = file.moved.name == RUN_KIND;
        let label = file.path.as_deref().map(|path| match path.file_name() {
            // The spill directory has a random name, and no longer exists when the report is read.
            Some(spill) if is_run => spill.to_string_lossy().into_owned(),
            _ => path.display().to_string(),
        });
        let files = label.is_none().then_some(file.files);
        let name = stream_name(&file.moved.name).to_owned();
        let moved = StreamAccount { name, ..file.moved };
        FileAccount { file: label, files, moved }
    });
    // Files that were opened and not used are omitted.
    files.filter(|file| file.moved.switches() > 0).partition(|file| file.file.is_some())
}

/// The name of run files and their indexes in the ledger, up to the first space, and in a report.
const RUN_KIND: &str = "run";
const SPILLS: &str = "spills";

/// The name of a stream for users: run files and their indexes are spills.
fn stream_name(name: &str) -> &str {
    if name.split(' ').next() == Some(RUN_KIND) { SPILLS } else { name }
}

/// The bottleneck of a pass: computing, or the stage that waited most for its device.
fn bound_by(stages: &[StageAccount], seconds: f64) -> String {
    let share = |time: f64, threads: usize| time / (seconds.max(1e-9) * threads.max(1) as f64);
    let device =
        stages.iter().map(|stage| (share(stage.waiting_device_seconds, stage.threads), stage.name.as_str()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let busy: f64 = stages.iter().map(|stage| stage.busy_seconds).sum();
    let (max_share, name) = device.fold((0.0, ""), |best, stage| if stage.0 > best.0 { stage } else { best });
    let computing = share(busy, cores);
    match name {
        _ if stages.is_empty() => "",
        _ if computing >= max_share => "computing",
        "write" => "writing",
        "read" => "reading",
        _ => "the device",
    }
    .into()
}
