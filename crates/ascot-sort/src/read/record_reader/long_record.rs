//! Long records: those that fit neither a buffer nor the space for the carry. One grows in memory of its own until its
//! end has been read, and is then a chunk of its own.

use ascot_io::PoolError;
use ascot_record::framing::Partial;

use super::{Fill, LongRecord, Patience, PlacedChunk, RecordCutter, RecordReader, carry_bytes};
use crate::api::Result;
use crate::read::inputs::{InputPosition, Span};
use crate::records::{InputStart, RawChunk, RecordEnds};
use crate::resources::{Long, Starving};

impl<R: RecordEnds + ?Sized> RecordCutter<R> {
    /// Starts a long record in `memory` with `bytes`, after which `read` more have been read.
    pub fn start_long(
        &mut self,
        memory: Long,
        bytes: &[u8],
        read: usize,
        patience: Patience<'_>,
    ) -> Result<()> {
        let start = self.start_of(bytes.len() + read);
        self.long = Some(LongRecord { memory, start, partial: Partial::default() });
        self.lengthen(bytes, patience)?;
        Ok(())
    }

    /// Appends to the long record the part of `bytes` that belongs to it; returns where it ends, if it ends there.
    pub fn lengthen(&mut self, bytes: &[u8], patience: Patience<'_>) -> Result<Option<usize>> {
        let Some(long) = &mut self.long else { return Ok(None) };
        let end = self.records.go_on(bytes, &mut long.partial);
        self.append(&bytes[..end.unwrap_or(bytes.len())], end.is_some(), patience)?;
        Ok(end)
    }

    /// Appends `bytes` to the memory of the long record, whose end has been read if it is `whole`.
    pub fn append(&mut self, bytes: &[u8], whole: bool, patience: Patience<'_>) -> Result<()> {
        let Some(long) = &mut self.long else { return Ok(()) };
        let grown = long.memory.append(bytes, patience.held, patience.starving);
        if matches!(grown, Ok(()) | Err(PoolError::Refused { .. })) {
            return Ok(grown?);
        }
        let start = long.start.clone();
        let partial = long.partial;
        let file = self.file().filter(|_| !whole);
        Err(start.too_long(&*self.records, file, partial, self.memory_per_length, &self.cancel))
    }

    /// Completes the long record at the end of its input; returns the number of bytes added.
    pub fn complete_long(&mut self, patience: Patience<'_>) -> Result<usize> {
        let Some(LongRecord { start, partial, .. }) = &self.long else { return Ok(0) };
        let added = self.completion(partial.last()).unwrap_or_default();
        if self.records.go_on(&added, &mut partial.clone()).is_none() {
            return Err(start.clone().cut_short(partial));
        }
        self.lengthen(&added, patience)?;
        Ok(added.len())
    }
}

impl<R: RecordEnds + ?Sized> RecordReader<R> {
    /// Starts a long record with the carry, after which `read` more bytes have been read.
    pub(super) fn start_long(&mut self, read: usize, starving: Starving<'_>) -> Result<()> {
        let carry = std::mem::take(&mut self.cutter.carry);
        let patience = self.patience(starving);
        self.cutter.start_long(self.chunks.long()?, &carry, read, patience)
    }

    fn patience<'a>(&self, starving: Starving<'a>) -> Patience<'a> {
        let ahead = self.open.as_ref().map_or(0, |open| open.ahead.len());
        Patience { held: (ahead + 1) * self.chunks.chunk_bytes(), starving }
    }

    /// Continues the long record; returns it as a chunk once it is whole.
    pub(super) fn lengthen(&mut self, mut fill: Fill, starving: Starving<'_>) -> Result<Option<PlacedChunk>> {
        let patience = self.patience(starving);
        let mut end = self.cutter.lengthen(&fill.lease.bytes()[fill.bytes.clone()], patience)?;
        let mut added = 0;
        if end.is_none() && fill.ends {
            added = self.cutter.complete_long(patience)?;
            end = Some(fill.bytes.len());
        }
        let Some(end) = end else { return Ok(None) };
        let Some(long) = self.cutter.long.take() else { return Ok(None) };
        fill.skip(end);
        let before = self.cutter.at;
        let left = fill.bytes.len() as u64;
        self.cutter.at.record += 1;
        if left > 0 {
            self.after_long = Some(fill);
        } else if fill.ends {
            self.next_input();
        }
        let LongRecord { memory, start, .. } = long;
        let bytes = 0..memory.bytes();
        let spans = self.span_of_long(before.input, start.offset, bytes.len(), added).into_iter().collect();
        let spilled = self.cutter.spilled;
        let chunk = RawChunk { lease: memory.into_lease(), bytes, spilled, grouping: None };
        self.cutter.check_keys(chunk.record_bytes(), || start)?;
        Ok(Some(PlacedChunk {
            chunk,
            end: InputPosition { offset: self.cutter.at.offset - left, ..self.cutter.at },
            records: 1,
            added,
            starts: vec![InputStart { at: 0, input: before.input, before: before.record }],
            input: before.input,
            ends_input: self.cutter.at.input > before.input,
            spans,
            long: true,
        }))
    }

    /// The byte range of a long record, if it can be read again into a buffer of the common size.
    fn span_of_long(&self, input: usize, offset: u64, bytes: usize, added: usize) -> Option<Span> {
        let again = self.cutter.is_read_again(input);
        let fits = bytes + carry_bytes(self.chunks.chunk_bytes(), None) <= self.chunks.chunk_bytes();
        let len = (bytes - added) as u64;
        (again && fits).then_some(Span { input, offset, len, unfinished: added > 0 })
    }
}
