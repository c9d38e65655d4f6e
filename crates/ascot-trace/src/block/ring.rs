//! The pages of the kernel's ring buffer.
//!
//! ```text
//!   u64 time | u64 bytes of data (low 20 bits) | data: events
//!   event:  u32 = type_len (5 bits) | time difference (27 bits), then
//!     1..=28   4 * type_len bytes of data
//!     0        u32 length, counting itself; data
//!     29       padding: u32 length; without a time difference, the rest of the page
//!     30       u32: the high bits of a longer time difference
//!     31       u32: the high bits of a time; its highest 5 bits are those of the time before
//! ```
//!
//! The description of these pages is `events/header_page` and `events/header_event` of tracefs. Invariant: nothing
//! outside the page is read, whatever its lengths say; an event that does not fit ends the page.

use ascot_io::{u32_at, u64_at};

/// Bytes before the data of a page.
const HEADER_BYTES: usize = 16;
/// Bits of the field of lengths that are the length.
const LENGTH_MASK: u64 = 0xF_FFFF;
/// Bits of a time that an absolute time does not have.
const HIGH_TIME: u64 = 0xF800_0000_0000_0000;

/// Calls `each` with the time and the data of every event of a page.
pub fn for_each(page: &[u8], mut each: impl FnMut(u64, &[u8])) {
    if page.len() < HEADER_BYTES {
        return;
    }
    let mut time_ns = u64_at(page, 0);
    let length = (u64_at(page, 8) & LENGTH_MASK) as usize;
    let mut rest = &page[HEADER_BYTES..page.len().min(HEADER_BYTES + length)];
    while let Some((header, after)) = word(rest) {
        let difference = u64::from(header >> 5 & 0x7FF_FFFF);
        let kind = header & 31;
        let (data, next) = match kind {
            29 if difference == 0 => return,
            30 | 31 => {
                let Some((high, next)) = word(after) else { return };
                let time = u64::from(high) << 27 | difference;
                time_ns = if kind == 30 { time_ns.wrapping_add(time) } else { time | time_ns & HIGH_TIME };
                rest = next;
                continue;
            }
            0 | 29 => {
                let Some((length, _)) = word(after) else { return };
                let Some((data, next)) = after.split_at_checked((length as usize).max(4)) else { return };
                (&data[4..], next)
            }
            words => {
                let Some(split) = after.split_at_checked(words as usize * 4) else { return };
                split
            }
        };
        time_ns = time_ns.wrapping_add(difference);
        rest = next;
        if kind != 29 {
            each(time_ns, data);
        }
    }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_at_checked(4)?;
    Some((u32_at(word, 0), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(time: u64, words: &[u32]) -> Vec<u8> {
        let mut page = time.to_le_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | (1 << 31)).to_le_bytes());
        words.iter().for_each(|word| page.extend(word.to_le_bytes()));
        page.resize(4096, 0xEE);
        page
    }

    fn header(kind: u32, difference: u32) -> u32 {
        kind | difference << 5
    }

    #[test]
    fn every_kind_of_event_is_understood() {
        let words = [
            header(1, 10),
            0xA1, // one word of data
            header(0, 5),
            12,
            0xB1,
            0xB2, // a length that counts itself
            header(30, 3),
            1, // 2^27 + 3 later
            header(2, 1),
            0xC1,
            0xC2,
            header(29, 7),
            8,
            0xDD, // skipped, but it takes time
            header(31, 9),
            2, // an absolute time
            header(1, 4),
            0xE1,
            header(29, 0),
            0xFF, // the rest is empty
            header(1, 4),
            0xF1,
        ]; // fmt: skip
        let high = 1 << 63;
        let mut seen = Vec::new();
        for_each(&page(high + 100, &words), |time, data| {
            seen.push((time - high, data.chunks_exact(4).map(|word| u32_at(word, 0)).collect::<Vec<_>>()));
        });
        let later = 115 + (1 << 27) + 3 + 1;
        let expected = [
            (110, vec![0xA1]),
            (115, vec![0xB1, 0xB2]),
            (later, vec![0xC1, 0xC2]),
            ((2 << 27) + 13, vec![0xE1]),
        ];
        assert_eq!(seen, expected);
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_page_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut data_bytes = 0;
            for_each(&bytes, |_, data| data_bytes += data.len());
            prop_assert!(data_bytes <= bytes.len());
        }
    }
}
