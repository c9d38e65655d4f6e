//! Threads and processes of a log, and what each of their calls does.
//!
//! A thread may have lines before the call that made it has its result. If one call that makes threads is running,
//! the thread belongs to it; if several are, its lines wait until a result names it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ascot_io::{Action, IoError};

use super::calls::{Caller, FileCalls, Start, as_written};
use super::line::{self, Body, Call, Line, may_be_a_file};
use super::order::{Order, Sink};
use super::unseen::Unseen;
use crate::error::{Result, TraceError};
use crate::event::{Recording, TracedFile, TracedProcess};

/// Bytes read at once, and the longest line.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of lines that wait for their thread.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// The tables that belong to the events.
#[derive(Debug)]
pub struct Resolved {
    /// The files.
    pub files: Vec<TracedFile>,
    /// The processes.
    pub processes: Vec<TracedProcess>,
    /// Counts of the conversion; the command and the source are empty.
    pub recording: Recording,
    /// Files that were appended to while their length was not known: their number, path and appended bytes.
    pub appended: Vec<(u32, Vec<u8>, u64)>,
    /// The files that turned out to be directories.
    pub directories: HashSet<u32>,
    /// Lines that were understood.
    pub lines: u64,
    /// The files of all programs that ran.
    pub programs: BTreeSet<Vec<u8>>,
    /// What the log does not show.
    pub unseen: Unseen,
}

/// Converts a log: passes its events to `sink` in the order of their times.
pub fn convert(log: &Path, start: &Start, sink: Sink<'_>) -> Result<Resolved> {
    let mut resolver = Resolver::new(start, sink);
    let first = for_each_line(log, |line| resolver.line(line))?;
    if resolver.lines == 0
        && let Some(line) = first
    {
        let line = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        return Err(TraceError::NotALog { path: log.to_owned(), line });
    }
    resolver.finish()
}

/// Calls `each` with every line of a file; returns the first one.
fn for_each_line(path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<Option<Vec<u8>>> {
    let mut file = File::open(path).map_err(|source| IoError::from_os(Action::Open, path, 0, source))?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut filled = 0;
    let mut offset = 0;
    let mut first = None;
    loop {
        if filled == block.len() {
            return Err(TraceError::LongLine { path: path.to_owned(), offset });
        }
        let read = file
            .read(&mut block[filled..])
            .map_err(|source| IoError::from_os(Action::Read, path, offset + filled as u64, source))?;
        filled += read;
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &block[from..filled]) {
            let line = &block[from..from + length];
            first.get_or_insert_with(|| line.to_vec());
            each(line)?;
            from += length + 1;
        }
        if read == 0 {
            // strace ends every line; the rest of a cut one has no result.
            return Ok(first);
        }
        block.copy_within(from..filled, 0);
        filled -= from;
        offset += from as u64;
    }
}

struct Thread {
    process: u32,
    table: u32,
    /// The beginning of a call that has not ended, with its time.
    running: Option<(Vec<u8>, u64)>,
}

struct Process {
    traced: TracedProcess,
    directory: Vec<u8>,
}

struct Resolver<'a> {
    calls: FileCalls<'a>,
    start: &'a Start,
    threads: HashMap<u32, Thread>,
    processes: Vec<Process>,
    programs: BTreeSet<Vec<u8>>,
    /// Threads with lines before the result that names them, and whether they have ended.
    unconfirmed: HashMap<u32, bool>,
    /// Lines of threads whose maker is not known yet.
    waiting: HashMap<u32, Vec<Vec<u8>>>,
    waiting_bytes: usize,
    start_ns: u64,
    lines: u64,
    skipped: u64,
    /// Whether strace left a thread before its end.
    detached: bool,
    /// Whether lines that waited had no place any more.
    lost: bool,
}

