//! Values that are not of their column's type: how many there are in each column that a key names, and where the
//! first one stands. They are counted where records come in, once each, and kept with how far a job has come.
//!
//! Counting costs nothing where all values fit: only records among which a key of such a value was written are
//! looked at again ([`ascot_record::keys::misfits_written`]).

use ascot_model::report::{ColumnAccount, ColumnFallback, ValuePlace};
use ascot_record::keys::{CsvType, Fallback, KeyColumn, shown};
use serde::{Deserialize, Serialize};

use crate::error::SortError;
use crate::header::bearer;
use crate::input::{InputFile, Inputs};

/// Spellings of null that are common.
const NULLS: [&str; 14] =
    ["\\N", "null", "na", "n/a", "#n/a", "none", "nil", "(null)", "-", "--", ".", "?", "missing", "unknown"];

/// Where the records of an input begin among those of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputStart {
    /// Records of the piece before them.
    pub at: usize,
    /// Number of the input.
    pub input: usize,
    /// Records of the input before the piece.
    pub before: u64,
}

/// Misfits among the records of a piece: of each key the number, the record of the first one and its value.
#[derive(Clone, Debug, Default)]
pub struct PieceMisfits(Vec<(u64, usize, String)>);

impl PieceMisfits {
    /// Takes note of a value of the key `key`, in record `record` of the piece.
    pub fn note(&mut self, key: usize, record: usize, value: &[u8]) {
        if self.0.len() <= key {
            self.0.resize(key + 1, (0, 0, String::new()));
        }
        if let Some((count, first, text)) = self.0.get_mut(key) {
            if *count == 0 {
                (*first, *text) = (record, shown(value));
            }
            *count += 1;
        }
    }

    /// As they stand in the inputs, of whose records `starts` tells where they begin.
    pub fn placed(self, starts: &[InputStart]) -> Misfits {
        let place = |(count, record, value): (u64, usize, String)| {
            let start = starts.iter().rev().find(|start| start.at <= record).filter(|_| count > 0);
            let first = start.map(|start| Misfit {
                input: start.input,
                record: start.before + (record - start.at) as u64,
                value,
            });
            KeyMisfits { count, first }
        };
        Misfits { keys: self.0.into_iter().map(place).collect() }
    }
}

/// Misfits of each key; of keys that are not there none have been met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfits {
    keys: Vec<KeyMisfits>,
}

/// Misfits of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KeyMisfits {
    count: u64,
    first: Option<Misfit>,
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Misfit {
    input: usize,
    /// Records of the input before it.
    record: u64,
    value: String,
}

impl Misfits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.iter().all(|key| key.count == 0)
    }

    /// Adds those of records that come behind.
    pub fn combine(&mut self, later: &Misfits) {
        if self.keys.len() < later.keys.len() {
            self.keys.resize_with(later.keys.len(), KeyMisfits::default);
        }
        for (key, other) in self.keys.iter_mut().zip(&later.keys) {
            key.count += other.count;
            if key.first.is_none() {
                key.first.clone_from(&other.first);
            }
        }
    }

    /// The error of the first of them, where there is one: of that which stands first in the inputs.
    pub fn refuse(&self, columns: &[KeyColumn], inputs: &Inputs, header: bool) -> Result<(), SortError> {
        let firsts = self.keys.iter().zip(columns);
        let firsts = firsts.filter_map(|(key, column)| Some((key.first.as_ref()?, column)));
        let Some((misfit, column)) = firsts.min_by_key(|(misfit, _)| (misfit.input, misfit.record)) else {
            return Ok(());
        };
        Err(SortError::Misfit {
            input: name_of(inputs, misfit.input),
            row: row_of(misfit, header),
            column: title(column).into(),
            value: misfit.value.clone(),
            kind: column.kind.to_string().into(),
            advice: "name another type (--key COLUMN:TYPE), spell out what is null (--null TEXT), or leave out --strict: such values come last".into(),
        })
    }

    /// What is told of the columns of keys, with the misfits there were.
    pub fn accounts(&self, columns: &[KeyColumn], inputs: &Inputs, header: bool) -> Vec<ColumnAccount> {
        let none = KeyMisfits::default();
        let account = |(at, column): (usize, &KeyColumn)| {
            let key = self.keys.get(at).unwrap_or(&none);
            let place = |misfit: &Misfit| ValuePlace {
                input: name_of(inputs, misfit.input),
                row: row_of(misfit, header),
                value: misfit.value.clone(),
            };
            ColumnAccount {
                column: column.column as u64 + 1,
                name: column.name.clone(),
                kind: column.kind.to_string(),
                inferred: column.inferred,
                misfits: key.count,
                first_misfit: key.first.as_ref().map(place),
                fallback: fallback_of(column, inputs, header),
            }
        };
        columns.iter().enumerate().map(account).collect()
    }
}

/// What is told of a column that was taken for text.
fn fallback_of(column: &KeyColumn, inputs: &Inputs, header: bool) -> Option<ColumnFallback> {
    let fallback = column.fallback.as_ref()?;
    let (row, value) = &fallback.first;
    let sampled = bearer(inputs);
    Some(ColumnFallback {
        kind: fallback.kind.to_string(),
        values: fallback.fitting as u64,
        others: fallback.others as u64,
        first: ValuePlace {
            input: sampled.map_or_else(String::new, InputFile::name),
            row: *row as u64 + 1 + u64::from(header),
            value: value.clone(),
        },
        fix: fix_of(column, fallback),
    })
}

/// The error of a column that was taken for text although most of its values look like another type.
pub(crate) fn refuse_fallbacks(columns: &[KeyColumn], input: &str, header: bool) -> Result<(), SortError> {
    let fallen = columns.iter().find_map(|column| Some((column, column.fallback.as_ref()?)));
    let Some((column, fallback)) = fallen else { return Ok(()) };
    let base = match &fallback.kind {
        CsvType::Date | CsvType::FormattedDate(_) => "date",
        _ => "number",
    };
    Err(SortError::Misfit {
        input: input.to_owned(),
        row: fallback.first.0 as u64 + 1 + u64::from(header),
        column: title(column).into(),
        value: fallback.first.1.clone(),
        kind: base.into(),
        advice: format!(
            "most values of the column are: say {}, or :text if it is text",
            fix_of(column, fallback)
        ),
    })
}

/// Flags by which a column has the type that it looks like.
fn fix_of(column: &KeyColumn, fallback: &Fallback) -> String {
    let Fallback { kind, null, .. } = fallback;
    let key = format!("--key '{}:{kind}'", title(column));
    let is_null = |text: &&String| NULLS.iter().any(|null| text.eq_ignore_ascii_case(null));
    match null.as_ref().filter(is_null) {
        Some(null) if matches!(kind, CsvType::Number | CsvType::Date) => format!("--null '{null}'"),
        Some(null) => format!("{key} --null '{null}'"),
        None => key,
    }
}

fn name_of(inputs: &Inputs, number: usize) -> String {
    inputs.get(number).map_or_else(String::new, InputFile::name)
}

/// Its row, from 1, the header among them.
fn row_of(misfit: &Misfit, header: bool) -> u64 {
    misfit.record + 1 + u64::from(header)
}

/// What a key calls the column.
fn title(column: &KeyColumn) -> String {
    column.name.clone().unwrap_or_else(|| format!("#{}", column.column + 1))
}
