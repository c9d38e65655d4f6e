//! Pipes, terminals and other descriptors without offsets, and bytes that the program makes: each has a thread that
//! moves its bytes, so a slow partner does not block the caller. A writer has none until its partner is slow.
//!
//! ```text
//!   begin --bufs--> [ thread: poll, read until full or end ] --filled--> complete
//! ```
//!
//! The reading thread waits for its descriptor together with a stop signal, so that a stream may
//! be dropped while its partner is silent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ascot_model::stages;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, PollFlags};

use crate::backend::{NOTHING_BEGUN, TOO_LONG};
use crate::buf::Buf;
use crate::clocks::{State, call, count};
use crate::error::{Action, IoError, Result, is_passing, nothing_written};
use crate::program_streams::ByteSource;
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::{Effect, StreamContext};
use crate::system;
use crate::threads::{Thread, spawn};
use crate::waits::{Need, receive, receive_looking};

/// Interval at which a thread that waits for the other end of a pipe checks whether the job is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Interval at which a caller checks whether a thread has ended.
const BETWEEN_ENDS: Duration = Duration::from_millis(1);
/// Maximum wait for a source of the program, which cannot be interrupted: its thread ends later by itself.
const SOURCE_PATIENCE: Duration = Duration::from_millis(100);

/// A thread that serves one request after another on a descriptor.
struct PipeThread<Q, A> {
    requests: Option<Sender<Q>>,
    answers: Receiver<Result<A>>,
    in_flight: usize,
    /// Readable once the thread is to stop waiting for the other end.
    stop: Arc<OwnedFd>,
    thread: Option<Thread<()>>,
    path: PathBuf,
    job_stop: Option<Arc<AtomicBool>>,
    /// The state of a caller that waits for an answer.
    caller: State,
    /// Maximum wait for the end of the thread; none: until it ends.
    patience: Option<Duration>,
}

/// The waits of the two sides of a pipe's thread, in words.
struct Waits {
    /// The wait of the thread, in words.
    what: &'static str,
    /// The state of the thread meanwhile.
    thread: State,
    /// The state of a caller that waits for the thread.
    caller: State,
}

impl<Q: Send + 'static, A: Send + 'static> PipeThread<Q, A> {
    /// Starts the thread; `server` makes the function that serves a request.
    fn start<S: FnMut(Q) -> Result<A> + Send + 'static>(
        name: &str,
        waits: Waits,
        context: StreamContext,
        server: impl FnOnce(StreamContext, Arc<OwnedFd>) -> S,
    ) -> Result<Self> {
        let path = context.path.clone();
        let job_stop = context.stop.clone();
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC);
        let stop = Arc::new(stop.map_err(|error| context.error(Action::Open, 0, error.into()))?);
        let (requests, to_serve) = unbounded();
        let (answer, answers) = unbounded();
        let mut serve = server(context, Arc::clone(&stop));
        let Waits { what, thread, caller } = waits;
        let run = move || {
            while let Ok(request) = receive(&to_serve, what, Need::Idle(thread)) {
                // A caller that has gone needs no answer, and closes `to_serve` too.
                let _ = answer.send(serve(request));
            }
        };
        let thread = spawn(name, run).map_err(|source| IoError::Thread { path: path.clone(), source })?;
        let requests = Some(requests);
        let thread = Some(thread);
        Ok(Self { requests, answers, in_flight: 0, stop, thread, path, job_stop, caller, patience: None })
    }

    /// Hands a request to the thread; false if the thread has ended.
    fn request(&mut self, request: Q) -> bool {
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok());
        self.in_flight += usize::from(sent);
        sent
    }

    /// Waits for the next answer; none if the thread has ended.
    fn answer(&self) -> Option<Result<A>> {
        let mut look = || match &self.job_stop {
            Some(stop) if stop.load(Relaxed) => Err(IoError::Stopped { path: self.path.clone() }),
            _ => Ok(()),
        };
        let what = "the thread of a pipe";
        let need = Need::Blocked(self.caller);
        receive_looking(&self.answers, what, need, BETWEEN_LOOKS, &mut look)
            .unwrap_or_else(|stopped| Some(Err(stopped)))
    }
}

