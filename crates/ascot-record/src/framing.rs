//! Finds records in bytes.
//!
//! ```text
//! lines     r e c o r d \n            record = body + delimiter
//! CSV       a , " b \n c " , d \r \n  record = body + \n or \r\n, quotes respected
//! fixed     r e c o r d               record = body
//! prefixed  len r e c o r d           record = length + body
//! keyed     len klen k e y r e s t    record = length + key length + body + rest
//! ```
//!
//! A *record* is moved and written; keys are taken from its *body*. Records lie back to back. A framing never reads
//! before `start`, never allocates and never panics, whatever the bytes.

use memchr::{memchr, memchr_iter, memchr2, memrchr};

use crate::layout::Endian;

mod start_search;
#[cfg(test)]
mod tests;

pub use start_search::StartSearch;

/// The state of a record that is read part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// Bytes seen of it.
    pub seen: u64,
    /// Its length, if its beginning states it.
    pub whole: Option<u64>,
    /// Offset in it of an open quote.
    pub quote: Option<u64>,
    /// The last byte seen was a quote in a quoted field: it closes the field, unless doubled.
    closing: bool,
    last: Option<u8>,
    /// Number formed by the bytes of its length so far.
    length: u64,
}

impl Partial {
    /// The last byte seen.
    pub fn last(&self) -> Option<u8> {
        self.last
    }

    /// Counts `part` as seen, up to the `end` of the record if that is in it.
    fn saw(&mut self, part: &[u8], end: Option<usize>) -> Option<usize> {
        self.seen += end.unwrap_or(part.len()) as u64;
        self.last = part.last().copied().or(self.last);
        end
    }

    /// Like [`saw`](Self::saw), for a record of known length.
    fn saw_of_whole(&mut self, part: &[u8]) -> Option<usize> {
        let left = self.whole?.checked_sub(self.seen).and_then(|left| usize::try_from(left).ok());
        let end = left.filter(|&left| left <= part.len());
        self.saw(part, end)
    }
}

/// Separates records in bytes.
pub trait Framing: Copy + Send + Sync {
    /// End (exclusive, terminator included) of the record that starts at `start`; `None` if the
    /// bytes end first.
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize>;

    /// A record without its terminator or length: the bytes that keys are taken from.
    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record
    }

    /// Whether records state the length of their body, which may then be wrong.
    fn states_body(&self) -> bool {
        false
    }

    /// The length of the body that a record states, bytes; more than the body has if it extends beyond the record.
    fn stated_body(&self, record: &[u8]) -> usize {
        self.body(record).len()
    }

    /// The byte that completes a last record without its terminator. `None`: such a record is truncated. A CSV row
    /// may still be incomplete after it, if a quote was left open.
    fn completes(&self) -> Option<u8> {
        None
    }

    /// Whether [`Framing::end`] finds the end of a record from any byte of it, and not only from its start.
    fn ends_from_anywhere(&self) -> bool {
        false
    }

    /// A search for the start of a record in bytes from the middle of a file; none if [`Framing::end`] finds one, or if
    /// nothing but the bytes before shows where records start.
    fn start_search(&self) -> Option<StartSearch> {
        None
    }

    /// Bytes of every record, if all have the same length.
    fn fixed_len(&self) -> Option<usize> {
        None
    }

    /// Searches the next part of a record for its end; returns the end's position in the part.
    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize>;

    /// Cuts off at most `max_records` whole records.
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        if let Some(len) = self.fixed_len() {
            let records = (bytes.len() / len).min(max_records);
            return Cut { records, bytes: records * len };
        }
        let mut cut = Cut::default();
        while cut.records < max_records {
            let Some(end) = self.end(bytes, cut.bytes) else { break };
            cut = Cut { records: cut.records + 1, bytes: end };
        }
        cut
    }

    /// Writes the starts of records, relative to the first byte of `bytes`, until `starts` is full, no complete record
    /// is left, or a start would not fit 32 bits.
    fn frame(&self, bytes: &[u8], starts: &mut [u32]) -> Cut {
        let mut result = Cut::default();
        for slot in starts {
            let Ok(start) = u32::try_from(result.bytes) else { break };
            let Some(end) = self.end(bytes, result.bytes) else { break };
            *slot = start;
            result.records += 1;
            result.bytes = end;
        }
        result
    }
}

