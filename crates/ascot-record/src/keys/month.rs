//! Months by their English abbreviations, as the sort command's `-M` reads them.

use super::bytes::skip_blanks;

const MONTHS: [&[u8; 3]; 12] =
    [b"JAN", b"FEB", b"MAR", b"APR", b"MAY", b"JUN", b"JUL", b"AUG", b"SEP", b"OCT", b"NOV", b"DEC"];

/// 1 to 12 for a text that begins, after blanks, with a month in any case; 0 for any other.
pub(super) fn month(text: &[u8]) -> u8 {
    let Some(name) = skip_blanks(text).first_chunk::<3>() else { return 0 };
    MONTHS.iter().position(|month| name.eq_ignore_ascii_case(*month)).map_or(0, |at| at as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::month;

    #[test]
    fn months_in_any_case_and_with_tails() {
        for (text, expected) in [
            ("JAN", 1),
            (" \tfeb", 2),
            ("March", 3),
            ("dec31", 12),
            ("", 0),
            ("ja", 0),
            ("xjan", 0),
            ("-", 0),
        ] {
            assert_eq!(month(text.as_bytes()), expected, "{text:?}");
        }
    }
}
