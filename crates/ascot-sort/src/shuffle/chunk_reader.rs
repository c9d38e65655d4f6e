//! Reads a byte range of a file, a chunk, as blocks of whole records.
//!
//! ```text
//!   file     r1 r1 | r2 r2 r2 | r3 r3 | r4 ...
//!   chunk            [-----------------]          has r2 and r3: those that begin in it
//! ```
//!
//! Chunks of records of one length begin and end between records. Lines are found by the byte before the chunk: a line
//! begins where the one before it ends. A last line without its terminator gets one.
//!
//! Rows of CSV are found by a search from the chunk's first byte on, and the chunk ends where the search from its end
//! finds the next one, which is where the next chunk begins. A search may be wrong if no quote shows whether it begins
//! in a quoted field. Then a row of the chunk does not end where the chunk does, and the chunk is an error.
//!
//! Invariant: every record of a file is in one chunk, whatever the bounds of the chunks are.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Buf, During, IoError, Pool};
use ascot_record::framing::Partial;

use super::Shuffle;
use crate::api::{Cancel, Missing, Result, SortError};
use crate::records::{RecordEnds, with_records};

/// Bytes of a block, unless a job has others.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Bytes read at a time beyond the end of the chunk.
const BEYOND_BYTES: usize = 64 << 10;

/// Bytes in which quotes may show where a row starts; without them it is the first that is likely.
pub const SEARCH_BYTES: usize = 256 << 10;

/// A byte range of an input.
#[derive(Clone, Debug)]
pub struct ChunkSpan {
    /// The file.
    pub path: PathBuf,
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// Where the records of the file begin, after a header.
    pub records_at: u64,
    /// Bytes of the file when the job began.
    pub size: u64,
    /// Bytes of all inputs before this chunk.
    pub position: u64,
}

/// Calls `take` with the records of a chunk, whole records of about `block_bytes` at a time, and the offset of the
/// first in the file. Records have at most `longest` bytes.
///
/// # Errors
/// Those of reading the file; [`SortError::TooLong`] for a longer record.
pub fn read_chunk(
    shuffle: &Shuffle,
    span: &ChunkSpan,
    block_bytes: usize,
    longest: usize,
    cancel: &Cancel,
    mut take: impl FnMut(&[u8], u64),
) -> Result<()> {
    let longest = longest.max(block_bytes);
    let pool = Pool::new(block_bytes + 2 * longest);
    let block = pool.region(block_bytes, "a block of a chunk")?;
    with_records!(&shuffle.records, records => {
        let mut reader = ChunkReader::open(&**records, span, block, &pool, longest)?;
        while let Some((bytes, offset)) = reader.next_block()? {
            cancel.check()?;
            shuffle.check_types(&**records, bytes, &span.path, offset)?;
            take(bytes, offset);
        }
    });
    Ok(())
}

/// The error of a file of which no search tells where rows start between two offsets.
pub(super) fn unclear(path: &Path, from: u64, to: u64) -> SortError {
    let problem = format!(
        "quotes do not show where rows start between offsets {from} and {to}\n  nodes cannot share this file: sort it \
         on one machine"
    );
    SortError::InChunk { input: path.display().to_string(), offset: from, problem }
}

/// The blocks of a chunk.
pub(super) struct ChunkReader<'a, R> {
    records: &'a R,
    span: ChunkSpan,
    file: File,
    pool: &'a Pool,
    /// Maximum length of a record, bytes.
    longest: usize,
    block: Buf,
    /// Bytes in the block, and those of them that were returned last.
    have: usize,
    used: usize,
    /// Offset in the file of the first byte of the block, and of the next byte to read.
    block_at: u64,
    read_at: u64,
    /// Bytes of the file, of which the chunk may end before the end.
    file_bytes: u64,
}

/// Fills `out` with the bytes at `offset`; with fewer only at the end of the file.
pub(super) fn read_full(file: &File, path: &Path, out: &mut [u8], offset: u64) -> Result<usize, IoError> {
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        match file.read_at(&mut out[done..], at) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(IoError::from_os(Action::Read, path, at, error)),
        }
    }
    Ok(done)
}

