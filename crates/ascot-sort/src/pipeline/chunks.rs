//! The reader of a pipeline whose items are chunks of whole records.

use super::{Feed, ReadTimes};
use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::read::record_reader::{PlacedChunk, RecordReader};
use crate::records::RecordEnds;
use crate::resources::pieces::{Lease, PiecePool};

/// A chunk on its way to a worker.
pub struct ChunkWork {
    /// The chunk.
    pub placed: PlacedChunk,
    /// A second buffer, which the worker copies the records to; a long record needs none.
    pub out: Option<Lease>,
}

/// Hands everything that `reader` gives to the workers, each chunk with a second buffer where `buffers` are given.
pub fn read_chunks<R: RecordEnds + ?Sized, O>(
    mut reader: RecordReader<R>,
    buffers: Option<&PiecePool>,
    feed: &Feed<'_, ChunkWork, O>,
    cancel: &Cancel,
) -> Result<ReadTimes, SortError> {
    let seat = reader.seat();
    let starving = || {
        seat.give_back();
        feed.starved();
    };
    loop {
        cancel.check()?;
        let Some(placed) = reader.next(&starving)? else { break };
        let out = buffers.filter(|_| !placed.long).map(|buffers| buffers.take_for(&starving)).transpose()?;
        if !feed.hand_on(ChunkWork { placed, out }) {
            break;
        }
    }
    Ok(ReadTimes { device: reader.waited_device, memory: reader.waited_memory })
}
