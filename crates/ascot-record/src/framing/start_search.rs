//! Finds where a row of CSV starts, from the middle of a file.
//!
//! A newline ends a row unless it is in a quoted field, which depends on all bytes before it. The search follows every
//! state that the bytes before may have left:
//!
//! ```text
//!   file     ... , "a quoted field, in which \n the search begins", 5 \n next row
//!   plain                            ends a row?   content                ends a row
//!   quoted                           content       closes the field       ends a row
//!                                                                              ╰── a start of a row in any case
//! ```
//!
//! Wrong states become right ones at the first quote that is within text: such a quote opens no field. A newline that
//! ends a row in every state that is left is the end of a row. In other files the states stay apart; then the one
//! counts in which fewer quotes are misplaced, that is within text, or before text where they close a field.

use super::CsvFraming;

/// What the bytes before may have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Outside quoted fields, where a quote is content.
    Within,
    /// Outside quoted fields, where a quote opens one: after a separator, or at the start of a row.
    Before,
    /// In a quoted field.
    Quoted,
    /// After a quote in a quoted field, which closes it unless another quote follows.
    Closing,
}

/// What follows from one state at the beginning.
#[derive(Clone, Copy, Debug)]
struct Path {
    state: State,
    misplaced: u64,
    /// The first start of a row.
    start: Option<u64>,
}

/// A search for the start of a row, part by part.
#[derive(Clone, Debug)]
pub struct StartSearch {
    framing: CsvFraming,
    paths: [Path; 4],
    /// Bytes searched.
    seen: u64,
}

impl StartSearch {
    /// A search that begins at any byte of a file.
    #[must_use]
    pub fn new(framing: CsvFraming) -> Self {
        let states = [State::Within, State::Before, State::Quoted, State::Closing];
        let paths = states.map(|state| Path { state, misplaced: 0, start: None });
        StartSearch { framing, paths, seen: 0 }
    }

    /// Searches the next part. Returns the offset of the start of a row, in bytes from where the search began.
    pub fn go_on(&mut self, part: &[u8]) -> Option<u64> {
        let CsvFraming { separator, quote } = self.framing;
        let mut rest = part;
        while let Some((&byte, after)) = rest.split_first() {
            self.seen += 1;
            let ends_row = byte == b'\n' && self.paths.iter().all(|path| path.state != State::Quoted);
            self.paths = self.paths.map(|path| self.along(path, byte));
            if ends_row {
                return Some(self.seen);
            }
            rest = after;
            if ![separator, quote, b'\n'].contains(&byte) {
                // A byte of text leaves every path in a state that further bytes of text do not change.
                let text = memchr::memchr3(separator, quote, b'\n', rest).unwrap_or(rest.len());
                self.seen += text as u64;
                rest = &rest[text..];
            }
        }
        None
    }

    /// The first start of a row if the search began in the state in which the fewest quotes are misplaced; of those
    /// with equally many, in one from which a row starts, and outside quoted fields.
    #[must_use]
    pub fn likely(&self) -> Option<u64> {
        let least = |path: &&Path| (path.misplaced, path.start.is_none());
        self.paths.iter().min_by_key(least).and_then(|path| path.start)
    }

