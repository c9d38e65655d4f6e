//! A value that is read from the files a part at a time: only the requested part is in memory.
//!
//! ```text
//!   records, ranks   | block | block | block | ...      a part: the blocks that hold it, each with its own checksum
//!   pointers         | crc | length | value ...... |    one checksum of the whole: the first access reads all of it,
//!                                                       verifies the checksum and keeps a checksum of each chunk
//! ```
//!
//! Invariant: a byte is handed over only after a checksum that covers it was verified, for any order of
//! reads.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ascot_io::{Crc32c, Reservation, RunId, crc32c};

use crate::error::{IndexError, Result};
use crate::format::head::Block;
use crate::format::pointer::value_lengths;
use crate::read::files::ByteRange;
use crate::read::{Directory, Segment};
use crate::reserve::vec_with_capacity;

/// Bytes of a chunk of a value; each chunk has a checksum in memory.
const CHUNK_BYTES: u64 = 128 << 10;
/// Most bytes read at a time.
const PART_MAX: usize = 1 << 20;
/// One part in this many of a reader's memory is read at a time.
const PART_SHARE: usize = 16;
/// Chunks or groups of blocks requested at once: it bounds the list of requests for values of any length.
const CHUNKS_AT_ONCE: u64 = 64;
/// The purpose reported to the pool.
const TRUST: &str = "parts of a value that no block's checksum covers";

/// A value in the files of a directory; read it with the directory that found it.
#[derive(Clone)]
pub struct LongValue {
    length: u64,
    place: Location,
}

#[derive(Clone)]
enum Location {
    /// In blocks of a table; the value starts `start` bytes after the first of them.
    Blocks { segment: Segment, blocks: Range<usize>, start: u64 },
    /// In a writer's value log.
    Log(Arc<LogPlace>),
}

struct LogPlace {
    path: PathBuf,
    id: RunId,
    at: u64,
    /// Bytes before the value.
    head: u64,
    /// Checksums of its chunks after the whole value was verified, and their memory reservation.
    sums: OnceLock<(Vec<u32>, Reservation)>,
}

/// Receives the bytes of a read in order.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Bytes of a value read at a time.
pub(crate) fn part_bytes(directory: &Directory) -> usize {
    (directory.pool.budget() / PART_SHARE).clamp(4096, PART_MAX)
}

impl std::fmt::Debug for LongValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, at) = match &self.place {
            Location::Blocks { segment, blocks, start } => {
                (&segment.log.data, segment.head.blocks.get(blocks.start).map_or(0, |block| block.at) + start)
            }
            Location::Log(log) => (&log.path, log.at),
        };
        write!(f, "{} bytes at byte {at} of {}", self.length, path.display())
    }
}

impl LongValue {
    /// A value in blocks of a table.
    pub(crate) fn in_blocks(segment: Segment, blocks: Range<usize>, start: u64, length: u64) -> Self {
        Self { length, place: Location::Blocks { segment, blocks, start } }
    }

    /// A value in the value log `id`: its header of `head` bytes starts at `at`.
    pub(crate) fn in_log(path: PathBuf, id: RunId, at: u64, head: usize, length: u64) -> Self {
        let log = LogPlace { path, id, at, head: head as u64, sums: OnceLock::new() };
        Self { length, place: Location::Log(Arc::new(log)) }
    }

    /// Bytes of the value.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads from `offset` into `into`, as many bytes as there are and fit; returns their number.
    ///
    /// # Errors
    /// Missing, truncated or damaged files; too little memory.
    pub fn read_at(&self, directory: &Directory, offset: u64, into: &mut [u8]) -> Result<usize> {
        let from = offset.min(self.length);
        let end = from.saturating_add(into.len() as u64).min(self.length);
        let mut filled = 0;
        self.read(directory, from..end, &mut |bytes| {
            into[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            Ok(())
        })?;
        Ok(filled)
    }

    /// Verifies the checksums of the whole value.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn check(&self, directory: &Directory) -> Result<()> {
        match &self.place {
            Location::Blocks { .. } => self.read(directory, 0..self.length, &mut |_| Ok(())),
            Location::Log(log) => self.sums(directory, log).map(|_| ()),
        }
    }

