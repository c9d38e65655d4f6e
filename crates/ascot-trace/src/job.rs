//! The trace of a job of Ascot itself: its ledger names every request, so that nothing needs to observe its calls.
//!
//! ```text
//!   ledger  --opened, issued, renamed, removed--> JobTrace --events--> trace file
//!   bowties --share, occupied-------------------> JobTrace --turns---> trace file
//! ```
//!
//! Invariants: events stand in the order of issue, so that their switches are those that the ledger counts. A request
//! counts with the bytes asked for; one that fails ends the job, which then leaves no trace. A section of the file has
//! few events, because no more are in memory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ascot_io::{
    Action, Direction, FileNumber, IoError, IssuedRequest, Occupancies, RequestObserver, SharingStreams,
    Unpoisoned, directory_of, name_of_temporary,
};

use crate::buckets::{TracedBowtie, Turn};
use crate::error::{Result, TraceError};
use crate::event::{Event, Kind, Recording, TracedFile, TracedProcess};
use crate::format::{TraceReader, TraceWriter};
use crate::output::Output;
use crate::ranges::RangeSet;

/// Events in memory: a job has a hard cap.
const EVENTS_PER_SECTION: usize = 1024;

/// A trace that is being written by a job.
#[derive(Debug)]
pub struct JobTrace {
    started: Instant,
    start_ns: u64,
    /// The file of a trace without a name.
    unnamed: Option<File>,
    state: Mutex<State>,
}

struct State {
    /// None once the trace is finished.
    writer: Option<TraceWriter>,
    files: Vec<TracedFile>,
    /// The end of the last request to each file; none before the first one.
    ends: Vec<Option<u64>>,
    /// The files that exist.
    numbers: HashMap<FileNumber, u32>,
    /// The first failure to write the trace; later events are lost.
    failed: Option<TraceError>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a trace of {} files", self.files.len())
    }
}

impl JobTrace {
    /// Starts a trace that will be `path`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<JobTrace> {
        Self::to_output(Output::create(path, "trace")?, None)
    }

    /// Starts a trace in a file without a name in `directory`: it is gone when this and its reader are.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn unnamed(directory: &Path) -> Result<JobTrace> {
        let failed = |source| IoError::from_os(Action::Create, directory, 0, source);
        let file = tempfile::tempfile_in(directory).map_err(failed)?;
        let copy = file.try_clone().map_err(failed)?;
        Self::to_output(Output::to_file(copy), Some(file))
    }

    fn to_output(output: Output, unnamed: Option<File>) -> Result<JobTrace> {
        let writer = TraceWriter::to_output(output, EVENTS_PER_SECTION)?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = State {
            writer: Some(writer),
            files: Vec::new(),
            ends: Vec::new(),
            numbers: HashMap::new(),
            failed: None,
        };
        Ok(JobTrace {
            started: Instant::now(),
            start_ns: since_epoch.as_nanos() as u64,
            unnamed,
            state: Mutex::new(state),
        })
    }

    /// Completes a trace without a name, and opens it. Outputs that are not named yet get the names that they will
    /// have.
    ///
    /// # Errors
    /// The trace could not be written, or has a name.
    pub fn read(&self, command: &[OsString]) -> Result<TraceReader> {
        for file in &mut self.state.lock().unpoisoned().files {
            if let Some(name) = name_of_temporary(Path::new(OsStr::from_bytes(&file.path))) {
                file.path = name.into_os_string().into_encoded_bytes();
            }
        }
        self.finish(command)?;
        let path = Path::new("the trace of the report");
        let none = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let failed = |source| IoError::from_os(Action::Open, path, 0, source);
        let file = self.unnamed.as_ref().ok_or_else(none).and_then(File::try_clone).map_err(failed)?;
        TraceReader::of_file(path, file)
    }

    /// Adds the tables, and gives the file its name. Returns its length; 0 if it was finished before. `command`: the
    /// command line of the job.
    ///
    /// # Errors
    /// The trace could not be written; its file keeps what it had.
    pub fn finish(&self, command: &[OsString]) -> Result<u64> {
        let mut state = self.state.lock().unpoisoned();
        let State { writer, files, failed, .. } = &mut *state;
        let writer = writer.take();
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let Some(writer) = writer else { return Ok(0) };
        let program = std::env::current_exe().unwrap_or_default();
        let process =
            TracedProcess { pid: std::process::id(), program: program.as_os_str().as_bytes().to_vec() };
        let source = format!("ascot {}", env!("CARGO_PKG_VERSION")).into_bytes();
        let recording = Recording { start_ns: self.start_ns, ..Recording::of_command(command, source) };
        writer.finish(files, &[process], &recording)
    }

    fn time_ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_nanos() as u64
    }

    fn event(&self, at: Instant, file: u32, kind: Kind) -> Event {
        let time_ns = self.time_ns(at);
        Event { time_ns, process: 0, file, kind, jumped: false, offset: 0, size: 0 }
    }
}

