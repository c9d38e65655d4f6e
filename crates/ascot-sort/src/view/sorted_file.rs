//! A user's sorted file as a part of a view. The file stays in its place; the view keeps its identity, a checksum
//! for each of its blocks, and the keys by which it can be entered.
//!
//! ```text
//!   FILE          | header | a.. b.. c.. | d.. e.. | f.. g.. h.. |      blocks end where records end
//!   its index              | 12, crc     |  8, crc | 12, crc     |      their lengths and checksums
//!   its keys               | a           |  d      | f           |      as of any run (fence_keys.rs)
//! ```
//!
//! This takes one read of the file, which must be in order. A last line without its terminator is not a record of
//! the file: it becomes a run of its own, with one record, directly after the file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Buf, Codec, Disk, During, RunId, RunIndex, block_checksum};
use ascot_record::checksum::RecordSum;

use crate::api::{Cancel, Result, SortError, SortRequest};
use crate::order::{OrderCheck, reader};
use crate::read::Inputs;
use crate::records::{MergedBlock, Records};
use crate::report::Watch;
use crate::runs::{KeysWriter, RunSink, ViewIndex};
use crate::view::block_size::{block_bytes, kept_bytes};
use crate::view::manifest::{
    ENTRY_BYTES, HEADER_BYTES, Identity, IndexInView, MAGIC, Member, SortedFile, VERSION, identity_of,
};

/// The parameters for making files parts of a view.
pub struct Taking<'a, R> {
    /// Their records.
    pub records: &'a Arc<R>,
    /// The request that defines their order; its inputs are one file at a time.
    pub request: &'a SortRequest,
    /// The disk to which runs are written.
    pub disk: &'a Disk,
    /// The directory that becomes the view.
    pub dir: &'a Path,
    /// The cancellation flag.
    pub cancel: &'a Cancel,
}

/// Error for a part of a view that is not a file.
pub fn not_a_file() -> SortError {
    let why = "only a file can be part of a view: data from a pipe cannot be read again\n  sort it: ascot \
               sort --view DIR";
    SortError::Request(why.into())
}

impl<R: Records> Taking<'_, R> {
    /// Reads the one file of `inputs`, whose records are about `mean_bytes` long. Returns the members for it, numbered
    /// from `number` on, and adds its records to `sum`.
    pub fn take(
        &self,
        inputs: Inputs,
        mean_bytes: f64,
        number: u64,
        watch: &mut Watch<'_>,
        sum: &mut RecordSum,
        index: &mut ViewIndex,
    ) -> Result<Vec<Member>> {
        let Some((path, start)) =
            inputs.get(0).and_then(|file| Some((file.whole_file()?.to_path_buf(), file.start)))
        else {
            return Err(not_a_file());
        };
        let path = std::fs::canonicalize(&path).during(ascot_io::Action::Inspect, &path)?;
        let identity = identity_of(&path)?;
        let block = block_bytes(mean_bytes, kept_bytes(self.request, mean_bytes), identity.size);
        let mut blocks = Blocks {
            records: &**self.records,
            watch,
            sum,
            id: RunId(number),
            block,
            size: identity.size,
            start,
            end: start,
            cuts: Vec::new(),
            entries: Vec::new(),
            keys: KeysWriter::new(&**self.records),
            longest: 0,
            count: 0,
            tail: Vec::new(),
        };
        let mut reader = reader(self.records, self.request, inputs, self.cancel)?;
        let mut order = OrderCheck::new(self.records, self.request.unique);
        let mut before = u64::from(self.request.header);
        let mut read = start;
        while let Some(mut placed) = reader.next(&|| ())? {
            let bytes = placed.chunk.record_bytes_mut();
            blocks.as_read(bytes)?;
            self.records.normalise(bytes);
            if let Some(unordered) = order.observe(bytes) {
                let input = path.display().to_string();
                let record = before + unordered.before + 1;
                return Err(SortError::NotSorted { input, record, offset: read + unordered.offset as u64 });
            }
            blocks.in_order(bytes);
            read += bytes.len() as u64;
            before += placed.records as u64;
        }
        if identity_of(&path)? != identity {
            let why = "it changed while it was read\n  make the view when no program writes to it";
            return Err(SortError::view(path, ErrorKind::Other, why));
        }
        let tail = std::mem::take(&mut blocks.tail);
        let mut members = vec![self.member(blocks, path, identity, index)?];
        if !tail.is_empty() {
            members.push(self.last_record(&tail, number + 1, index)?);
        }
        Ok(members)
    }

    fn member(
        &self,
        blocks: Blocks<'_, '_, R>,
        path: PathBuf,
        identity: Identity,
        kept: &mut ViewIndex,
    ) -> Result<Member> {
        let Identity { size, modified_ns, inode } = identity;
        let number = blocks.id.0;
        let index = blocks.to_bytes();
        let keys = blocks.keys.to_bytes(number);
        let kept = kept.add(&index, &keys)?;
        let entries = blocks.entries.iter().copied();
        Ok(Member {
            path,
            number,
            bytes: blocks.end - blocks.start,
            records: blocks.count,
            longest: blocks.longest,
            block_bytes: RunIndex::from_ranges(blocks.id, blocks.start, entries).buffer_bytes(),
            size,
            index_crc: kept.index_crc,
            keys_crc: kept.keys_crc,
            index: Some(IndexInView::new(&kept)),
            file: Some(SortedFile { beside: None, modified_ns, inode }),
        })
    }

    /// A run with the one record that lacks its terminator in the file.
    fn last_record(&self, tail: &[u8], number: u64, index: &mut ViewIndex) -> Result<Member> {
        let path = self.dir.join(format!("run-{number:06}.run"));
        let mut sink = RunSink::create(self.records, self.disk, path, number, &Codec::None.into())?;
        sink.keep_keys();
        let mut buf = Buf::heap(tail.len());
        buf[..tail.len()].copy_from_slice(tail);
        sink.write(MergedBlock { buf, len: tail.len(), first_record: 0, longest: tail.len(), records: 1 })?;
        let mut run = sink.finish()?;
        index.add_run(&**self.records, &mut run, self.cancel)?;
        Member::from_run(&run)
    }
}

