//! Text as closed bytes: escaped and ended, so that no text is a prefix of another.

use memchr::{memchr, memchr2};

/// Bytes of a text that is escaped and ended.
#[inline]
pub(super) fn closed_len(text: &[u8]) -> usize {
    text.len() + text.iter().map(|&byte| usize::from(byte <= 1)).sum::<usize>() + 1
}

/// Writes a text of [`closed_len`] bytes, combined with `flip`, to `out`, which has that length.
#[inline]
pub(super) fn write_closed(text: &[u8], flip: u8, out: &mut [u8]) {
    if out.len() == text.len() + 1 {
        out[..text.len()].copy_from_slice(text);
    } else {
        let mut at = 0;
        for &byte in text {
            if byte <= 1 {
                out[at] = 1;
                at += 1;
            }
            out[at] = if byte <= 1 { byte + 1 } else { byte };
            at += 1;
        }
    }
    if let Some(end) = out.last_mut() {
        *end = 0;
    }
    if flip != 0 {
        out.iter_mut().for_each(|byte| *byte ^= flip);
    }
}

/// The length of the closed text at the front of `bytes`, its end included; `None` if it has none.
#[inline]
pub(super) fn find_closed(bytes: &[u8], flip: u8) -> Option<usize> {
    memchr(flip, bytes).map(|end| end + 1)
}

/// Appends the text of closed bytes to `out`; `None` if an escape is wrong.
#[inline]
pub(super) fn append_text(closed: &[u8], flip: u8, out: &mut Vec<u8>) -> Option<()> {
    let (_, escaped) = closed.split_last()?;
    let base = out.len();
    out.extend_from_slice(escaped);
    let text = &mut out[base..];
    if flip != 0 {
        text.iter_mut().for_each(|byte| *byte ^= flip);
    }
    let Some(first) = memchr2(0, 1, text) else { return Some(()) };
    let mut from = first;
    let mut to = first;
    while from < text.len() {
        if text[from] == 1 {
            from += 1;
            text[to] = match text.get(from) {
                Some(byte @ (1 | 2)) => byte - 1,
                _ => return None,
            };
        } else {
            text[to] = text[from];
        }
        from += 1;
        to += 1;
    }
    out.truncate(base + to);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(text: &[u8], flip: u8) -> Vec<u8> {
        let mut out = vec![0; closed_len(text)];
        write_closed(text, flip, &mut out);
        out
    }

    #[test]
    fn texts_are_closed_as_drawn() {
        assert_eq!(closed(b"", 0), [0]);
        assert_eq!(closed(b"a\0b\x01\x02", 0), [b'a', 1, 1, b'b', 1, 2, 2, 0]);
        assert_eq!(closed(b"a", 0xff), [!b'a', 0xff]);
    }

    #[test]
    fn texts_come_back() {
        for text in [&b""[..], b"abc", b"\0", b"\x01\0\x02", b"a\0b\x01\x02"] {
            for flip in [0, 0xff] {
                let bytes = [&closed(text, flip)[..], b"more"].concat();
                let end = find_closed(&bytes, flip).unwrap();
                let mut out = b"before".to_vec();
                append_text(&bytes[..end], flip, &mut out).unwrap();
                assert_eq!(out, [b"before", text].concat());
            }
        }
    }

    #[test]
    fn wrong_escapes_are_refused() {
        for bytes in [&b"\x01\0"[..], b"\x01\x03\0", b"a\x01b\0", b""] {
            assert_eq!(append_text(bytes, 0, &mut Vec::new()), None, "{bytes:?}");
        }
        assert_eq!(find_closed(b"abc", 0), None);
    }
}
