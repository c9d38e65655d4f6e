//! A part of a distribution while it is being written: whole records, in input order, in blocks of
//! a run file.

use ascot_io::{BlockPool, Buf, RunIndex};

use crate::emit::Chunk;
use crate::error::SortError;
use crate::records::Records;
use crate::runs::{Run, RunSink, RunStart};
use crate::store::OpenPart;

/// A part being written.
pub struct Part<R> {
    sink: RunSink<R>,
    blocks: BlockPool,
    current: Option<Buf>,
    len: usize,
    longest: usize,
    records: u64,
}

impl<R: Records> Part<R> {
    /// A part whose blocks come from `blocks`.
    pub fn new(sink: RunSink<R>, blocks: &BlockPool) -> Self {
        Part { sink, blocks: blocks.clone(), current: None, len: 0, longest: 0, records: 0 }
    }

    /// Appends whole records; blocks hold whole records too, unless one is longer than a block.
    pub fn append(&mut self, records: &R, mut bytes: &[u8]) -> Result<(), SortError> {
        while !bytes.is_empty() {
            let blocks = &self.blocks;
            let block = self.current.get_or_insert_with(|| blocks.take());
            let room = block.len() - self.len;
            let cut = records.cut(&bytes[..room.min(bytes.len())], usize::MAX);
            let now = &bytes[..cut.bytes];
            block[self.len..self.len + now.len()].copy_from_slice(now);
            self.len += now.len();
            self.records += cut.records as u64;
            self.longest = self.longest.max(records.record_bytes().unwrap_or(now.len()));
            bytes = &bytes[now.len()..];
            if !bytes.is_empty() {
                if self.len == 0 {
                    let long = records.cut(bytes, 1).bytes;
                    self.append_long(&bytes[..long])?;
                    bytes = &bytes[long..];
                } else {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    /// A record longer than a block, in blocks of its own.
    fn append_long(&mut self, record: &[u8]) -> Result<(), SortError> {
        let capacity = self.blocks.block_bytes();
        for (number, share) in record.chunks(capacity).enumerate() {
            let mut buf = self.current.take().unwrap_or_else(|| self.blocks.take());
            buf[..share.len()].copy_from_slice(share);
            let last = (number + 1) * capacity >= record.len();
            let first_record = if number == 0 { 0 } else { share.len() };
            let chunk = Chunk {
                buf,
                len: share.len(),
                first_record,
                longest: record.len(),
                records: u64::from(last),
            };
            self.sink.write(chunk)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SortError> {
        let Some(buf) = self.current.take() else { return Ok(()) };
        let (len, longest, records) = (self.len, self.longest.min(buf.len()), self.records);
        (self.len, self.longest, self.records) = (0, 0, 0);
        if len == 0 {
            return Ok(());
        }
        self.sink.write(Chunk { buf, len, first_record: 0, longest, records })
    }

    /// Makes what has been appended durable, and tells how to go on from there.
    pub fn checkpoint(&mut self) -> Result<OpenPart, SortError> {
        self.flush()?;
        let (run, index) = self.sink.checkpoint()?;
        Ok(OpenPart { run, index: encode_index(&index) })
    }

    /// Completes the run.
    pub fn finish(mut self) -> Result<Run, SortError> {
        self.flush()?;
        let mut run = self.sink.finish()?;
        run.start = RunStart::default();
        Ok(run)
    }
}

fn encode_index(index: &RunIndex) -> String {
    use std::fmt::Write;
    index.to_bytes().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The index of an [`OpenPart`].
pub fn decode_index(text: &str) -> Result<RunIndex, SortError> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let index = bytes.and_then(|bytes| RunIndex::from_bytes(&bytes).ok());
    index.ok_or_else(|| SortError::CannotResume {
        dir: "the job's manifest".into(),
        why: "the index of a part is damaged".into(),
    })
}