    /// Hands the whole value to `take`, part by part.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and errors of `take`.
    pub fn for_each_part(
        &self,
        directory: &Directory,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.read(directory, 0..self.length, &mut take)
    }

    /// The whole value, and its memory reservation.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); a value longer than the free memory.
    pub(crate) fn to_bytes(&self, directory: &Directory) -> Result<(Vec<u8>, Reservation)> {
        const PURPOSE: &str = "a value that is asked for as a whole";
        let bytes = usize::try_from(self.length).unwrap_or(usize::MAX);
        let memory = directory.pool.reserve(bytes, PURPOSE)?;
        let mut whole = vec_with_capacity(&directory.pool, bytes, PURPOSE)?;
        let mut keep = |part: &[u8]| {
            whole.extend_from_slice(part);
            Ok(())
        };
        match &self.place {
            Location::Log(log) if log.sums.get().is_none() => {
                self.read_log(directory, log, &mut keep).map(drop)?
            }
            _ => self.read(directory, 0..self.length, &mut keep)?,
        }
        Ok((whole, memory))
    }

    /// Hands the bytes of `range`, which must be inside the value, to `sink` in order.
    fn read(&self, directory: &Directory, range: Range<u64>, sink: Sink<'_>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match &self.place {
            Location::Blocks { segment, blocks, start } => {
                read_blocks(directory, segment, blocks.clone(), start + range.start..start + range.end, sink)
            }
            Location::Log(log) => {
                let sums = self.sums(directory, log)?;
                let chunks = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
                self.read_chunks(directory, log, chunks, |chunk, bytes| {
                    let sum = usize::try_from(chunk).ok().and_then(|chunk| sums.get(chunk));
                    if sum != Some(&crc32c(&[bytes])) {
                        let what = "a value changed while it was read";
                        return Err(IndexError::damaged(&log.path, self.chunk(log, chunk).at, what));
                    }
                    sink(inside(bytes, chunk * CHUNK_BYTES, &range))
                })
            }
        }
    }

    /// Reads chunks of a value in a log, and hands each to `take` with its number.
    fn read_chunks(
        &self,
        directory: &Directory,
        log: &LogPlace,
        chunks: Range<u64>,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut next = chunks.start;
        while next < chunks.end {
            let end = chunks.end.min(next + CHUNKS_AT_ONCE);
            let byte_ranges: Vec<ByteRange> = (next..end).map(|chunk| self.chunk(log, chunk)).collect();
            directory.files.count(|counts| counts.value_reads += byte_ranges.len() as u64);
            directory.files.fetch_all(&byte_ranges, |number, bytes| take(next + number as u64, bytes))?;
            next = end;
        }
        Ok(())
    }

    fn chunk(&self, log: &LogPlace, chunk: u64) -> ByteRange {
        let from = chunk * CHUNK_BYTES;
        // At most a chunk.
        let bytes = (self.length - from).min(CHUNK_BYTES) as usize;
        ByteRange { path: log.path.clone(), at: log.at + log.head + from, bytes }
    }

    /// The checksums of chunks; the first call verifies the whole value.
    fn sums<'a>(&self, directory: &Directory, log: &'a LogPlace) -> Result<&'a [u32]> {
        if let Some((sums, _)) = log.sums.get() {
            return Ok(sums);
        }
        let sums = self.read_log(directory, log, &mut |_| Ok(()))?;
        // Another thread may have computed the same checksums first.
        Ok(&log.sums.get_or_init(|| sums).0)
    }

    /// Reads a whole value in a log once and verifies its checksum; what `sink` receives must not be used
    /// before this returns.
    fn read_log(
        &self,
        directory: &Directory,
        log: &LogPlace,
        sink: Sink<'_>,
    ) -> Result<(Vec<u32>, Reservation)> {
        let damaged = |what| IndexError::damaged(&log.path, log.at, what);
        let chunks = self.length.div_ceil(CHUNK_BYTES);
        let count_of = usize::try_from(chunks).map_err(|_| damaged("a value has no length"))?;
        let memory = directory.pool.reserve(count_of.saturating_mul(size_of::<u32>()), TRUST)?;
        let mut sums = vec_with_capacity(&directory.pool, count_of, TRUST)?;
        let head = ByteRange { path: log.path.clone(), at: log.at, bytes: log.head as usize };
        let mut sum = Crc32c::default();
        [log.id.0, log.at].iter().for_each(|number| sum.update(&number.to_le_bytes()));
        let mut stored = None;
        let fixed = directory.layout().value_bytes;
        directory.files.count(|counts| counts.value_reads += 1);
        directory.files.fetch_all(&[head], |_, bytes| {
            let lengths = value_lengths(fixed, bytes);
            if lengths.is_none_or(|(head, length)| (head as u64, length) != (log.head, self.length)) {
                return Err(damaged("a value has another length than its pointer says"));
            }
            let (crc, rest) =
                bytes.split_first_chunk::<4>().ok_or_else(|| damaged("a value has no length"))?;
            stored = Some(u32::from_le_bytes(*crc));
            sum.update(rest);
            Ok(())
        })?;
        self.read_chunks(directory, log, 0..chunks, |_, bytes| {
            sum.update(bytes);
            sums.push(crc32c(&[bytes]));
            sink(bytes)
        })?;
        if stored != Some(sum.finish()) {
            return Err(damaged("the checksum of a value is wrong"));
        }
        Ok((sums, memory))
    }
}

