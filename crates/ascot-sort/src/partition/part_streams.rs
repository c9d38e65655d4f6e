//! The streams of a partitioned write: the parts of a distribution, which are runs, and the files of a split.
//!
//! The blocks of a run hold whole records, except for a record longer than a block, and the run is given the
//! [`BlockFacts`] of each. The blocks of a file hold bytes as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use ascot_bowtie::engine::{BlockOutput, complete_down_to};
use ascot_io::{AtomicOutput, Buf, IoError};

use crate::api::error::SortError;
use crate::records::Records;
use crate::records::emitter::Chunk;
use crate::runs::run::{Run, RunStart};
use crate::runs::run_file::RunSink;
use crate::runs::run_file::encode_index;
use crate::runs::store::OpenPart;

/// Facts about the records in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// Records that end in it.
    pub records: u64,
    /// Length of the longest record, or an upper bound of it, bytes.
    pub longest: usize,
    /// Offset of the first record that starts in the block; the length of the block if none does.
    pub first_record: usize,
}

/// A stream of a partitioned write.
pub trait PartStream: BlockOutput {
    /// Its blocks hold whole records.
    const WHOLE_RECORDS: bool;
    /// Receives the facts of each block, in the order of the blocks and before them.
    fn describe(&mut self, _: BlockFacts) {}
}

/// A part of a distribution while it is being written: records in input order, in blocks of a run file.
pub struct PartRun<R> {
    /// None when it is finished.
    sink: Option<RunSink<R>>,
    /// The facts of blocks that are not written yet.
    facts: VecDeque<BlockFacts>,
    /// Blocks begun and not completed.
    begun: usize,
    done: Option<Run>,
}

impl<R: Records> PartRun<R> {
    /// A part that is written to `sink`.
    pub fn new(sink: RunSink<R>) -> Self {
        PartRun { sink: Some(sink), facts: VecDeque::new(), begun: 0, done: None }
    }

    /// Makes the blocks written so far durable. Returns the state from which the part can be resumed.
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

impl<R: Records> PartStream for PartRun<R> {
    const WHOLE_RECORDS: bool = true;

    fn describe(&mut self, block: BlockFacts) {
        self.facts.push_back(block);
    }
}

impl<R: Records> BlockOutput for PartRun<R> {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        let (Some(sink), Some(facts)) = (&mut self.sink, self.facts.pop_front()) else { return Ok(()) };
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

/// A file of a split.
pub struct PartFile<R> {
    records: Arc<R>,
    file: AtomicOutput,
    /// Blocks begun and not completed.
    begun: usize,
}

impl<R: Records> PartFile<R> {
    /// A part that is written to `file`.
    pub fn new(records: &Arc<R>, file: AtomicOutput) -> Self {
        PartFile { records: Arc::clone(records), file, begun: 0 }
    }

    /// The file, which is sealed if the part is finished.
    pub fn into_file(self) -> AtomicOutput {
        self.file
    }
}

impl<R: Records> PartStream for PartFile<R> {
    const WHOLE_RECORDS: bool = false;
}

impl<R: Records> BlockOutput for PartFile<R> {
    fn begin(&mut self, mut buf: Buf, len: usize) -> Result<(), IoError> {
        self.begun += 1;
        self.records.finish(&mut buf[..len]);
        self.file.stream()?.begin(buf, len)
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        complete_down_to(self.file.stream()?, self.begun)
    }

    fn ready(&mut self) -> bool {
        self.file.stream().map_or(true, |stream| stream.in_flight() < self.begun)
    }

    fn channel(&self) -> Option<u64> {
        self.file.channel()
    }

    /// Seals the file.
    fn finish(&mut self) -> Result<u64, IoError> {
        self.file.seal()
    }
}
