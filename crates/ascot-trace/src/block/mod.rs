//! What the disk sees: requests to devices while a program runs, from the kernel's block tracepoints.
//!
//! ```text
//!   tracefs     an instance of the kernel's tracing        opens       files as they are opened (fanotify)
//!   ring        pages of its buffers                       held        those files, until they are gone
//!   events      requests, tasks, programs                  timeline    where a file was, and when
//!   processes   which tasks are the program's              volumes     which disk has a file system
//!   spool       requests in order of time  ------------->  attribute   requests become events of files
//! ```
//!
//! While the program runs, requests go to a spool without being understood. After it ended, the dirty pages of its
//! files are written, their extents are found for the last time, and the spool becomes the trace.
//!
//! Invariants: files are observed before requests are, and both before the program starts. The order of requests is
//! that in which devices got them. Nothing stays of a recording, however it ends, but an instance of tracefs after a
//! `kill -9`, which the next one removes.

mod attribute;
mod events;
mod held;
mod opens;
mod processes;
mod ring;
mod spool;
mod timeline;
mod tracefs;
mod volumes;

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use self::attribute::Attribution;
use self::events::{Events, Seen};
use self::held::Held;
use self::opens::Opens;
use self::processes::{Issuer, Processes};
use self::spool::{Record, Spool, What};
use self::tracefs::Instance;
use crate::error::{Result, TraceError, beside};
use crate::event::{BlockCounts, Recording};
use crate::format::TraceWriter;
use crate::own_file;

/// Pause between two looks at the buffers.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two looks at the files.
const LOOK_NS: u64 = 50_000_000;

/// A recording of block requests.
pub struct BlockRecorded {
    /// How the program ended.
    pub status: ExitStatus,
    /// The number of events.
    pub events: u64,
    /// Files with events.
    pub files: u64,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    /// The counts of the trace.
    pub recording: Recording,
    /// Files of which the extents are not known.
    pub without_extents: u64,
    /// Processes of the program that live longer than the recording.
    pub alive: u64,
}

