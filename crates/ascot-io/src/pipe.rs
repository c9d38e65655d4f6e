//! Pipes, terminals and other descriptors without offsets: each has a thread that moves its bytes, so a slow partner
//! does not block the caller.
//!
//! ```text
//!   begin --bufs--> [ thread: poll, read until full or end ] --filled--> complete
//! ```
//!
//! The reading thread waits for its descriptor together with a stop signal, so that a stream may
//! be dropped while its partner is silent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rustix::event::{EventfdFlags, PollFlags};

use crate::backend::{NOTHING_BEGUN, TOO_LONG};
use crate::buf::Buf;
use crate::error::{Action, IoError, nothing_written};
use crate::fault_hook::Effect;
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::stream_context::StreamContext;
use crate::system;
use crate::threads::{Thread, ThreadError, spawn};
use crate::waits::{Need, receive, wait_for};

/// Interval at which a thread that waits for the other end of a pipe checks whether the job is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The answer of a pipe's thread; none if the thread has ended.
fn receive_answer<T>(
    from: &Receiver<Result<T, IoError>>,
    path: &Path,
    is_stopped: impl Fn() -> bool,
) -> Option<Result<T, IoError>> {
    let mut waiting = None;
    loop {
        match from.recv_timeout(BETWEEN_LOOKS) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if is_stopped() => {
                return Some(Err(IoError::Stopped { path: path.to_path_buf() }));
            }
            Err(RecvTimeoutError::Timeout) => {
                waiting.get_or_insert_with(|| wait_for("the thread of a pipe", Need::Blocked, None));
            }
        }
    }
}

fn no_thread(path: &Path, source: ThreadError) -> IoError {
    IoError::Thread { path: path.to_path_buf(), source }
}

/// Reads a descriptor to its end.
pub(crate) struct PipeRead {
    bufs: Option<Sender<Buf>>,
    filled: Receiver<Result<Filled, IoError>>,
    in_flight: usize,
    stop: Arc<OwnedFd>,
    thread: Option<Thread<()>>,
    misuse: IoError,
    /// Fields of the caller.
    path: PathBuf,
    job_stop: Option<Arc<AtomicBool>>,
}

impl PipeRead {
    pub(crate) fn start(context: StreamContext, file: File) -> Result<Self, IoError> {
        let failed = |error: io::Error| context.error(Action::Open, 0, error);
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let stop = Arc::new(stop);
        let misuse = context.misuse(0, NOTHING_BEGUN);
        let path = context.path.clone();
        let job_stop = context.stop.clone();
        let (bufs, to_fill) = unbounded();
        let (answer, filled) = unbounded();
        let mut source = Source { context, file, stop: Arc::clone(&stop), at: 0, ended: false };
        let read = move || {
            while let Ok(buf) = receive(&to_fill, "buffers to read a pipe into", Need::Idle) {
                // A caller that has gone needs no answer, and closes `to_fill` too.
                let _ = answer.send(source.fill(buf));
            }
        };
        let thread = Some(spawn("pipe in", read).map_err(|source| no_thread(&path, source))?);
        Ok(Self { bufs: Some(bufs), filled, in_flight: 0, stop, thread, misuse, path, job_stop })
    }
}

/// The state of the reading thread.
struct Source {
    context: StreamContext,
    file: File,
    stop: Arc<OwnedFd>,
    at: u64,
    ended: bool,
}

