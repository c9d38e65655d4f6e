//! The index log of a writer: sealed segments, and a root and a footer at the end of each epoch
//! ([`footer`](crate::format::footer)).

use ascot_io::{RunId, crc32c};

use crate::error::Result;
use crate::format::footer::{ENTRIES_MAX, Entry, FOOTER_BYTES, Footer, LogRange, Root};
use crate::write::logs::{LogNumber, Logs};

/// The writer of an index log.
pub struct IndexLog {
    /// Its file.
    pub file: LogNumber,
    /// Its number, an input of all checksums.
    pub id: RunId,
    epochs: u64,
    root: Root,
    /// The root of the epoch before.
    last: LogRange,
}

impl IndexLog {
    /// A log that continues after `footer` and its root, or a new one; the next epoch has the number `epochs`.
    pub fn new(file: LogNumber, id: RunId, epochs: u64, from: Option<(Footer, Root)>) -> Self {
        let (last, root) = match from {
            Some((footer, root)) => (footer.root, root),
            None => (LogRange::default(), Root::default()),
        };
        Self { file, id, epochs, root, last }
    }

    /// The number of the open epoch.
    pub fn epoch(&self) -> u64 {
        self.epochs
    }

    /// Appends a region; returns its length and checksum.
    pub fn region(&self, logs: &mut Logs, parts: &[&[u8]]) -> Result<(u32, u32)> {
        let at = logs.end(self.file);
        let log = self.id.0.to_le_bytes();
        let place = at.to_le_bytes();
        let mut summed = vec![&log[..], &place[..]];
        summed.extend_from_slice(parts);
        let crc = crc32c(&summed);
        for part in parts {
            logs.append(self.file, part)?;
        }
        // A region is a few hundred KiB.
        Ok(((logs.end(self.file) - at) as u32, crc))
    }

    /// Appends a segment's head, and adds the segment to the root.
    pub fn head(&mut self, logs: &mut Logs, parts: &[&[u8]], records: u64, data_end: u64) -> Result<()> {
        let at = logs.end(self.file);
        for part in parts {
            logs.append(self.file, part)?;
        }
        // A head is part of the writer's memory share, which is below 4 GiB.
        let head = LogRange { at, bytes: (logs.end(self.file) - at) as u32, crc: crc32c(parts) };
        self.note(head, records, data_end);
        Ok(())
    }

    /// Adds a segment to the root; starts a new root if this one is full.
    pub fn note(&mut self, head: LogRange, records: u64, data_end: u64) {
        if self.root.entries.len() >= ENTRIES_MAX
            && self.root.entries.last().is_some_and(|last| last.epoch < self.epochs)
        {
            self.root = Root { before: self.last, entries: Vec::new() };
        }
        self.root.entries.push(Entry { epoch: self.epochs, head, records, data_end });
    }

    /// Ends the epoch: appends the root and the footer.
    pub fn end_epoch(&mut self, logs: &mut Logs, data_end: u64) -> Result<()> {
        let bytes = self.root.to_bytes(self.id.0);
        let at = logs.end(self.file);
        logs.append(self.file, &bytes)?;
        // An epoch has few entries.
        self.last = LogRange { at, bytes: bytes.len() as u32, crc: crc32c(&[&bytes]) };
        self.epochs += 1;
        logs.pad(self.file, FOOTER_BYTES)?;
        let at = logs.end(self.file);
        let footer = Footer { log: self.id.0, epochs: self.epochs, root: self.last, data_end, at };
        logs.append(self.file, &footer.to_bytes())
    }
}
