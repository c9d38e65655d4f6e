//! One chunk of the input in memory, its records grouped by partition, and the batches that take them to destinations.
//!
//! ```text
//!   file ─▶ block of 1 MiB ─▶ grouped by partition ─▶ [ block 0 | block 1 | block 2 | ... ]   memory of the chunk
//!                                                      p0 p1 p2  p0 p1 p2  p0 p1 p2
//!   partition 1 of the chunk = p1 of block 0, p1 of block 1, ...     in the order of the input
//! ```
//!
//! A block is grouped while it is in the cache. The records of a destination are those of its partitions, one after
//! another; they are cut into batches of about equal length.
//!
//! Invariants: the memory is that of `memory_bytes`, whatever the records are. The same chunk, bounds and partitions
//! make the same batches.

use std::ops::Range;
use std::time::{Duration, Instant};

use ascot_io::{Buf, Pool, Reservation, crc32c};
use ascot_record::checksum::RecordSum;

use super::Shuffle;
use super::batch::{BATCHES_MAX, BatchNumber, JobId, batch_bytes, batch_head, write_batch};
use super::bounds::Bounds;
use super::chunk_reader::{ChunkReader, ChunkSpan, SEARCH_BYTES, unclear};
use super::connect::Frame;
use crate::api::{Cancel, Result};
use crate::records::{Records, with_records};

/// Bytes of memory for the ends and the partition of each record of a block, whose records have at least one byte.
const fn index_bytes(block_bytes: usize) -> usize {
    block_bytes * (size_of::<u32>() + size_of::<u16>())
}

/// Maps one chunk after another.
pub struct ChunkMapper {
    shuffle: Shuffle,
    bounds: Bounds,
    job: JobId,
    batch_bytes: usize,
    block_bytes: usize,
    longest: usize,
    pool: Pool,
    _index: Reservation,
    block: Option<Buf>,
    out: Buf,
    /// First byte of each block in `out`, and the end of the last.
    starts: Vec<usize>,
    /// For each block, the end of each partition, bytes from the start of the block.
    ends: Vec<u32>,
    parts: Vec<u16>,
    record_ends: Vec<u32>,
}

/// The result of mapping a chunk.
#[derive(Clone, Copy, Debug)]
pub struct MappedChunk {
    /// The sum of its records.
    pub sum: RecordSum,
    /// Time spent reading.
    pub reading: Duration,
    /// Time spent grouping.
    pub grouping: Duration,
}

/// Maximum length of a record, bytes, if chunks have `chunk_bytes` and are read in blocks of `block_bytes`.
fn longest_of(chunk_bytes: usize, block_bytes: usize) -> usize {
    (chunk_bytes / 4).max(block_bytes)
}

/// Bytes of memory of a mapper of chunks of `chunk_bytes`, read in blocks of `block_bytes`, for a number of partitions.
/// A batch comes on top.
pub fn memory_bytes(chunk_bytes: usize, partitions: usize, block_bytes: usize) -> usize {
    let longest = longest_of(chunk_bytes, block_bytes);
    // Each block is filled by more than half, except that a long record may follow.
    let blocks = 2 * (chunk_bytes + SEARCH_BYTES + longest) / block_bytes + 4;
    chunk_bytes
        + SEARCH_BYTES
        + 3 * longest
        + index_bytes(block_bytes)
        + blocks * partitions * size_of::<u32>()
        + (64 << 10)
}

impl ChunkMapper {
    /// A mapper for chunks of at most `chunk_bytes`, which reads and groups blocks of `block_bytes` and makes batches
    /// of about `batch_bytes`.
    ///
    /// # Errors
    /// A memory error if the system has not so much memory.
    pub fn new(
        shuffle: Shuffle,
        bounds: Bounds,
        job: JobId,
        chunk_bytes: usize,
        batch_bytes: usize,
        block_bytes: usize,
    ) -> Result<ChunkMapper> {
        let longest = longest_of(chunk_bytes, block_bytes);
        let pool = Pool::new(memory_bytes(chunk_bytes, bounds.partitions(), block_bytes));
        let out = pool.region(chunk_bytes + SEARCH_BYTES + longest + 1, "the records of a chunk")?;
        let block = pool.region(block_bytes, "a block of a chunk")?;
        let index = pool.reserve(index_bytes(block_bytes), "the records of a block")?;
        Ok(ChunkMapper {
            shuffle,
            bounds,
            job,
            batch_bytes: batch_bytes.max(1),
            block_bytes,
            longest,
            pool,
            _index: index,
            block: Some(block),
            out,
            starts: Vec::new(),
            ends: Vec::new(),
            parts: Vec::new(),
            record_ends: Vec::new(),
        })
    }