/// The blocks of a file that is being read.
struct Blocks<'b, 'w, R> {
    records: &'b R,
    watch: &'b mut Watch<'w>,
    sum: &'b mut RecordSum,
    id: RunId,
    /// Maximum bytes of a block.
    block: usize,
    size: u64,
    start: u64,
    /// Offset in the file up to which it has been read.
    end: u64,
    /// The blocks of the latest chunk.
    cuts: Vec<CutBlock>,
    /// Length and checksum of each.
    entries: Vec<(u32, u32)>,
    keys: KeysWriter,
    longest: u64,
    count: u64,
    /// The last record, if it lacks its terminator.
    tail: Vec<u8>,
}

/// A block of a chunk.
struct CutBlock {
    bytes: usize,
    /// Length of the first record that begins there; 0 if none does.
    first: usize,
    /// Number of records that end there.
    records: u64,
}

impl<R: Records> Blocks<'_, '_, R> {
    /// Adds a block of bytes.
    fn cut(&mut self, bytes: &[u8], first: usize, records: u64) {
        let crc = block_checksum(self.id, self.entries.len() as u64, bytes);
        self.entries.push((bytes.len() as u32, crc));
        self.cuts.push(CutBlock { bytes: bytes.len(), first, records });
    }

    /// Their index: header, entries, checksum (docs/formats/view.md).
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for field in [self.id.0, self.start, self.entries.len() as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for (len, crc) in &self.entries {
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Cuts whole records into blocks, as they are in the file.
    fn as_read(&mut self, bytes: &[u8]) -> Result<()> {
        self.watch.moved(bytes.len())?;
        self.cuts.clear();
        let unfinished = self.end + bytes.len() as u64 > self.size;
        let bytes = if unfinished {
            // The terminator that was added to the last record is not in the file.
            let (whole, tail) = bytes.split_at(self.records.last_record(bytes));
            self.tail = tail.to_vec();
            whole
        } else {
            bytes
        };
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..bytes.len().min(at + self.block)];
            let whole = self.records.cut(rest, usize::MAX);
            if whole.bytes > 0 {
                let first = self.records.cut(rest, 1).bytes;
                self.cut(&rest[..whole.bytes], first, whole.records as u64);
                at += whole.bytes;
                continue;
            }
            let end = at + self.records.cut(&bytes[at..], 1).bytes.max(1);
            while at < end {
                let next = end.min(at + self.block);
                self.cut(&bytes[at..next], 0, u64::from(next == end));
                at = next;
            }
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Adds the keys and the sum of the same records, which are in order and in the form of spills.
    fn in_order(&mut self, bytes: &[u8]) {
        self.records.sum(bytes, self.sum);
        let mut at = 0;
        for block in std::mem::take(&mut self.cuts) {
            self.keys.note(self.records, &bytes[at..at + block.first], block.records, block.bytes as u64);
            self.count += block.records;
            at += block.bytes;
        }
        if let Some(len) = self.records.record_bytes() {
            self.longest = len as u64;
            return;
        }
        let mut start = 0;
        while let len @ 1.. = self.records.cut(&bytes[start..at], 1).bytes {
            self.longest = self.longest.max(len as u64);
            start += len;
        }
    }
}