impl<'a> Resolver<'a> {
    fn new(start: &'a Start, sink: Sink<'a>) -> Resolver<'a> {
        Resolver {
            calls: FileCalls::new(start, Order::new(sink)),
            start,
            threads: HashMap::new(),
            processes: Vec::new(),
            programs: BTreeSet::new(),
            unconfirmed: HashMap::new(),
            waiting: HashMap::new(),
            waiting_bytes: 0,
            start_ns: 0,
            lines: 0,
            skipped: 0,
            detached: false,
            lost: false,
        }
    }

    fn line(&mut self, text: &[u8]) -> Result<()> {
        let Some(line) = line::parse(text) else {
            self.skipped += 1;
            return Ok(());
        };
        self.lines += 1;
        if self.processes.is_empty() {
            self.start_ns = line.time_ns;
            let table = self.calls.descriptors.new_table();
            self.calls.inherit(table);
            let directory = self.start.directory.clone();
            self.add_process(line.thread, table, directory);
        } else if !self.threads.contains_key(&line.thread) && !self.adopt(line.thread)? {
            self.waiting_bytes += text.len();
            if self.waiting_bytes > MAX_WAITING_BYTES {
                (self.skipped, self.lost) = (self.skipped + 1, true);
            } else {
                self.waiting.entry(line.thread).or_default().push(text.to_vec());
            }
            return Ok(());
        }
        self.body(line)
    }

    fn add_process(&mut self, pid: u32, table: u32, directory: Vec<u8>) {
        let process = self.processes.len() as u32;
        self.processes.push(Process { traced: TracedProcess { pid, program: Vec::new() }, directory });
        self.threads.insert(pid, Thread { process, table, running: None });
    }

    /// Finds the maker of a new thread; whether its lines can be applied now.
    fn adopt(&mut self, thread: u32) -> Result<bool> {
        if self.waiting.contains_key(&thread) {
            return Ok(false);
        }
        match self.makers()[..] {
            [maker] => self.adopt_by(maker, thread),
            [] => self.add_stranger(thread),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The threads whose calls make others now.
    fn makers(&self) -> Vec<u32> {
        let makers = self.threads.iter().filter_map(|(maker, state)| {
            let (text, _) = state.running.as_ref()?;
            makes_threads(Call::begun(text)?.name).then_some(*maker)
        });
        makers.collect()
    }

    /// The only maker made a thread.
    fn adopt_by(&mut self, maker: u32, thread: u32) {
        let running = self.threads.get(&maker).and_then(|state| state.running.as_ref());
        let text = running.map(|(text, _)| text.clone()).unwrap_or_default();
        self.add_thread(maker, thread, &text);
        self.unconfirmed.insert(thread, false);
    }

    /// Adds a process of which the descriptors are not known.
    fn add_stranger(&mut self, thread: u32) {
        let table = self.calls.descriptors.new_table();
        let directory = self.start.directory.clone();
        self.add_process(thread, table, directory);
    }

    /// Applies the lines of threads whose maker will not be told: no maker is left, or one that only one can have.
    fn adopt_waiting(&mut self) -> Result<()> {
        let makers = self.makers();
        if makers.len() > 1 || makers.len() == 1 && self.waiting.len() > 1 {
            return Ok(());
        }
        let mut threads: Vec<u32> = self.waiting.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            match makers.first() {
                Some(maker) => self.adopt_by(*maker, thread),
                None => self.add_stranger(thread),
            }
            self.apply_waiting(thread)?;
        }
        Ok(())
    }

    fn apply_waiting(&mut self, thread: u32) -> Result<()> {
        for line in self.waiting.remove(&thread).unwrap_or_default() {
            self.waiting_bytes -= line.len();
            if let Some(line) = line::parse(&line) {
                self.body(line)?;
            }
        }
        Ok(())
    }

    /// Adds a thread or a process that `maker` made by the call in `text`.
    fn add_thread(&mut self, maker: u32, thread: u32, text: &[u8]) {
        let Some(state) = self.threads.get(&maker) else { return };
        let process = state.process;
        let table = state.table;
        let has = |flag: &[u8]| memchr::memmem::find(text, flag).is_some();
        let table = if has(b"CLONE_FILES") {
            self.calls.descriptors.share(table);
            table
        } else {
            self.calls.descriptors.copy(table)
        };
        if has(b"CLONE_THREAD") {
            self.threads.insert(thread, Thread { process, table, running: None });
        } else {
            let directory = self.processes[process as usize].directory.clone();
            self.add_process(thread, table, directory);
        }
    }

    fn body(&mut self, line: Line<'_>) -> Result<()> {
        let Some(thread) = self.threads.get_mut(&line.thread) else { return Ok(()) };
        match line.body {
            Body::Call(text) => self.call(line.thread, line.time_ns, text),
            Body::Unfinished(text) => {
                thread.running = Some((text.to_vec(), line.time_ns));
                let begun = Call::begun(text).map(|call| call.argument(0)).unwrap_or_default();
                let named = begun.iter().position(|byte| *byte == b'<').map(|at| &begun[at + 1..]);
                if named.is_some_and(may_be_a_file) {
                    self.calls.order.started(line.time_ns.saturating_sub(self.start_ns), line.thread);
                }
                Ok(())
            }
            Body::Resumed(rest) => {
                let Some((mut text, time_ns)) = thread.running.take() else { return Ok(()) };
                self.calls.order.ended(time_ns.saturating_sub(self.start_ns), line.thread);
                text.extend_from_slice(rest);
                self.call(line.thread, time_ns, &text)
            }
            Body::Ended => self.end(line.thread, line.time_ns),
            Body::Superseded(other) => self.superseded(line.thread, line.time_ns, other),
            Body::Detached => {
                self.detached = true;
                Ok(())
            }
            Body::Other => Ok(()),
        }
    }

    /// A thread ends, and with the last one of a table its descriptors.
    fn end(&mut self, thread: u32, time_ns: u64) -> Result<()> {
        let Some(state) = self.threads.remove(&thread) else { return Ok(()) };
        if let Some(ended) = self.unconfirmed.get_mut(&thread) {
            *ended = true;
        }
        let made = |text| Call::begun(text).is_some_and(|call| makes_threads(call.name));
        let was_maker = state.running.as_ref().is_some_and(|(text, _)| made(text));
        if let Some((_, started_ns)) = state.running {
            self.calls.order.ended(started_ns.saturating_sub(self.start_ns), thread);
        }
        let closed = self.calls.descriptors.leave(state.table);
        self.close_all(&state, time_ns, closed)?;
        // Its call has no result any more.
        if was_maker { self.adopt_waiting() } else { Ok(()) }
    }

    /// The first thread of a process ended because `other` ran a program, and goes on with its number. The exec has
    /// succeeded, whatever the log says of it later.
    fn superseded(&mut self, first: u32, time_ns: u64, other: u32) -> Result<()> {
        self.end(first, time_ns)?;
        let Some(mut thread) = self.threads.remove(&other) else { return Ok(()) };
        let running = thread.running.take();
        self.threads.insert(first, thread);
        let Some((mut text, started_ns)) = running else { return Ok(()) };
        self.calls.order.ended(started_ns.saturating_sub(self.start_ns), other);
        text.extend_from_slice(b") = 0");
        match Call::parse(&text) {
            Some(call) if is_exec(call.name) => self.exec(first, started_ns, &call),
            _ => Ok(()),
        }
    }

    fn close_all(&mut self, thread: &Thread, time_ns: u64, closed: Vec<u32>) -> Result<()> {
        let process = thread.process;
        let table = thread.table;
        let time_ns = time_ns.saturating_sub(self.start_ns);
        for file in closed {
            self.calls.ended(Caller { process, table, directory: &[], time_ns }, Some(file))?;
        }
        Ok(())
    }

    fn call(&mut self, thread: u32, time_ns: u64, text: &[u8]) -> Result<()> {
        let Some(call) = Call::parse(text) else {
            self.skipped += 1;
            return Ok(());
        };
        let Some(result) = call.result else { return Ok(()) };
        if makes_threads(call.name) {
            return self.made(thread, call.outer_thread.unwrap_or(result) as u32, text);
        }
        if is_exec(call.name) {
            return self.exec(thread, time_ns, &call);
        }
        let Some(&Thread { process, table, .. }) = self.threads.get(&thread) else { return Ok(()) };
        let Some(state) = self.processes.get_mut(process as usize) else { return Ok(()) };
        let time_ns = time_ns.saturating_sub(self.start_ns);
        let caller = Caller { process, table, directory: &state.directory, time_ns };
        if let Some(directory) = self.calls.apply(caller, &call, result)? {
            state.directory = directory;
        }
        Ok(())
    }

    /// A call that makes threads has its result: the lines of the thread that waited are applied.
    fn made(&mut self, maker: u32, thread: u32, text: &[u8]) -> Result<()> {
        let has_ended = self.unconfirmed.remove(&thread) == Some(true);
        if !has_ended && !self.threads.contains_key(&thread) {
            self.add_thread(maker, thread, text);
        }
        self.apply_waiting(thread)?;
        self.adopt_waiting()
    }

    fn exec(&mut self, thread: u32, time_ns: u64, call: &Call<'_>) -> Result<()> {
        let (path, directory) = if call.name == b"execve" { (0, None) } else { (1, Some(0)) };
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        if let Some(process) = self.processes.get_mut(state.process as usize) {
            let base = &process.directory;
            let caller = Caller { process: state.process, table: state.table, directory: base, time_ns };
            self.programs.extend(as_written(caller, call, path, directory));
            if let Some(path) = call.path(path) {
                process.traced.program = path;
            }
        }
        let mut closed = Vec::new();
        if self.calls.descriptors.is_shared(state.table) {
            let own = self.calls.descriptors.copy(state.table);
            closed = self.calls.descriptors.leave(state.table);
            state.table = own;
        }
        closed.extend(self.calls.descriptors.exec(state.table));
        let process = state.process;
        let table = state.table;
        self.close_all(&Thread { process, table, running: None }, time_ns, closed)
    }

    /// A recording is complete if every thread ended before it.
    fn finish(mut self) -> Result<Resolved> {
        let mut left: Vec<u32> = self.waiting.keys().copied().collect();
        left.sort_unstable();
        for thread in left {
            self.add_stranger(thread);
            self.apply_waiting(thread)?;
        }
        let incomplete = self.detached || self.lost || !self.threads.is_empty();
        let calls = self.calls;
        calls.order.finish()?;
        let appended =
            calls.files.appended().map(|(file, path, bytes)| (file, path.to_vec(), bytes)).collect();
        let directories = calls.files.directories();
        Ok(Resolved {
            directories,
            files: calls.files.into_table(),
            processes: self.processes.into_iter().map(|process| process.traced).collect(),
            recording: Recording {
                start_ns: self.start_ns,
                unseen_requests: calls.unseen_requests,
                guessed_appends: calls.guessed_appends,
                skipped_lines: self.skipped,
                incomplete,
                ..Recording::default()
            },
            appended,
            lines: self.lines,
            programs: self.programs,
            unseen: calls.unseen,
        })
    }
}

fn is_exec(name: &[u8]) -> bool {
    matches!(name, b"execve" | b"execveat")
}

fn makes_threads(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone3" | b"fork" | b"vfork")
}
