//! Reading the description of CSV keys, and finding its columns in a header.

use super::bytes::Ending;
use super::csv::{CsvKey, CsvType, infer_type};
use super::csv_row::Row;
use super::{KeyError, KeyProgram};
use serde::{Deserialize, Serialize};

/// A column, as a key names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CsvColumn {
    /// By its name in the header.
    Name(String),
    /// By its number, from 1.
    Number(usize),
}

/// One column of a description of CSV keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvKeySpec {
    /// Which column.
    pub column: CsvColumn,
    /// The greatest first.
    pub descending: bool,
    /// The type; none: taken from a sample.
    pub kind: Option<CsvType>,
    /// Nulls before all values; else behind.
    pub nulls_first: bool,
}

/// Reads `column[:asc|desc][:text|number|date|auto][:nulls-first|nulls-last],...`. A column is a name, a name in
/// double quotes (a quote in it doubled), or `#` and a number from 1; a minus sign before it is `:desc`.
///
/// # Errors
/// An empty entry, an unknown or repeated modifier, a bad number, an unclosed quote.
pub fn parse_csv_keys(text: &str) -> Result<Vec<CsvKeySpec>, KeyError> {
    let entries = split_unquoted(text, ',', text)?;
    entries.iter().enumerate().map(|(at, entry)| parse_entry(entry, at + 1, text)).collect()
}

fn parse_entry(entry: &str, position: usize, text: &str) -> Result<CsvKeySpec, KeyError> {
    let parts = split_unquoted(entry, ':', text)?;
    let (column, modifiers) = parts.split_first().map_or(("", &[][..]), |(column, rest)| (*column, rest));
    let (minus, column) =
        column.trim().strip_prefix('-').map_or((false, column.trim()), |column| (true, column));
    if column.is_empty() {
        return Err(KeyError::EmptyKey { position, text: text.to_owned() });
    }
    let mut given = Modifiers { descending: minus.then_some(true), ..Modifiers::default() };
    for modifier in modifiers {
        given.take(modifier.trim(), entry)?;
    }
    Ok(CsvKeySpec {
        column: parse_column(column)?,
        descending: given.descending.unwrap_or(false),
        kind: given.kind.unwrap_or(None),
        nulls_first: given.nulls_first.unwrap_or(false),
    })
}

fn parse_column(text: &str) -> Result<CsvColumn, KeyError> {
    if let Some(number) = text.strip_prefix('#') {
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        return match number.parse::<usize>() {
            Ok(number) if number > 0 && digits => Ok(CsvColumn::Number(number)),
            _ => Err(KeyError::ColumnNumber { text: text.to_owned() }),
        };
    }
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Ok(CsvColumn::Name(quoted.map_or_else(|| text.to_owned(), |name| name.replace("\"\"", "\""))))
}

/// Splits at `separator` outside double quotes.
fn split_unquoted<'t>(part: &'t str, separator: char, text: &str) -> Result<Vec<&'t str>, KeyError> {
    let mut inside = false;
    let split = |c: char| {
        inside ^= c == '"';
        c == separator && !inside
    };
    let parts = part.split(split).collect();
    if inside {
        return Err(KeyError::OpenQuote { text: text.to_owned() });
    }
    Ok(parts)
}

/// What the modifiers of one key have said so far.
#[derive(Default)]
struct Modifiers {
    descending: Option<bool>,
    kind: Option<Option<CsvType>>,
    nulls_first: Option<bool>,
}

impl Modifiers {
    fn take(&mut self, modifier: &str, key: &str) -> Result<(), KeyError> {
        let (what, repeated) = match modifier {
            "asc" | "desc" => ("direction", self.descending.replace(modifier == "desc").is_some()),
            "nulls-first" | "nulls-last" => {
                ("place of nulls", self.nulls_first.replace(modifier == "nulls-first").is_some())
            }
            "text" => ("type", self.kind.replace(Some(CsvType::Text)).is_some()),
            "number" => ("type", self.kind.replace(Some(CsvType::Number)).is_some()),
            "date" => ("type", self.kind.replace(Some(CsvType::Date)).is_some()),
            "auto" => ("type", self.kind.replace(None).is_some()),
            _ => return Err(KeyError::Modifier { modifier: modifier.to_owned(), key: key.to_owned() }),
        };
        if repeated {
            return Err(KeyError::Repeated { key: key.to_owned(), what });
        }
        Ok(())
    }
}