impl<'a, R: RecordEnds> ChunkReader<'a, R> {
    /// A reader that uses `block`, and a larger one from `pool` for longer records, up to `longest` bytes.
    pub fn open(
        records: &'a R,
        span: &'a ChunkSpan,
        block: Buf,
        pool: &'a Pool,
        longest: usize,
    ) -> Result<Self> {
        let file = File::open(&span.path).during(Action::Open, &span.path)?;
        let mut reader = ChunkReader {
            records,
            file,
            pool,
            longest,
            block,
            have: 0,
            used: 0,
            block_at: span.start,
            read_at: span.start,
            file_bytes: span.size,
            span: span.clone(),
        };
        if records.start_search().is_some() {
            reader.align()?;
        } else if span.start > span.records_at && records.record_bytes().is_none() {
            reader.skip_to_first()?;
        }
        Ok(reader)
    }

    /// Moves both ends of the chunk to starts of records.
    fn align(&mut self) -> Result<()> {
        let [start, end] = [self.start_after(self.span.start)?, self.start_after(self.span.end)?];
        if end < start {
            // One of the two searches was wrong. No chunk need end at the later one.
            return Err(unclear(&self.span.path, end, start));
        }
        self.span.start = start;
        self.span.end = end;
        self.span.size = end;
        self.block_at = self.span.start;
        self.read_at = self.span.start;
        Ok(())
    }

    /// The first start of a record from `at` on that a search finds; the end of the file if there is none.
    fn start_after(&mut self, at: u64) -> Result<u64> {
        let Some(mut search) = self.records.start_search().filter(|_| at > self.span.records_at) else {
            return Ok(at);
        };
        let mut from = at;
        while from < self.file_bytes {
            let wanted = BEYOND_BYTES.min(self.block.len()).min((self.file_bytes - from) as usize);
            let bytes = self.read(from, wanted, 0)?;
            if bytes == 0 {
                break;
            }
            if let Some(found) = search.go_on(&self.block[..bytes]) {
                return Ok(at + found);
            }
            from += bytes as u64;
            if from - at >= SEARCH_BYTES as u64
                && let Some(likely) = search.likely()
            {
                return Ok(at + likely);
            }
            if from - at > 2 * self.longest as u64 {
                return Err(self.too_long(at, from - at));
            }
        }
        Ok(search.likely().map_or(self.file_bytes, |likely| at + likely))
    }

    /// Gives the block back.
    pub fn into_block(self) -> Buf {
        self.block
    }

    /// Finds the first record that begins in the chunk.
    fn skip_to_first(&mut self) -> Result<()> {
        let mut partial = Partial::default();
        let mut at = self.span.start - 1;
        while at < self.span.end {
            let bytes = self.read(at, BEYOND_BYTES.min(self.block.len()), 0)?;
            if bytes == 0 {
                break;
            }
            if let Some(end) = self.records.go_on(&self.block[..bytes], &mut partial) {
                at += end as u64;
                break;
            }
            at += bytes as u64;
        }
        self.block_at = at;
        self.read_at = at;
        Ok(())
    }

    /// Reads up to `bytes` bytes at `offset` to the place `to` of the block; fewer only at the end of the file.
    fn read(&mut self, offset: u64, bytes: usize, to: usize) -> Result<usize> {
        Ok(read_full(&self.file, &self.span.path, &mut self.block[to..to + bytes], offset)?)
    }

    /// The next whole records, and the offset of the first in the file; none at the end of the chunk.
    pub fn next_block(&mut self) -> Result<Option<(&mut [u8], u64)>> {
        self.block.copy_within(self.used..self.have, 0);
        self.have -= self.used;
        self.block_at += self.used as u64;
        self.used = 0;
        if self.block_at >= self.span.end {
            return Ok(None);
        }
        loop {
            let ended = self.fill()?;
            self.used = self.whole_records();
            if self.used > 0 {
                break;
            }
            if ended {
                if self.have == 0 {
                    return Ok(None);
                }
                self.complete()?;
                break;
            }
            if self.have == self.block.len() {
                self.grow()?;
            }
        }
        Ok(Some((&mut self.block[..self.used], self.block_at)))
    }

