//! The columns that keys name: their positions, the types of their values, and notices about types inferred from a
//! sample.
//!
//! A column is numeric if all its sampled values are numbers, else a date if all are dates, else text. If it falls
//! back to text although most values have another type, or all have one in another spelling, that is reported.

use super::bytes::Ending;
use super::csv::{CsvKey, CsvType, infer_type};
use super::csv_header::{find_column, header_names, texts};
use super::csv_row::Row;
use super::csv_spec::{CsvColumn, CsvKeySpec};
use super::date_format::DateFormat;
use super::numeric::NumberMarks;
use super::{KeyError, KeyProgram, Source};

/// A column that a key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its number, from 0.
    pub column: usize,
    /// Its name, if there is a header.
    pub name: Option<String>,
    /// How its values are ordered.
    pub kind: CsvType,
    /// Whether the type was inferred from a sample.
    pub inferred: bool,
    /// The type that most values of a text column seem to have.
    pub fallback: Option<Fallback>,
}

/// The apparent type of a column that was inferred as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The likely type.
    pub kind: CsvType,
    /// Sampled values of that type.
    pub fitting: usize,
    /// Other values that are not null.
    pub others: usize,
    /// The first value that kept the type from being inferred: its row in the sample, from 0, and the value.
    pub first: (usize, String),
    /// The single other value, if all others are equal: probably a spelling of null.
    pub null: Option<String>,
}

/// Longest value that is shown, characters.
const SHOWN_CHARS: usize = 40;

/// Finds the columns of keys, and infers missing types. `header` and rows come without their terminators.
///
/// # Errors
/// A missing column, or an ambiguous name.
pub fn csv_columns(
    specs: &[CsvKeySpec],
    header: Option<&[u8]>,
    separator: u8,
    quote: u8,
    sample_rows: &[&[u8]],
) -> Result<Vec<KeyColumn>, KeyError> {
    let names = header.map(|header| header_names(header, separator, quote));
    let find = |spec: &CsvKeySpec| {
        let column = find_column(&spec.column, names.as_deref())?;
        let reaches = |row: &&[u8]| Row::new(row, separator, quote).nth(column).is_some();
        if header.is_none()
            && let Some(first) = sample_rows.first()
            && let CsvColumn::Number(number) = &spec.column
            && !sample_rows.iter().any(reaches)
        {
            let columns = Row::new(first, separator, quote).count();
            return Err(KeyError::ColumnBeyondRows { number: *number, columns });
        }
        let name = names.as_ref().and_then(|names| names.get(column));
        let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
        if let Some(kind) = &spec.kind {
            return Ok(KeyColumn { column, name, kind: kind.clone(), inferred: false, fallback: None });
        }
        let value = |row: &&[u8]| Row::new(row, separator, quote).nth(column).map(|field| field.content());
        let is_null =
            |value: &[u8]| value.is_empty() || spec.nulls.iter().any(|null| null.as_bytes() == value);
        let values = sample_rows.iter().map(value).enumerate();
        let values: Vec<(usize, Vec<u8>)> = values
            .filter_map(|(row, value)| Some((row, value?)))
            .filter(|(_, value)| !is_null(value))
            .collect();
        let kind = infer_type(values.iter().map(|(_, value)| value.as_slice()));
        let fallback = if kind == CsvType::Text { fallback(&values) } else { None };
        Ok(KeyColumn { column, name, kind, inferred: true, fallback })
    };
    specs.iter().map(find).collect()
}

/// Compiles keys by column. `header` is the first row, if it holds the names; `sample_rows` are the rows from which
/// missing types are inferred. Rows come without their terminators.
///
/// # Errors
/// A missing column, or an ambiguous name.
pub fn compile_csv(
    specs: &[CsvKeySpec],
    header: Option<&[u8]>,
    separator: u8,
    quote: u8,
    sample_rows: &[&[u8]],
) -> Result<KeyProgram, KeyError> {
    let columns = csv_columns(specs, header, separator, quote, sample_rows)?;
    Ok(compile_columns(specs, &columns, separator, quote))
}

