//! Streams whose other end is in this process: bytes that the program makes as they are needed, and blocks that it
//! takes.
//!
//! ```text
//!   ByteSource ─fill─▶ [ thread of the stream ] ─▶ complete        a job's input
//!   begin ─(block, bytes)─▶ BlockSink ─▶ the program               a job's output
//! ```
//!
//! A block belongs to the memory of the job until the program drops it: a program that takes nothing keeps the job
//! waiting, and the job holds no more than its memory.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::buf::Buf;
use crate::clocks::count;
use crate::error::{Action, IoError, Result};
use crate::stream::WriteStream;
use crate::stream_context::StreamContext;
use crate::sync::Unpoisoned;
use crate::waits::{Need, wait_for};
use crate::{backend::TOO_LONG, clocks::State};

/// Interval at which a job that waits for the program checks whether it is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Makes the bytes of an input.
pub trait ByteSource: Send {
    /// Fills `out`; returns the number of bytes, fewer only at the end. None: the program has failed, and the job
    /// stops. Once the job is cancelled, it returns soon.
    fn fill(&mut self, out: &mut [u8]) -> Option<usize>;
}

/// Takes the blocks of an output.
pub trait BlockSink: Send {
    /// Takes the first `len` bytes of `block`. It does not wait.
    fn put(&mut self, block: Buf, len: usize);

    /// Waits at most `time`; says whether the program has taken everything.
    fn is_taken(&mut self, time: Duration) -> bool;
}

/// The ends of a job in this process; clones share them. Each is opened once.
#[derive(Clone, Default)]
pub struct ProgramStreams {
    ends: Arc<Mutex<Ends>>,
}

#[derive(Default)]
struct Ends {
    /// None once it was opened.
    sources: Vec<Option<Box<dyn ByteSource>>>,
    sink: Option<Box<dyn BlockSink>>,
}

impl ProgramStreams {
    /// The inputs, in the order of the request, and the output.
    pub fn new(
        sources: impl IntoIterator<Item = Box<dyn ByteSource>>,
        sink: Option<Box<dyn BlockSink>>,
    ) -> Self {
        let sources = sources.into_iter().map(Some).collect();
        ProgramStreams { ends: Arc::new(Mutex::new(Ends { sources, sink })) }
    }

    pub(crate) fn take_source(&self, number: usize) -> Option<Box<dyn ByteSource>> {
        self.ends.lock().unpoisoned().sources.get_mut(number)?.take()
    }

    pub(crate) fn take_sink(&self) -> Option<Box<dyn BlockSink>> {
        self.ends.lock().unpoisoned().sink.take()
    }
}

impl fmt::Debug for ProgramStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramStreams").finish_non_exhaustive()
    }
}

/// Hands blocks to the program.
pub(crate) struct ProgramWrite {
    context: StreamContext,
    sink: Box<dyn BlockSink>,
    written: u64,
}

impl ProgramWrite {
    pub(crate) fn new(context: StreamContext, sink: Box<dyn BlockSink>) -> Self {
        ProgramWrite { context, sink, written: 0 }
    }
}

impl WriteStream for ProgramWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<()> {
        if len > buf.len() {
            return Err(self.context.misuse(self.written, TOO_LONG));
        }
        if len > 0 {
            self.context.inject_fault(Action::Write, self.written)?;
            let receipt = self.context.meter.issue(self.written, len as u64, 1);
            self.sink.put(buf, len);
            receipt.complete(len as u64);
            count(len as u64);
            self.written += len as u64;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let stop = self.context.stop.clone();
        let _waiting = wait_for("the program to take the output", Need::Idle(State::Memory), None);
        while !self.sink.is_taken(BETWEEN_LOOKS) {
            if stop.as_ref().is_some_and(|stop| stop.load(Relaxed)) {
                return Err(IoError::Stopped { path: self.context.path.clone() });
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.drain()
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.drain()?;
        Ok(self.written)
    }
}