impl State {
    fn push(&mut self, event: &Event) {
        if let (Some(writer), None) = (&mut self.writer, &self.failed) {
            self.failed = writer.push(event).err();
        }
    }
}

impl RequestObserver for JobTrace {
    fn opened(&self, file: FileNumber, path: &Path) {
        let mut state = self.state.lock().unpoisoned();
        let State { files, ends, numbers, .. } = &mut *state;
        let index = *numbers.entry(file).or_insert_with(|| {
            files.push(TracedFile { path: real_path(path), ..TracedFile::default() });
            ends.push(None);
            files.len() as u32 - 1
        });
        state.push(&self.event(Instant::now(), index, Kind::Open));
    }

    fn renamed(&self, from: &Path, to: &Path) {
        let mut state = self.state.lock().unpoisoned();
        let State { files, numbers, .. } = &mut *state;
        let from = path_of_name(from);
        let to = path_of_name(to);
        let at = |path: &[u8]| {
            numbers.iter().find(|(_, index)| files[**index as usize].path == path).map(|(file, _)| *file)
        };
        let Some(file) = at(&from) else { return };
        let replaced = at(&to);
        if let Some(replaced) = replaced.filter(|replaced| *replaced != file)
            && let Some(index) = numbers.remove(&replaced)
        {
            files[index as usize].deleted = true;
            state.push(&self.event(Instant::now(), index, Kind::Delete));
        }
        if let Some(&index) = state.numbers.get(&file) {
            state.files[index as usize].path = to;
        }
    }

    fn removed(&self, file: FileNumber) {
        let mut state = self.state.lock().unpoisoned();
        let Some(index) = state.numbers.remove(&file) else { return };
        state.files[index as usize].deleted = true;
        state.push(&self.event(Instant::now(), index, Kind::Delete));
    }

    fn freed(&self, file: FileNumber, end: u64) {
        let mut state = self.state.lock().unpoisoned();
        let Some(index) = state.numbers.get(&file).copied() else { return };
        state.push(&Event { size: end, ..self.event(Instant::now(), index, Kind::Hole) });
    }

    fn issued(&self, request: &IssuedRequest) {
        let IssuedRequest { at, file, direction, offset, bytes } = *request;
        let mut state = self.state.lock().unpoisoned();
        let Some(index) = state.numbers.get(&file).copied() else { return };
        let end = offset.saturating_add(bytes);
        let traced = &mut state.files[index as usize];
        traced.peak_bytes = traced.peak_bytes.max(end);
        let kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write,
        };
        let last_end = state.ends[index as usize].replace(end);
        if last_end.is_none() {
            // A job writes files of its own from their beginning; it changes no other files.
            let was_empty = direction == Direction::Write && offset == 0;
            state.files[index as usize].held = was_empty.then(RangeSet::default);
        }
        let jumped = offset != last_end.unwrap_or_default();
        state.push(&Event { jumped, offset, size: bytes, ..self.event(at, index, kind) });
    }

    fn share(&self, streams: &SharingStreams<'_>) -> u32 {
        let SharingStreams { name, inputs, outputs, block_bytes } = *streams;
        let bowtie = TracedBowtie { name: name.as_bytes().to_vec(), inputs, outputs, block_bytes };
        let mut state = self.state.lock().unpoisoned();
        state.writer.as_mut().map_or(u32::MAX, |writer| writer.add_bowtie(bowtie))
    }

    fn occupied(&self, buckets: &Occupancies<'_>) {
        let Occupancies { at, sharing, next, input_steps, output_steps, bytes } = *buckets;
        let time_ns = self.time_ns(at);
        let bytes = bytes.to_vec();
        let turn = Turn { time_ns, bowtie: sharing, next, input_steps, output_steps, bytes };
        let mut state = self.state.lock().unpoisoned();
        let State { writer, failed, .. } = &mut *state;
        if let (Some(writer), None) = (writer, &failed) {
            *failed = writer.push_turn(&turn).err();
        }
    }
}

/// The path of a file as the system names it: absolute, and without symbolic links.
fn real_path(path: &Path) -> Vec<u8> {
    path.canonicalize().map_or_else(|_| path_of_name(path), |path| path.into_os_string().into_vec())
}

/// The same for a name that may be gone: its directory is there.
fn path_of_name(path: &Path) -> Vec<u8> {
    let real =
        directory_of(path).canonicalize().ok().zip(path.file_name()).map(|(parent, name)| parent.join(name));
    real.unwrap_or_else(|| path.to_owned()).into_os_string().into_vec()
}