/// Records what the disks see of a program. `buffer_bytes`: memory of the kernel for each processor. Requests wait in
/// a file in `directory` until the program has ended.
pub fn record(
    mut command: Command,
    labels: Recording,
    output: &Path,
    directory: &Path,
    buffer_bytes: u64,
    signal: &dyn Fn() -> Option<i32>,
    gives_up: &dyn Fn(&TraceError),
) -> Result<BlockRecorded> {
    let instance = Instance::create(buffer_bytes)?;
    let opens = Opens::observe()?;
    let stacked = volumes::stacked();
    let events = Events::enable(&instance, !stacked.is_empty())?;
    let labels = Recording { block: Some(BlockCounts::default()), ..labels };
    // An output that cannot be made is an error before the program runs. Its file stays for no longer than that: a
    // `kill -9` would leave it behind.
    drop(TraceWriter::create(output)?);
    let spool = Spool::create(directory)?;
    // The writes of earlier programs are not those of this one.
    rustix::fs::sync();
    let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let first_ns = now_ns();
    instance.switch(true)?;
    let before = own_file::identity(output);
    let mut child = command.spawn().map_err(|source| TraceError::NotStarted {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let program = command.get_program().as_bytes().to_vec();
    let mut observer = Observer {
        instance,
        events,
        stacked,
        opens,
        processes: Processes::new(child.id(), program),
        held: Held::new(),
        spool,
        requeued: HashSet::new(),
        page: vec![0; rustix::param::page_size()],
        spooled_ns: 0,
        looked_ns: 0,
    };
    observer.inherited(first_ns);
    let (status, observed) = observe_to_end(observer, &mut child, signal, gives_up)?;
    let kernel = observed.processes.count();
    let processes = observed.processes.into_table();
    let extents = observed.held.finish();
    let opened = own_file::refuse_opened(&extents.files, output, &before).err();
    let other = opened.is_some().then(|| beside(output));
    let mut writer = TraceWriter::create(other.as_deref().unwrap_or(output))?;
    let mut attribution = Attribution::new(extents, kernel, first_ns);
    observed.spool.for_each(|record| attribution.record(&record, |event| writer.push(event)))?;
    let (files, seen, counts) = attribution.into_files();
    let block = Some(BlockCounts { lost_events: observed.lost_events, ..counts });
    let incomplete = observed.lost_events > 0 || observed.alive > 0;
    let recording = Recording { start_ns, block, incomplete, ..labels };
    let events = writer.event_count();
    let trace_bytes = writer.finish(&files, &processes, &recording)?;
    if let Some((error, trace)) = opened.zip(other) {
        return Err(TraceError::NamedOtherwise { error: Box::new(error), trace });
    }
    let without_extents = observed.without_extents;
    let alive = observed.alive;
    Ok(BlockRecorded { status, events, files: seen, trace_bytes, recording, without_extents, alive })
}

/// Observes until the program has ended, and takes the rest. After an error the program goes on without an observer.
fn observe_to_end(
    mut observer: Observer,
    child: &mut Child,
    signal: &dyn Fn() -> Option<i32>,
    gives_up: &dyn Fn(&TraceError),
) -> Result<(ExitStatus, Observed)> {
    match observer.run(child, signal) {
        Ok(status) => Ok((status, observer.finish()?)),
        Err(error) => {
            // Nothing may slow down the program or fill a volume any longer.
            drop(observer);
            gives_up(&error);
            wait(child, signal);
            Err(error)
        }
    }
}

/// The beginning of the name of the source.
pub const SOURCE: &str = "the block tracepoints of";

/// The version of the kernel, as a source of traces.
pub fn source() -> Vec<u8> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{SOURCE} Linux {}", release.trim()).into_bytes()
}

struct Observer {
    instance: Instance,
    events: Events,
    stacked: HashSet<u32>,
    opens: Opens,
    processes: Processes,
    held: Held,
    spool: Spool,
    /// Requests that a device did not take: device and sector.
    requeued: HashSet<(u32, u64)>,
    page: Vec<u8>,
    /// All requests before this time are in the spool.
    spooled_ns: u64,
    looked_ns: u64,
}

/// What an observer has in the end.
struct Observed {
    processes: Processes,
    held: Held,
    spool: Spool,
    lost_events: u64,
    without_extents: u64,
    alive: u64,
}

impl Observer {
    /// Holds the files that the program inherits.
    fn inherited(&mut self, now_ns: u64) {
        for descriptor in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            let number = descriptor.file_name().into_string().ok();
            let info =
                number.and_then(|number| fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok());
            let flags =
                info.as_deref().and_then(|info| info.lines().find_map(|line| line.strip_prefix("flags:")));
            let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
            let passed_on = flags.is_some_and(|flags| flags & libc::O_CLOEXEC == 0);
            let is_file =
                passed_on && fs::metadata(descriptor.path()).is_ok_and(|metadata| metadata.is_file());
            if let (true, Ok(file)) = (is_file, File::open(descriptor.path())) {
                self.held.opened(file, now_ns);
            }
        }
    }

    /// Observes until the program has ended.
    fn run(&mut self, child: &mut Child, signal: &dyn Fn() -> Option<i32>) -> Result<ExitStatus> {
        loop {
            let ended = child.try_wait().map_err(|source| TraceError::Wait { source })?;
            let more = self.observe()?;
            match ended {
                Some(status) if !more => return Ok(status),
                Some(_) => {}
                None => pass_on(child, signal),
            }
            if !more {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Takes what the kernel has reported since the last time. Returns whether more opened files may wait: each of them
    /// takes a descriptor here, so only some are taken at a time.
    fn observe(&mut self) -> Result<bool> {
        let now = now_ns();
        // A task is reported before it opens a file: files are read first, and judged when all tasks are known.
        let mut opened = Vec::new();
        let more = self.opens.read(|open| opened.push(open))?;
        self.read_events()?;
        self.spool.write_before(self.spooled_ns)?;
        self.spooled_ns = now;
        for open in opened {
            let Some(process) = self.processes.of(open.pid) else { continue };
            let Some(file) = self.held.opened(open.file, now_ns()) else { continue };
            let issuer = Issuer::Program(process);
            self.spool.push(Record { time_ns: now, issuer, what: What::Open { file } });
        }
        if now.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.look()?;
        }
        Ok(more)
    }

    fn look(&mut self) -> Result<()> {
        let now = now_ns();
        self.looked_ns = now;
        let Observer { held, processes, spool, .. } = self;
        held.look_again(now, processes.pids(), |file| {
            spool.push(Record { time_ns: now, issuer: Issuer::Program(0), what: What::Delete { file } });
        });
        Ok(())
    }

    fn read_events(&mut self) -> Result<()> {
        let Observer { instance, events, stacked, processes, spool, requeued, page, .. } = self;
        let mut seen = Vec::new();
        instance.pages(page, |page| {
            ring::for_each(page, |time_ns, data| {
                let event = events.decode(data, |device| stacked.contains(&device));
                seen.extend(event.map(|event| (time_ns, event)));
            });
            Ok(())
        })?;
        // Tasks come before their requests, whichever processor reported them.
        seen.sort_by_key(|(time_ns, _)| *time_ns);
        for (time_ns, event) in seen {
            match event {
                Seen::Task { parent, task, thread } => processes.made(parent, task, thread),
                Seen::Exec { task, path } => processes.runs(task, path),
                Seen::Requeue { device, sector } => {
                    requeued.insert((device, sector));
                }
                Seen::Issue(issue) => {
                    if requeued.remove(&(issue.device, issue.sector)) {
                        continue;
                    }
                    let events::Issue { device, sector, sectors, writes, metadata, task } = issue;
                    let what = What::Request { device, sector, sectors, writes, metadata };
                    spool.push(Record { time_ns, issuer: processes.issuer(task), what });
                }
            }
        }
        Ok(())
    }

    /// Writes dirty pages, and takes the last reports. The instance is gone afterwards.
    fn finish(mut self) -> Result<Observed> {
        while self.observe()? {}
        self.held.write_back(now_ns);
        let alive = self.processes.alive();
        self.instance.switch(false)?;
        while self.observe()? {}
        self.look()?;
        if !self.processes.root_seen {
            return Err(TraceError::OtherNumbers);
        }
        let lost_events = self.instance.lost_events() + self.opens.lost;
        let Observer { processes, held, spool, .. } = self;
        let without_extents = held.without_extents;
        Ok(Observed { processes, held, spool, lost_events, without_extents, alive })
    }
}

/// Waits until the program has ended.
fn wait(child: &mut Child, signal: &dyn Fn() -> Option<i32>) {
    while let Ok(None) = child.try_wait() {
        pass_on(child, signal);
        thread::sleep(PAUSE);
    }
}

/// Passes a signal on to the program, if one came.
fn pass_on(child: &Child, signal: &dyn Fn() -> Option<i32>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some((pid, signal)) = pid.zip(signal().and_then(Signal::from_named_raw)) {
        let _ = kill_process(pid, signal);
    }
}

/// The clock of the events.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
