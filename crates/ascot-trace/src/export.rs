//! A trace in the forms of others: CSV, and a log that fio replays.
//!
//! A log for fio names files of its own in a directory, never the recorded ones: a replay would overwrite them. The
//! directory gets these files, sparse, as long as the requests reach.
//!
//! Version 2 of such a log has no times. Version 3 has one in every line, in microseconds: fio waits between two lines
//! for the difference of their times, less the time that the request before took. It takes 0 for a time that is
//! missing, so times begin at 1.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, IoError};

use crate::error::{Result, TraceError};
use crate::event::{Event, Kind};
use crate::format::TraceReader;
use crate::output::Output;
use crate::replay::Pace;

/// The time of the first lines of a log for fio that has times: the start of the recording.
const FIO_START_US: u64 = 1;

/// Writes all events as CSV with a header. Returns their number.
pub fn csv(trace: &TraceReader, output: &Path) -> Result<u64> {
    let mut output = Output::create(output, "csv")?;
    output.append(b"time_ns,pid,kind,offset,bytes,path\n")?;
    let mut line = Vec::new();
    let mut count = 0;
    for event in trace.events() {
        let event = event?;
        let pid = trace.processes().get(event.process as usize).map_or(0, |process| process.pid);
        let Event { time_ns, offset, size, kind, .. } = event;
        line.clear();
        let _ = write!(line, "{time_ns},{pid},{},{offset},{size},", kind.name());
        let path = trace.files().get(event.file as usize).map_or(&[][..], |file| &file.path);
        put_field(&mut line, path);
        line.push(b'\n');
        output.append(&line)?;
        count += 1;
    }
    output.commit()?;
    Ok(count)
}

/// Writes the buckets at all turns as CSV with a header, a line for each stream. `predicted_bytes` is the size of a
/// bucket at its place among those of its side, the fullest first; empty if the schedule keeps no staircase. Returns
/// the number of turns.
pub fn buckets_csv(trace: &TraceReader, output: &Path) -> Result<u64> {
    let mut output = Output::create(output, "csv")?;
    output.append(b"time_ns,turn,bowtie,name,stream,next,bytes,predicted_bytes\n")?;
    let mut lines = Vec::new();
    let mut count = 0;
    for turn in trace.turns() {
        let turn = turn?;
        let Some(bowtie) = trace.bowties().get(turn.bowtie as usize) else { continue };
        let mut stream = 0;
        for side in turn.sides(bowtie) {
            let sizes = side.steps.map(|steps| steps.sizes()).unwrap_or_default();
            let mut places: Vec<usize> = (0..side.bytes.len()).collect();
            places.sort_by_key(|&at| std::cmp::Reverse(side.bytes.get(at)));
            let mut predicted = vec![None; side.bytes.len()];
            for (at, size) in places.into_iter().zip(sizes) {
                if let Some(predicted) = predicted.get_mut(at) {
                    *predicted = Some(size.round() as u64);
                }
            }
            for (bytes, predicted) in side.bytes.iter().zip(predicted) {
                let _ = write!(lines, "{},{count},{},", turn.time_ns, turn.bowtie);
                put_field(&mut lines, &bowtie.name);
                let next = u8::from(turn.next == Some(stream as u32));
                let predicted = predicted.map(|size| size.to_string()).unwrap_or_default();
                let _ = writeln!(lines, ",{},{next},{bytes},{predicted}", bowtie.stream_name(stream));
                stream += 1;
            }
        }
        output.append(&lines)?;
        lines.clear();
        count += 1;
    }
    output.commit()?;
    Ok(count)
}

/// Appends a field, in quotes where it needs them.
fn put_field(line: &mut Vec<u8>, field: &[u8]) {
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        line.extend_from_slice(field);
        return;
    }
    line.push(b'"');
    for byte in field {
        line.extend_from_slice(if *byte == b'"' { b"\"\"" } else { std::slice::from_ref(byte) });
    }
    line.push(b'"');
}

/// The requests to a file.
#[derive(Clone, Copy, Default)]
struct Use {
    /// The number of requests that follow.
    left: u64,
    /// The largest end of a request.
    end: u64,
    open: bool,
}