    /// Reads a chunk and groups its records.
    ///
    /// # Errors
    /// Those of reading the file, also for a record longer than a quarter of a chunk.
    pub fn map(&mut self, span: &ChunkSpan, cancel: &Cancel) -> Result<MappedChunk> {
        let block = match self.block.take() {
            Some(block) => block,
            None => self.pool.region(self.block_bytes, "a block of a chunk")?,
        };
        self.starts = vec![0];
        self.ends.clear();
        let mut grouper = Grouper {
            shuffle: &self.shuffle,
            bounds: &self.bounds,
            out: &mut self.out,
            starts: &mut self.starts,
            ends: &mut self.ends,
            parts: &mut self.parts,
            record_ends: &mut self.record_ends,
            sum: RecordSum::new(),
            reading: Duration::ZERO,
            grouping: Duration::ZERO,
        };
        with_records!(&self.shuffle.records, records => {
            let mut reader = ChunkReader::open(&**records, span, block, &self.pool, self.longest)?;
            grouper.take_all(&**records, &mut reader, span, cancel)?;
            // A block that was enlarged for a long record is given back.
            self.block = Some(reader.into_block()).filter(|block| block.len() == self.block_bytes);
        });
        let Grouper { sum, reading, grouping, .. } = grouper;
        Ok(MappedChunk { sum, reading, grouping })
    }

    /// The number of batches of the chunk for a destination with these partitions, which ascend.
    pub fn batches(&self, partitions: &[u32]) -> u32 {
        let whole = self.bytes_of(partitions).div_euclid(self.batch_bytes);
        (whole as u32).clamp(1, BATCHES_MAX)
    }

    /// Calls `make` with the length of a batch of the chunk, and writes the batch to the bytes that it fills.
    pub fn batch<T>(
        &self,
        partitions: &[u32],
        number: BatchNumber,
        count: u32,
        make: impl FnOnce(usize, &mut dyn FnMut(&mut [u8])) -> T,
    ) -> T {
        let pieces = self.pieces(partitions, self.share(partitions, number.number, count));
        let lengths: Vec<(u32, usize)> = pieces
            .iter()
            .map(|(partition, ranges)| (*partition, ranges.iter().map(Range::len).sum()))
            .collect();
        make(batch_bytes(&lengths), &mut |out| {
            write_batch(self.job, number, &lengths, out, |at, mut piece| {
                for range in &pieces[at].1 {
                    let (own, rest) = piece.split_at_mut(range.len());
                    own.copy_from_slice(&self.out[range.clone()]);
                    piece = rest;
                }
            });
        })
    }

    /// A batch of the chunk whose pieces stay where they are.
    pub fn frame(&self, partitions: &[u32], number: BatchNumber, count: u32) -> Frame<'_> {
        let pieces = self.pieces(partitions, self.share(partitions, number.number, count));
        let mut table = Vec::with_capacity(pieces.len());
        let mut slices = Vec::new();
        for (partition, ranges) in pieces {
            let first = slices.len();
            slices.extend(ranges.into_iter().map(|range| &self.out[range]));
            let own = &slices[first..];
            table.push((partition, own.iter().map(|slice| slice.len()).sum(), crc32c(own)));
        }
        Frame { head: batch_head(self.job, number, &table), pieces: slices }
    }

    fn bytes_of(&self, partitions: &[u32]) -> usize {
        partitions.iter().flat_map(|&partition| self.ranges(partition)).map(|range| range.len()).sum()
    }

    /// The bytes of a destination that are in its batch `number` of `count`.
    fn share(&self, partitions: &[u32], number: u32, count: u32) -> Range<usize> {
        let bytes = self.bytes_of(partitions) as u64;
        let bound = |number: u32| (bytes * u64::from(number) / u64::from(count.max(1))) as usize;
        bound(number)..bound(number + 1)
    }

    /// The ranges in memory of a partition, in the order of the input.
    fn ranges(&self, partition: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let all = self.bounds.partitions();
        let partition = partition as usize;
        let blocks = self.ends.chunks_exact(all).zip(&self.starts);
        blocks.filter_map(move |(ends, &start)| {
            let end = *ends.get(partition)? as usize;
            let begin = partition.checked_sub(1).map_or(0, |before| ends[before] as usize);
            (end > begin).then_some(start + begin..start + end)
        })
    }

    /// The pieces of a share of the bytes of some partitions, each with its ranges in memory.
    fn pieces(&self, partitions: &[u32], share: Range<usize>) -> Vec<(u32, Vec<Range<usize>>)> {
        let mut pieces: Vec<(u32, Vec<Range<usize>>)> = Vec::new();
        let mut at = 0;
        for &partition in partitions {
            for range in self.ranges(partition) {
                let from = share.start.max(at) - at;
                let to = share.end.clamp(at, at + range.len()) - at;
                at += range.len();
                if from >= to {
                    continue;
                }
                let own = range.start + from..range.start + to;
                match pieces.last_mut() {
                    Some((last, ranges)) if *last == partition => ranges.push(own),
                    _ => pieces.push((partition, vec![own])),
                }
            }
        }
        pieces
    }
}