/// Compiles keys by column. `header` is the first row, where it holds the names; `sample_rows` are the rows that
/// columns without a type take it from. Rows come without what ends them.
///
/// # Errors
/// A column that is not there, or a name that is there twice.
pub fn compile_csv(
    specs: &[CsvKeySpec],
    header: Option<&[u8]>,
    separator: u8,
    quote: u8,
    sample_rows: &[&[u8]],
) -> Result<KeyProgram, KeyError> {
    let names = header.map(|header| header_names(header, separator, quote));
    let last = specs.len().saturating_sub(1);
    let compile = |(at, spec): (usize, &CsvKeySpec)| {
        let column = find_column(&spec.column, names.as_deref())?;
        let kind = spec.kind.unwrap_or_else(|| sampled_type(sample_rows, column, separator, quote));
        Ok(CsvKey {
            column,
            kind,
            descending: spec.descending,
            nulls_first: spec.nulls_first,
            ending: if at == last && !spec.descending { Ending::Open } else { Ending::Closed },
        })
    };
    let keys = specs.iter().enumerate().map(compile).collect::<Result<_, _>>()?;
    Ok(KeyProgram::csv(separator, quote, keys))
}

fn sampled_type(rows: &[&[u8]], column: usize, separator: u8, quote: u8) -> CsvType {
    let value = |row: &&[u8]| Row::new(row, separator, quote).nth(column).map(|field| field.content());
    let values: Vec<Vec<u8>> = rows.iter().filter_map(value).collect();
    infer_type(values.iter().map(Vec::as_slice))
}

fn header_names(header: &[u8], separator: u8, quote: u8) -> Vec<Vec<u8>> {
    let header = header.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(header);
    Row::new(header, separator, quote).map(|field| field.content()).collect()
}

