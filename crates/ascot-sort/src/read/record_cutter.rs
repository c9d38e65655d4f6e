//! The record cutter: the one place where bytes of an input become whole records.
//!
//! ```text
//!   bytes read:   [ record | record | record | cut rec ]
//!                   cut off: the whole records    the rest: the carry, which goes before the next bytes read
//!                                                 or, if it is too long for that, the start of a long record
//! ```
//!
//! It reads nothing itself: [`RecordReader`](super::RecordReader) and the inputs of a merge give it the bytes that they
//! read, in order. A long record grows in memory of its own until its end has been read.
//!
//! Invariant: `at` is the position after the bytes read, and counts the records cut off, so that every error names the
//! record and its offset.

use std::sync::Arc;

use ascot_io::{Disk, PoolError, ReadStream};
use ascot_record::framing::Partial;

use crate::api::{Cancel, SortError};
use crate::read::damage::RecordStart;
use crate::read::inputs::{InputFile, InputPosition, Inputs};
use crate::records::{Cut, RecordEnds};
use crate::resources::{Long, Starving};

/// Memory that is enough to sort a record, in lengths of it: a merge holds two runs with such a record, and a
/// partitioned write reserves half of the memory.
const MEMORY_PER_LENGTH: u64 = 4;

/// Cuts the bytes of inputs, one input after another.
pub struct RecordCutter<R: ?Sized> {
    /// Finds the ends of records.
    pub records: Arc<R>,
    /// The inputs.
    pub inputs: Inputs,
    /// The input being cut, the offset after the bytes read of it, and the number of its records cut off.
    pub at: InputPosition,
    /// The cut record at the end of the last bytes.
    pub carry: Vec<u8>,
    /// A record longer than the space for the carry, as read so far.
    pub long: Option<LongRecord>,
    /// Memory that a long record needs in total, in lengths of it.
    pub memory_per_length: u64,
    /// The inputs are spills: their records were checked when they were first read.
    pub spilled: bool,
    cancel: Cancel,
}

/// A long record, as read so far.
pub struct LongRecord {
    /// Its bytes.
    pub memory: Long,
    /// Where it starts.
    pub start: RecordStart,
    partial: Partial,
}

/// How the memory of a long record may be waited for.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Bytes of buffers that the caller keeps while it waits for others.
    pub held: usize,
    /// Called before a wait.
    pub starving: Starving<'a>,
}

impl Patience<'static> {
    /// For records whose caller alone could return memory: they never wait.
    pub const NONE: Patience<'static> = Patience { held: usize::MAX, starving: &|| () };
}

impl<R: RecordEnds + ?Sized> RecordCutter<R> {
    /// Cuts `inputs` from `at` on.
    pub fn new(records: &Arc<R>, inputs: Inputs, at: InputPosition, cancel: &Cancel) -> Self {
        RecordCutter {
            records: Arc::clone(records),
            inputs,
            at,
            carry: Vec::new(),
            long: None,
            memory_per_length: MEMORY_PER_LENGTH,
            spilled: false,
            cancel: cancel.clone(),
        }
    }

    /// The input being cut.
    pub fn file(&self) -> Option<&InputFile> {
        self.inputs.get(self.at.input)
    }

    /// Opens the input at the next byte to be read; none after the last input.
    pub fn open(&mut self, disk: &Disk) -> Result<Option<Box<dyn ReadStream>>, SortError> {
        let Some(file) = self.file() else { return Ok(None) };
        let offset = self.at.offset.max(file.start);
        let stream = file.open(disk, offset)?;
        self.at.offset = offset;
        Ok(Some(stream))
    }

    /// The start of the record that begins `held` bytes before the end of the bytes read.
    pub fn start_of(&self, held: usize) -> RecordStart {
        RecordStart {
            input: self.file().map_or_else(String::new, InputFile::name),
            record: self.at.record + 1,
            offset: self.at.offset.saturating_sub(held as u64),
        }
    }

    /// Cuts the whole records off `bytes`, the last `held` bytes read of the input and what completes them.
    pub fn cut(&mut self, bytes: &[u8], held: usize) -> Result<Cut, SortError> {
        let cut = self.records.cut(bytes, usize::MAX);
        self.check_keys(&bytes[..cut.bytes], || self.start_of(held))?;
        self.at.record += cut.records as u64;
        Ok(cut)
    }

    /// An error if one of the whole records that begin at `start` is shorter than its key.
    pub fn check_keys(&self, bytes: &[u8], start: impl FnOnce() -> RecordStart) -> Result<(), SortError> {
        let keyless = if self.spilled { None } else { self.records.keyless(bytes) };
        match keyless {
            Some(keyless) => Err(start().keyless(keyless)),
            None => Ok(()),
        }
    }

    /// Puts the carry before position `end` of `bytes`; returns where it starts. None if there is too little space.
    pub fn put_carry(&mut self, bytes: &mut [u8], end: usize) -> Option<usize> {
        let start = end.checked_sub(self.carry.len())?;
        bytes[start..end].copy_from_slice(&std::mem::take(&mut self.carry));
        Some(start)
    }

    /// The bytes that complete the last record of the input, whose last byte is `last`.
    fn completion(&self, last: Option<u8>) -> Option<Vec<u8>> {
        self.file()?.completion(self.records.completion(), last)
    }

    /// Completes the last record of the input, `bytes[start..end]`; returns the number of bytes added.
    pub fn complete(&self, bytes: &mut [u8], start: usize, end: usize) -> Result<usize, SortError> {
        let added = self.completion(bytes[start..end].last().copied()).unwrap_or_default();
        let completed = start..end + added.len();
        bytes[end..completed.end].copy_from_slice(&added);
        let cut = self.records.cut(&bytes[completed.clone()], usize::MAX);
        if added.is_empty() || cut.bytes < completed.len() {
            return Err(self.start_of(end - start).cut_short_at(&*self.records, &bytes[start..end]));
        }
        Ok(added.len())
    }

