//! Collects the merged records of one task into blocks for its sequencer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ascot_io::{BlockPool, Buf, clocks};
use ascot_record::checksum::RecordSum;
use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

use crate::api::SortError;
use crate::records::misfits::Misfits;

/// The sums of merged records: of a task, of a batch, or of a merge so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Sum of the records emitted; only the counts if the rules do not ask for the sum.
    pub out: RecordSum,
    /// Sum of the records left out.
    pub dropped: RecordSum,
    /// Key of the last record, if duplicates are left out.
    pub last_key: Option<Vec<u8>>,
    /// Misfits of the records of unchecked inputs. They are counted when an input is read to its end, so that progress
    /// within it is not stored.
    #[serde(skip)]
    pub misfits: Misfits,
}

impl Merged {
    /// Adds the sums of records that follow. The last key is the one that `more` has, if any.
    pub fn add(&mut self, more: Merged) {
        self.out.combine(&more.out);
        self.dropped.combine(&more.dropped);
        self.last_key = more.last_key.or(self.last_key.take());
        self.misfits.combine(&more.misfits);
    }
}

/// Merged records on their way to a sink.
pub struct MergedBlock {
    /// The block; it returns to its thread when dropped.
    pub buf: Buf,
    /// Bytes of it that are records.
    pub len: usize,
    /// Offset of the first record that starts here; `len` if the whole block continues a record.
    pub first_record: usize,
    /// Length of the longest record that ends here, bytes.
    pub longest: usize,
    /// Records that end here.
    pub records: u64,
}

/// Why the merge of a task stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The receiver is gone: the job failed elsewhere or was cancelled.
    Unneeded,
    /// A source is not sorted.
    Unordered,
}

pub(crate) enum Message {
    Block(MergedBlock),
    Done(Merged),
    /// A record of the task is out of order. Until this is received, it holds the task in memory, where an input that
    /// fails finds the record.
    Unordered(SortError, Box<dyn Send>),
}

/// Collects the records of one task into blocks. Blocks hold whole records, unless one is longer
/// than a block.
pub struct Emitter {
    blocks: BlockPool,
    send: Sender<Message>,
    stopped: Arc<AtomicBool>,
    current: Option<MergedBlock>,
}

impl Emitter {
    pub(crate) fn new(blocks: BlockPool, send: Sender<Message>, stopped: Arc<AtomicBool>) -> Self {
        Emitter { blocks, send, stopped, current: None }
    }

    /// Appends one record.
    #[inline]
    pub fn record(&mut self, record: &[u8]) -> Result<(), Stopped> {
        if let Some(block) = &mut self.current {
            let end = block.len + record.len();
            if end <= block.buf.len() {
                block.buf[block.len..end].copy_from_slice(record);
                block.len = end;
                block.records += 1;
                block.longest = block.longest.max(record.len());
                return Ok(());
            }
        }
        self.record_in_new_block(record)
    }

    #[cold]
    fn record_in_new_block(&mut self, record: &[u8]) -> Result<(), Stopped> {
        self.flush()?;
        let capacity = self.blocks.block_bytes();
        let parts = record.chunks(capacity).len();
        for (number, part) in record.chunks(capacity).enumerate() {
            let block = self.open()?;
            block.buf[..part.len()].copy_from_slice(part);
            block.len = part.len();
            block.first_record = if number > 0 { part.len() } else { 0 };
            if number + 1 == parts {
                block.longest = record.len();
                block.records = 1;
            }
            // The record after one that spans blocks starts a new block.
            if parts > 1 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Space for up to `bytes` more bytes of whole records (at least `min_bytes`, unless a block is
    /// smaller), to be filled from the front and claimed by [`Emitter::claim`].
    pub fn space(&mut self, min_bytes: usize) -> Result<&mut [u8], Stopped> {
        if self.free_bytes() < min_bytes {
            self.flush()?;
        }
        let block = self.open()?;
        Ok(&mut block.buf[block.len..])
    }

    /// Claims the first `bytes` of the space as `records` records.
    pub fn claim(&mut self, bytes: usize, records: u64) {
        if let Some(block) = &mut self.current {
            block.len += bytes;
            block.records += records;
            block.longest = block.longest.max(bytes.checked_div(records as usize).unwrap_or(0));
        }
    }

    /// Size of a block, bytes.
    pub fn block_bytes(&self) -> usize {
        self.blocks.block_bytes()
    }

    /// Bytes free in the current block, or the size of a block if there is none.
    pub fn free_bytes(&self) -> usize {
        self.current.as_ref().map_or(self.block_bytes(), |block| block.buf.len() - block.len)
    }

    fn open(&mut self) -> Result<&mut MergedBlock, Stopped> {
        match &mut self.current {
            Some(block) => Ok(block),
            empty => {
                let stopped = &self.stopped;
                let buf = self.blocks.take(|| stopped.load(Relaxed)).ok_or(Stopped::Unneeded)?;
                Ok(empty.insert(MergedBlock { buf, len: 0, first_record: 0, longest: 0, records: 0 }))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        let Some(block) = self.current.take_if(|block| block.len > 0) else { return Ok(()) };
        clocks::count(block.len as u64);
        self.send.send(Message::Block(block)).map_err(|_| Stopped::Unneeded)
    }

    /// Sends the last message.
    pub(crate) fn finish(mut self, last: Message) {
        if self.flush().is_ok() {
            // The receiver may be gone; then the result is of no use.
            let _ = self.send.send(last);
        }
    }
}
