//! Tests of the order of CSV keys.

use super::super::{KeyProgram, compile_csv, parse_csv_keys};
use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

fn program(keys: &str, sample: &[&str]) -> KeyProgram {
    let sample: Vec<&[u8]> = sample.iter().map(|row| row.as_bytes()).collect();
    compile_csv(&parse_csv_keys(keys).unwrap(), Some(b"a,b,c"), b',', b'"', &sample).unwrap()
}

fn key(program: &KeyProgram, row: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    program.write_key(row, &mut out);
    out
}

#[track_caller]
fn ascending(keys: &str, rows: &[&str]) {
    let program = program(keys, rows);
    for pair in rows.windows(2) {
        let (a, b) = (key(&program, pair[0].as_bytes()), key(&program, pair[1].as_bytes()));
        assert!(a < b, "{keys}: {pair:?} {a:02X?} {b:02X?}");
    }
}

#[test]
fn directions_and_nulls() {
    ascending("a:text", &["a", "\"a\"\"\"", "\"a,\"", "b", ""]);
    ascending("a:text:nulls-first", &["", "\0", "a", "b"]);
    ascending("-a:text", &["b", "aa", "a", "\0", ""]);
    ascending("a:desc:text:nulls-first", &["", "b", "aa", "a"]);
    ascending(
        "b:number,a:text",
        &["x,-inf", "x,-2", "x,-1e-5", "y,0", "z,-0.0", "b,5", "a,10", "x,x", "x,y", "x"],
    );
    ascending("b:number:desc", &["0,y", "0,x", "0,nan", "0,inf", "0,10", "0,5", "0,-5", "0,\"\""]);
    ascending(
        "a:date:nulls-first",
        &["", "2024-01-01", "2024-01-01T00:00:01", "2024-01-02 00:00+00:01", "soon"],
    );
    ascending("c,b,a", &["9,0,1", "0,1,1", "1,1,1", "0,0,2"]);
}

#[test]
fn types_from_a_sample() {
    let infer = |values: &[&str]| infer_type(values.iter().map(|value| value.as_bytes()));
    assert_eq!(infer(&["1", "", " 2.5e3 ", "-7", "nan"]), CsvType::Number);
    assert_eq!(infer(&["2024-01-01", "", "2024-01-01T12:00Z"]), CsvType::Date);
    assert_eq!(infer(&["1", "2024-01-01"]), CsvType::Text);
    assert_eq!(infer(&["", ""]), CsvType::Text);
    assert_eq!(infer(&[]), CsvType::Text);
    ascending("a", &["9", "10", "1e2"]);
    ascending("a", &["10", "9", "x"]);
}

#[test]
fn content_in_pieces_is_content() {
    for keys in ["a:text", "a:text,b", "-a:text", "a:text:nulls-first", "a:number", "a:date,b"] {
        let program = program(keys, &[]);
        assert_eq!(key(&program, b"\"x\"y,1"), key(&program, b"xy,1"), "{keys}");
        assert_eq!(key(&program, b"\"\xFF\"y,1"), key(&program, b"\xFFy,1"), "{keys}");
        assert_ne!(key(&program, b"\"\"\"\",1"), key(&program, b",1"), "{keys}");
    }
}

/// Order of two optional contents, as documented, by direct comparison.
fn direct(a: &[u8], b: &[u8], kind: CsvType, descending: bool, nulls_first: bool) -> Ordering {
    let integer = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let by_value = |a: &[u8], b: &[u8]| match (kind, integer(a), integer(b)) {
        (CsvType::Number, Some(x), Some(y)) => x.cmp(&y),
        (CsvType::Number, Some(_), None) => Ordering::Less,
        (CsvType::Number, None, Some(_)) => Ordering::Greater,
        _ => a.cmp(b),
    };
    match (a.is_empty(), b.is_empty()) {
        (true, true) => Ordering::Equal,
        (true, false) if nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) => direct(b, a, kind, descending, nulls_first).reverse(),
        (false, false) if descending => by_value(b, a),
        (false, false) => by_value(a, b),
    }
}

fn quoted(content: &[u8]) -> Vec<u8> {
    let mut field = vec![b'"'];
    for &byte in content {
        field.push(byte);
        if byte == b'"' {
            field.push(byte);
        }
    }
    field.push(b'"');
    field
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, 1, b'1', b'2', b'-', b'"', b',', b'a', 0xFE, 0xFF]);
    prop_oneof![prop::collection::vec(byte, 0..4), (-20i64..20).prop_map(|n| n.to_string().into_bytes())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn keys_order_as_contents_do(
        a in (content(), content()), b in (content(), content()),
        number in any::<[bool; 2]>(), descending in any::<[bool; 2]>(), nulls_first in any::<[bool; 2]>(),
    ) {
        let spec = |at: usize, name: &str| format!(
            "{name}:{}:{}:{}",
            if number[at] { "number" } else { "text" },
            if descending[at] { "desc" } else { "asc" },
            if nulls_first[at] { "nulls-first" } else { "nulls-last" },
        );
        let program = program(&format!("{},{}", spec(0, "a"), spec(1, "b")), &[]);
        let row = |(x, y): &(Vec<u8>, Vec<u8>)| key(&program, &[quoted(x), quoted(y)].join(&b','));
        let kind = |at: usize| if number[at] { CsvType::Number } else { CsvType::Text };
        let expected = direct(&a.0, &b.0, kind(0), descending[0], nulls_first[0])
            .then_with(|| direct(&a.1, &b.1, kind(1), descending[1], nulls_first[1]));
        prop_assert_eq!(row(&a).cmp(&row(&b)), expected);
    }
}