impl Source {
    fn fill(&mut self, mut buf: Buf) -> Result<Filled, IoError> {
        let mut end = 0;
        if !self.ended && !buf.is_empty() {
            let mut halve = self.context.inject_fault(Action::Read, self.at)? == Some(Effect::Short);
            let receipt = self.context.meter.issue(self.at, buf.len() as u64, 1);
            let mut result = Ok(());
            while end < buf.len() && !self.ended && result.is_ok() {
                let until = if std::mem::take(&mut halve) { buf.len().div_ceil(2) } else { buf.len() };
                match self.read(&mut buf[end..until]) {
                    Ok(more) => end += more,
                    Err(error) => result = Err(self.context.error(Action::Read, self.at, error)),
                }
            }
            receipt.complete(end as u64);
            result?;
        }
        Ok(Filled { buf, start: 0, end })
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !system::wait(&self.file, self.stop.as_ref(), PollFlags::IN)? {
            self.ended = true;
            return Ok(0);
        }
        match self.file.read(to) {
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

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

impl ReadStream for PipeRead {
    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        match self.bufs.as_ref().map(|bufs| bufs.send(buf)) {
            Some(Ok(())) => {
                self.in_flight += 1;
                Ok(())
            }
            _ => Err(self.misuse.clone()),
        }
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        if self.in_flight == 0 {
            return Err(self.misuse.clone());
        }
        self.in_flight -= 1;
        let is_stopped = || self.job_stop.as_ref().is_some_and(|stop| stop.load(Relaxed));
        let answer = receive_answer(&self.filled, &self.path, is_stopped);
        answer.unwrap_or_else(|| Err(self.misuse.clone()))
    }

    fn ready(&mut self) -> bool {
        !self.filled.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn len_hint(&self) -> Option<u64> {
        None
    }
}

impl Drop for PipeRead {
    fn drop(&mut self) {
        self.bufs = None;
        // Cannot fail short of 2^64 - 1 unread signals.
        let _ = rustix::io::write(self.stop.as_ref(), &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes a descriptor forward.
pub(crate) struct PipeWrite {
    work: Option<Sender<(Buf, usize)>>,
    done: Receiver<Result<(), IoError>>,
    in_flight: usize,
    written: u64,
    file: Arc<File>,
    failed: Option<IoError>,
    context: StreamContext,
    stop: Arc<OwnedFd>,
}

impl PipeWrite {
    /// `context` is for the caller, `writing` for the thread.
    pub(crate) fn start(context: StreamContext, writing: StreamContext, file: File) -> Result<Self, IoError> {
        let failed = |error: io::Error| context.error(Action::Open, 0, error);
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let stop = Arc::new(stop);
        let file = Arc::new(file);
        let (work, to_write) = unbounded::<(Buf, usize)>();
        let (answer, done) = unbounded();
        let file_too = Arc::clone(&file);
        let mut sink = Sink { context: writing, file: file_too, at: 0, stop: Arc::clone(&stop) };
        let write = move || {
            while let Ok((buf, len)) = receive(&to_write, "bytes to write to a pipe", Need::Idle) {
                // A caller that has gone needs no answer, and closes `to_write` too.
                let _ = answer.send(sink.write(buf, len));
            }
        };
        spawn("pipe out", write).map_err(|source| no_thread(&context.path, source))?;
        Ok(Self { work: Some(work), done, in_flight: 0, written: 0, file, failed: None, context, stop })
    }

    fn check(&self) -> Result<(), IoError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn note(&mut self, result: Result<(), IoError>) {
        self.in_flight -= 1;
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
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
    fn write(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        let halve = self.context.inject_fault(Action::Write, self.at)? == Some(Effect::Short);
        let receipt = self.context.meter.issue(self.at, len as u64, 1);
        let mut written = 0;
        let mut until = if halve { len.div_ceil(2) } else { len };
        let result = loop {
            if written == len {
                break Ok(());
            }
            match self.push(&buf[written..until]) {
                Ok(more) => written += more,
                Err(error) => {
                    let error = self.context.error(Action::Write, self.at + written as u64, error);
                    break Err(error.needing((len - written) as u64));
                }
            }
            until = len;
        };
        receipt.complete(written as u64);
        self.at += written as u64;
        result
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !system::wait(self.file.as_ref(), self.stop.as_ref(), PollFlags::OUT)? {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match (&*self.file).write(bytes) {
            Ok(0) => Err(nothing_written()),
            Ok(more) => Ok(more),
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl WriteStream for PipeWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        while let Ok(result) = self.done.try_recv() {
            self.note(result);
        }
        self.check()?;
        if len > buf.len() {
            return Err(self.context.misuse(self.written, TOO_LONG));
        }
        if len == 0 {
            return Ok(());
        }
        match self.work.as_ref().map(|work| work.send((buf, len))) {
            Some(Ok(())) => {
                self.in_flight += 1;
                self.written += len as u64;
                Ok(())
            }
            _ => Err(self.context.misuse(self.written, "the stream's thread has ended")),
        }
    }

    fn drain(&mut self) -> Result<(), IoError> {
        while self.in_flight > 0 {
            let answer = || receive_answer(&self.done, &self.context.path, || self.context.is_stopped());
            match self.context.waiting(answer) {
                Some(Err(stopped @ IoError::Stopped { .. })) => return Err(stopped),
                Some(result) => self.note(result),
                None => return Err(self.context.misuse(self.written, "the stream's thread has ended")),
            }
        }
        self.check()
    }

    fn sync(&mut self) -> Result<(), IoError> {
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

    fn finish(mut self: Box<Self>) -> Result<u64, IoError> {
        self.drain()?;
        Ok(self.written)
    }
}

impl Drop for PipeWrite {
    fn drop(&mut self) {
        // The thread is not joined: a write that blocks cannot be cancelled, and waiting for it would hang the caller
        // that drops this stream.
        self.work = None;
        let _ = rustix::io::write(self.stop.as_ref(), &1u64.to_ne_bytes());
    }
}