/// Whole records at the front of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Their number.
    pub records: usize,
    /// Their total length.
    pub bytes: usize,
}

/// Records of one length, at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedFraming(pub usize);

impl Framing for FixedFraming {
    #[inline]
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let end = start.checked_add(self.0)?;
        (end <= bytes.len() && self.0 > 0).then_some(end)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        partial.whole = Some(self.0 as u64);
        partial.saw_of_whole(part)
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(self.0)
    }
}

/// Records that end at a delimiter byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFraming(pub u8);

impl Framing for LineFraming {
    #[inline]
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        find(self.0, bytes.get(start..)?).map(|at| start + at + 1)
    }

    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match record {
            [body @ .., last] if *last == self.0 => body,
            _ => record,
        }
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        let end = memchr(self.0, part).map(|at| at + 1);
        partial.saw(part, end)
    }

    fn completes(&self) -> Option<u8> {
        Some(self.0)
    }

    fn ends_from_anywhere(&self) -> bool {
        true
    }

    /// One scan that counts costs less than one search per line.
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        if max_records < usize::MAX {
            let ends = memchr_iter(self.0, bytes).take(max_records);
            return ends.fold(Cut::default(), |cut, at| Cut { records: cut.records + 1, bytes: at + 1 });
        }
        let bytes_of_all = memrchr(self.0, bytes).map_or(0, |at| at + 1);
        Cut { records: memchr_iter(self.0, bytes).count(), bytes: bytes_of_all }
    }

    /// One scan over all bytes costs less than one search per line if lines are short.
    fn frame(&self, bytes: &[u8], starts: &mut [u32]) -> Cut {
        if bytes.len() <= FEW_BYTES
            && let Some(ends) = finder(self.0)
        {
            return frame_at(ends.iter(bytes), starts);
        }
        frame_at(memchr_iter(self.0, bytes), starts)
    }
}

/// Records that end after each of the given positions.
#[inline]
fn frame_at(ends: impl Iterator<Item = usize>, starts: &mut [u32]) -> Cut {
    let mut result = Cut::default();
    for (slot, at) in starts.iter_mut().zip(ends) {
        let Ok(start) = u32::try_from(result.bytes) else { break };
        *slot = start;
        result.records += 1;
        result.bytes = at + 1;
    }
    result
}

/// A byte search that every processor of this kind supports; `None` if it is no better than the choice of `memchr`.
#[cfg(target_arch = "x86_64")]
#[inline]
fn finder(byte: u8) -> Option<memchr::arch::x86_64::sse2::memchr::One> {
    memchr::arch::x86_64::sse2::memchr::One::new(byte)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn finder(_byte: u8) -> Option<memchr::arch::all::memchr::One> {
    None
}

/// The first position of `byte`. The ends of most records are near, and are found without a call. For ends farther
/// away, the widest vectors are used after a query of the processor's features; that query leaves a virtual machine,
/// and takes longer than many a small job.
#[inline]
fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    let Some(finder) = finder(byte) else { return memchr(byte, bytes) };
    let (near, far) = bytes.split_at(bytes.len().min(NEAR_BYTES));
    match finder.find(near) {
        None if !far.is_empty() => memchr(byte, far).map(|at| near.len() + at),
        found => found,
    }
}

/// The distance that counts as near.
const NEAR_BYTES: usize = 128;

/// Up to this size, a search takes less time than the query.
const FEW_BYTES: usize = 256 << 10;

/// Rows of RFC 4180. A quote opens a field only as the field's first byte; elsewhere it is content, and so is any
/// text between a closing quote and the next separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvFraming {
    /// The byte between fields.
    pub separator: u8,
    /// The byte around quoted fields.
    pub quote: u8,
}

impl CsvFraming {
    /// Position after the quote that closes a field whose content starts at `at`; a doubled quote is content.
    fn after_quoted(&self, bytes: &[u8], mut at: usize) -> Option<usize> {
        loop {
            at += memchr(self.quote, bytes.get(at..)?)? + 1;
            if bytes.get(at) != Some(&self.quote) {
                return Some(at);
            }
            at += 1;
        }
    }
}

