//! An open index log: the segments of complete epochs. They are found through the footer and the roots of the last
//! complete epoch, whatever a stopped writer left after them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Action, Buf, Disk, During, RandomAccessFile, RunId, block_checksum, crc32c};

use crate::error::{IndexError, Result};
use crate::format::footer::{Entry, FOOTER_BYTES, Footer, LogRange, PAGE, Root};
use crate::format::head::{Block, Region, SegmentHead};
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::read::files::{ByteRange, Files, begin, complete, missing};

/// An index log and its data log.
#[derive(Debug)]
pub struct LogReader {
    /// The log.
    pub log: Log,
    /// Its number, an input of all checksums.
    pub id: RunId,
    /// Path of the index file.
    pub index: PathBuf,
    /// Path of the data file; the index file if the log has no data.
    pub data: PathBuf,
    /// Segments of complete epochs, by epoch.
    pub entries: Vec<Entry>,
    /// Ends of the complete epochs in the index and in the data, bytes.
    pub ends: (u64, u64),
}

impl LogReader {
    /// Opens `log` of a directory; `tail` is its end if it was read before.
    pub fn open(
        manifest: &Manifest,
        directory: &Path,
        files: &Files,
        log: Log,
        tail: Option<Tail>,
    ) -> Result<Self> {
        let index = log.index(directory);
        let id = log.id(manifest.id);
        let data = log.data(directory).unwrap_or_else(|| index.clone());
        let mut this = Self { log, id, index, data, entries: Vec::new(), ends: (0, 0) };
        let epochs = manifest.epochs_of(log);
        if epochs == 0 {
            return Ok(this);
        }
        let path = this.index.clone();
        let tail = match tail {
            Some(tail) => tail,
            None => {
                let byte_range = Tail::byte_range(path.clone(), files.get(&path)?.size());
                files.count(|counts| counts.opening_reads += 1);
                Tail::new(&byte_range, files.fetch_one(&path, byte_range.at, byte_range.bytes)?.bytes())
            }
        };
        let read = |at, bytes| {
            if let Some(part) = tail.part(at, bytes) {
                return Ok(part);
            }
            files.count(|counts| counts.opening_reads += 1);
            Ok(files.fetch_one(&path, at, bytes)?.bytes().to_vec())
        };
        let file = IndexFile { path: &path, size: files.get(&path)?.size(), read: &read };
        let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs >= epochs)?;
        // An epoch's end takes at least a page, so a log has at most as many epochs as pages.
        if manifest.epochs_taken(log) > footer.end() / PAGE {
            let what = "the manifest counts more epochs than it has room for";
            return Err(IndexError::damaged(&path, footer.at, what));
        }
        let read = this.read_roots(&file, &footer, epochs);
        if footer.epochs > epochs && read.is_err() {
            // Parts of an incomplete epoch may be missing; the complete epochs have a footer of their own.
            let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs == epochs)?;
            this.read_roots(&file, &footer, epochs)?;
        } else {
            read?;
        }
        Ok(this)
    }

    /// Reads the chain of roots that starts at a footer, and keeps the segments of the first `epochs` epochs.
    fn read_roots(&mut self, file: &IndexFile<'_>, footer: &Footer, epochs: u64) -> Result<()> {
        let damaged = |at, what| Err(IndexError::damaged(&self.index, at, what));
        let mut place = footer.root;
        let mut limit = footer.at;
        let mut roots: Vec<Root> = Vec::new();
        while place.bytes > 0 {
            if place.at.checked_add(u64::from(place.bytes)).is_none_or(|end| end > limit) {
                return damaged(place.at, "an epoch's root is not before what names it");
            }
            limit = place.at;
            let root = root_at(file, &place, self.id.0)?;
            place = root.before;
            roots.push(root);
        }
        let entries = roots.into_iter().rev().flat_map(|root| root.entries);
        let entries: Vec<Entry> = entries.filter(|entry| entry.epoch < epochs).collect();
        if !entries.is_sorted_by_key(|entry| entry.epoch) {
            return damaged(footer.root.at, "epochs are not in their order");
        }
        // A later footer has the end of later data, which may be missing.
        let data_end = match footer.epochs == epochs {
            true => footer.data_end,
            false => entries.last().map_or(0, |entry| entry.data_end),
        };
        self.ends = (footer.end(), data_end);
        self.entries = entries;
        Ok(())
    }

    /// Segments of an epoch.
    pub fn of_epoch(&self, epoch: u64) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.epoch < epoch);
        let end = self.entries.partition_point(|entry| entry.epoch <= epoch);
        &self.entries[from..end]
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.entries.len() * size_of::<Entry>() + 512
    }
}

/// A log and the head of one of its segments.
#[derive(Clone)]
pub struct Segment {
    /// The log.
    pub log: Arc<LogReader>,
    /// Its head.
    pub head: Arc<SegmentHead>,
}

impl Segment {
    /// The bytes of a region in the index log.
    pub fn region_bytes(&self, region: &Region) -> ByteRange {
        ByteRange { path: self.log.index.clone(), at: region.at, bytes: region.bytes as usize }
    }

