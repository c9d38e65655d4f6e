//! Tests of framings.

use proptest::prelude::*;

use super::*;

const CSV: CsvFraming = CsvFraming { separator: b',', quote: b'"' };

fn records<F: Framing>(framing: F, bytes: &[u8]) -> (Vec<&[u8]>, usize) {
    let mut starts = vec![0; bytes.len() + 1];
    let result = framing.frame(bytes, &mut starts);
    let mut bounds: Vec<usize> = starts[..result.records].iter().map(|&start| start as usize).collect();
    bounds.push(result.bytes);
    (bounds.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect(), result.bytes)
}

#[test]
fn lines_end_at_the_delimiter() {
    let (lines, consumed) = records(LineFraming(b'\n'), b"one\n\nthree\nfour");
    assert_eq!(lines, [&b"one\n"[..], b"\n", b"three\n"]);
    assert_eq!(consumed, 11);
    assert_eq!(LineFraming(b'\n').body(b"one\n"), b"one");
    assert_eq!(LineFraming(b'\n').body(b"\n\n"), b"\n");
}

#[test]
fn lines_are_cut_off_after_the_last_delimiter_allowed() {
    let cut = |bytes: &[u8], most| LineFraming(b'\n').cut(bytes, most);
    let after = [(0, 0), (1, 4), (2, 5), (3, 11), (4, 11), (usize::MAX, 11)];
    for (most, bytes) in after {
        assert_eq!(cut(b"one\n\nthree\nfour", most), Cut { records: most.min(3), bytes }, "{most}");
    }
    assert_eq!(cut(b"four", usize::MAX), Cut::default());
}

#[test]
fn ends_are_found_near_and_far() {
    for len in [0, 1, 15, 16, 127, 128, 129, 5000] {
        let mut bytes = vec![b'a'; len];
        assert_eq!(find(b'\n', &bytes), None, "{len}");
        bytes.extend(b"\na\n");
        assert_eq!(find(b'\n', &bytes), Some(len), "{len}");
        assert_eq!(LineFraming(b'\n').end(&bytes, len + 1), Some(len + 3), "{len}");
    }
}

#[test]
fn csv_rows_keep_their_quoted_newlines() {
    let (rows, _) = records(CSV, b"a,\"b\nc\",d\r\n\"x\"\"\n\",2\nm\"id,3\n\"p\"q\"r,4\n");
    assert_eq!(rows, [&b"a,\"b\nc\",d\r\n"[..], b"\"x\"\"\n\",2\n", b"m\"id,3\n", b"\"p\"q\"r,4\n"]);
    assert_eq!(CSV.body(rows[0]), b"a,\"b\nc\",d");
    assert_eq!(CSV.body(b"a\n"), b"a");
}

#[test]
fn csv_quote_left_open_has_no_end() {
    assert_eq!(CSV.end(b"a,\"b\nc\n", 0), None);
    assert_eq!(CSV.end(b"a,\"b\"\"\n", 0), None);
    assert_eq!(CSV.end(b"", 0), None);
}

#[test]
fn fixed_records_leave_a_short_tail() {
    let (found, consumed) = records(FixedFraming(3), b"abcdefgh");
    assert_eq!(found, [b"abc", b"def"]);
    assert_eq!(consumed, 6);
    assert_eq!(records(FixedFraming(0), b"abc").1, 0);
}

#[test]
fn the_body_of_a_keyed_record_is_its_key() {
    for (endian, bytes) in
        [(Endian::Big, b"\0\x05\0\x02abc\0\x02\0\0"), (Endian::Little, b"\x05\0\x02\0abc\x02\0\0\0")]
    {
        let framing = PrefixedFraming { width: 2, endian, keyed: true };
        let (found, consumed) = records(framing, bytes);
        assert_eq!((found.len(), consumed), (2, bytes.len()));
        assert_eq!(framing.body(found[0]), b"ab");
        assert_eq!(framing.body(found[1]), b"");
    }
    let wrong = PrefixedFraming { width: 1, endian: Endian::Big, keyed: true };
    assert_eq!(wrong.body(b"\x03\x09ab"), b"ab");
    assert_eq!((wrong.stated_body(b"\x03\x09ab"), wrong.stated_body(b"\x03\x01ab")), (9, 1));
    assert_eq!((wrong.stated_body(b"\0"), wrong.stated_body(b"\x01\0")), (1, 0));
    assert_eq!(wrong.body(b"\0"), b"");
    assert_eq!(wrong.body(b""), b"");
}

