//! The census of a trace: what a program asked of its files, and in how many runs.
//!
//! A *run* is a sequence of requests of which each begins where the previous request of the trace ended: in the same
//! file, at the next byte, whichever process or descriptor made it, reading or writing. A *switch* is the beginning of
//! a run. An *attempt* is a call that moved the position of a descriptor, or a request at an offset at which its
//! descriptor did not stand; not every attempt ends a run (Stella and Loguinov, sections VI.C and VII.A).
//!
//! Memory grows with the number of files and of the pieces that requests touch of them, not with that of events.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ascot_model::units::in_shell;
use serde::Serialize;

use crate::blocks::{Extent, LiveData};
use crate::bucket_census::{BowtieCensus, bowties};
use crate::error::Result;
use crate::event::{BlockCounts, Event, Kind, Recording, TracedFile};
use crate::format::TraceReader;

/// Runs of a range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunLengths {
    /// The shortest of these runs in bytes, a power of two; all are shorter than twice this.
    pub from_bytes: u64,
    /// Their number.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Requests, bytes and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Times a file was opened.
    pub opens: u64,
    /// Requests that read bytes.
    pub reads: u64,
    /// Requests that wrote bytes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Switches that were attempted.
    pub attempts: u64,
    /// Runs, each of which begins with a switch.
    pub runs: u64,
    /// Bytes of a run on average, rounded down; 0 without runs.
    pub mean_run_bytes: u64,
    /// The distribution of the lengths of runs, shortest first.
    pub run_lengths: Vec<RunLengths>,
}

/// A file and its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCensus {
    /// Its path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its largest length, bytes.
    pub peak_bytes: u64,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Census {
    /// The command line that was recorded; bytes that are not UTF-8 are replaced.
    pub command: String,
    /// The tool that observed it.
    pub source: String,
    /// From the first event to the start of the last, nanoseconds.
    pub duration_ns: u64,
    /// Processes with events.
    pub processes: u64,
    /// Files with events.
    pub files: u64,
    /// Events: opens, closes, seeks, requests, changes of length, holes and ends of files. A call that copies has two,
    /// and one that changes none of these has none.
    pub events: u64,
    /// Bytes of live data at the worst moment, in whole blocks: what requests touched and was not given back.
    pub peak_live_bytes: u64,
    /// Requests through descriptors whose opening was not seen.
    pub unseen_requests: u64,
    /// Appends at positions that were guessed.
    pub guessed_appends: u64,
    /// Lines of the log that were not understood.
    pub skipped_lines: u64,
    /// Whether the recording ended before the program did.
    pub incomplete: bool,
    /// What devices saw, if the trace has their requests.
    pub block: Option<BlockCounts>,
    /// The counts of all files together.
    #[serde(flatten)]
    pub counts: Counts,
    /// The files with events, those with most bytes first.
    pub by_file: Vec<FileCensus>,
    /// The bowties of a job of Ascot, in the order in which they began.
    pub bowties: Vec<BowtieCensus>,
}

impl Census {
    /// Remarks on what the trace does not show.
    pub fn remarks(&self) -> Vec<String> {
        let Census { unseen_requests, guessed_appends, skipped_lines, incomplete, block, .. } = *self;
        let counts = Recording { unseen_requests, guessed_appends, skipped_lines, ..Recording::default() };
        Recording { incomplete, block, ..counts }.remarks()
    }
}

/// Counts a trace.
pub fn census(trace: &TraceReader) -> Result<Census> {
    let mut tally = Tally::new(trace.files());
    for event in trace.events() {
        tally.add(&event?);
    }
    tally.end_run();
    Ok(Census { bowties: bowties(trace)?, ..tally.census(trace) })
}

/// Counts while events pass.
#[derive(Default)]
struct Growing {
    seen: bool,
    counts: Counts,
}

struct Tally {
    all: Counts,
    files: Vec<Growing>,
    processes: HashSet<u32>,
    events: u64,
    last_ns: u64,
    live: LiveData,
    /// The file and the end of the last request, and the bytes of its run.
    run: Option<(u32, u64, u64)>,
}

