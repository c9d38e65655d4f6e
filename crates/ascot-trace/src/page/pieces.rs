//! The marks of a seek chart: pieces of runs, in chunks that a page can carry.
//!
//! A *piece* has requests of one direction and one size, of which each begins where the one before ended; the last of
//! them may be shorter. A run of the census has one piece or more. Invariant: every request that moves bytes belongs to
//! exactly one piece, and its offset and its number follow from the piece, so that a page hides none.
//!
//! A chunk has at most [`MAX_PIECES`] pieces as eight columns, one after the other, each with a number of variable
//! length (seven bits a byte, the lowest first) per piece: flags, requests, file, offset, size, the bytes by which the
//! last request is shorter, time of the first request, time until the last. File, offset, size and time are signed
//! differences: to the piece before, but the offset to the end of the piece before of the same file. Chunks do not
//! depend on each other.

use std::collections::HashMap;

use crate::event::{Event, Kind};
use crate::format::varint;

/// Pieces of a chunk, at most.
pub const MAX_PIECES: usize = 65_536;
/// The piece writes.
const WRITES: u8 = 1;
/// The piece begins a run of the census: a switch.
const SWITCHES: u8 = 2;
/// Requests of a piece, at most: their number fits 32 bits.
const MAX_REQUESTS: u64 = 1 << 31;
/// Requests of this size and more stand alone: the page has 32 bits for the size of each of several.
const LARGE_BYTES: u64 = u32::MAX as u64;

/// A piece of a run: requests in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPiece {
    /// Whether they write.
    pub writes: bool,
    /// Whether the first of them begins a run.
    pub switches: bool,
    /// Their number.
    pub requests: u64,
    /// Their file.
    pub file: u32,
    /// The first byte.
    pub offset: u64,
    /// Bytes of each but the last.
    pub size: u64,
    /// Bytes of the last, at most `size`.
    pub last: u64,
    /// The time of the first, in nanoseconds.
    pub time_ns: u64,
    /// The time of the last.
    pub last_ns: u64,
}

impl RunPiece {
    fn new(event: &Event, switches: bool) -> RunPiece {
        RunPiece {
            writes: event.kind == Kind::Write,
            switches,
            requests: 1,
            file: event.file,
            offset: event.offset,
            size: event.size,
            last: event.size,
            time_ns: event.time_ns,
            last_ns: event.time_ns,
        }
    }

    /// The byte after the last request.
    pub fn end(&self) -> u64 {
        (self.offset).saturating_add(self.size.saturating_mul(self.requests - 1)).saturating_add(self.last)
    }

    /// Whether a request that begins at its end may join it.
    fn admits(&self, event: &Event) -> bool {
        let same = self.writes == (event.kind == Kind::Write) && self.last == self.size;
        same && event.size <= self.size && self.size < LARGE_BYTES && self.requests < MAX_REQUESTS
    }
}

/// Joins requests to pieces.
#[derive(Default)]
pub struct Joiner {
    piece: Option<RunPiece>,
}

impl Joiner {
    /// Adds an event. Returns the piece that it ends.
    pub fn add(&mut self, event: &Event) -> Option<RunPiece> {
        if !event.moves() {
            return None;
        }
        let follows = |piece: &RunPiece| piece.file == event.file && piece.end() == event.offset;
        match &mut self.piece {
            Some(piece) if follows(piece) && piece.admits(event) => {
                piece.requests += 1;
                piece.last = event.size;
                piece.last_ns = event.time_ns;
                None
            }
            before => {
                let switches = !before.as_ref().is_some_and(follows);
                before.replace(RunPiece::new(event, switches))
            }
        }
    }

    /// The piece at the end.
    pub fn end(self) -> Option<RunPiece> {
        self.piece
    }
}

/// The columns of a chunk, before compression.
pub fn encode(pieces: &[RunPiece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.len() * 10);
    for piece in pieces {
        bytes.push(if piece.writes { WRITES } else { 0 } | if piece.switches { SWITCHES } else { 0 });
    }
    for piece in pieces {
        varint::put(&mut bytes, piece.requests);
    }
    differences(&mut bytes, pieces.iter().map(|piece| u64::from(piece.file)));
    let mut ends = HashMap::new();
    for piece in pieces {
        let before = ends.insert(piece.file, piece.end()).unwrap_or_default();
        varint::put_difference(&mut bytes, piece.offset, before);
    }
    differences(&mut bytes, pieces.iter().map(|piece| piece.size));
    for piece in pieces {
        varint::put(&mut bytes, piece.size - piece.last);
    }
    differences(&mut bytes, pieces.iter().map(|piece| piece.time_ns));
    for piece in pieces {
        varint::put(&mut bytes, piece.last_ns.saturating_sub(piece.time_ns));
    }
    bytes
}

fn differences(to: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let mut before = 0;
    for value in values {
        varint::put_difference(to, value, before);
        before = value;
    }
}

/// Bytes as base64 with padding (RFC 4648, section 4).
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > group.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(file: u32, kind: Kind, offset: u64, size: u64) -> Event {
        Event { time_ns: 0, process: 0, file, kind, jumped: false, offset, size }
    }

    fn kind_of(writes: bool) -> Kind {
        if writes { Kind::Write } else { Kind::Read }
    }

    fn pieces(events: &[Event]) -> Vec<RunPiece> {
        let mut joiner = Joiner::default();
        let mut pieces: Vec<RunPiece> = events.iter().filter_map(|event| joiner.add(event)).collect();
        pieces.extend(joiner.end());
        pieces
    }

    #[test]
    fn base64_follows_the_examples_of_the_standard() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (bytes, text) in examples {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_scan_is_one_piece_and_a_shorter_request_ends_it() {
        let mut events: Vec<Event> = (0..10).map(|n| event(0, Kind::Read, n * 100, 100)).collect();
        events.push(event(0, Kind::Read, 1000, 7));
        events.push(event(0, Kind::Read, 1007, 7));
        events.push(event(0, Kind::Write, 1014, 7));
        events.push(event(0, Kind::Write, 2000, 7));
        let found = pieces(&events);
        let short: Vec<_> =
            found.iter().map(|p| (p.requests, p.offset, p.last, p.writes, p.switches)).collect();
        assert_eq!(
            short,
            [
                (11, 0, 7, false, true),
                (1, 1007, 7, false, false),
                (1, 1014, 7, true, false),
                (1, 2000, 7, true, true)
            ]
        );
    }

    proptest! {
        #[test]
        fn every_request_follows_from_its_piece(
            moves in proptest::collection::vec((0_u32..3, any::<bool>(), 0_u64..4, 1_u64..3), 0..60),
        ) {
            let events: Vec<Event> = moves
                .iter()
                .map(|&(file, writes, offset, size)| event(file, kind_of(writes), offset, size))
                .collect();
            let mut requests = Vec::new();
            let mut switches = 0;
            for piece in pieces(&events) {
                switches += u64::from(piece.switches);
                for n in 0..piece.requests {
                    let size = if n + 1 == piece.requests { piece.last } else { piece.size };
                    requests.push(event(piece.file, kind_of(piece.writes), piece.offset + n * piece.size, size));
                }
            }
            let mut last = None;
            let mut begins =
                |event: &&Event| last.replace((event.file, event.end())) != Some((event.file, event.offset));
            let runs = events.iter().filter(&mut begins);
            prop_assert_eq!(switches, runs.count() as u64);
            prop_assert_eq!(requests, events);
        }
    }
}
