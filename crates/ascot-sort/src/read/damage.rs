//! Errors for damaged records: cut short, shorter than their key, or longer than memory.

use ascot_record::framing::Partial;

use crate::api::{Cancel, Missing, Result, SortError};
use crate::read::inputs::InputFile;
use crate::records::{Keyless, RecordEnds};

/// The start of a record.
#[derive(Clone, Debug)]
pub struct RecordStart {
    /// Its input's name.
    pub input: String,
    /// Its number, from 1.
    pub record: u64,
    /// Its offset, bytes.
    pub offset: u64,
}

impl RecordStart {
    /// Error for a last record that is cut short after `partial`.
    pub fn cut_short(self, partial: &Partial) -> SortError {
        let RecordStart { input, record, offset } = self;
        SortError::CutShort {
            input,
            record,
            offset,
            have: partial.seen,
            missing: Missing::from_partial(partial),
        }
    }

    /// The same for a record cut short after `bytes`.
    pub fn cut_short_at<R: RecordEnds + ?Sized>(self, records: &R, bytes: &[u8]) -> SortError {
        let mut partial = Partial::default();
        records.go_on(bytes, &mut partial);
        self.cut_short(&partial)
    }

    /// Error for a record shorter than its key; this is the start of the first of the records that were checked.
    pub fn keyless(self, keyless: Keyless) -> SortError {
        SortError::KeyBeyond {
            input: self.input,
            record: self.record + keyless.before as u64,
            offset: self.offset + keyless.offset as u64,
            have: keyless.have as u64,
            needed: keyless.needed as u64,
        }
    }

    /// Error for a record too long for memory, which would need `times` its length. If its end has not been seen,
    /// it is searched in the rest of the `file`, provided that it can be read again.
    pub fn too_long<R: RecordEnds + ?Sized>(
        self,
        records: &R,
        file: Option<&InputFile>,
        mut partial: Partial,
        times: u64,
        cancel: &Cancel,
    ) -> SortError {
        let mut whole = file.is_none();
        if let Some(file) = file.filter(|file| file.path().is_some()) {
            match find_end(records, file, self.offset, &mut partial, cancel) {
                Ok(true) => whole = true,
                Ok(false) => return self.cut_short(&partial),
                Err(error) => return error,
            }
        }
        let have = partial.seen.max(partial.whole.unwrap_or(0));
        let min_bytes = have.saturating_mul(times).saturating_add(SLACK_BYTES);
        let RecordStart { input, offset, .. } = self;
        SortError::TooLong { input, offset, have, whole, min_bytes }
    }
}

/// Memory needed beside the copies of a long record, which hardly grows with it.
const SLACK_BYTES: u64 = 4 << 20;

/// Bytes read at a time while searching.
const LOOK_BYTES: usize = 256 << 10;

/// Searches the end of the record that starts at `offset` of a file and has been read up to `partial`.
/// False if it has none.
fn find_end<R: RecordEnds + ?Sized>(
    records: &R,
    file: &InputFile,
    offset: u64,
    partial: &mut Partial,
    cancel: &Cancel,
) -> Result<bool> {
    loop {
        cancel.check()?;
        let part = file.sample(offset + partial.seen, LOOK_BYTES)?;
        if part.is_empty() {
            let Some(byte) = records.completion() else { return Ok(false) };
            let mut completed = *partial;
            return Ok(records.go_on(&[byte], &mut completed).is_some());
        }
        if records.go_on(&part, partial).is_some() {
            return Ok(true);
        }
    }
}