impl Tally {
    fn new(files: &[TracedFile]) -> Tally {
        Tally {
            all: Counts::default(),
            files: files.iter().map(|_| Growing::default()).collect(),
            processes: HashSet::new(),
            events: 0,
            last_ns: 0,
            live: LiveData::new(files.iter().map(Extent::of).collect()),
            run: None,
        }
    }

    fn add(&mut self, event: &Event) {
        self.last_ns = self.last_ns.max(event.time_ns);
        self.processes.insert(event.process);
        self.events += 1;
        let Some(file) = self.files.get_mut(event.file as usize) else { return };
        file.seen = true;
        let attempt = u64::from(event.kind == Kind::Seek || event.jumped);
        for counts in [&mut self.all, &mut file.counts] {
            counts.attempts += attempt;
            counts.opens += u64::from(event.kind == Kind::Open);
            if event.moves() && event.kind == Kind::Read {
                counts.reads += 1;
                counts.read_bytes += event.size;
            } else if event.moves() {
                counts.writes += 1;
                counts.written_bytes += event.size;
            }
        }
        self.live.add(event);
        if event.moves() {
            self.request(event);
        }
    }

    fn request(&mut self, event: &Event) {
        match &mut self.run {
            Some((file, end, bytes)) if (*file, *end) == (event.file, event.offset) => {
                *end = event.end();
                *bytes += event.size;
            }
            _ => {
                self.end_run();
                self.run = Some((event.file, event.end(), event.size));
            }
        }
    }

    fn end_run(&mut self) {
        let Some((file, _, bytes)) = self.run.take() else { return };
        self.all.add_run(bytes);
        if let Some(file) = self.files.get_mut(file as usize) {
            file.counts.add_run(bytes);
        }
    }

    fn census(self, trace: &TraceReader) -> Census {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let seen = self.files.into_iter().zip(trace.files()).filter(|(growing, _)| growing.seen);
        let mut by_file: Vec<FileCensus> = seen
            .map(|(growing, file)| FileCensus {
                path: text(&file.path),
                peak_bytes: file.peak_bytes,
                deleted: file.deleted,
                counts: growing.counts.finished(),
            })
            .collect();
        let moved = |file: &FileCensus| file.counts.read_bytes + file.counts.written_bytes;
        by_file.sort_by_key(|file| std::cmp::Reverse(moved(file)));
        let recording = trace.recording();
        let words = recording.command.split(|byte| *byte == 0);
        let words: Vec<String> = words.map(|word| in_shell(Path::new(OsStr::from_bytes(word)))).collect();
        Census {
            command: words.join(" "),
            source: text(&recording.source),
            duration_ns: self.last_ns,
            processes: self.processes.len() as u64,
            files: by_file.len() as u64,
            events: self.events,
            peak_live_bytes: self.live.peak_bytes,
            unseen_requests: recording.unseen_requests,
            guessed_appends: recording.guessed_appends,
            skipped_lines: recording.skipped_lines,
            incomplete: recording.incomplete,
            block: recording.block,
            counts: self.all.finished(),
            by_file,
            bowties: Vec::new(),
        }
    }
}

impl Counts {
    fn add_run(&mut self, bytes: u64) {
        self.runs += 1;
        let from_bytes = 1_u64 << bytes.max(1).ilog2();
        let found = self.run_lengths.binary_search_by_key(&from_bytes, |lengths| lengths.from_bytes);
        let at = found.unwrap_or_else(|at| {
            self.run_lengths.insert(at, RunLengths { from_bytes, runs: 0, bytes: 0 });
            at
        });
        if let Some(lengths) = self.run_lengths.get_mut(at) {
            lengths.runs += 1;
            lengths.bytes += bytes;
        }
    }

    fn finished(mut self) -> Counts {
        self.mean_run_bytes =
            (self.read_bytes + self.written_bytes).checked_div(self.runs).unwrap_or_default();
        self
    }
}
