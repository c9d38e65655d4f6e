//! Collects the merged records of one task into blocks for its sequencer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use ascot_io::{BlockPool, Buf};
use ascot_record::checksum::RecordSum;
use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

/// The sums of merged records: of a task, of a batch, or of a merge so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Sum of the records emitted; only the counts if the rules do not ask for the sum.
    pub out: RecordSum,
    /// Sum of the records left out.
    pub dropped: RecordSum,
    /// Key of the last record, if duplicates are left out.
    pub last_key: Option<Vec<u8>>,
}

impl Merged {
    /// Adds the sums of records that follow. The last key is the one that `more` has, if any.
    pub fn add(&mut self, more: Merged) {
        self.out.combine(&more.out);
        self.dropped.combine(&more.dropped);
        self.last_key = more.last_key.or(self.last_key.take());
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

/// The receiver is gone: the job failed elsewhere or was cancelled.
#[derive(Debug)]
pub struct Stopped;

pub(crate) enum Message {
    Block(MergedBlock),
    Done(Merged),
}

/// Collects the records of one task into blocks. Blocks hold whole records, unless one is longer
/// than a block.
pub struct Emitter {
    blocks: BlockPool,
    send: Sender<Message>,
    clocks: Arc<Clocks>,
    stopped: Arc<AtomicBool>,
    current: Option<Buf>,
    len: usize,
    first_record: usize,
    longest: usize,
    records: u64,
}

impl Emitter {
    pub(crate) fn new(
        blocks: BlockPool,
        send: Sender<Message>,
        clocks: Arc<Clocks>,
        stopped: Arc<AtomicBool>,
    ) -> Self {
        Emitter {
            blocks,
            send,
            clocks,
            stopped,
            current: None,
            len: 0,
            first_record: 0,
            longest: 0,
            records: 0,
        }
    }

    /// Appends one record.
    #[inline]
    pub fn record(&mut self, record: &[u8]) -> Result<(), Stopped> {
        if let Some(buf) = &mut self.current {
            let end = self.len + record.len();
            if end <= buf.len() {
                buf[self.len..end].copy_from_slice(record);
                self.len = end;
                self.records += 1;
                self.longest = self.longest.max(record.len());
                return Ok(());
            }
        }
        self.record_in_new_block(record)
    }

    #[cold]
    fn record_in_new_block(&mut self, record: &[u8]) -> Result<(), Stopped> {
        self.flush()?;
        let capacity = self.blocks.block_bytes();
        let mut rest = record;
        while rest.len() > capacity {
            let (now, later) = rest.split_at(capacity);
            let buf = self.open()?;
            buf[..capacity].copy_from_slice(now);
            self.len = capacity;
            self.flush()?;
            self.first_record = capacity;
            rest = later;
        }
        let continues = rest.len() < record.len();
        let buf = self.open()?;
        buf[..rest.len()].copy_from_slice(rest);
        self.len = rest.len();
        self.first_record = if continues { rest.len() } else { 0 };
        self.longest = record.len();
        self.records = 1;
        // The record after one that spans blocks starts a new block.
        if continues { self.flush() } else { Ok(()) }
    }

    /// Space for up to `bytes` more bytes of whole records (at least `min_bytes`, unless a block is
    /// smaller), to be filled from the front and claimed by [`Emitter::claim`].
    pub fn space(&mut self, min_bytes: usize) -> Result<&mut [u8], Stopped> {
        let free = self.current.as_ref().map_or(0, |buf| buf.len() - self.len);
        if free < min_bytes {
            self.flush()?;
        }
        let len = self.len;
        Ok(&mut self.open()?[len..])
    }

    /// Claims the first `bytes` of the space as `records` records.
    pub fn claim(&mut self, bytes: usize, records: u64) {
        self.len += bytes;
        self.records += records;
        self.longest = self.longest.max(bytes.checked_div(records as usize).unwrap_or(0));
    }

    /// Size of a block, bytes.
    pub fn block_bytes(&self) -> usize {
        self.blocks.block_bytes()
    }

    fn open(&mut self) -> Result<&mut Buf, Stopped> {
        match &mut self.current {
            Some(block) => Ok(block),
            empty => {
                let since = Instant::now();
                let blocks = &self.blocks;
                let stopped = &self.stopped;
                let block = match blocks.try_take() {
                    Some(block) => block,
                    None => {
                        let block = blocks.take(|| stopped.load(Relaxed)).ok_or(Stopped)?;
                        add(&self.clocks.waited_ns, since.elapsed());
                        block
                    }
                };
                Ok(empty.insert(block))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        let Some(buf) = self.current.take() else { return Ok(()) };
        if self.len == 0 {
            self.current = Some(buf);
            return Ok(());
        }
        let block = MergedBlock {
            buf,
            len: self.len,
            first_record: self.first_record,
            longest: self.longest,
            records: self.records,
        };
        self.len = 0;
        self.first_record = 0;
        self.longest = 0;
        self.records = 0;
        self.send.send(Message::Block(block)).map_err(|_| Stopped)
    }

    pub(crate) fn finish(mut self, merged: Merged) {
        if self.flush().is_ok() {
            // The receiver may be gone; then the result is of no use.
            let _ = self.send.send(Message::Done(merged));
        }
    }
}

#[derive(Default)]
pub(crate) struct Clocks {
    pub(crate) working_ns: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) sink_ns: AtomicU64,
}

pub(crate) fn add(clock: &AtomicU64, time: Duration) {
    clock.fetch_add(time.as_nanos() as u64, Relaxed);
}

pub(crate) fn take(clock: &AtomicU64) -> Duration {
    Duration::from_nanos(clock.swap(0, Relaxed))
}