    /// Reads until the block is full, or there is enough beyond the end of the chunk. Returns whether the file ended.
    fn fill(&mut self) -> Result<bool> {
        let inside = self.read_at < self.span.end;
        let stop = if inside { self.span.end } else { self.read_at + BEYOND_BYTES as u64 };
        let wanted = ((stop - self.read_at) as usize).min(self.block.len() - self.have);
        let bytes = self.read(self.read_at, wanted, self.have)?;
        self.have += bytes;
        self.read_at += bytes as u64;
        if self.read_at < self.span.size && bytes < wanted {
            let path = self.span.path.clone();
            return Err(IoError::Truncated { path, offset: self.read_at, expected: self.span.size }.into());
        }
        // The file may have grown since: what came later does not count.
        if self.read_at > self.span.size {
            self.have -= (self.read_at - self.span.size) as usize;
            self.read_at = self.span.size;
        }
        Ok(self.read_at == self.span.size)
    }

    /// Bytes of the whole records of the block that begin in the chunk.
    fn whole_records(&self) -> usize {
        let bytes = &self.block[..self.have];
        let left = usize::try_from(self.span.end - self.block_at).unwrap_or(usize::MAX);
        if left >= bytes.len() {
            return self.records.cut(bytes, usize::MAX).bytes;
        }
        let inside = self.records.cut(&bytes[..left], usize::MAX).bytes;
        if inside == left { inside } else { inside + self.records.cut(&bytes[inside..], 1).bytes }
    }

    /// Gives the last record of the file its terminator.
    fn complete(&mut self) -> Result<()> {
        let Some(byte) = self.records.completion() else {
            let len = self.records.record_bytes().unwrap_or(1) as u64;
            return Err(SortError::CutShort {
                input: self.span.path.display().to_string(),
                record: self.block_at / len + 1,
                offset: self.block_at,
                have: self.have as u64,
                missing: Missing::BytesOf(len),
            });
        };
        let mut partial = Partial::default();
        self.records.go_on(&self.block[..self.have], &mut partial);
        if self.records.go_on(&[byte], &mut partial).is_none() {
            return Err(self.cut_short(&partial));
        }
        for byte in self.row_ends_with_crlf()?.then_some(b'\r').into_iter().chain([byte]) {
            if self.have == self.block.len() {
                self.grow()?;
            }
            self.block[self.have] = byte;
            self.have += 1;
        }
        self.used = self.have;
        Ok(())
    }

    /// Whether the last row lacks the two bytes with which the first one ends.
    fn row_ends_with_crlf(&self) -> Result<bool> {
        if self.records.start_search().is_none() || self.block[..self.have].ends_with(b"\r") {
            return Ok(false);
        }
        let mut head = vec![0; BEYOND_BYTES.min(self.file_bytes as usize)];
        let bytes = read_full(&self.file, &self.span.path, &mut head, 0)?;
        let row = self.records.go_on(&head[..bytes], &mut Partial::default());
        Ok(row.is_some_and(|end| head[..end].ends_with(b"\r\n")))
    }

    /// The error of a last record that ends neither with the chunk nor with the file.
    fn cut_short(&self, partial: &Partial) -> SortError {
        let input = self.span.path.display().to_string();
        if self.span.end < self.file_bytes {
            let at = self.block_at + partial.quote.unwrap_or_default();
            let problem = format!(
                "the field quoted from offset {at} on goes beyond offset {}, where a row seems to start\n  nodes \
                 cannot share this file: sort it on one machine",
                self.span.end
            );
            return SortError::InChunk { input, offset: self.block_at, problem };
        }
        let missing = Missing::from_partial(partial);
        SortError::CutShort { input, record: 0, offset: self.block_at, have: self.have as u64, missing }
    }