/// Groups the blocks of a chunk.
struct Grouper<'a> {
    shuffle: &'a Shuffle,
    bounds: &'a Bounds,
    out: &'a mut [u8],
    starts: &'a mut Vec<usize>,
    ends: &'a mut Vec<u32>,
    parts: &'a mut Vec<u16>,
    record_ends: &'a mut Vec<u32>,
    sum: RecordSum,
    reading: Duration,
    grouping: Duration,
}

impl Grouper<'_> {
    fn take_all<R: Records>(
        &mut self,
        records: &R,
        reader: &mut ChunkReader<'_, R>,
        span: &ChunkSpan,
        cancel: &Cancel,
    ) -> Result<()> {
        let mut start = 0;
        loop {
            cancel.check()?;
            let began = Instant::now();
            let block = reader.next_block()?;
            let read = Instant::now();
            self.reading += read - began;
            let Some((bytes, offset)) = block else { return Ok(()) };
            let end = start + bytes.len();
            if end > self.out.len() {
                return Err(unclear(&span.path, span.end, offset));
            }
            self.shuffle.check_types(records, bytes, &span.path, offset)?;
            records.normalise(bytes);
            records.sum(bytes, &mut self.sum);
            self.group(records, bytes, span.position + (offset - span.start), start);
            records.finish(&mut self.out[start..end]);
            self.starts.push(end);
            start = end;
            self.grouping += read.elapsed();
        }
    }

    /// Copies the records of a block to `start` of the memory, grouped by partition.
    fn group<R: Records>(&mut self, records: &R, bytes: &[u8], position: u64, start: usize) {
        let block = self.ends.len();
        self.ends.resize(block + self.bounds.partitions(), 0);
        let sizes = &mut self.ends[block..];
        let parts = &mut *self.parts;
        let record_ends = &mut *self.record_ends;
        parts.clear();
        record_ends.clear();
        records.each_key(bytes, &mut |range, key| {
            let at = position + range.start as u64;
            let part = self.bounds.partition(records, &bytes[range.clone()], key, at);
            sizes[part] += range.len() as u32;
            parts.push(part as u16);
            record_ends.push(range.end as u32);
        });
        // Sizes become the offsets at which the next record of a partition goes, which in the end are the ends.
        let mut offset = 0;
        for size in sizes.iter_mut() {
            (*size, offset) = (offset, offset + *size);
        }
        let out = &mut self.out[start..start + bytes.len()];
        let mut record_start = 0;
        for (&part, &end) in parts.iter().zip(record_ends.iter()) {
            let record = &bytes[record_start..end as usize];
            let to = &mut sizes[usize::from(part)];
            out[*to as usize..*to as usize + record.len()].copy_from_slice(record);
            *to += record.len() as u32;
            record_start = end as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::super::bounds::{self, SortPosition};
    use super::super::chunk_reader::BLOCK_BYTES;
    use super::*;
    use crate::api::{Input, Keys, Output, SortRequest};
    use ascot_record::keys::KeyOptions;
    use ascot_record::layout::Layout;
    use std::collections::BTreeMap;

    fn request(layout: Layout, keys: Keys) -> SortRequest {
        SortRequest::new(vec![Input::Program], Output::Stdout, layout, keys)
    }

    fn mapper(request: &SortRequest, keys: &[&[u8]], batch_bytes: usize) -> ChunkMapper {
        let bound = |key: &&[u8]| SortPosition { key: key.to_vec(), record: None, position: 0 };
        let positions: Vec<SortPosition> = keys.iter().map(bound).collect();
        let bounds = Bounds::decode(&bounds::encode(&positions)).expect("bounds");
        let shuffle = Shuffle::new(request).expect("records");
        ChunkMapper::new(shuffle, bounds, [1; 16], 4 << 20, batch_bytes, BLOCK_BYTES).expect("memory")
    }

    /// The bytes of each partition in the batches for `partitions`, and the number of batches.
    fn received(mapper: &ChunkMapper, partitions: &[u32]) -> (BTreeMap<u32, Vec<u8>>, u32) {
        let count = mapper.batches(partitions);
        let mut found: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for number in 0..count {
            let number = BatchNumber { chunk: 0, destination: 0, number, last: number + 1 == count };
            let bytes = mapper.batch(partitions, number, count, |len, write| {
                let mut bytes = vec![0; len];
                write(&mut bytes);
                bytes
            });
            let frame = mapper.frame(partitions, number, count);
            assert!(bytes == [&frame.head[..], &frame.pieces.concat()].concat(), "the same bytes");
            for piece in Batch::parse(&bytes).expect("a batch").pieces {
                found.entry(piece.partition).or_default().extend(&bytes[piece.range]);
            }
        }
        (found, count)
    }

    fn span(file: &tempfile::NamedTempFile, content: &[u8]) -> ChunkSpan {
        std::fs::write(file.path(), content).expect("a disk");
        let size = content.len() as u64;
        ChunkSpan { path: file.path().into(), start: 0, end: size, records_at: 0, size, position: 0 }
    }

    #[test]
    fn partitions_have_their_lines_in_the_order_of_the_input() {
        let options = request(Layout::Lines { delimiter: b'\n' }, Keys::Command(KeyOptions::default()));
        let mut mapper = mapper(&options, &[b"g", b"p"], 200_000);
        // More than one block, so that partitions have several ranges in memory.
        let line = |at: usize| format!("{}{at}\n", char::from(b'a' + (at * 7 % 26) as u8));
        let content: String = (0..400_000).map(line).collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mapped = mapper.map(&span(&file, content.as_bytes()), &Cancel::new()).expect("mapped");
        assert_eq!((mapped.sum.count, mapped.sum.bytes), (400_000, content.len() as u64));
        let (found, batches) = received(&mapper, &[0, 2]);
        assert!(batches > 5, "{batches}");
        let wanted = |first: u8, end: u8| -> Vec<u8> {
            let lines = content.lines().filter(|line| (first..end).contains(&line.as_bytes()[0]));
            lines.flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
        };
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(found[&0] == wanted(b'a', b'g') && found[&2] == wanted(b'p', b'z' + 1));
        let (rest, _) = received(&mapper, &[1]);
        assert!(rest[&1] == wanted(b'g', b'p'));
    }

    #[test]
    fn numbers_travel_as_they_are_in_the_file() {
        let format = Layout::parse("i64-be").expect("a layout");
        let options = request(format, Keys::Value { descending: true });
        // Descending: keys are complements, so that greater numbers come first.
        let bound = (!(1u64 << 63)).to_be_bytes();
        let mut mapper = mapper(&options, &[&bound], 1 << 20);
        let numbers = [5i64, -3, 0, 7, -9];
        let content: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        mapper.map(&span(&file, &content), &Cancel::new()).expect("mapped");
        let (found, batches) = received(&mapper, &[0, 1]);
        let bytes =
            |numbers: &[i64]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
        assert_eq!(batches, 1);
        assert_eq!((&found[&0], &found[&1]), (&bytes(&[5, 7]), &bytes(&[-3, 0, -9])));
    }

    #[test]
    fn a_chunk_without_records_has_one_empty_batch() {
        let options = request(Layout::Lines { delimiter: b'\n' }, Keys::Command(KeyOptions::default()));
        let mut mapper = mapper(&options, &[b"g"], 1 << 20);
        let file = tempfile::NamedTempFile::new().expect("a file");
        let whole = span(&file, b"one long line\n");
        let tail = ChunkSpan { start: 5, position: 5, ..whole };
        let mapped = mapper.map(&tail, &Cancel::new()).expect("mapped");
        assert_eq!(mapped.sum.count, 0);
        assert_eq!(received(&mapper, &[0, 1]), (BTreeMap::new(), 1));
    }
}
