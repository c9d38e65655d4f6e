//! Blocks moved by one system call each: plain, buffered and sized streams.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::blocks::{PAST_THE_END, Sink, Source};
use crate::backend::{Calls, apply_effect};
use crate::buf::Buf;
use crate::error::{Action, IoError, Result};
use crate::stream_context::{Effect, StreamContext};

/// A file whose blocks move by system calls, forward.
pub(super) struct BlockCalls {
    context: StreamContext,
    file: Arc<File>,
    calls: Calls,
    next: u64,
    /// The end of the file, for reading.
    end: u64,
    requests: u64,
}

impl BlockCalls {
    /// Reads `[0, end)` by blocks of `bytes`.
    pub(super) fn to_read(context: StreamContext, file: File, bytes: usize, end: u64) -> Self {
        let file = Arc::new(file);
        Self { context, calls: Calls { file: Arc::clone(&file), bytes }, file, next: 0, end, requests: 0 }
    }

    /// Writes blocks of `bytes` from offset 0 on.
    pub(super) fn to_write(context: StreamContext, file: File, bytes: usize) -> Self {
        Self::to_read(context, file, bytes, 0)
    }
}

impl Source for BlockCalls {
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>> {
        let mut halve = self.context.inject_fault(Action::Read, self.next)? == Some(Effect::Short);
        let wanted = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(self.calls.bytes);
        let mut filled = 0;
        while filled < wanted {
            let len = if std::mem::take(&mut halve) { wanted.div_ceil(2) } else { wanted - filled };
            let offset = self.next + filled as u64;
            self.requests += 1;
            match self.calls.read(&self.context, &mut block[filled..filled + len], offset)? {
                0 => return Err(self.context.truncated(offset, self.end)),
                more => filled += more,
            }
        }
        self.next += wanted as u64;
        Ok(0..wanted)
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn past_the_end(&self) -> IoError {
        self.context.misuse(self.next, PAST_THE_END)
    }
}

impl Sink for BlockCalls {
    fn next_block(&mut self, _block: &mut Buf) -> Result<Range<usize>> {
        Ok(0..self.calls.bytes)
    }

    fn put(&mut self, block: &mut Buf, filled: Range<usize>) -> Result<()> {
        let len = filled.len();
        let effect = self.context.inject_fault(Action::Write, self.next)?;
        let mut halve = effect == Some(Effect::Short);
        let (stored, at) = apply_effect(effect, &mut block[filled], self.next);
        let mut written = 0;
        while written < stored {
            let some = if std::mem::take(&mut halve) { stored.div_ceil(2) } else { stored - written };
            self.requests += 1;
            written +=
                self.calls.write(&self.context, &block[written..written + some], at + written as u64)?;
        }
        self.next += len as u64;
        Ok(())
    }

    fn close(&mut self, durable: bool) -> Result<u64> {
        if durable {
            self.context.sync(&self.file, self.next)?;
        }
        self.context.space.note(&self.file);
        Ok(self.next)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}