impl Framing for CsvFraming {
    /// Only newlines and quotes are examined: a quote opens a field if a separator, or nothing, precedes it.
    #[inline]
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let mut at = start;
        loop {
            let found = at + memchr2(b'\n', self.quote, bytes.get(at..)?)?;
            if bytes.get(found) == Some(&b'\n') {
                return Some(found + 1);
            }
            let opens = found == start || bytes.get(found - 1) == Some(&self.separator);
            at = if opens { self.after_quoted(bytes, found + 1)? } else { found + 1 };
        }
    }

    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match record {
            [body @ .., b'\r', b'\n'] => body,
            [body @ .., b'\n'] => body,
            _ => record,
        }
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = part.get(at) {
            if std::mem::take(&mut partial.closing) {
                if byte == self.quote {
                    at += 1;
                    continue;
                }
                partial.quote = None;
            }
            let rest = &part[at..];
            if partial.quote.is_some() {
                let Some(found) = memchr(self.quote, rest) else { break };
                partial.closing = true;
                at += found + 1;
                continue;
            }
            let Some(found) = memchr2(b'\n', self.quote, rest).map(|found| at + found) else { break };
            if part[found] == b'\n' {
                return partial.saw(part, Some(found + 1));
            }
            let before = if found > 0 { part.get(found - 1).copied() } else { partial.last };
            if before.is_none_or(|byte| byte == self.separator) {
                partial.quote = Some(partial.seen + found as u64);
            }
            at = found + 1;
        }
        partial.saw(part, None)
    }

    fn completes(&self) -> Option<u8> {
        Some(b'\n')
    }

    fn start_search(&self) -> Option<StartSearch> {
        Some(StartSearch::new(*self))
    }
}

/// Records that follow their own length. If they are keyed, the body is the key alone; a key length that exceeds the
/// record counts as the rest of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixedFraming {
    /// Bytes of the length: 1, 2, 4 or 8.
    pub width: u8,
    /// Order of the bytes of the length.
    pub endian: Endian,
    /// The length of the key and the key come first.
    pub keyed: bool,
}

impl PrefixedFraming {
    /// The length at the front of `bytes`, and the bytes after it.
    #[inline]
    fn split_length<'a>(&self, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (digits, rest) = bytes.split_at_checked(usize::from(self.width))?;
        let len = match (<[u8; 4]>::try_from(digits), self.endian) {
            (Ok(digits), Endian::Little) => u64::from(u32::from_le_bytes(digits)),
            (Ok(digits), Endian::Big) => u64::from(u32::from_be_bytes(digits)),
            (Err(_), Endian::Little) => {
                digits.iter().rev().fold(0, |len, digit| (len << 8) | u64::from(*digit))
            }
            (Err(_), Endian::Big) => digits.iter().fold(0, |len, digit| (len << 8) | u64::from(*digit)),
        };
        Some((usize::try_from(len).ok()?, rest))
    }
}

impl Framing for PrefixedFraming {
    #[inline]
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let (len, rest) = self.split_length(bytes.get(start..)?)?;
        let end = (bytes.len() - rest.len()).checked_add(len)?;
        (end <= bytes.len() && end > start).then_some(end)
    }

    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let after_length = record.get(usize::from(self.width)..).unwrap_or_default();
        if !self.keyed {
            return after_length;
        }
        let Some((key_len, rest)) = self.split_length(after_length) else { return &after_length[..0] };
        rest.get(..key_len).unwrap_or(rest)
    }

    fn states_body(&self) -> bool {
        self.keyed
    }

    fn stated_body(&self, record: &[u8]) -> usize {
        if !self.keyed {
            return self.body(record).len();
        }
        // A record without room for the length of its key states at least one byte.
        let after_length = record.get(usize::from(self.width)..).unwrap_or_default();
        self.split_length(after_length).map_or(1, |(key_len, _)| key_len)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        let width = u64::from(self.width);
        let digits = width.saturating_sub(partial.seen);
        for (digit, place) in part.iter().zip(partial.seen..).take(digits as usize) {
            let shift = match self.endian {
                Endian::Big => 8 * (width - 1 - place),
                Endian::Little => 8 * place,
            };
            partial.length |= u64::from(*digit) << shift;
        }
        if (part.len() as u64) < digits {
            return partial.saw(part, None);
        }
        partial.whole = Some(width.saturating_add(partial.length));
        partial.saw_of_whole(part)
    }
}