    /// Starts a long record in `memory` with `bytes`, after which `read` more have been read.
    pub fn start_long(
        &mut self,
        memory: Long,
        bytes: &[u8],
        read: usize,
        patience: Patience<'_>,
    ) -> Result<(), SortError> {
        let start = self.start_of(bytes.len() + read);
        self.long = Some(LongRecord { memory, start, partial: Partial::default() });
        self.lengthen(bytes, patience)?;
        Ok(())
    }

    /// Appends to the long record the part of `bytes` that belongs to it; returns where it ends, if it ends there.
    pub fn lengthen(&mut self, bytes: &[u8], patience: Patience<'_>) -> Result<Option<usize>, SortError> {
        let Some(long) = &mut self.long else { return Ok(None) };
        let end = self.records.go_on(bytes, &mut long.partial);
        self.append(&bytes[..end.unwrap_or(bytes.len())], end.is_some(), patience)?;
        Ok(end)
    }

    /// Appends `bytes` to the memory of the long record, whose end has been read if it is `whole`.
    pub fn append(&mut self, bytes: &[u8], whole: bool, patience: Patience<'_>) -> Result<(), SortError> {
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
    pub fn complete_long(&mut self, patience: Patience<'_>) -> Result<usize, SortError> {
        let Some(LongRecord { start, partial, .. }) = &self.long else { return Ok(0) };
        let added = self.completion(partial.last()).unwrap_or_default();
        if self.records.go_on(&added, &mut partial.clone()).is_none() {
            return Err(start.clone().cut_short(partial));
        }
        self.lengthen(&added, patience)?;
        Ok(added.len())
    }

    /// Moves on to the next input.
    pub fn next_input(&mut self) {
        self.at = InputPosition { input: self.at.input + 1, ..InputPosition::default() };
    }
}

#[cfg(test)]
mod tests {
    use ascot_io::Pool;
    use ascot_record::framing::{Framing, LineFraming};

    use super::*;
    use crate::api::Input;
    use crate::records::Keyless;
    use crate::resources::ChunkPool;

    /// Lines; an empty one is shorter than its key.
    struct Lines;

    impl RecordEnds for Lines {
        fn record_bytes(&self) -> Option<usize> {
            None
        }

        fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
            LineFraming(b'\n').cut(bytes, max_records)
        }

        fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
            LineFraming(b'\n').go_on(part, partial)
        }

        fn completion(&self) -> Option<u8> {
            Some(b'\n')
        }

        fn keyless(&self, bytes: &[u8]) -> Option<Keyless> {
            let mut offset = 0;
            for (before, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
                if line.len() == 1 {
                    return Some(Keyless { before, offset, have: 0, needed: 1 });
                }
                offset += line.len();
            }
            None
        }
    }

    fn cutter(file: &tempfile::NamedTempFile) -> RecordCutter<Lines> {
        let inputs = Inputs::open(&[Input::Path(file.path().into())]).unwrap();
        RecordCutter::new(&Arc::new(Lines), inputs, InputPosition::default(), &Cancel::new())
    }

    #[test]
    fn an_error_after_a_carry_names_its_record_and_offset() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut cutter = cutter(&file);
        cutter.at.offset = 8;
        assert_eq!(cutter.cut(b"ab\ncd\nef", 8).unwrap(), Cut { records: 2, bytes: 6 });
        cutter.carry = b"ef".to_vec();
        let mut bytes = *b"....g\n\nhi\n";
        cutter.at.offset += 6;
        assert_eq!(cutter.put_carry(&mut bytes, 4), Some(2));
        assert_eq!(&bytes[2..], b"efg\n\nhi\n");
        match cutter.cut(&bytes[2..], 8) {
            Err(SortError::KeyBeyond { record, offset, .. }) => assert_eq!((record, offset), (4, 10)),
            other => panic!("{other:?}"),
        }
        cutter.carry = b"too long".to_vec();
        assert_eq!(cutter.put_carry(&mut bytes, 4), None);
        assert_eq!(cutter.carry, b"too long", "it starts a long record instead");
    }

    #[test]
    fn a_long_record_ends_in_later_bytes_or_with_its_input() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut cutter = cutter(&file);
        let pool = Pool::new(1 << 20);
        let chunks = ChunkPool::new(&pool, 4096, 0, pool.budget());
        cutter.start_long(chunks.long().unwrap(), b"abc", 0, Patience::NONE).unwrap();
        assert_eq!(cutter.lengthen(b"de", Patience::NONE).unwrap(), None);
        assert_eq!(cutter.lengthen(b"f\ngh", Patience::NONE).unwrap(), Some(2));
        assert_eq!(cutter.long.take().unwrap().memory.bytes(), 7);
        cutter.start_long(chunks.long().unwrap(), b"gh", 0, Patience::NONE).unwrap();
        assert_eq!(cutter.complete_long(Patience::NONE).unwrap(), 1);
        assert_eq!(&cutter.long.take().unwrap().memory.into_lease().bytes()[..3], b"gh\n");
        cutter.start_long(chunks.long().unwrap(), b"x", 0, Patience::NONE).unwrap();
        let refused = cutter.lengthen(&[b'y'; 2 << 20], Patience::NONE);
        assert!(
            matches!(refused, Err(SortError::CutShort { .. } | SortError::TooLong { .. })),
            "{refused:?}"
        );
    }
}
