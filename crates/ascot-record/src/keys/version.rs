//! Version order, as in the sort command's `-V`, as memcmp-comparable bytes.
//!
//! A text is a sequence of runs of other characters and numbers, in turn. A run ends before a digit or at the end of
//! the text; both ends compare alike, after `~` and before all else; letters sort before other characters; an absent
//! number is zero. This gives the symbols
//!
//! ```text
//! 01 ~     02 end of a run     03..36 letters     37..F7 other characters
//! ```
//!
//! and a number is the count of its digits (without leading zeros) and the digits, two to a byte. The end of the
//! text is the end of an empty run, which no run within a text can be, so equal means equal to the end.
//!
//! The whole key is a class (empty, `.`, `..`, hidden, other), then the text without its suffix, then all of it:
//! the suffix, `(\.[A-Za-z~][A-Za-z0-9~]*)*` at the end, counts only among texts that are equal without it.

const TILDE: u8 = 1;
const RUN_END: u8 = 2;

/// Classes of texts that sort apart, in order.
const EMPTY: u8 = 1;
const DOT: u8 = 2;
const DOT_DOT: u8 = 3;
const HIDDEN: u8 = 4;
const OTHER: u8 = 5;

/// Digit counts below this value take one byte; longer ones are this byte and eight more.
const LONG_NUMBER: u8 = 0xFF;

/// The symbol of every byte; 0 for digits.
static SYMBOLS: [u8; 256] = symbols();

const fn symbols() -> [u8; 256] {
    let mut table = [0; 256];
    let mut letter = 3;
    let mut other = 3 + 52;
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        if c == b'~' {
            table[byte] = TILDE;
        } else if c.is_ascii_alphabetic() {
            table[byte] = letter;
            letter += 1;
        } else if !c.is_ascii_digit() {
            table[byte] = other;
            other += 1;
        }
        byte += 1;
    }
    table
}

/// Appends the key of `text`. The key is self-delimiting.
pub(super) fn append_version(text: &[u8], out: &mut Vec<u8>) {
    let class = match text {
        b"" => EMPTY,
        b"." => DOT,
        b".." => DOT_DOT,
        [b'.', ..] => HIDDEN,
        _ => OTHER,
    };
    out.push(class);
    if class < HIDDEN {
        return;
    }
    let base = out.len();
    let stem = text.get(..stem_len(text)).unwrap_or(text);
    append_runs(stem, out);
    if stem.len() == text.len() {
        out.extend_from_within(base..);
    } else {
        append_runs(text, out);
    }
}

/// Length of `text` without its suffix, which may be all of it.
fn stem_len(text: &[u8]) -> usize {
    let mut stem = text.len();
    while let Some(dot) = text.get(..stem).and_then(|head| memchr::memrchr(b'.', head)) {
        let part = text.get(dot + 1..stem).unwrap_or_default();
        let suffix = match part.split_first() {
            Some((first, rest)) => {
                (first.is_ascii_alphabetic() || *first == b'~')
                    && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'~')
            }
            None => false,
        };
        if !suffix {
            break;
        }
        stem = dot;
    }
    stem
}

fn append_runs(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        let run = rest.iter().position(|&byte| SYMBOLS[usize::from(byte)] == 0).unwrap_or(rest.len());
        let (run, numbered) = rest.split_at(run);
        out.extend(run.iter().map(|&byte| SYMBOLS[usize::from(byte)]));
        out.push(RUN_END);
        if run.is_empty() && numbered.is_empty() {
            return;
        }
        let (digits, after) = super::numeric::take_digits(numbered);
        append_number(digits, out);
        rest = after;
    }
}

fn append_number(digits: &[u8], out: &mut Vec<u8>) {
    let zeros = digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len());
    let digits = digits.get(zeros..).unwrap_or_default();
    match u8::try_from(digits.len()) {
        Ok(count) if count < LONG_NUMBER => out.push(count),
        _ => {
            out.push(LONG_NUMBER);
            out.extend_from_slice(&(digits.len() as u64).to_be_bytes());
        }
    }
    out.extend(digits.chunks(2).map(|pair| pair.iter().fold(0, |value, digit| value * 10 + (digit & 15))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        append_version(text.as_bytes(), &mut out);
        out
    }

    #[test]
    fn ascending_table() {
        let long = format!("a{}", "9".repeat(300));
        let texts = [
            "",
            ".",
            "..",
            ".a",
            ".b1",
            ".b2",
            "1",
            "2",
            "10",
            "a~",
            "a",
            "a.txt",
            "a1",
            "a2",
            "a10",
            &long,
            "ab",
            "a.1",
            "b-1.0~rc1.tar.gz",
            "b-1.0.tar.gz",
            "b-1.0.1.tar.gz",
            "b-1.2.tar.gz",
            "b-1.10.tar.gz",
        ];
        for pair in texts.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn leading_zeros_do_not_count() {
        assert_eq!(version("a"), version("a0"));
        assert_eq!(version("a01b"), version("a1b"));
    }

    #[test]
    fn suffixes() {
        for (text, stem) in [
            ("a.b", 1),
            ("a.b.c~1", 1),
            ("a.1", 3),
            ("a.b-.c", 4),
            (".a", 0),
            ("..a", 1),
            ("a.", 2),
            ("a..b", 2),
            ("1.5.tar", 3),
        ] {
            assert_eq!(stem_len(text.as_bytes()), stem, "{text:?}");
        }
    }
}