    /// A path after a byte.
    fn along(&self, path: Path, byte: u8) -> Path {
        let is_quote = byte == self.framing.quote;
        let ends_field = byte == b'\n' || byte == self.framing.separator;
        let state = match path.state {
            State::Before | State::Closing if is_quote => State::Quoted,
            State::Quoted if is_quote => State::Closing,
            State::Quoted => State::Quoted,
            _ if ends_field => State::Before,
            _ => State::Within,
        };
        let is_misplaced = match path.state {
            State::Within => is_quote,
            State::Closing => !is_quote && !ends_field && byte != b'\r',
            State::Before | State::Quoted => false,
        };
        let ends_row = byte == b'\n' && path.state != State::Quoted;
        Path {
            state,
            misplaced: path.misplaced + u64::from(is_misplaced),
            start: path.start.or(ends_row.then_some(self.seen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Framing;
    use super::*;
    use proptest::prelude::*;

    const CSV: CsvFraming = CsvFraming { separator: b',', quote: b'"' };

    /// The offsets at which rows start, and the end.
    fn starts(bytes: &[u8]) -> Vec<u64> {
        let next = |&start: &usize| CSV.end(bytes, start);
        std::iter::successors(Some(0), next).map(|start| start as u64).collect()
    }

    proptest! {
        #[test]
        fn what_is_found_is_a_start_whatever_the_bytes_are(
            bytes in prop::collection::vec(prop::sample::select(b"ab,\"\n".to_vec()), 0..80),
            from in 0usize..80,
            part in 1usize..9,
        ) {
            let from = from.min(bytes.len());
            let mut search = StartSearch::new(CSV);
            let found = bytes[from..].chunks(part).find_map(|part| search.go_on(part));
            if let Some(found) = found {
                prop_assert!(starts(&bytes).contains(&(from as u64 + found)));
            }
        }

        #[test]
        fn runs_of_text_are_searched_as_byte_by_byte(
            bytes in prop::collection::vec(prop::sample::select(b"aaab\r,\"\n".to_vec()), 0..60),
            part in 2usize..60,
        ) {
            let (mut whole, mut single) = (StartSearch::new(CSV), StartSearch::new(CSV));
            let found = bytes.chunks(part).find_map(|part| whole.go_on(part));
            prop_assert_eq!(found, bytes.chunks(1).find_map(|byte| single.go_on(byte)));
            prop_assert_eq!(whole.likely(), single.likely());
            prop_assert_eq!(whole.seen, single.seen);
        }

        #[test]
        fn quoted_text_shows_where_rows_start(
            rows in prop::collection::vec("[a-c]{1,4},\"[a-c][a-c\n]{0,6}[a-c]\"", 3..8),
            from in 0usize..100,
        ) {
            let text = rows.join("\n") + "\n";
            let last_row = text.len() - rows[rows.len() - 1].len() - 1;
            let before_last = last_row - rows[rows.len() - 2].len() - 1;
            let from = from.min(before_last);
            let found = StartSearch::new(CSV).go_on(&text.as_bytes()[from..]).map(|at| from as u64 + at);
            prop_assert!(starts(text.as_bytes()).contains(&found.expect("a row")));
        }
    }

    #[test]
    fn misplaced_quotes_show_where_the_search_began() {
        // Each quote is beside a newline or a separator, so that both states go on.
        let rows = b"1,\"a,1\n\",2\n".repeat(20);
        for from in 0..24 {
            let mut search = StartSearch::new(CSV);
            assert_eq!(search.go_on(&rows[from..]), None);
            let start = from as u64 + search.likely().expect("a row");
            assert!(starts(&rows).contains(&start), "{from}: {start}");
        }
    }

    #[test]
    fn empty_quoted_fields_have_likely_starts_at_every_byte() {
        for row in [&b"10,\"\",20\n"[..], b"1,\",\",2\n", b"1,\"\"\"\",2\n"] {
            let rows = row.repeat(300);
            for from in 0..2 * row.len() {
                let mut search = StartSearch::new(CSV);
                let found = search.go_on(&rows[from..]).or(search.likely());
                let start = from as u64 + found.expect("a row");
                assert!(start.is_multiple_of(row.len() as u64), "{from}: {start}");
            }
        }
    }

    #[test]
    fn text_without_quotes_has_likely_starts_only() {
        let mut search = StartSearch::new(CSV);
        assert_eq!(search.go_on(b"ow,1\nrow,2\n"), None);
        assert_eq!(search.likely(), Some(5));
        // Empty quoted fields show nothing.
        assert_eq!(search.go_on(b"row,\"\",3\n"), None);
        assert_eq!(search.likely(), Some(5));
        assert_eq!(search.go_on(b"row,\"text\",4\nrow"), Some(33));
    }
}
