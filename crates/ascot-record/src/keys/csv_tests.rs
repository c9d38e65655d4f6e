//! Tests of the order of CSV keys.

use super::super::WriteKey;
use super::super::{KeyError, KeyProgram, compile_csv, csv_columns, header_like, parse_csv_keys};
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

#[test]
fn nulls_by_name_and_other_spellings() {
    let mut specs = parse_csv_keys("a:number(.,),b:date(%d.%m.%Y):nulls-first:desc").unwrap();
    specs.iter_mut().for_each(|spec| spec.nulls = vec!["NULL".into(), "\\N".into()]);
    let program = compile_csv(&specs, Some(b"a,b,c"), b',', b'"', &[]).unwrap();
    let rows = [
        "\"-1.234,5\",x",
        "\"-1234,4\",x",
        "0,NULL",
        "0,nul",
        "0,2024-05-01",
        "0,02.05.2024",
        "0,1.5.2024",
        "\"1,5\",\"\"",
        "\"1,5\",01.01.1900",
        "1.000,x",
        "\"1000,01\",x",
        "1.00,x",
        "1.5,x",
        "NUL,x",
        "NULL,\\N",
        "\\N,NULL",
        ",",
    ];
    let keys: Vec<_> = rows.iter().map(|row| key(&program, row.as_bytes())).collect();
    for (at, pair) in keys.windows(2).enumerate() {
        // All spellings of null are equal.
        let equal = at >= 14;
        assert!(if equal { pair[0] == pair[1] } else { pair[0] < pair[1] }, "{:?}", &rows[at..at + 2]);
    }
}

#[test]
fn misfits_are_told_and_counted() {
    let program = program("a:number,-b:date,c:text", &[]);
    let misfits = |row: &str| {
        let mut found = Vec::new();
        program.misfits(row.as_bytes(), &mut |key, value| {
            found.push((key, String::from_utf8_lossy(value).into_owned()))
        });
        let before = misfits_written();
        key(&program, row.as_bytes());
        assert_eq!(misfits_written() - before, found.len() as u64, "{row}");
        found
    };
    assert_eq!(misfits("1,2024-01-01,x"), []);
    assert_eq!(misfits(",,"), []);
    assert_eq!(misfits(""), []);
    assert_eq!(misfits("$1,soon,x"), [(0, "$1".to_owned()), (1, "soon".to_owned())]);
    assert_eq!(misfits("\"1\"\"\",2024-01-01"), [(0, "1\"".to_owned())]);
}

#[test]
fn columns_that_fell_back_to_text_say_why() {
    let column = |values: &[&str], nulls: &[&str]| {
        let mut specs = parse_csv_keys("#1").unwrap();
        specs[0].nulls = nulls.iter().map(|null| (*null).to_owned()).collect();
        let rows: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        let column = csv_columns(&specs, None, b';', b'"', &rows).unwrap().remove(0);
        let fallback =
            column.fallback.map(|it| (it.kind.to_string(), it.fitting, it.others, it.first, it.null));
        (column.kind.to_string(), fallback)
    };
    let none = |kind: &str| (kind.to_owned(), None);
    let text = |kind: &str, fitting, others, row, first: &str, null: Option<&str>| {
        (
            "text".to_owned(),
            Some((kind.to_owned(), fitting, others, (row, first.to_owned()), null.map(str::to_owned))),
        )
    };
    assert_eq!(column(&["1", "2"], &[]), none("number"));
    assert_eq!(column(&["1", "\\N"], &["\\N"]), none("number"));
    assert_eq!(column(&["red", "blue", "7"], &[]), none("text"));
    assert_eq!(column(&["1", "\\N", "2", "\\N"], &[]), none("text"));
    assert_eq!(column(&["1", "\\N", "2", "3"], &[]), text("number", 3, 1, 1, "\\N", Some("\\N")));
    assert_eq!(column(&["1", "x", "2", "y", "3"], &[]), text("number", 3, 2, 1, "x", None));
    assert_eq!(column(&["1,5", "2", "10,25"], &[]), text("number(,)", 3, 0, 0, "1,5", None));
    assert_eq!(column(&["1.000,5", "2", "3,1"], &[]), text("number(.,)", 3, 0, 0, "1.000,5", None));
    assert_eq!(
        column(&["01.05.2024", "31.12.2023"], &[]),
        text("date(%d.%m.%Y)", 2, 0, 0, "01.05.2024", None)
    );
    assert_eq!(
        column(&["05/31/2024", "12/01/2023"], &[]),
        text("date(%m/%d/%Y)", 2, 0, 0, "05/31/2024", None)
    );
}