/// Compiles keys for columns that are already found.
#[must_use]
pub fn compile_columns(specs: &[CsvKeySpec], columns: &[KeyColumn], separator: u8, quote: u8) -> KeyProgram {
    let last = specs.len().saturating_sub(1);
    let keys = specs.iter().zip(columns).enumerate().map(|(at, (spec, column))| CsvKey {
        column: column.column,
        kind: column.kind.clone(),
        descending: spec.descending,
        nulls_first: spec.nulls_first,
        ending: if at == last && !spec.descending { Ending::Open } else { Ending::Closed },
        nulls: spec.nulls.iter().map(|null| null.clone().into_bytes()).collect(),
    });
    KeyProgram { source: Source::Csv { separator, quote, keys: keys.collect() } }
}

/// The type that text values seem to have.
fn fallback(values: &[(usize, Vec<u8>)]) -> Option<Fallback> {
    let candidates = [CsvType::Number, CsvType::Date].into_iter().chain(other_spellings());
    let fitting = |kind: &CsvType| values.iter().filter(|(_, value)| kind.takes(value)).count();
    // Of several types, the first with the most values; text that contains some number is text.
    let mut best: Option<(CsvType, usize)> = None;
    for kind in candidates {
        let count = fitting(&kind);
        if 2 * count > values.len() && best.as_ref().is_none_or(|(_, max_count)| count > *max_count) {
            best = Some((kind, count));
        }
    }
    let (kind, fitting) = best?;
    let plain = matches!(kind, CsvType::Number | CsvType::Date);
    let mut others = values.iter().filter(|(_, value)| !kind.takes(value));
    let first = if plain { others.clone().next()? } else { values.first()? };
    let other = others.next().map(|(_, value)| value);
    let alike = other.filter(|other| values.iter().all(|(_, value)| kind.takes(value) || value == *other));
    Some(Fallback {
        kind,
        fitting,
        others: values.len() - fitting,
        first: (first.0, shown(&first.1)),
        null: alike.map(|null| shown(null)),
    })
}

/// Types in common spellings that are never inferred.
fn other_spellings() -> impl Iterator<Item = CsvType> {
    let marks = [(b',', None), (b',', Some(b'.')), (b'.', Some(b','))];
    let marks = marks.map(|(decimal, group)| CsvType::MarkedNumber(NumberMarks { decimal, group }));
    let formats = [
        "%d.%m.%Y",
        "%d.%m.%y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%Y/%m/%d",
        "%d-%m-%Y",
        "%Y%m%d",
        "%d %b %Y",
        "%b %d, %Y",
        "%d-%b-%Y",
        "%d.%m.%Y %H:%M",
        "%d.%m.%Y %H:%M:%S%.f",
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %H:%M",
        "%d/%m/%Y %H:%M:%S%.f",
        "%m/%d/%Y %H:%M:%S%.f",
        "%d/%b/%Y:%H:%M:%S %z",
        "%m/%d/%Y %I:%M:%S %p",
    ];
    let formats = formats.into_iter().filter_map(|format| DateFormat::new(format).ok());
    marks.into_iter().chain(formats.map(CsvType::FormattedDate))
}

/// A value in the form for messages: on one line, and shortened.
#[must_use]
pub fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown = String::new();
    for char in text.chars().take(SHOWN_CHARS) {
        match char.is_control() {
            true => shown.extend(char.escape_debug()),
            false => shown.push(char),
        }
    }
    if text.chars().count() > SHOWN_CHARS {
        shown += "...";
    }
    shown
}

/// The names in `first`, if that row looks like a header of `rows`: its fields are distinct texts, and the values
/// below some of them are numbers or dates.
#[must_use]
pub fn header_like(first: &[u8], rows: &[&[u8]], separator: u8, quote: u8) -> Option<Vec<String>> {
    let names = header_names(first, separator, quote);
    let is_typed = |value: &[u8]| infer_type([value]) != CsvType::Text;
    let alike = |at: usize, name: &Vec<u8>| names.iter().skip(at + 1).any(|other| other == name);
    let named = |(at, name): (usize, &Vec<u8>)| !is_typed(name) && !alike(at, name);
    let mut typed = vec![(0, true); names.len()];
    for row in rows {
        for ((count, all), field) in typed.iter_mut().zip(Row::new(row, separator, quote)) {
            let value = field.content();
            if !value.is_empty() {
                *count += 1;
                *all = *all && is_typed(&value);
            }
        }
    }
    let below = typed.iter().any(|(count, all)| *count > 0 && *all);
    // A column of row numbers often has no name.
    let any = names.iter().any(|name| !name.is_empty());
    (below && any && names.iter().enumerate().all(named)).then(|| texts(&names))
}