    /// The error of a record of which `have` bytes from `offset` on were searched for its end.
    fn too_long(&self, offset: u64, have: u64) -> SortError {
        let input = self.span.path.display().to_string();
        SortError::TooLong { input, offset, have, whole: false, min_bytes: 16 * have }
    }

    /// Doubles the block for a record that is longer.
    fn grow(&mut self) -> Result<()> {
        let bytes = (2 * self.block.len()).min(self.longest);
        if bytes <= self.block.len() {
            return Err(self.too_long(self.block_at, self.have as u64));
        }
        let mut larger = self.pool.region(bytes, "a long record of a chunk")?;
        larger[..self.have].copy_from_slice(&self.block[..self.have]);
        self.block = larger;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Input, Keys, Output, SortRequest};
    use ascot_record::keys::KeyOptions;
    use ascot_record::layout::Layout;
    use proptest::prelude::*;

    fn lines() -> Shuffle {
        let (layout, keys) = (Layout::Lines { delimiter: b'\n' }, Keys::Command(KeyOptions::default()));
        Shuffle::new(&SortRequest::new(vec![Input::Program], Output::Stdout, layout, keys)).expect("records")
    }

    /// The records of the chunks of a file that is cut at `cuts`.
    fn chunks(
        content: &[u8],
        cuts: &[u64],
        block_bytes: usize,
        longest: usize,
    ) -> Result<Vec<u8>, SortError> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("a disk");
        let size = content.len() as u64;
        let pool = Pool::new(64 << 20);
        let mut found = Vec::new();
        let mut start = 0;
        for &end in cuts.iter().chain([&size]) {
            let span =
                ChunkSpan { path: file.path().into(), start, end, records_at: 0, size, position: start };
            let block = pool.region(block_bytes, "a block").expect("memory");
            with_records!(&lines().records, records => {
                let mut reader = ChunkReader::open(&**records, &span, block, &pool, longest)?;
                while let Some((bytes, at)) = reader.next_block()? {
                    assert!(at >= start && at < end);
                    found.extend_from_slice(bytes);
                }
            });
            start = end;
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn every_line_is_in_one_chunk(
            lines in prop::collection::vec(prop::collection::vec(b'a'..b'd', 0..40), 0..60),
            cuts in prop::collection::btree_set(0u64..1500, 0..6),
            ended in any::<bool>(),
        ) {
            let mut content = lines.join(&b'\n');
            if ended && !content.is_empty() {
                content.push(b'\n');
            }
            let cuts: Vec<u64> = cuts.into_iter().filter(|&cut| cut < content.len() as u64).collect();
            let mut wanted = content.clone();
            if !wanted.is_empty() && wanted.last() != Some(&b'\n') {
                wanted.push(b'\n');
            }
            prop_assert_eq!(chunks(&content, &cuts, 4096, 1 << 20).expect("lines"), wanted);
        }
    }

    #[test]
    fn a_line_longer_than_a_block_is_whole_and_one_longer_than_allowed_is_an_error() {
        let content = [vec![b'a'; 100_000], vec![b'\n', b'b', b'\n']].concat();
        assert_eq!(chunks(&content, &[5_000, 70_000], 4096, 1 << 20).expect("lines"), content);
        let error = chunks(&content, &[], 4096, 50_000).expect_err("too long");
        assert!(matches!(error, SortError::TooLong { offset: 0, .. }), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_short_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), b"a\nb\n").expect("a disk");
        let span =
            ChunkSpan { path: file.path().into(), start: 0, end: 8, records_at: 0, size: 8, position: 0 };
        let pool = Pool::new(1 << 20);
        let block = pool.region(4096, "a block").expect("memory");
        with_records!(&lines().records, records => {
            let mut reader = ChunkReader::open(&**records, &span, block, &pool, 4096).expect("a file");
            let error = reader.next_block().map(|_| ()).expect_err("cut short");
            assert!(error.to_string().contains("ended at byte 4"), "{error}");
        });
    }
}