#[test]
fn prefixed_records_include_their_length() {
    let framing = PrefixedFraming { width: 2, endian: Endian::Big, keyed: false };
    let (found, consumed) = records(framing, b"\0\x02ab\0\0\0\x09short");
    assert_eq!(found, [&b"\0\x02ab"[..], b"\0\0"]);
    assert_eq!(consumed, 6);
    assert_eq!(framing.body(found[0]), b"ab");
    let little = PrefixedFraming { width: 4, endian: Endian::Little, keyed: false };
    assert_eq!(little.end(b"\x01\0\0\0z", 0), Some(5));
    let huge = PrefixedFraming { width: 8, endian: Endian::Little, keyed: false };
    assert_eq!(huge.end(&[0xff; 20], 3), None);
}

#[test]
fn a_full_array_stops_the_walk() {
    let mut starts = [0; 2];
    let result = LineFraming(b'\n').frame(b"a\nb\nc\n", &mut starts);
    assert_eq!((result, starts), (Cut { records: 2, bytes: 4 }, [0, 2]));
}

/// The grammar, applied one byte at a time.
fn csv_end_by_bytes(bytes: &[u8]) -> Option<usize> {
    let (mut quoted, mut field_start, mut at) = (false, true, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        if quoted {
            if byte == b'"' && bytes.get(at + 1) == Some(&b'"') {
                at += 1;
            } else if byte == b'"' {
                quoted = false;
            }
        } else if byte == b'\n' {
            return Some(at + 1);
        } else if byte == b'"' && field_start {
            quoted = true;
        }
        field_start = !quoted && byte == b',';
        at += 1;
    }
    None
}

/// The end of the first record, read part by part.
fn end_by_parts(framing: &impl Framing, bytes: &[u8], step: usize) -> Option<usize> {
    let mut partial = Partial::default();
    bytes.chunks(step).enumerate().find_map(|(number, part)| {
        let end = framing.go_on(part, &mut partial)?;
        assert_eq!(partial.seen as usize, number * step + end);
        Some(number * step + end)
    })
}

#[test]
fn a_partial_record_says_what_is_missing() {
    let mut partial = Partial::default();
    assert_eq!(CSV.go_on(b"ab,\"x\"\"", &mut partial), None);
    assert_eq!(CSV.go_on(b"\ny", &mut partial), None);
    assert_eq!((partial.seen, partial.quote), (9, Some(3)));
    let mut partial = Partial::default();
    let framing = PrefixedFraming { width: 2, endian: Endian::Little, keyed: false };
    assert_eq!(framing.go_on(b"\x05", &mut partial), None);
    assert_eq!((framing.go_on(b"\0abc", &mut partial), partial.whole), (None, Some(7)));
}

proptest! {
    #[test]
    fn parts_agree_with_the_whole(text in "[a,\"\n\u{1}\u{3}]{0,40}", step in 1..9usize) {
        let bytes = text.as_bytes();
        prop_assert_eq!(end_by_parts(&CSV, bytes, step), CSV.end(bytes, 0));
        prop_assert_eq!(end_by_parts(&LineFraming(b'\n'), bytes, step), LineFraming(b'\n').end(bytes, 0));
        prop_assert_eq!(end_by_parts(&FixedFraming(11), bytes, step), FixedFraming(11).end(bytes, 0));
        for endian in [Endian::Big, Endian::Little] {
            let framing = PrefixedFraming { width: 1, endian, keyed: false };
            prop_assert_eq!(end_by_parts(&framing, bytes, step), framing.end(bytes, 0));
        }
    }

    #[test]
    fn csv_agrees_with_a_walk_by_bytes(text in "[a,\"\n\r]{0,40}") {
        prop_assert_eq!(CSV.end(text.as_bytes(), 0), csv_end_by_bytes(text.as_bytes()));
    }

    #[test]
    fn one_scan_agrees_with_one_search_per_line(text in "[a\n]{0,60}") {
        let framing = LineFraming(b'\n');
        let (lines, consumed) = records(framing, text.as_bytes());
        let mut at = 0;
        for line in &lines {
            let end = framing.end(text.as_bytes(), at).unwrap();
            prop_assert_eq!(*line, &text.as_bytes()[at..end]);
            at = end;
        }
        prop_assert_eq!(at, consumed);
    }
}
