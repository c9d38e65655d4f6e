//! The chunks that a node has sorted, as one sequence that is merged when it is read.
//!
//! ```text
//!   chunk-00004  p0 | p1 | p2      ╲
//!   chunk-00005  p0 | p1 | p2       ▶ merged:  p0 p0 p0 | p1 p1 p1 | p2 p2 p2      a partition is a range of bytes
//!   chunk-00006  p0 | p1 | p2      ╱
//! ```
//!
//! The chunks follow one another in the inputs. So equal keys of the sequence are in the order of the inputs, and
//! several sequences, merged in the order of their chunks, are the result of a sort on one machine.
//!
//! Bytes are asked for by partition and offset, again if need be. A reader that goes on where its last request ended
//! gets them from a stream that merges ahead. Streams have equal shares of the memory; if too many partitions are read
//! at once, the one that was used least recently gives its share up, and begins anew when its reader comes back.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ascot_io::{IoError, Unpoisoned};

use super::spill_chunk::partition_sizes;
use crate::api::{Result, SortError};
use crate::view::{OpenView, Reading, Stream, View, join_views};

/// Memory of a stream, bytes, if the share of its reader is less.
const STREAM_BYTES_MIN: usize = 4 << 20;

/// Consecutive chunks of one node.
pub struct SpilledChunks {
    view: Arc<dyn View>,
    /// The first byte of each partition, and the end of the last.
    starts: Vec<u64>,
    stream_bytes: usize,
    /// Streams that may go on, each with the offset of its next byte; the one used last is the last.
    streams: Mutex<VecDeque<(u64, Stream)>>,
}

impl SpilledChunks {
    /// Opens chunks, each with its check, in the order of the inputs. All reading takes at most `memory_bytes`, and is
    /// meant for `readers` at a time.
    ///
    /// # Errors
    /// [`IoError::Corrupt`] if a chunk is not the one that was written; those of opening a view.
    pub fn open(chunks: &[(PathBuf, u32)], memory_bytes: u64, readers: usize) -> Result<SpilledChunks> {
        let mut sizes: Vec<u64> = Vec::new();
        for (dir, check) in chunks {
            let own = partition_sizes(dir, *check)?;
            sizes.resize(own.len(), 0);
            sizes.iter_mut().zip(own).for_each(|(size, own)| *size += own);
        }
        let views: Vec<PathBuf> = chunks.iter().map(|(dir, _)| dir.clone()).collect();
        let first = views.first().ok_or(SortError::Internal("no chunks to open"))?;
        let manifest = join_views(&views, first)?;
        let opening = OpenView { memory_bytes: Some(memory_bytes), threads: Some(1), ..OpenView::default() };
        let view = opening.open_manifest(manifest, first)?;
        let mut starts = vec![0];
        starts.extend(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }));
        if starts.last() != Some(&view.bytes()) {
            let path = first.clone();
            let what = "the partitions of these chunks do not add up to them";
            return Err(IoError::Corrupt { path, offset: 0, block: 0, what }.into());
        }
        let stream_bytes = (view.pool().available() / readers.max(1)).max(STREAM_BYTES_MIN);
        Ok(SpilledChunks { view, starts, stream_bytes, streams: Mutex::default() })
    }

    /// Bytes of a partition in these chunks.
    pub fn bytes_of(&self, partition: u32) -> u64 {
        let bound = |at: usize| self.starts.get(at).copied().unwrap_or(self.view.bytes());
        bound(partition as usize + 1) - bound(partition as usize)
    }

    /// At most `len` bytes of a partition from `offset` on; fewer only at its end.
    ///
    /// # Errors
    /// Those of reading a view; the error names the file in the directory of the chunk.
    pub fn read(&self, partition: u32, offset: u64, len: usize) -> Result<Vec<u8>> {
        let left = usize::try_from(self.bytes_of(partition).saturating_sub(offset)).unwrap_or(len);
        let mut bytes = vec![0; len.min(left)];
        self.read_into(partition, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a partition from `offset` on, as many as fit. Returns how many: fewer only at its end.
    ///
    /// # Errors
    /// Those of reading a view; the error names the file in the directory of the chunk.
    pub fn read_into(&self, partition: u32, offset: u64, out: &mut [u8]) -> Result<usize> {
        let size = self.bytes_of(partition);
        let start = self.starts.get(partition as usize).copied().unwrap_or(self.view.bytes());
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = out.len().min(left);
        let out = &mut out[..count];
        if out.is_empty() {
            return Ok(0);
        }
        let from = start + offset;
        let to = start + size;
        let mut stream = match self.waiting_at(from) {
            Some(stream) => stream,
            None => self.stream(from, to)?,
        };
        if stream.read(out)? < count {
            return Err(SortError::Internal("a view ended before its last record"));
        }
        let next = from + count as u64;
        if next < to {
            self.streams.lock().unpoisoned().push_back((next, stream));
        }
        Ok(count)
    }

    fn waiting_at(&self, offset: u64) -> Option<Stream> {
        let mut streams = self.streams.lock().unpoisoned();
        let at = streams.iter().position(|(next, _)| *next == offset)?;
        streams.remove(at).map(|(_, stream)| stream)
    }

    /// A new stream, for which others give their memory up if there is too little.
    fn stream(&self, from: u64, to: u64) -> Result<Stream> {
        loop {
            let available = self.view.pool().available();
            let oldest = || self.streams.lock().unpoisoned().pop_front();
            if available < self.stream_bytes && oldest().is_some() {
                continue;
            }
            let reading = Reading { memory: self.stream_bytes.min(available), ..Reading::default() };
            match self.view.stream(from, to, reading) {
                Err(error) if error.is_out_of_memory() && oldest().is_some() => {}
                // More runs than the share of a reader merges.
                Err(SortError::TooLittleMemory { .. }) if self.stream_bytes < available => {
                    let reading = Reading { memory: available, ..Reading::default() };
                    return self.view.stream(from, to, reading);
                }
                result => return result,
            }
        }
    }
}