/// Writes the requests as a log of fio, with their times if `pace` is the recorded one; `directory` gets the files.
/// Returns the number of requests.
pub fn fio(trace: &TraceReader, output: &Path, directory: &Path, pace: Pace) -> Result<u64> {
    let prefix = directory.as_os_str().as_bytes();
    if prefix.iter().any(u8::is_ascii_whitespace) {
        return Err(TraceError::NameForFio { path: directory.to_owned() });
    }
    let mut files = vec![Use::default(); trace.files().len()];
    for event in trace.events() {
        let event = event?;
        if let Some(used) = files.get_mut(event.file as usize).filter(|_| event.moves()) {
            used.left += 1;
            used.end = used.end.max(event.end());
        }
    }
    check_ends(trace, &files)?;
    let time_us = (pace == Pace::Recorded).then_some(FIO_START_US);
    let mut log = FioLog { output: Output::create(output, "fio log")?, prefix, line: Vec::new(), time_us };
    let made = MadeFiles::new(directory, &files)?;
    let version = if time_us.is_some() { 3 } else { 2 };
    log.output.append(format!("fio version {version} iolog\n").as_bytes())?;
    for (file, _) in files.iter().enumerate().filter(|(_, used)| used.left > 0) {
        log.action(file, "add")?;
    }
    let mut count = 0;
    for event in trace.events() {
        let event = event?;
        let file = event.file as usize;
        let Some(used) = files.get_mut(file).filter(|_| event.moves()) else { continue };
        log.goes_on_at(event.time_ns);
        if !used.open {
            used.open = true;
            log.action(file, "open")?;
        }
        log.request(&event)?;
        used.left -= 1;
        if used.left == 0 {
            log.action(file, "close")?;
        }
        count += 1;
    }
    log.output.commit()?;
    made.keep();
    Ok(count)
}

/// No file can be longer than this: offsets of the system are signed.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Refuses requests beyond what a file can have.
fn check_ends(trace: &TraceReader, files: &[Use]) -> Result<()> {
    let beyond = files.iter().zip(trace.files()).find(|(used, _)| used.end > MAX_FILE_BYTES);
    beyond.map_or(Ok(()), |(used, file)| {
        let file = String::from_utf8_lossy(&file.path).into_owned();
        Err(TraceError::BeyondFiles { file, end: used.end, limit: MAX_FILE_BYTES })
    })
}

/// The files that a log names. They are removed again unless the log is complete.
struct MadeFiles {
    directory: PathBuf,
    /// Whether the directory was made, too.
    made_directory: bool,
    files: Vec<PathBuf>,
}

impl MadeFiles {
    fn new(directory: &Path, files: &[Use]) -> Result<MadeFiles> {
        let made_directory = !directory.exists();
        let mut made = MadeFiles { directory: directory.to_owned(), made_directory, files: Vec::new() };
        make_files(directory, files, &mut made.files)?;
        Ok(made)
    }

    fn keep(mut self) {
        self.files.clear();
        self.made_directory = false;
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for path in &self.files {
            let _ = fs::remove_file(path);
        }
        if self.made_directory {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// Makes the files that the log names.
fn make_files(directory: &Path, files: &[Use], all: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| IoError::from_os(Action::Create, directory, 0, source);
    fs::create_dir_all(directory).map_err(failed)?;
    // fio would write to files of others.
    if fs::read_dir(directory).map_err(failed)?.next().is_some() {
        return Err(TraceError::NotEmpty { path: directory.to_owned() });
    }
    for (file, used) in files.iter().enumerate().filter(|(_, used)| used.left > 0) {
        let path = directory.join(name(file));
        let failed = |source| IoError::from_os(Action::Create, &path, 0, source);
        let made = File::options().create_new(true).append(true).open(&path).map_err(failed)?;
        all.push(path.clone());
        made.set_len(used.end).map_err(failed)?;
    }
    Ok(())
}

fn name(file: usize) -> String {
    format!("{file:06}")
}

struct FioLog<'a> {
    output: Output,
    prefix: &'a [u8],
    line: Vec<u8>,
    /// The time of the next lines, if the log has times.
    time_us: Option<u64>,
}

impl FioLog<'_> {
    /// The next lines have a time of the trace. Times do not go back: fio would not wait for the next one.
    fn goes_on_at(&mut self, time_ns: u64) {
        if let Some(time_us) = &mut self.time_us {
            *time_us = (*time_us).max(FIO_START_US + time_ns / 1000);
        }
    }

    fn action(&mut self, file: usize, action: &str) -> Result<()> {
        self.start(file);
        let _ = writeln!(self.line, " {action}");
        Ok(self.output.append(&self.line)?)
    }

    fn request(&mut self, event: &Event) -> Result<()> {
        self.start(event.file as usize);
        let kind = if event.kind == Kind::Read { "read" } else { "write" };
        let _ = writeln!(self.line, " {kind} {} {}", event.offset, event.size);
        Ok(self.output.append(&self.line)?)
    }

    fn start(&mut self, file: usize) {
        self.line.clear();
        if let Some(time_us) = self.time_us {
            let _ = write!(self.line, "{time_us} ");
        }
        self.line.extend_from_slice(self.prefix);
        let _ = write!(self.line, "/{}", name(file));
    }
}
