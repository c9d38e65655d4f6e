//! Runs: the description of a run in the manifest of its job or view, and reading its file back block by block. A
//! record that spans blocks is assembled in a buffer of its own. `spill.rs` writes runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use ascot_bowtie::engine::{BlockInput, Completed};
use ascot_io::{Buf, Disk, Filled, IoError, PAGE_BYTES, Pool, RunFile, RunId, RunIndex, RunReader};
use ascot_record::hex::{from_hex, to_hex};
use serde::{Deserialize, Serialize};

use crate::api::{Result, SortError};
use crate::read::{InputFile, Span, read_index_of};
use crate::records::{Records, Segment, Sorted};
use crate::resources::Lease;

/// Writes a small file durably; it must not exist yet.
pub fn write_whole(disk: &Disk, path: &Path, bytes: &[u8]) -> Result<(), IoError> {
    let mut stream = disk.create_new(path, "view")?;
    let mut buf = Buf::heap(bytes.len());
    buf[..bytes.len()].copy_from_slice(bytes);
    stream.begin(buf, bytes.len())?;
    stream.sync()?;
    stream.finish().map(|_| ())
}

/// Reads a run block by block, from its start on.
pub struct RunInput<R> {
    reader: RunReader,
    blocks: Assembly<R>,
}

impl<R: Records> RunInput<R> {
    /// Opens a run; buffers for records that span blocks come from `pool`.
    pub fn open(records: &Arc<R>, disk: &Disk, pool: &Pool, run: &Run) -> Result<Self> {
        let reader = RunReader::open(disk, &run.path, run.index(disk)?, run.start.block)?;
        Ok(RunInput { reader, blocks: Assembly::new(records, pool, run) })
    }

    /// A run whose file is open, up to the end of `index`.
    pub fn from_file(
        records: &Arc<R>,
        pool: &Pool,
        run: &Run,
        file: &Arc<RunFile>,
        index: Arc<RunIndex>,
    ) -> Result<Self> {
        let reader = RunReader::from_file(file, index, run.start.block)?;
        Ok(RunInput { reader, blocks: Assembly::new(records, pool, run) })
    }
}

/// Converts the blocks of a run to records, in sequence; a record that spans blocks is assembled.
pub struct Assembly<R> {
    records: Arc<R>,
    pool: Pool,
    longest: usize,
    /// Memory reserved for a record that spans blocks, bytes.
    long_bytes: usize,
    /// Number of the next block in the run.
    block: usize,
    /// Bytes of the first block that are already consumed.
    skip: usize,
    /// Whether the records are as in a user's file, not normalised as in runs.
    raw: bool,
    /// A record that spans blocks, as read so far.
    spanning: Option<Spanning>,
    /// The last record that spanned blocks: while it is in use, `has_room` is false.
    long: Weak<Sorted>,
}

impl<R: Records> Assembly<R> {
    /// The blocks of `run` from its start on; records that span blocks get memory from `pool`.
    pub fn new(records: &Arc<R>, pool: &Pool, run: &Run) -> Self {
        Assembly {
            records: Arc::clone(records),
            pool: pool.clone(),
            longest: run.longest as usize,
            long_bytes: run.long_bytes(),
            block: run.start.block,
            skip: run.start.offset as usize,
            raw: run.raw,
            spanning: None,
            long: Weak::new(),
        }
    }

    /// Takes the next block, verified.
    pub fn take(&mut self, mut filled: Filled) -> Result<Completed<RunBlock>, IoError> {
        if self.raw {
            self.records.normalise(&mut filled.buf[filled.start..filled.end]);
        }
        let starts_record = self.records.cut(&filled.buf[filled.start..filled.end], 1).records > 0;
        let completed = if self.spanning.is_some() || !starts_record {
            self.span(filled)?
        } else {
            let bytes = filled.start..filled.end;
            let sorted = Arc::new(self.records.index(Lease::plain(filled.buf), bytes));
            let mut segment = self.records.whole(sorted);
            if self.skip > 0 {
                segment.lo = self.records.position_at(std::mem::take(&mut self.skip));
            }
            Completed::Block(RunBlock::new(segment, self.block))
        };
        self.block += 1;
        Ok(completed)
    }

    /// Whether there is memory for the next block.
    fn has_room(&self) -> bool {
        // A record's last reference is dropped a moment before its memory is free again.
        let room = self.spanning.is_some() || self.pool.available() >= self.long_bytes;
        self.long.strong_count() == 0 && room
    }

    /// Adds a block to the record that spans it; returns the record once it is complete.
    fn span(&mut self, filled: Filled) -> Result<Completed<RunBlock>, IoError> {
        let bytes = filled.bytes();
        let Spanning { mut buf, held, block } = match self.spanning.take() {
            Some(spanning) => spanning,
            None => {
                let buf = self.pool.region(self.longest, "one very long record");
                Spanning { buf: buf.map_err(|source| self.no_memory(source))?, held: 0, block: self.block }
            }
        };
        let end = held + bytes.len();
        if end > buf.len() {
            let what = "a record is longer than the run says";
            return Err(IoError::BadIndex { path: PathBuf::new(), offset: 0, what });
        }
        buf[held..end].copy_from_slice(bytes);
        if self.records.cut(&buf[..end], 1).records == 0 {
            self.spanning = Some(Spanning { buf, held: end, block });
            return Ok(Completed::Nothing);
        }
        let lease = Lease::plain(buf).holding(Some(filled.buf));
        let sorted = Arc::new(self.records.index(lease, 0..end));
        self.long = Arc::downgrade(&sorted);
        let segment = self.records.whole(sorted);
        let end = self.block + 1;
        Ok(Completed::Block(RunBlock { segment, block, end, long: true, straddling: None }))
    }