/// The part of `bytes`, which start at `first`, that is inside `range`.
fn inside<'a>(bytes: &'a [u8], first: u64, range: &Range<u64>) -> &'a [u8] {
    let at = |place: u64| usize::try_from(place.saturating_sub(first)).unwrap_or(usize::MAX).min(bytes.len());
    &bytes[at(range.start)..at(range.end)]
}

/// Hands the bytes of `range`, an offset range in the joined contents of `blocks`, to `sink`. Whole blocks
/// are read and their checksums verified.
pub(crate) fn read_blocks(
    directory: &Directory,
    segment: &Segment,
    blocks: Range<usize>,
    range: Range<u64>,
    sink: Sink<'_>,
) -> Result<()> {
    let max_bytes = part_bytes(directory) as u64;
    let all = &segment.head.blocks[blocks];
    let (mut first, mut before) = first_block(all, range.start);
    while first < all.len() && before < range.end {
        let mut end = first;
        let mut byte_ranges = Vec::new();
        let mut groups = Vec::new();
        let mut bytes_end = before;
        // Groups of neighbouring blocks, a few at a time.
        while end < all.len() && bytes_end < range.end && (byte_ranges.len() as u64) < CHUNKS_AT_ONCE {
            let from = end;
            let group_before = bytes_end;
            let start = all[from].at;
            while end < all.len()
                && bytes_end < range.end
                && (end == from || all[end].at + u64::from(all[end].bytes) - start <= max_bytes)
            {
                bytes_end += u64::from(all[end].bytes);
                end += 1;
            }
            let last = &all[end - 1];
            // At most a few blocks.
            let bytes = (last.at + u64::from(last.bytes) - start) as usize;
            byte_ranges.push(ByteRange { path: segment.log.data.clone(), at: start, bytes });
            groups.push((from..end, group_before));
        }
        directory.files.count(|counts| counts.block_reads += byte_ranges.len() as u64);
        directory.files.fetch_all(&byte_ranges, |number, bytes| {
            let (group, mut before) = groups[number].clone();
            for block in &all[group] {
                let own = segment.block_bytes(block, byte_ranges[number].at, bytes)?;
                sink(inside(own, before, &range))?;
                before += u64::from(block.bytes);
            }
            Ok(())
        })?;
        first = end;
        before = bytes_end;
    }
    Ok(())
}

/// The block that contains byte `place` of the joined blocks, and the number of bytes before that block.
fn first_block(blocks: &[Block], place: u64) -> (usize, u64) {
    let mut before = 0;
    for (number, block) in blocks.iter().enumerate() {
        let next = before + u64::from(block.bytes);
        if place < next {
            return (number, before);
        }
        before = next;
    }
    (blocks.len(), before)
}