impl<Q, A> Drop for PipeThread<Q, A> {
    fn drop(&mut self) {
        self.requests = None;
        // Cannot fail short of 2^64 - 1 unread signals.
        let _ = rustix::io::write(self.stop.as_ref(), &1u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        let since = Instant::now();
        while self.patience.is_some_and(|patience| !thread.is_finished() && since.elapsed() < patience) {
            std::thread::sleep(BETWEEN_ENDS);
        }
        if self.patience.is_none() || thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// Reads a descriptor to its end.
pub(crate) struct PipeRead {
    thread: PipeThread<Buf, Filled>,
}

impl PipeRead {
    /// Starts with the bytes `peeked`, which were read from `file` before.
    pub(crate) fn start(context: StreamContext, file: File, peeked: Vec<u8>) -> Result<Self> {
        let server = |context, stop| {
            let mut source = Source { context, file, peeked, stop, at: 0, ended: false };
            move |buf| source.fill(buf)
        };
        let what = "buffers to read a pipe into";
        let waits = Waits { what, thread: State::Memory, caller: State::Input };
        let thread = PipeThread::start(stages::PIPE_IN, waits, context, server)?;
        Ok(Self { thread })
    }

    /// Reads the bytes that the program makes.
    pub(crate) fn from_source(context: StreamContext, source: Box<dyn ByteSource>) -> Result<Self> {
        let server = |context, _stop| {
            let mut bytes = ProgramBytes { context, source, at: 0, ended: false };
            move |buf| bytes.fill(buf)
        };
        let what = "buffers for records of the program";
        let waits = Waits { what, thread: State::Memory, caller: State::Input };
        let mut thread = PipeThread::start(stages::PIPE_IN, waits, context, server)?;
        thread.patience = Some(SOURCE_PATIENCE);
        Ok(Self { thread })
    }

    fn misuse(&self) -> IoError {
        IoError::Misuse { path: self.thread.path.clone(), offset: 0, what: NOTHING_BEGUN }
    }
}

/// The state of the thread that reads the program's bytes.
struct ProgramBytes {
    context: StreamContext,
    source: Box<dyn ByteSource>,
    at: u64,
    ended: bool,
}

impl ProgramBytes {
    fn fill(&mut self, mut buf: Buf) -> Result<Filled> {
        let mut end = 0;
        if !self.ended {
            self.context.inject_fault(Action::Read, self.at)?;
            let receipt = self.context.meter.issue(self.at, buf.len() as u64, 1);
            let filled = self.source.fill(&mut buf);
            end = filled.unwrap_or(0);
            receipt.complete(end as u64);
            if filled.is_none() {
                return Err(IoError::Stopped { path: self.context.path.clone() });
            }
            self.ended = end < buf.len();
            self.at += end as u64;
        }
        count(end as u64);
        Ok(Filled { buf, start: 0, end })
    }
}

/// The state of the reading thread.
struct Source {
    context: StreamContext,
    file: File,
    /// Bytes read before the stream was opened.
    peeked: Vec<u8>,
    stop: Arc<OwnedFd>,
    at: u64,
    ended: bool,
}

impl Source {
    fn fill(&mut self, mut buf: Buf) -> Result<Filled> {
        let peeked = self.peeked.len().min(buf.len());
        buf[..peeked].copy_from_slice(&self.peeked[..peeked]);
        self.peeked.drain(..peeked);
        let mut end = peeked;
        if !self.ended && end < buf.len() {
            let mut halve = self.context.inject_fault(Action::Read, self.at)? == Some(Effect::Short);
            let receipt = self.context.meter.issue(self.at, (buf.len() - end) as u64, 1);
            let mut result = Ok(());
            while end < buf.len() && !self.ended && result.is_ok() {
                let half = end + (buf.len() - end).div_ceil(2);
                let until = if std::mem::take(&mut halve) { half } else { buf.len() };
                match self.read(&mut buf[end..until]) {
                    Ok(more) => end += more,
                    Err(error) => result = Err(self.context.error(Action::Read, self.at, error)),
                }
            }
            receipt.complete((end - peeked) as u64);
            result?;
        }
        count(end as u64);
        Ok(Filled { buf, start: 0, end })
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !system::wait(&self.file, self.stop.as_ref(), PollFlags::IN)? {
            self.ended = true;
            return Ok(0);
        }
        match call(State::Input, || self.file.read(to)) {
            Ok(0) => {
                self.ended = true;
                Ok(0)
            }
            Ok(more) => {
                self.at += more as u64;
                Ok(more)
            }
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl ReadStream for PipeRead {
    fn begin(&mut self, buf: Buf) -> Result<()> {
        if self.thread.request(buf) { Ok(()) } else { Err(self.misuse()) }
    }

    fn complete(&mut self) -> Result<Filled> {
        if self.thread.in_flight == 0 {
            return Err(self.misuse());
        }
        self.thread.in_flight -= 1;
        self.thread.answer().unwrap_or_else(|| Err(self.misuse()))
    }

    fn ready(&mut self) -> bool {
        !self.thread.answers.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.thread.in_flight
    }
}

/// Writes a descriptor forward: short buffers at once as long as the partner takes them, and the rest by a thread. A
/// small job needs none.
pub(crate) struct PipeWrite {
    thread: Option<PipeThread<(Buf, Range<usize>), ()>>,
    /// The thread's context, until it has one.
    writing: Option<StreamContext>,
    written: u64,
    file: Arc<File>,
    failed: Option<IoError>,
    context: StreamContext,
}

const ENDED: &str = "the stream's thread has ended";
/// Maximum bytes of a buffer that is written at once: what a pipe holds.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

impl PipeWrite {
    /// `context` is for the caller, `writing` for what is written.
    pub(crate) fn new(context: StreamContext, writing: StreamContext, file: File) -> Self {
        let writing = Some(writing);
        PipeWrite { thread: None, writing, written: 0, file: Arc::new(file), failed: None, context }
    }

    /// Writes the start of `bytes` that the partner takes without a wait; returns its length.
    fn write_at_once(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(context) = self.writing.as_mut().filter(|_| bytes.len() <= AT_ONCE_BYTES_MAX) else {
            return Ok(0);
        };
        let halve = context.inject_fault(Action::Write, self.written)? == Some(Effect::Short);
        let bytes = if halve { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
        let taken = call(State::Memory, || system::write_without_wait(&self.file, bytes));
        let len = *taken.as_ref().unwrap_or(&0);
        if len > 0 {
            // What the partner refuses, the thread requests again.
            context.meter.issue(self.written, len as u64, 1).complete(len as u64);
        }
        count(len as u64);
        self.written += len as u64;
        let error = |error| context.error(Action::Write, self.written, error).needing(bytes.len() as u64);
        taken.map_err(error)
    }

    /// The thread, which is started if there is none.
    fn thread(&mut self) -> Result<&mut PipeThread<(Buf, Range<usize>), ()>> {
        if let Some(writing) = self.writing.take() {
            let at = self.written;
            let server = |context, stop| {
                let mut sink = Sink { context, file: Arc::clone(&self.file), at, stop };
                move |(buf, bytes): (Buf, Range<usize>)| sink.write(&buf[bytes])
            };
            let what = "bytes to write to a pipe";
            let waits = Waits { what, thread: State::Input, caller: State::Memory };
            let mut thread = PipeThread::start(stages::PIPE_OUT, waits, writing, server)?;
            // The thread is not joined: a write that blocks cannot be cancelled, and waiting for it would hang the
            // caller that drops this stream.
            thread.thread = None;
            self.thread = Some(thread);
        }
        match &mut self.thread {
            Some(thread) => Ok(thread),
            None => Err(self.context.misuse(self.written, ENDED)),
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn note(&mut self, result: Result<()>) {
        if let Some(thread) = &mut self.thread {
            thread.in_flight -= 1;
        }
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    fn ended(&self) -> IoError {
        self.context.misuse(self.written, ENDED)
    }
}

/// The state of the writing thread.
struct Sink {
    context: StreamContext,
    file: Arc<File>,
    at: u64,
    stop: Arc<OwnedFd>,
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let len = bytes.len();
        let halve = self.context.inject_fault(Action::Write, self.at)? == Some(Effect::Short);
        let receipt = self.context.meter.issue(self.at, len as u64, 1);
        let mut written = 0;
        let mut until = if halve { len.div_ceil(2) } else { len };
        let result = loop {
            if written == len {
                break Ok(());
            }
            match self.push(&bytes[written..until]) {
                Ok(more) => written += more,
                Err(error) => {
                    let error = self.context.error(Action::Write, self.at + written as u64, error);
                    break Err(error.needing((len - written) as u64));
                }
            }
            until = len;
        };
        receipt.complete(written as u64);
        count(written as u64);
        self.at += written as u64;
        result
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !system::wait(self.file.as_ref(), self.stop.as_ref(), PollFlags::OUT)? {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // A pipe that has some space may still keep the writer waiting.
        match call(State::Memory, || (&*self.file).write(bytes)) {
            Ok(0) => Err(nothing_written()),
            Ok(more) => Ok(more),
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl WriteStream for PipeWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<()> {
        while let Some(Ok(result)) = self.thread.as_ref().map(|thread| thread.answers.try_recv()) {
            self.note(result);
        }
        self.check()?;
        if len > buf.len() {
            return Err(self.context.misuse(self.written, TOO_LONG));
        }
        if len == 0 {
            return Ok(());
        }
        // As of a thread, its error is that of the next call.
        let taken = self.write_at_once(&buf[..len]).unwrap_or_else(|error| {
            self.failed = Some(error);
            len
        });
        if taken < len {
            if !self.thread()?.request((buf, taken..len)) {
                return Err(self.ended());
            }
            self.written += (len - taken) as u64;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        while let Some(thread) = self.thread.as_ref().filter(|thread| thread.in_flight > 0) {
            match thread.answer() {
                Some(Err(stopped @ IoError::Stopped { .. })) => return Err(stopped),
                Some(result) => self.note(result),
                None => return Err(self.ended()),
            }
        }
        self.check()
    }

    fn sync(&mut self) -> Result<()> {
        self.drain()?;
        self.context.inject_fault(Action::Sync, self.written)?;
        match self.file.sync_data() {
            // A pipe or device has nothing to make durable.
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EROFS | libc::ENOTSUP)) =>
            {
                Err(self.context.error(Action::Sync, self.written, error))
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.drain()?;
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::Disk;
    use crate::ledger::{Direction, NO_DEVICE};

    /// A pipe that holds 64 KiB needs no thread for three short writes, and one from the write on that it does not take
    /// whole. Longer buffers leave it to the thread to wait.
    #[test]
    fn a_writer_has_no_thread_until_its_partner_is_slow() {
        let disk = Disk::default();
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        rustix::pipe::fcntl_setpipe_size(&file, 64 << 10).unwrap();
        let stat = file.metadata().unwrap();
        let context = || disk.context(Path::new("<out>"), "out", &stat, Direction::Write);
        let mut to = PipeWrite::new(context(), context(), file);
        let block: Vec<u8> = (0..20_000).map(|at| at as u8).collect();
        let put = |to: &mut PipeWrite| {
            let mut buf = Buf::heap(block.len());
            buf.copy_from_slice(&block);
            to.begin(buf, block.len()).unwrap();
        };
        (0..3).for_each(|_| put(&mut to));
        assert!(to.thread.is_none());
        (0..7).for_each(|_| put(&mut to));
        assert!(to.thread.is_some());
        let taken = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        to.drain().unwrap();
        assert_eq!(Box::new(to).finish().unwrap(), 200_000);
        assert!(taken.join().unwrap().unwrap() == block.repeat(10));
        let [account] = &disk.ledger().account()[..] else { panic!("one stream") };
        assert_eq!(
            (account.bytes, account.runs, account.file_runs, account.device),
            (200_000, 0, 1, NO_DEVICE)
        );
    }
}
