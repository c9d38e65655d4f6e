//! The file of a view with the index and the keys of each of its runs (docs/formats/view.md).
//!
//! ```text
//!   view.index   | index 1 | keys 1 | index 2 | keys 2 | ...       in the order in which runs are completed
//! ```
//!
//! A file beside each run would cost a switch when it is written and one when it is read. This one is written in long
//! pieces, and the manifest of the view says where each run's bytes are. It is not read before the view is complete: a
//! resumed job writes it anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Buf, Disk, IoError, PAGE_BYTES, RunIndex, RunReader, WriteStream};

use crate::api::{Cancel, Result};
use crate::records::Records;
use crate::runs::fence_keys::KeysWriter;
use crate::runs::run_file::{IndexPlace, KeptIndex, KeysOfRun, Run};

/// Its name in a view.
pub const VIEW_INDEX: &str = "view.index";
/// Bytes that wait in memory to be written at once.
const PENDING_BYTES: usize = 256 << 10;

/// Writes the file.
pub struct ViewIndex {
    disk: Disk,
    path: PathBuf,
    stream: Option<Box<dyn WriteStream>>,
    /// Bytes not yet handed to the stream.
    pending: Vec<u8>,
    /// Bytes handed to it.
    written: u64,
}

impl ViewIndex {
    /// The index of the view that the directory `dir` will be. The file is created once there is something to write.
    pub fn new(disk: &Disk, dir: &Path) -> Self {
        let path = dir.join(VIEW_INDEX);
        ViewIndex { disk: disk.clone(), path, stream: None, pending: Vec::new(), written: 0 }
    }

    /// Adds the index and the keys of a run.
    pub fn add(&mut self, index: &[u8], keys: &[u8]) -> Result<KeptIndex, IoError> {
        let offset = self.written + self.pending.len() as u64;
        let place = IndexPlace { offset, index_bytes: index.len() as u64, keys_bytes: keys.len() as u64 };
        self.pending.extend_from_slice(index);
        self.pending.extend_from_slice(keys);
        if self.pending.len() >= PENDING_BYTES {
            // Whole pages: the file goes on after them.
            self.write(self.pending.len() / PAGE_BYTES * PAGE_BYTES)?;
        }
        let index_crc = crc32fast::hash(index);
        Ok(KeptIndex { place, index_crc, keys_crc: crc32fast::hash(keys) })
    }

    /// Adds a complete run, whose keys are read from its blocks if memory does not hold them.
    pub fn add_run<R: Records>(&mut self, records: &R, run: &mut Run, cancel: &Cancel) -> Result<KeptIndex> {
        let index = run.index(&self.disk)?;
        let kept = match std::mem::take(&mut run.keys) {
            KeysOfRun::Kept(kept) => kept,
            KeysOfRun::InMemory(keys) => self.add(&index.to_bytes(), &keys)?,
            KeysOfRun::Nowhere => {
                let keys = read_keys(records, &self.disk, run, &index, cancel)?;
                self.add(&index.to_bytes(), &keys)?
            }
        };
        run.keys = KeysOfRun::Kept(kept);
        Ok(kept)
    }

    fn write(&mut self, len: usize) -> Result<(), IoError> {
        if len == 0 {
            return Ok(());
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            empty => {
                if self.path.symlink_metadata().is_ok() {
                    // Of a job that was killed.
                    self.disk.remove_file(&self.path)?;
                }
                empty.insert(self.disk.create_small(&self.path, "view")?)
            }
        };
        let mut buf = Buf::heap(len.next_multiple_of(PAGE_BYTES));
        buf[..len].copy_from_slice(&self.pending[..len]);
        stream.begin(buf, len)?;
        self.pending.drain(..len);
        self.written += len as u64;
        Ok(())
    }

    /// Makes the file durable and complete.
    pub fn finish(mut self) -> Result<(), IoError> {
        self.write(self.pending.len())?;
        let Some(mut stream) = self.stream else { return Ok(()) };
        stream.sync()?;
        stream.finish().map(|_| ())
    }
}

/// The keys of a complete run, from its blocks.
pub fn read_keys<R: Records>(
    records: &R,
    disk: &Disk,
    run: &Run,
    index: &Arc<RunIndex>,
    cancel: &Cancel,
) -> Result<Vec<u8>> {
    let mut reader = RunReader::open(disk, &run.path, Arc::clone(index), 0)?;
    let mut keys = KeysWriter::new(records);
    for (number, block) in index.blocks.iter().enumerate() {
        cancel.check()?;
        reader.begin(Buf::heap(index.buffer_bytes()))?;
        let filled = reader.complete()?;
        let bytes = filled.bytes();
        let next = index.blocks.get(number + 1);
        let (first, count) = if block.first_record == 0 {
            (records.cut(bytes, 1).bytes, records.cut(bytes, usize::MAX).records as u64)
        } else {
            // A part of a long record, which ends before the block in which the next one begins.
            (0, u64::from(next.is_none_or(|next| next.first_record == 0)))
        };
        keys.note(records, &bytes[..first], count, bytes.len() as u64);
    }
    Ok(keys.to_bytes(run.number))
}
