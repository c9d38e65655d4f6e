//! Spilling one sorted sequence: as a run, or as several where volumes fill up.
//!
//! ```text
//!   place 0   |== run 7 ==|      no room for the next chunk
//!   place 1               |==== run 8 ====|
//! ```
//!
//! The runs stand one behind the other wherever runs are listed, so equal records keep their order.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{Compression, Disk};

use crate::api::error::SortError;
use crate::records::Records;
use crate::records::emitter::Chunk;
use crate::runs::run::Run;
use crate::runs::run_file::RunSink;
use crate::runs::run_file::{decode_index, encode_index};
use crate::runs::spill_dirs::Places;
use crate::runs::store::{OpenPart, OpenSpill};

/// A sorted sequence being spilled.
pub struct Spill<R> {
    records: Arc<R>,
    disk: Disk,
    places: Places,
    /// Numbers for its runs, one for each place.
    numbers: Range<u64>,
    compression: Compression,
    /// Bytes it is expected to come to.
    expected: u64,
    sink: RunSink<R>,
    place: usize,
    /// Places found full.
    full: Vec<usize>,
    /// Runs that had to end early.
    done: Vec<Run>,
}

impl<R: Records> Spill<R> {
    /// Starts a spill of about `expected` bytes.
    pub fn create(
        records: &Arc<R>,
        disk: &Disk,
        places: Places,
        mut numbers: Range<u64>,
        compression: Compression,
        expected: u64,
    ) -> Result<Self, SortError> {
        let place = places.choose(expected, &[]).ok_or_else(|| places.no_room(expected))?;
        let number = next_number(&mut numbers)?;
        let path = places.path(place, number);
        let sink = RunSink::create(records, disk, path, number, compression)?;
        let (records, disk) = (Arc::clone(records), disk.clone());
        let (full, done) = (Vec::new(), Vec::new());
        Ok(Spill { records, disk, places, numbers, compression, expected, sink, place, full, done })
    }

    /// Goes on with a spill that was checkpointed.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        places: Places,
        numbers: Range<u64>,
        compression: Compression,
        state: OpenSpill,
    ) -> Result<Self, SortError> {
        let OpenSpill { done, open, expected } = state;
        let place = places.of(&open.run.path);
        let sink = RunSink::resume(records, disk, open.run, decode_index(&open.index)?)?;
        let (records, disk) = (Arc::clone(records), disk.clone());
        let full = Vec::new();
        Ok(Spill { records, disk, places, numbers, compression, expected, sink, place, full, done })
    }

    /// Makes what has been written durable, and tells how to go on from there.
    pub fn checkpoint(&mut self) -> Result<OpenSpill, SortError> {
        let (run, index) = self.sink.checkpoint()?;
        let open = OpenPart { run, index: encode_index(&index) };
        Ok(OpenSpill { done: self.done.clone(), open, expected: self.expected })
    }

    /// Bytes of records so far.
    pub fn bytes(&self) -> u64 {
        self.done.iter().map(|run| run.bytes).sum::<u64>() + self.sink.bytes()
    }

    /// The file being written.
    pub fn path(&self) -> &Path {
        self.sink.path()
    }

    /// Has the run entered from anywhere later on, as the runs of a view are.
    pub fn keep_keys(&mut self) {
        self.sink.keep_keys();
    }

    /// Appends merged records.
    pub fn write(&mut self, chunk: Chunk) -> Result<(), SortError> {
        if let Err(error) = self.sink.make_room(chunk.len) {
            // Where a record goes on no other run can start.
            let elsewhere = error.is_disk_full() && chunk.first_record == 0;
            if !elsewhere {
                return Err(error.into());
            }
            self.go_on_elsewhere(chunk.len as u64)?;
        }
        Ok(self.sink.write(chunk)?)
    }

    /// Ends the run where its volume is full, and starts another where there is room.
    fn go_on_elsewhere(&mut self, bytes: u64) -> Result<(), SortError> {
        let rest = self.expected.saturating_sub(self.bytes()).max(bytes);
        self.full.push(self.place);
        loop {
            let Some(place) = self.places.choose(rest, &self.full) else {
                return Err(self.places.no_room(rest));
            };
            let number = next_number(&mut self.numbers)?;
            let path = self.places.path(place, number);
            let mut sink = RunSink::create(&self.records, &self.disk, path, number, self.compression)?;
            let fits = sink.make_room(bytes as usize);
            let ended = if fits.is_ok() { std::mem::replace(&mut self.sink, sink) } else { sink };
            if ended.bytes() > 0 {
                self.done.push(ended.finish()?);
            } else {
                ended.remove(&self.disk)?;
            }
            self.place = place;
            match fits {
                Ok(()) => return Ok(()),
                Err(other) if other.is_disk_full() => self.full.push(place),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Makes what has been spilled durable and complete.
    pub fn finish(mut self) -> Result<Vec<Run>, SortError> {
        self.done.push(self.sink.finish()?);
        Ok(self.done)
    }
}

fn next_number(numbers: &mut Range<u64>) -> Result<u64, SortError> {
    numbers.next().ok_or(SortError::Internal("a spill has more runs than places"))
}