    fn no_memory(&self, source: ascot_io::PoolError) -> IoError {
        IoError::Memory { path: PathBuf::from("a spilled run"), offset: 0, source }
    }
}

/// The beginning of a record that spans blocks.
struct Spanning {
    buf: Buf,
    held: usize,
    /// The block it starts in.
    block: usize,
}

/// A block of a run, in memory.
pub struct RunBlock {
    /// Its records.
    pub segment: Segment,
    /// Its number in the run.
    pub block: usize,
    /// Number of the block after it.
    pub end: usize,
    /// Whether it is one long record, in a buffer of its own.
    pub long: bool,
    /// The record before it, whose start is in the block before it; none if that is part of `segment`.
    pub straddling: Option<Segment>,
}

impl RunBlock {
    /// A block of whole records.
    pub fn new(segment: Segment, block: usize) -> Self {
        RunBlock { segment, block, end: block + 1, long: false, straddling: None }
    }
}

impl<R: Records> BlockInput for RunInput<R> {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        self.reader.remaining_to_begin() as u32
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.reader.begin(buf)
    }

    fn complete(&mut self) -> Result<Completed<RunBlock>, IoError> {
        let filled = self.reader.complete()?;
        if filled.is_empty() {
            return Ok(Completed::Ended);
        }
        self.blocks.take(filled)
    }

    fn has_room(&self) -> bool {
        self.blocks.has_room()
    }

    fn ready(&mut self) -> bool {
        self.reader.ready()
    }

    fn channel(&self) -> Option<u64> {
        self.reader.channel()
    }
}
/// An index in the form that `OpenPart` stores.
pub fn encode_index(index: &RunIndex) -> String {
    to_hex(&index.to_bytes())
}

/// Decodes the index of an `OpenPart`.
pub fn decode_index(text: &str) -> Result<RunIndex> {
    let index = from_hex(text).and_then(|bytes| RunIndex::from_bytes(&bytes).ok());
    index.ok_or_else(|| SortError::CannotResume {
        dir: "the job's manifest".into(),
        kind: ErrorKind::InvalidData,
        why: "the index of a part is damaged".into(),
    })
}

/// The place of the index and the keys of a run in the file of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexPlace {
    /// Offset of the index, bytes.
    pub offset: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the keys, which follow it.
    pub keys_bytes: u64,
}

/// An index and keys in the file of a view, with their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptIndex {
    /// Their place.
    pub place: IndexPlace,
    /// CRC-32 of the index.
    pub index_crc: u32,
    /// CRC-32 of the keys.
    pub keys_crc: u32,
}

/// The place of the keys by which the run of a view can be entered.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum KeysOfRun {
    /// Nowhere: no view needs them, or the job that had them was killed.
    #[default]
    Nowhere,
    /// In memory, in the form of the file.
    InMemory(Vec<u8>),
    /// In the file of the view.
    Kept(KeptIndex),
}

/// A run, or a part of a partitioned write, on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its file.
    pub path: PathBuf,
    /// Its number, part of its checksums.
    pub number: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Length of the longest record, bytes.
    pub longest: u64,
    /// Size of a buffer for the largest block, bytes.
    pub block_bytes: usize,
    /// Prefix of the first key of every block, smaller for an earlier key.
    pub first_keys: Vec<u64>,
    /// The start of its unread records.
    pub start: RunStart,
    /// For a run without a file: its records are those of inputs.
    #[serde(default)]
    pub input: Option<InputRun>,
    /// Whether its file is a user's own, with records that are not normalised.
    #[serde(default)]
    pub raw: bool,
    /// The index of its file, while memory holds it: reading it would cost a switch.
    #[serde(skip)]
    pub index: Option<Arc<RunIndex>>,
    /// Its keys, if it is the run of a view.
    #[serde(skip)]
    pub keys: KeysOfRun,
}

impl Run {
    /// The index of its file; read if memory does not hold it.
    pub fn index(&self, disk: &Disk) -> Result<Arc<RunIndex>, IoError> {
        match &self.index {
            Some(index) => Ok(Arc::clone(index)),
            None => read_index_of(disk, &self.path, RunId(self.number)),
        }
    }

    /// Its file as an input, read through buffers from `pool`.
    pub fn as_input(&self, pool: &Pool) -> InputFile {
        InputFile::from_part(&self.path, self.number, self.index.clone(), self.bytes, pool)
    }

    /// Memory for a record that spans blocks while the run is merged, bytes. A run has at most one such record in
    /// memory: no further one is read while one is merged or waits for the merge.
    pub fn long_bytes(&self) -> usize {
        let longest = self.longest as usize;
        if longest > self.block_bytes { longest.next_multiple_of(PAGE_BYTES) } else { 0 }
    }
}

/// The position of a record in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// Its block.
    pub block: usize,
    /// Its offset in the block's records, bytes.
    pub offset: u32,
}

/// A chunk of an input; its records of one key interval belong to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputChunk {
    /// Its byte range.
    pub span: Span,
    /// Byte ranges of other inputs, which follow in the same chunk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Span>,
    /// Smallest key that belongs to the run.
    pub lo: Option<Vec<u8>>,
    /// Smallest key after these that does not; none: no upper bound.
    pub hi: Option<Vec<u8>>,
}

/// A run that has no file of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRun {
    /// Its records, in the order of the run.
    pub chunks: Vec<InputChunk>,
    /// Whether the input is in reverse order.
    pub backward: bool,
    /// Key of its first record.
    pub first_key: Vec<u8>,
    /// Key of its last record.
    pub last_key: Vec<u8>,
    /// Whether the next records of the input may continue it.
    pub open: bool,
}