/// The names of the columns that a header, which comes without what ends it, has.
pub fn header_columns(header: &[u8], separator: u8, quote: u8) -> Vec<String> {
    let names = header_names(header, separator, quote);
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Where a header differs from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderDifference {
    /// The first column that differs, from 1.
    pub column: usize,
    /// Its names in the two; none where a header ends before it.
    pub names: [Option<String>; 2],
}

/// The first difference of two headers, which come without what ends them: their names count, not how these are
/// quoted.
pub fn header_difference(headers: [&[u8]; 2], separator: u8, quote: u8) -> Option<HeaderDifference> {
    let [one, other] = headers.map(|header| header_names(header, separator, quote));
    let differs = |at: &usize| one.get(*at) != other.get(*at);
    let at = (0..one.len().max(other.len())).find(differs)?;
    let name = |names: &[Vec<u8>]| names.get(at).map(|name| String::from_utf8_lossy(name).into_owned());
    Some(HeaderDifference { column: at + 1, names: [name(&one), name(&other)] })
}

/// The column's number from 0.
fn find_column(column: &CsvColumn, names: Option<&[Vec<u8>]>) -> Result<usize, KeyError> {
    match (column, names) {
        (CsvColumn::Number(number), Some(names)) if *number > names.len() => {
            let names: Vec<String> =
                names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            Err(KeyError::ColumnBeyond { number: *number, columns: names.len(), names })
        }
        (CsvColumn::Number(number), _) => Ok(number.saturating_sub(1)),
        (CsvColumn::Name(name), None) => Err(KeyError::NoHeader { name: name.clone() }),
        (CsvColumn::Name(name), Some(names)) => {
            let mut found = names.iter().enumerate().filter(|(_, n)| n.as_slice() == name.as_bytes());
            match (found.next(), found.next()) {
                (Some((at, _)), None) => Ok(at),
                (Some((first, _)), Some((second, _))) => Err(KeyError::AmbiguousColumn {
                    name: name.clone(),
                    first: first + 1,
                    second: second + 1,
                }),
                (None, _) => Err(unknown_column(name, names)),
            }
        }
    }
}

fn unknown_column(name: &str, names: &[Vec<u8>]) -> KeyError {
    let columns: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let wanted = name.to_lowercase();
    let distance = |column: &&String| edit_distance(&wanted, &column.to_lowercase());
    let nearest = columns.iter().min_by_key(distance);
    // A third of the name may differ; beyond, a suggestion is noise.
    let nearest = nearest.filter(|column| distance(column) <= wanted.chars().count().div_ceil(3)).cloned();
    KeyError::UnknownColumn { name: name.to_owned(), columns, nearest }
}

/// How many characters to insert, delete or replace to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut costs: Vec<usize> = (0..=b.len()).collect();
    for (row, x) in a.chars().enumerate() {
        // `diagonal` and `left` are the neighbours of the cell being filled; `costs` still holds those above.
        let mut diagonal = row;
        let mut left = row + 1;
        for (cost, y) in costs.iter_mut().skip(1).zip(&b) {
            let above = *cost;
            left = (diagonal + usize::from(x != *y)).min(above + 1).min(left + 1);
            diagonal = above;
            *cost = left;
        }
        if let Some(first) = costs.first_mut() {
            *first = row + 1;
        }
    }
    costs.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> CsvKeySpec {
        parse_csv_keys(text).unwrap().remove(0)
    }

    #[test]
    fn descriptions_read() {
        let plain = CsvKeySpec {
            column: CsvColumn::Name("ts".into()),
            descending: false,
            kind: None,
            nulls_first: false,
        };
        assert_eq!(parse_one("ts"), plain);
        assert_eq!(parse_one("ts:asc:auto:nulls-last"), plain);
        assert_eq!(parse_one("-ts"), CsvKeySpec { descending: true, ..plain.clone() });
        let full =
            CsvKeySpec { descending: true, kind: Some(CsvType::Number), nulls_first: true, ..plain.clone() };
        assert_eq!(parse_one("ts:number:nulls-first:desc"), full);
        assert_eq!(parse_one("#12").column, CsvColumn::Number(12));
        assert_eq!(parse_one("\"a, \"\"b\"\": c\":desc").column, CsvColumn::Name("a, \"b\": c".into()));
        assert_eq!(parse_one("\"-x\"").column, CsvColumn::Name("-x".into()));
        assert_eq!(parse_csv_keys("tenant,-ts:date, #3 ").unwrap().len(), 3);
    }

    #[test]
    fn descriptions_refused() {
        for (text, words) in [
            ("", "key 1 of '' is empty"),
            ("a,,b", "key 2"),
            ("-", "key 1"),
            ("a:up", "unknown modifier 'up'"),
            ("a:desc:asc", "direction twice"),
            ("-a:desc", "direction twice"),
            ("a:text:date", "type twice"),
            ("a:nulls-first:nulls-first", "place of nulls twice"),
            ("#0", "column number"),
            ("#x", "column number"),
            ("#+1", "column number"),
            ("\"a", "no closing quote"),
        ] {
            let message = parse_csv_keys(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_header_of_one_column_suggests_its_separator() {
        for (header, flag) in [("id;name", "-t ';'"), ("id\tname", "-t tab"), ("id|name", "-t '|'")] {
            for key in ["name", "#2"] {
                let specs = parse_csv_keys(key).unwrap();
                let told = compile_csv(&specs, Some(header.as_bytes()), b',', b'"', &[]).unwrap_err();
                assert!(told.to_string().contains(flag), "{told}");
            }
        }
        let specs = parse_csv_keys("name").unwrap();
        let told = compile_csv(&specs, Some(b"id,nom"), b',', b'"', &[]).unwrap_err().to_string();
        assert!(!told.contains("--separator"), "{told}");
    }

    #[test]
    fn columns_are_found_or_suggested() {
        let header: &[u8] = b"\xEF\xBB\xBFtenant,\"event, time\",count,count";
        let compile =
            |keys: &str, header| compile_csv(&parse_csv_keys(keys).unwrap(), header, b',', b'"', &[]);
        for keys in ["tenant", "\"event, time\"", "#4", "#1,tenant"] {
            assert!(compile(keys, Some(header)).is_ok(), "{keys}");
        }
        for (keys, words) in [
            (
                "Tennant",
                "no column 'Tennant' (did you mean 'tenant'?); the header has: tenant, event, time, count, count",
            ),
            ("zzz", "no column 'zzz'; the header has"),
            ("2,2n", "columns by number begin with '#': '#2', as numbers '#2:number'"),
            ("#5", "no column #5: the header has 4"),
            ("count", "use #3 or #4"),
        ] {
            let message = compile(keys, Some(header)).unwrap_err().to_string();
            assert!(message.contains(words), "{keys}: {message}");
        }
        assert!(compile("#9", None).is_ok());
        assert_eq!(compile("a", None), Err(KeyError::NoHeader { name: "a".into() }));
    }

    #[test]
    fn headers_differ_by_names() {
        let difference = |one: &str, other: &str| {
            let found = header_difference([one.as_bytes(), other.as_bytes()], b',', b'"')?;
            let [one, other] = found.names.map(|name| name.unwrap_or_else(|| "none".into()));
            Some(format!("{} {one} {other}", found.column))
        };
        assert_eq!(difference("id,v", "id,v"), None);
        assert_eq!(difference("\u{feff}id,v", "\"id\",\"v\""), None);
        assert_eq!(difference("id,v", "v,id").as_deref(), Some("1 id v"));
        assert_eq!(difference("id,v", "id,V").as_deref(), Some("2 v V"));
        assert_eq!(difference("id", "id,v").as_deref(), Some("2 none v"));
        assert_eq!(difference("id,v", "id").as_deref(), Some("2 v none"));
        assert_eq!(difference("id,", "id").as_deref(), Some("2  none"));
    }

    #[test]
    fn distances() {
        for (a, b, distance) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }
}