    /// The bytes of `block` in `bytes`, which start at `start` in the data log, after their checksum is
    /// verified.
    pub fn block_bytes<'a>(&self, block: &Block, start: u64, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let damaged = |what| IndexError::damaged(&self.log.data, block.at, what);
        let at = usize::try_from(block.at - start).unwrap_or(usize::MAX);
        let own = bytes.get(at..).and_then(|rest| rest.get(..block.bytes as usize));
        let own = own.ok_or_else(|| damaged("a block ends outside what was read"))?;
        if block_checksum(self.log.id, block.at, own) != block.crc {
            return Err(damaged("the checksum of a block is wrong"));
        }
        Ok(own)
    }
}

/// The last bytes of an index log, which contain its footer and usually its root.
pub struct Tail {
    at: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// The byte range of the tail of a file of `size` bytes.
    pub fn byte_range(path: PathBuf, size: u64) -> ByteRange {
        let end = size / PAGE * PAGE;
        let at = end.saturating_sub(FIRST_BYTES);
        // A few pages.
        ByteRange { path, at, bytes: (end - at) as usize }
    }

    /// A tail of the `bytes` read at `byte_range`.
    pub fn new(byte_range: &ByteRange, bytes: &[u8]) -> Self {
        Self { at: byte_range.at, bytes: bytes.to_vec() }
    }

    /// The `bytes` bytes at `at`, if the tail contains them.
    fn part(&self, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?).map(<[u8]>::to_vec)
    }
}

/// Bytes read at a time in search of a footer. The first read is large enough to include most roots: 256 entries are
/// 10 KiB.
const FIRST_BYTES: u64 = 4 * PAGE;
const MORE_BYTES: u64 = 1 << 20;

/// An index log whose byte ranges are read.
struct IndexFile<'a> {
    /// The file.
    path: &'a Path,
    /// Its size.
    size: u64,
    /// Reads a number of bytes at an offset: `read(at, bytes)`.
    read: &'a dyn Fn(u64, usize) -> Result<Vec<u8>>,
}

/// Runs `act` on an index log, which it opens.
fn by_path<R>(disk: &Disk, path: &Path, act: impl FnOnce(&IndexFile<'_>) -> Result<R>) -> Result<R> {
    let file = RandomAccessFile::open(disk, path, "index read", &Arc::default());
    let file = file.map_err(|error| missing(error, path))?;
    let read = |at, bytes| {
        let buf = |bytes| Ok(Buf::try_heap(bytes).during_at(Action::Read, path, at)?);
        Ok(complete(begin(&file, at, bytes, buf)?, path)?.bytes().to_vec())
    };
    act(&IndexFile { path, size: file.size(), read: &read })
}

/// The footer of the log `id` after `epochs` epochs, searched from the end.
///
/// # Errors
/// [`IndexError::CutShort`] if the log has fewer epochs.
pub fn last_footer(disk: &Disk, path: &Path, id: u64, epochs: u64) -> Result<Footer> {
    by_path(disk, path, |file| find_footer(file, id, epochs, |footer| footer.epochs == epochs))
}

/// The last footer of the log `id` for which `wanted` holds, searched from the end; it has at least `epochs`
/// epochs.
///
/// # Errors
/// [`IndexError::CutShort`] if the log has fewer epochs.
fn find_footer(
    file: &IndexFile<'_>,
    id: u64,
    epochs: u64,
    wanted: impl Fn(&Footer) -> bool,
) -> Result<Footer> {
    let path = file.path;
    let mut end = file.size / PAGE * PAGE;
    let mut step = FIRST_BYTES;
    while end > 0 {
        let start = end.saturating_sub(step);
        // At most 1 MiB.
        let read = (file.read)(start, (end - start) as usize)?;
        let pages = read.chunks_exact(PAGE as usize).enumerate();
        for (page, bytes) in pages.rev() {
            let at = start + (page as u64 + 1) * PAGE - FOOTER_BYTES as u64;
            let footer = Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], at, id);
            match footer {
                Some(footer) if footer.epochs < epochs => return Err(cut_short(path, footer.epochs, epochs)),
                Some(footer) if wanted(&footer) => return Ok(footer),
                _ => {}
            }
        }
        end = start;
        step = MORE_BYTES;
    }
    Err(cut_short(path, 0, epochs))
}

fn cut_short(path: &Path, held: u64, named: u64) -> IndexError {
    IndexError::CutShort { path: path.to_path_buf(), held, named }
}

/// Reads a root.
pub fn read_root(disk: &Disk, path: &Path, place: &LogRange, id: u64) -> Result<Root> {
    by_path(disk, path, |file| root_at(file, place, id))
}

/// Reads a root through an [`IndexFile`].
fn root_at(file: &IndexFile<'_>, place: &LogRange, id: u64) -> Result<Root> {
    parse_root(file.path, place, id, &(file.read)(place.at, place.bytes as usize)?)
}

/// The root in `read`, after its checksum is verified.
pub fn parse_root(path: &Path, place: &LogRange, id: u64, read: &[u8]) -> Result<Root> {
    let damaged = |what| IndexError::damaged(path, place.at, what);
    if crc32c(&[read]) != place.crc {
        return Err(damaged("the checksum of an epoch's root is wrong"));
    }
    Root::parse(read, id).ok_or_else(|| damaged("an epoch's root is not what it should be"))
}
