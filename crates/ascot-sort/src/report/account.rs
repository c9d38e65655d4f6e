//! The account of a job's passes: bytes from the ledger, and times from the clocks of its threads.

use std::time::Instant;

use ascot_io::clocks::{Clocks, Entered, ThreadTimes, Times};
use ascot_io::{Direction, Ledger};
use ascot_model::account::{BufferAccount, FileAccount, PassAccount, StreamAccount};
use ascot_model::report::{REPORT_VERSION, Report};
use ascot_model::stages::{self, StageAccount, ThreadAccount, TimeSpent, bottleneck};
use ascot_record::checksum::RecordSum;

use crate::api::{Output, SortRequest};
use crate::resources::peak_memory_bytes;

/// The passes done, and the current one. The thread that makes it works for the job, at the latest from then on until
/// it is dropped.
pub struct Passes {
    ledger: Ledger,
    clocks: Clocks,
    _entered: Option<Entered>,
    before: Vec<ascot_io::StreamAccount>,
    began: Instant,
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
    /// The buffers of its streams, if a schedule divides them.
    pub buffers: Option<BufferAccount>,
}

/// The clocks of a job.
pub struct JobClocks {
    /// All of them.
    pub clocks: Clocks,
    /// The guard of the thread that runs the job; none if it works for the job already.
    pub entered: Option<Entered>,
}

impl JobClocks {
    /// The clocks of the job for which this thread works. If there is none, it works for a new job from now on.
    pub fn of_thread() -> Self {
        match Clocks::of_thread() {
            Some(clocks) => JobClocks { clocks, entered: None },
            None => {
                let clocks = Clocks::new();
                let entered = Some(clocks.enter(stages::MAIN));
                JobClocks { clocks, entered }
            }
        }
    }
}

impl Passes {
    /// No passes yet; the first one begins. To be made before the job starts threads.
    pub fn new(ledger: Ledger) -> Self {
        let JobClocks { clocks, entered } = JobClocks::of_thread();
        let began = Instant::now();
        Passes {
            before: ledger.account(),
            ledger,
            clocks,
            _entered: entered,
            began,
            since: began,
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

    /// The moment from which the times of passes count.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Ends the current pass. A pass that a job repeats, for each part or group of runs, has one account.
    pub fn done(&mut self, name: &str, facts: PassFacts) {
        let pass = PassAccount {
            name: name.into(),
            times: 1,
            inputs: facts.inputs,
            outputs: facts.outputs,
            buffers: facts.buffers,
            ..self.since_the_last()
        };
        self.latest = match self.done.iter().position(|done| done.name == name) {
            Some(at) => {
                self.done[at].add(pass);
                at
            }
            None => {
                self.done.push(pass);
                self.done.len() - 1
            }
        };
    }

    /// The time, the bytes and the stages since the latest call.
    fn since_the_last(&mut self) -> PassAccount {
        let Times { until, threads, device } = self.clocks.take();
        let seconds = (until - self.since).as_secs_f64();
        let began_seconds = (self.since - self.began).as_secs_f64();
        let ended_seconds = (until - self.began).as_secs_f64();
        self.since = until;
        let streams = self.moved();
        let stages = stages_of(threads, &PassAccount::sum_of(&streams));
        PassAccount {
            seconds,
            began_seconds,
            ended_seconds,
            streams,
            stages,
            device_seconds: device.as_secs_f64(),
            ..PassAccount::default()
        }
    }

    /// The bytes that streams have moved since the latest call.
    fn moved(&mut self) -> Vec<StreamAccount> {
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
    pub fn committed(&mut self) {
        let sealing = self.since_the_last();
        if let Some(last) = self.done.get_mut(self.latest) {
            last.add(PassAccount { times: 0, ..sealing });
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

    /// The passes, with their bottlenecks on so many processors.
    pub fn take_accounts(&mut self, processors: usize) -> Vec<PassAccount> {
        for pass in &mut self.done {
            pass.stages.iter_mut().for_each(StageAccount::set_rate);
            pass.bound_by = bottleneck(&pass.stages, pass.seconds, pass.device_seconds, processors);
        }
        std::mem::take(&mut self.done)
    }
}

/// Processors that the threads of a job may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Stages in the order of the data; others follow.
const ORDER: [&str; 9] = [
    stages::MAIN,
    stages::PIPE_IN,
    stages::READ,
    stages::SORT,
    stages::SPLIT,
    stages::MERGE,
    stages::WRITE,
    stages::PIPE_OUT,
    stages::DEVICE,
];

/// Share of its time for which a thread does something if it takes part in a pass.
const PART_SHARE: f64 = 1e-3;

/// The stages of a pass that moved the bytes `moved`, without those whose threads have only waited for work.
pub fn stages_of(threads: Vec<ThreadTimes>, moved: &StreamAccount) -> Vec<StageAccount> {
    let mut stages: Vec<StageAccount> = Vec::new();
    for thread in threads {
        let time = TimeSpent {
            wall_seconds: thread.wall.as_secs_f64(),
            processor_seconds: thread.processor.as_secs_f64(),
            busy_seconds: thread.busy.as_secs_f64(),
            waiting_input_seconds: thread.input.as_secs_f64(),
            waiting_memory_seconds: thread.memory.as_secs_f64(),
            waiting_device_seconds: thread.device.as_secs_f64(),
        };
        let bytes = match thread.stage.as_str() {
            // Whichever thread requests them.
            stages::READ | stages::WRITE => 0,
            _ => thread.bytes,
        };
        let account = StageAccount::new(&thread.stage, vec![ThreadAccount { name: thread.thread, time }]);
        let account = StageAccount { bytes, ..account };
        match stages.iter_mut().find(|stage| stage.name == account.name) {
            Some(known) => known.add(account),
            None => stages.push(account),
        }
    }
    for stage in &mut stages {
        match stage.name.as_str() {
            stages::READ => stage.bytes = moved.read_bytes,
            stages::WRITE => stage.bytes = moved.written_bytes,
            _ => {}
        }
        stage.by_thread.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    }
    let takes_part = |stage: &StageAccount| {
        let TimeSpent { wall_seconds, waiting_input_seconds, .. } = stage.time;
        stage.bytes > 0 || wall_seconds - waiting_input_seconds > PART_SHARE * wall_seconds
    };
    stages.retain(takes_part);
    let place =
        |stage: &StageAccount| ORDER.iter().position(|name| *name == stage.name).unwrap_or(ORDER.len());
    stages.sort_by_key(place);
    stages
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
        verb: match (&request.output, request.merge_only) {
            (Output::Parts(_), true) => "reshaped",
            (_, true) => "merged",
            _ => "sorted",
        }
        .into(),
        // None if a path is not UTF-8: it has no form in JSON.
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
    let is_used = |moved: &StreamAccount| moved.switches() + moved.read_bytes + moved.written_bytes > 0;
    files.filter(|file| is_used(&file.moved)).partition(|file| file.file.is_some())
}

/// The name of run files and their indexes in the ledger, up to the first space, and in a report.
const RUN_KIND: &str = "run";
const SPILLS: &str = "spills";

/// The name of a stream for users: run files and their indexes are spills.
fn stream_name(name: &str) -> &str {
    if name.split(' ').next() == Some(RUN_KIND) { SPILLS } else { name }
}
