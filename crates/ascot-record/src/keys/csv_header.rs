//! The header of a CSV file: its names, the column of a name, and the difference of two headers.

use super::KeyError;
use super::csv_row::Row;
use super::csv_spec::CsvColumn;

/// The names in a header, quotes removed.
pub(super) fn header_names(header: &[u8], separator: u8, quote: u8) -> Vec<Vec<u8>> {
    let header = header.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(header);
    Row::new(header, separator, quote).map(|field| field.content()).collect()
}

/// The names of the columns of a header, which comes without its terminator.
pub fn header_columns(header: &[u8], separator: u8, quote: u8) -> Vec<String> {
    texts(&header_names(header, separator, quote))
}

/// Names as texts; bytes that are not UTF-8 are replaced.
pub(super) fn texts(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// A difference between two headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderDifference {
    /// The first column that differs, from 1.
    pub column: usize,
    /// Its names in the two headers; `None` if a header ends before it.
    pub names: [Option<String>; 2],
}

/// The first difference of two headers, which come without their terminators: their names count, not the quoting.
pub fn header_difference(headers: [&[u8]; 2], separator: u8, quote: u8) -> Option<HeaderDifference> {
    let names = headers.map(|header| header_names(header, separator, quote));
    let [one, other] = &names;
    let at = (0..one.len().max(other.len())).find(|&at| one.get(at) != other.get(at))?;
    let names = names.map(|names| texts(&names).into_iter().nth(at));
    Some(HeaderDifference { column: at + 1, names })
}

/// The column's number from 0.
pub(super) fn find_column(column: &CsvColumn, names: Option<&[Vec<u8>]>) -> Result<usize, KeyError> {
    match (column, names) {
        (CsvColumn::Number(number), Some(names)) if *number > names.len() => {
            Err(KeyError::ColumnBeyond { number: *number, columns: names.len(), names: texts(names) })
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
    let columns = texts(names);
    let wanted = name.to_lowercase();
    let distance = |column: &&String| strsim::levenshtein(&wanted, &column.to_lowercase());
    let nearest = columns.iter().min_by_key(distance);
    // A third of the name may differ; beyond that, a suggestion is noise.
    let nearest = nearest.filter(|column| distance(column) <= wanted.chars().count().div_ceil(3)).cloned();
    KeyError::UnknownColumn { name: name.to_owned(), columns, nearest }
}

#[cfg(test)]
mod tests {
    use super::super::{compile_csv, parse_csv_keys};
    use super::*;

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
}
