//! An index log, open: the segments of complete epochs.

use std::path::{Path, PathBuf};

use ascot_io::RunId;

use crate::error::{IndexError, Result};
use crate::format::footer::{Entry, Footer, PAGE, Root};
use crate::format::names::Log;
use crate::read::fetch::{Spot, fetch_one};
use crate::read::tail::{FIRST_BYTES, IndexFile, find_footer, root_at};
use crate::read::{Directory, count};

/// An index log, and the data log beside it.
#[derive(Debug)]
pub struct LogReader {
    /// Which one.
    pub log: Log,
    /// Its number, part of all checksums.
    pub id: RunId,
    /// The file of its index.
    pub index: PathBuf,
    /// The file of its data; that of the index where there is none.
    pub data: PathBuf,
    /// Segments of complete epochs, by epoch.
    pub entries: Vec<Entry>,
    /// Where complete epochs end in the index and in the data.
    pub ends: (u64, u64),
}

/// The last bytes of an index log, where its footer is, and most often its root.
pub struct Tail {
    at: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// The place of the tail of a file of so many bytes.
    pub fn spot(path: PathBuf, size: u64) -> Spot {
        let end = size / PAGE * PAGE;
        let at = end.saturating_sub(FIRST_BYTES);
        // A few pages.
        Spot { path, at, bytes: (end - at) as usize }
    }

    /// What was read there.
    pub fn new(spot: &Spot, bytes: &[u8]) -> Self {
        Self { at: spot.at, bytes: bytes.to_vec() }
    }

    /// So many bytes at a place, where it has them.
    fn part(&self, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?).map(<[u8]>::to_vec)
    }
}

/// The index of a log of a directory, held open.
struct HeldIndex<'a> {
    directory: &'a Directory,
    path: &'a Path,
    tail: Tail,
}

impl IndexFile for HeldIndex<'_> {
    fn path(&self) -> &Path {
        self.path
    }

    fn size(&self) -> Result<u64> {
        Ok(self.directory.files.get(self.path)?.size())
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        if let Some(part) = self.tail.part(at, bytes) {
            return Ok(part);
        }
        count(&self.directory.counters.opening_reads, 1);
        Ok(fetch_one(self.directory, self.path, at, bytes)?.bytes().to_vec())
    }
}

impl LogReader {
    /// Opens `log`, of which the tail may have been read.
    pub fn open(directory: &Directory, log: Log, tail: Option<Tail>) -> Result<Self> {
        let manifest = directory.manifest();
        let (index, id) = (log.index(directory.path()), log.id(manifest.id));
        let data = log.data(directory.path()).unwrap_or_else(|| index.clone());
        let mut this = Self { log, id, index, data, entries: Vec::new(), ends: (0, 0) };
        let epochs = manifest.epochs_of(log);
        if epochs == 0 {
            return Ok(this);
        }
        let path = this.index.clone();
        let tail = match tail {
            Some(tail) => tail,
            None => {
                let spot = Tail::spot(path.clone(), directory.files.get(&path)?.size());
                count(&directory.counters.opening_reads, 1);
                Tail::new(&spot, fetch_one(directory, &path, spot.at, spot.bytes)?.bytes())
            }
        };
        let file = HeldIndex { directory, path: &path, tail };
        let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs >= epochs)?;
        // An epoch ends a page, so there are not more of them than pages.
        if manifest.epochs_taken(log) > footer.end() / PAGE {
            let what = "the manifest counts more epochs than it has room for";
            return Err(IndexError::damaged(&path, footer.at, what));
        }
        let read = this.read_roots(&file, &footer, epochs);
        if footer.epochs > epochs && read.is_err() {
            // Of an epoch that nobody has called complete anything may be missing: those before have an end of their own.
            let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs == epochs)?;
            this.read_roots(&file, &footer, epochs)?;
        } else {
            read?;
        }
        Ok(this)
    }

    /// Reads the roots that a footer names, one after the other, and keeps segments of the first `epochs` epochs.
    fn read_roots(&mut self, file: &HeldIndex<'_>, footer: &Footer, epochs: u64) -> Result<()> {
        let damaged = |at, what| Err(IndexError::damaged(&self.index, at, what));
        let (mut place, mut limit) = (footer.root, footer.at);
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
        // A later footer has the end of later data, which need not be there.
        let data_end = match footer.epochs == epochs {
            true => footer.data_end,
            false => entries.last().map_or(0, |entry| entry.data_end),
        };
        (self.ends, self.entries) = ((footer.end(), data_end), entries);
        Ok(())
    }

    /// Segments of an epoch.
    pub fn of_epoch(&self, epoch: u64) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.epoch < epoch);
        let upto = self.entries.partition_point(|entry| entry.epoch <= epoch);
        &self.entries[from..upto]
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.entries.len() * size_of::<Entry>() + 512
    }
}