#[test]
fn headers_are_recognised() {
    let names = |rows: &[&str]| {
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        header_like(rows[0], &rows[1..], b',', b'"').map(|names| names.join("|"))
    };
    assert_eq!(names(&["id,name", "2,x", "1,y"]).as_deref(), Some("id|name"));
    assert_eq!(names(&["when,\"a, b\"", "2024-01-01,x", ",y"]).as_deref(), Some("when|a, b"));
    assert_eq!(names(&[",x", "0,7"]).as_deref(), Some("|x"));
    for rows in [
        &["id,name"][..],
        &["id,name", "a,b", "c,d"],
        &["id,id", "1,2"],
        &["id,3", "1,2"],
        &["id,name", ",", ","],
        &["1,2", "3,4"],
        &["id,name", "1,x", "z,y"],
        &["", "1", "2"],
    ] {
        assert_eq!(names(rows), None, "{rows:?}");
    }
}

#[test]
fn a_column_that_no_row_has_is_an_error() {
    let compile =
        |keys: &str, rows: &[&[u8]]| compile_csv(&parse_csv_keys(keys).unwrap(), None, b',', b'"', rows);
    assert_eq!(compile("#9", &[b"a,b,c", b"d"]), Err(KeyError::ColumnBeyondRows { number: 9, columns: 3 }));
    assert!(compile("#3", &[b"a", b"a,b,c"]).is_ok());
}

/// Order of two optional contents, as documented, by direct comparison.
fn direct(a: &[u8], b: &[u8], kind: CsvType, descending: bool, nulls_first: bool) -> Ordering {
    let integer = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let by_value = |a: &[u8], b: &[u8]| match (&kind, integer(a), integer(b)) {
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

/// A number of hundredths, as its text with such marks.
fn spelled(hundredths: i64, group: Option<char>, decimal: char) -> String {
    let whole = (hundredths.unsigned_abs() / 100).to_string();
    let mut text = String::from(if hundredths < 0 { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if let Some(group) = group.filter(|_| at > 0 && (whole.len() - at).is_multiple_of(3)) {
            text.push(group);
        }
        text.push(digit);
    }
    format!("{text}{decimal}{:02}", hundredths.unsigned_abs() % 100)
}

proptest! {
    #[test]
    fn numbers_with_any_marks_order_by_value(
        a in -10_000_000_000i64..10_000_000_000,
        b in -100_000i64..100_000,
        marks in prop::sample::select(vec![",", ".,", " ,", ",.", "'.", "."]),
        grouped in any::<[bool; 2]>(),
    ) {
        let specs = parse_csv_keys(&format!("#1:number({marks})")).unwrap();
        let program = compile_csv(&specs, None, b';', b'"', &[]).unwrap();
        let decimal = marks.chars().last().unwrap();
        let group = marks.chars().next().filter(|_| marks.len() > 1);
        let written = |value: i64, grouped: bool| {
            let text = spelled(value, group.filter(|_| grouped), decimal);
            key(&program, text.as_bytes())
        };
        prop_assert_eq!(written(a, grouped[0]).cmp(&written(b, grouped[1])), a.cmp(&b));
        prop_assert_eq!(written(b, true), written(b, false));
        prop_assert!(written(a, grouped[0])[0] != crate::keys::numeric::TEXT);
    }

    #[test]
    fn text_is_a_number_with_marks_or_kept_as_it_is(
        text in "[0-9.,' e+-]{0,12}",
        marks in prop::sample::select(vec![",", ".,", " ,", "'."]),
    ) {
        let specs = parse_csv_keys(&format!("#1:number({marks})")).unwrap();
        let program = compile_csv(&specs, None, b';', b'"', &[]).unwrap();
        let (group, decimal) = (marks.chars().next().filter(|_| marks.len() > 1), marks.chars().last().unwrap());
        // The same in plain marks; a number in plain marks that are not its own is not accepted.
        let ungrouped = text.chars().filter(|c| Some(*c) != group);
        let plain: String = ungrouped.map(|c| if c == decimal { '.' } else { c }).collect();
        let foreign = text.contains('.') && decimal != '.' && group != Some('.');
        let mut found = 0;
        program.misfits(text.as_bytes(), &mut |_, _| found += 1);
        if found == 0 && !text.is_empty() {
            prop_assert!(!foreign && Number::parse(plain.as_bytes()).is_some(), "{} {}", text, marks);
        } else if group.is_none() && !text.is_empty() {
            prop_assert!(foreign || Number::parse(plain.as_bytes()).is_none(), "{} {}", text, marks);
        }
    }
}
