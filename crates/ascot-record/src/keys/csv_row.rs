//! Fields of one CSV row, quoted as in RFC 4180.
//!
//! A field is quoted if its first byte is the quote; within quotes a separator is content and a doubled quote is one
//! quote. Rows that break the rules still have one reading: a quote inside an unquoted field is content, bytes
//! between a closing quote and the separator belong to the field, and a quote never closed extends to the end of the
//! row.

use memchr::{memchr, memchr2};

/// A field as it appears in the row, with its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'r> {
    raw: &'r [u8],
    quote: u8,
}

impl<'r> Field<'r> {
    /// The content, if it is one slice of the row.
    #[inline]
    pub fn contiguous(&self) -> Option<&'r [u8]> {
        match self.raw.split_first() {
            Some((first, rest)) if *first == self.quote => {
                let end = memchr(self.quote, rest)?;
                (end + 1 == rest.len()).then(|| rest.get(..end).unwrap_or_default())
            }
            _ => Some(self.raw),
        }
    }

    /// Calls `f` with the pieces of the content in order.
    pub fn pieces(&self, mut f: impl FnMut(&'r [u8])) {
        if self.raw.first() != Some(&self.quote) {
            return f(self.raw);
        }
        let mut rest = self.raw.get(1..).unwrap_or_default();
        let mut inside = true;
        while let Some(at) = memchr(self.quote, rest) {
            let doubled = inside && rest.get(at + 1) == Some(&self.quote);
            f(rest.get(..at + usize::from(doubled)).unwrap_or_default());
            rest = rest.get(at + 1 + usize::from(doubled)..).unwrap_or_default();
            inside = inside == doubled;
        }
        f(rest);
    }

    /// The content, copied.
    pub fn content(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(self.raw.len());
        self.pieces(|piece| content.extend_from_slice(piece));
        content
    }
}

/// Iterates over the fields of a row.
#[derive(Debug, Clone)]
pub struct Row<'r> {
    separator: u8,
    quote: u8,
    rest: Option<&'r [u8]>,
}

impl<'r> Row<'r> {
    /// Starts before the first field. Every row has one, even the empty row.
    pub fn new(body: &'r [u8], separator: u8, quote: u8) -> Row<'r> {
        Row { separator, quote, rest: Some(body) }
    }
}

impl<'r> Iterator for Row<'r> {
    type Item = Field<'r>;

    #[inline]
    fn next(&mut self) -> Option<Field<'r>> {
        let text = self.rest?;
        let end = match text.first() {
            Some(first) if *first == self.quote => quoted_end(text, self.separator, self.quote),
            _ => memchr(self.separator, text),
        };
        let raw = match end {
            Some(end) => {
                self.rest = text.get(end + 1..);
                text.get(..end).unwrap_or_default()
            }
            None => {
                self.rest = None;
                text
            }
        };
        Some(Field { raw, quote: self.quote })
    }
}

/// The position of the separator after the quoted field at the start of `text`.
fn quoted_end(text: &[u8], separator: u8, quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        // Inside quotes: a doubled quote leaves and re-enters them, with the same result.
        at += memchr(quote, text.get(at..)?)? + 1;
        let rest = text.get(at..)?;
        let next = memchr2(separator, quote, rest)?;
        at += next;
        if text.get(at) == Some(&separator) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(row: &str) -> Vec<String> {
        let text = |field: Field| String::from_utf8(field.content()).unwrap();
        Row::new(row.as_bytes(), b',', b'"').map(text).collect()
    }

    #[test]
    fn rows_split() {
        assert_eq!(fields(""), [""]);
        assert_eq!(fields("a,,b,"), ["a", "", "b", ""]);
        assert_eq!(fields(r#""a,b",c"#), ["a,b", "c"]);
        assert_eq!(fields(r#""say ""hi"", now","""",x"#), [r#"say "hi", now"#, "\"", "x"]);
        assert_eq!(fields("\"two\nlines\",\"\""), ["two\nlines", ""]);
    }

    #[test]
    fn broken_rows_have_one_reading() {
        assert_eq!(fields(r#"a"b,c"#), [r#"a"b"#, "c"]);
        assert_eq!(fields(r#""a"b,c"#), ["ab", "c"]);
        assert_eq!(fields(r#""a"b"c,d",e"#), ["abc,d", "e"]);
        assert_eq!(fields(r#""open,x"#), ["open,x"]);
        assert_eq!(fields("\""), [""]);
    }

    #[test]
    fn contiguous_is_the_content() {
        for row in [r#""a,b",plain,"","x""y","a"b,"open"#] {
            for field in Row::new(row.as_bytes(), b',', b'"') {
                if let Some(piece) = field.contiguous() {
                    assert_eq!(piece, field.content());
                }
            }
        }
    }
}
