//! The outputs records are dealt out to: parts of a distribution, which are runs, and files of a split.
//!
//! A run's blocks hold whole records, unless one is longer than a block, and the run is told what is in
//! each; a file's hold bytes as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use ascot_bowtie::engine::BlockOutput;
use ascot_io::{AtomicOutput, Buf, IoError};

use crate::api::error::SortError;
use crate::records::Records;
use crate::records::emitter::Chunk;
use crate::runs::run::{Run, RunStart};
use crate::runs::run_file::RunSink;
use crate::runs::run_file::encode_index;
use crate::runs::store::OpenPart;

/// What a block holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// Records that end in it.
    pub records: u64,
    /// Length of the longest, bytes, or a bound of it.
    pub longest: usize,
    /// Offset of the first record that starts in it; its length where none does.
    pub first_record: usize,
}

/// An output of dealing.
pub trait Part: BlockOutput {
    /// Its blocks hold whole records.
    const WHOLE_RECORDS: bool;
    /// What is in the next block to come, in the order in which blocks come.
    fn describe(&mut self, block: BlockFacts);
}

/// A part of a distribution while it is being written: records in input order, in blocks of a run file.
pub struct RunPart<R> {
    /// None when it is finished.
    sink: Option<RunSink<R>>,
    told: VecDeque<BlockFacts>,
    begun: usize,
    done: Option<Run>,
}

impl<R: Records> RunPart<R> {
    /// A part that is written to `sink`.
    pub fn new(sink: RunSink<R>) -> Self {
        RunPart { sink: Some(sink), told: VecDeque::new(), begun: 0, done: None }
    }

    /// Makes what has been written durable, and tells how to go on from there.
    pub fn checkpoint(&mut self) -> Result<OpenPart, SortError> {
        let Some(sink) = &mut self.sink else { return Err(SortError::Internal("a part is complete")) };
        let (run, index) = sink.checkpoint()?;
        Ok(OpenPart { run, index: encode_index(&index) })
    }

    /// The run, when it is finished.
    pub fn into_run(self) -> Option<Run> {
        self.done.map(|run| Run { start: RunStart::default(), ..run })
    }
}

impl<R: Records> Part for RunPart<R> {
    const WHOLE_RECORDS: bool = true;

    fn describe(&mut self, block: BlockFacts) {
        self.told.push_back(block);
    }
}

impl<R: Records> BlockOutput for RunPart<R> {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        let (Some(sink), Some(facts)) = (&mut self.sink, self.told.pop_front()) else { return Ok(()) };
        self.begun += 1;
        let BlockFacts { records, longest, first_record } = facts;
        sink.write(Chunk { buf, len, first_record, longest, records })
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        let Some(sink) = &mut self.sink else { return Ok(()) };
        while sink.in_flight() > self.begun {
            sink.complete()?;
        }
        Ok(())
    }

    fn ready(&mut self) -> bool {
        self.sink.as_mut().is_none_or(|sink| sink.in_flight() < self.begun)
    }

    fn channel(&self) -> Option<u64> {
        self.sink.as_ref().and_then(RunSink::channel)
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        if let Some(sink) = self.sink.take() {
            self.done = Some(sink.finish()?);
        }
        Ok(self.done.as_ref().map_or(0, |run| run.bytes))
    }
}

/// A file of a split, which has its name when all of them are whole.
pub struct FilePart<R> {
    records: Arc<R>,
    file: AtomicOutput,
    begun: usize,
}

impl<R: Records> FilePart<R> {
    /// A part that is written to `file`.
    pub fn new(records: &Arc<R>, file: AtomicOutput) -> Self {
        FilePart { records: Arc::clone(records), file, begun: 0 }
    }

    /// The file: sealed, where the part is finished.
    pub fn into_file(self) -> AtomicOutput {
        self.file
    }
}

impl<R: Records> Part for FilePart<R> {
    const WHOLE_RECORDS: bool = false;

    fn describe(&mut self, _: BlockFacts) {}
}

impl<R: Records> BlockOutput for FilePart<R> {
    fn begin(&mut self, mut buf: Buf, len: usize) -> Result<(), IoError> {
        self.begun += 1;
        self.records.finish(&mut buf[..len]);
        self.file.stream()?.begin(buf, len)
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        let stream = self.file.stream()?;
        while stream.in_flight() > self.begun {
            stream.complete()?;
        }
        Ok(())
    }

    fn ready(&mut self) -> bool {
        self.file.stream().map_or(true, |stream| stream.in_flight() < self.begun)
    }

    fn channel(&self) -> Option<u64> {
        self.file.channel()
    }

    /// Writes what is left, so that only its name is missing.
    fn finish(&mut self) -> Result<u64, IoError> {
        self.file.seal()
    }
}
