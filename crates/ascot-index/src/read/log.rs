//! An index log, open: the segments of complete epochs.

use std::fs::File;
use std::path::{Path, PathBuf};

use ascot_io::{Disk, RunId};

use crate::error::{IndexError, Result};
use crate::format::footer::{Entry, Footer, PAGE, Root};
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::read::tail::{last_footer, read_root};

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
    /// Reads it took to open.
    pub reads: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Both files, held open where there are not many: the system then keeps what it knows of their places, and opening one again for a
    /// read costs no read of its own.
    held: Vec<File>,
}

impl LogReader {
    /// Opens `log`, and holds its files open if wanted.
    pub fn open(disk: &Disk, directory: &Path, manifest: &Manifest, log: Log, hold: bool) -> Result<Self> {
        let (index, id) = (log.index(directory), log.id(manifest.id));
        let data = log.data(directory).unwrap_or_else(|| index.clone());
        let mut this = Self {
            log,
            id,
            index,
            data,
            entries: Vec::new(),
            ends: (0, 0),
            reads: 0,
            bytes: 0,
            held: Vec::new(),
        };
        let epochs = manifest.epochs_of(log);
        if epochs == 0 {
            return Ok(this);
        }
        if hold {
            // A file that cannot be opened is told of by whoever reads it.
            this.held =
                [&this.index, &this.data].into_iter().filter_map(|path| File::open(path).ok()).collect();
        }
        let footer = last_footer(disk, &this.index, id.0, epochs, |footer| footer.epochs >= epochs)?;
        // An epoch ends a page, so there are not more of them than pages.
        if manifest.epochs_taken(log) > footer.end() / PAGE {
            let what = "the manifest counts more epochs than it has room for";
            return Err(IndexError::damaged(&this.index, footer.at, what));
        }
        this.reads = 1;
        let read = this.read_roots(disk, &footer, epochs);
        if footer.epochs > epochs && read.is_err() {
            // Of an epoch that nobody has called complete anything may be missing: those before have an end of their own.
            let footer = last_footer(disk, &this.index, id.0, epochs, |footer| footer.epochs == epochs)?;
            this.reads += 1;
            this.read_roots(disk, &footer, epochs)?;
        } else {
            read?;
        }
        Ok(this)
    }

    /// Reads the roots that a footer names, one after the other, and keeps segments of the first `epochs` epochs.
    fn read_roots(&mut self, disk: &Disk, footer: &Footer, epochs: u64) -> Result<()> {
        let damaged = |at, what| Err(IndexError::damaged(&self.index, at, what));
        let (mut place, mut limit) = (footer.root, footer.at);
        let mut roots: Vec<Root> = Vec::new();
        while place.bytes > 0 {
            if place.at.checked_add(u64::from(place.bytes)).is_none_or(|end| end > limit) {
                return damaged(place.at, "an epoch's root is not before what names it");
            }
            limit = place.at;
            let root = read_root(disk, &self.index, &place, self.id.0)?;
            (self.reads, self.bytes) = (self.reads + 1, self.bytes + u64::from(place.bytes));
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
        size_of::<Self>()
            + self.held.len() * size_of::<File>()
            + self.entries.len() * size_of::<Entry>()
            + 512
    }
}
