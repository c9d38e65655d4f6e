//! Text as memcmp-comparable bytes.
//!
//! A text that comes last in an ascending key is its own key. Anywhere else it must not run into the bytes after it,
//! so it is *closed*:
//!
//! ```text
//! 00 -> 01 01     01 -> 01 02     every other byte -> itself     end -> 00
//! ```
//!
//! Invariants: the end sorts before every byte, the escapes keep the order of 00 < 01 < 02, and no closed text is a
//! prefix of another, so that bytes appended after it never decide between two different texts. A descending key is
//! the complement of the closed ascending one.

use memchr::memchr2;

/// How a text ends in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing follows: the raw bytes end the key.
    Open,
    /// Something follows, or the bytes will be complemented: escaped and terminated.
    Closed,
}

/// The bytes of a text that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ignore {
    /// None.
    #[default]
    Nothing,
    /// All but letters, digits, space, tab and newline (`-d`).
    NonDictionary,
    /// All but the printing ASCII characters (`-i`).
    NonPrinting,
}

impl Ignore {
    /// For every byte, whether it takes part.
    fn table(self) -> &'static [bool; 256] {
        const DICTIONARY: [bool; 256] = kept(Ignore::NonDictionary);
        const PRINTING: [bool; 256] = kept(Ignore::NonPrinting);
        match self {
            Ignore::Nothing => &[true; 256],
            Ignore::NonDictionary => &DICTIONARY,
            Ignore::NonPrinting => &PRINTING,
        }
    }
}

const fn kept(ignore: Ignore) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        table[at] = match ignore {
            Ignore::Nothing => true,
            Ignore::NonDictionary => byte.is_ascii_alphanumeric() || is_blank(byte),
            Ignore::NonPrinting => matches!(byte, b' '..=b'~'),
        };
        at += 1;
    }
    table
}

/// Whether the sort command treats `byte` as a blank in the C locale. A newline is one too; only records with another
/// terminator can hold it.
#[inline]
pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

/// `text` without its leading blanks.
#[inline]
pub(super) fn skip_blanks(text: &[u8]) -> &[u8] {
    let skip = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    text.get(skip..).unwrap_or_default()
}

/// Complements every byte of `key`, which reverses its order.
#[inline]
pub(super) fn complement(key: &mut [u8]) {
    for byte in key {
        *byte = !*byte;
    }
}

/// Complements the bytes appended to `out` since its length was `base`.
#[inline]
pub(super) fn complement_from(out: &mut [u8], base: usize) {
    if let Some(tail) = out.get_mut(base..) {
        complement(tail);
    }
}

/// Appends `text` as it is or closed.
#[inline]
pub(super) fn append_text(text: &[u8], ending: Ending, out: &mut Vec<u8>) {
    match ending {
        Ending::Open => out.extend_from_slice(text),
        Ending::Closed => {
            append_escaped(text, out);
            out.push(0);
        }
    }
}

/// Appends `text` escaped but without its end.
#[inline]
pub(super) fn append_escaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr2(0, 1, rest) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { return };
        out.extend_from_slice(&[1, byte + 1]);
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Appends the bytes of `text` that `ignore` keeps, in capitals if `fold`, with the given ending.
pub(super) fn append_filtered(text: &[u8], ignore: Ignore, fold: bool, ending: Ending, out: &mut Vec<u8>) {
    let base = out.len();
    match ignore {
        Ignore::Nothing => append_text(text, ending, out),
        // Neither filter keeps 00 or 01, so nothing is left to escape.
        _ => {
            append_kept(text, ignore.table(), out);
            if ending == Ending::Closed {
                out.push(0);
            }
        }
    }
    if fold && let Some(tail) = out.get_mut(base..) {
        tail.make_ascii_uppercase();
    }
}

/// Appends the bytes of `text` that `table` keeps: each is written, and kept by advancing the length.
fn append_kept(text: &[u8], table: &[bool; 256], out: &mut Vec<u8>) {
    let base = out.len();
    out.resize(base + text.len(), 0);
    let mut len = base;
    for &byte in text {
        if let Some(slot) = out.get_mut(len) {
            *slot = byte;
        }
        len += usize::from(table[usize::from(byte)]);
    }
    out.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn closed(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_text(text, Ending::Closed, &mut out);
        out
    }

    #[test]
    fn escapes_are_as_drawn() {
        assert_eq!(closed(b""), [0]);
        assert_eq!(closed(b"a\0b\x01\x02"), [b'a', 1, 1, b'b', 1, 2, 2, 0]);
    }

    #[test]
    fn filters_keep_what_they_say() {
        let mut out = Vec::new();
        append_filtered(b"a-b\t\x01C\n\xff", Ignore::NonDictionary, true, Ending::Closed, &mut out);
        assert_eq!(out, b"AB\tC\n\0");
        out.clear();
        append_filtered(b"a-b\t\x01C\n\xff~", Ignore::NonPrinting, false, Ending::Open, &mut out);
        assert_eq!(out, b"a-bC~");
    }

    proptest! {
        #[test]
        fn closed_texts_keep_order_whatever_follows(
            a in prop::collection::vec(0u8..4, 0..6), b in prop::collection::vec(0u8..4, 0..6),
            x in prop::collection::vec(any::<u8>(), 0..3), y in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let (ka, kb) = ([closed(&a), x.clone()].concat(), [closed(&b), y.clone()].concat());
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b).then(x.cmp(&y)));
        }
    }
}
