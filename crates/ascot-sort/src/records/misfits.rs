//! Misfits, values that are not of their column's type: they are counted once each, as records are read, and stored
//! with the progress of the job.

use ascot_record::keys::{CsvType, Fallback, KeyColumn, shown};
use serde::{Deserialize, Serialize};

use crate::api::{Result, SortError};

/// Common spellings of null.
const NULLS: [&str; 14] =
    ["\\N", "null", "na", "n/a", "#n/a", "none", "nil", "(null)", "-", "--", ".", "?", "missing", "unknown"];

/// The start of the records of one input within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputStart {
    /// Records of the chunk before them.
    pub at: usize,
    /// Number of the input.
    pub input: usize,
    /// Records of the input before the chunk.
    pub before: u64,
}

/// Misfits of each key among the records of a chunk.
#[derive(Clone, Debug, Default)]
pub struct ChunkMisfits(Vec<MisfitsOfKey>);

/// Misfits of one key in a chunk: their number, and the record and value of the first.
#[derive(Clone, Debug, Default)]
struct MisfitsOfKey {
    count: u64,
    record: usize,
    value: String,
}

impl ChunkMisfits {
    /// Adds a value of key number `key`, in record `record` of the chunk.
    pub fn note(&mut self, key: usize, record: usize, value: &[u8]) {
        if self.0.len() <= key {
            self.0.resize_with(key + 1, MisfitsOfKey::default);
        }
        if let Some(of_key) = self.0.get_mut(key) {
            if of_key.count == 0 {
                of_key.record = record;
                of_key.value = shown(value);
            }
            of_key.count += 1;
        }
    }

    /// The first misfit of the first key that has one: the key, the record of the chunk, and the value.
    pub fn first(&self) -> Option<(usize, usize, &str)> {
        let found = self.0.iter().enumerate().find(|(_, of_key)| of_key.count > 0);
        found.map(|(key, of_key)| (key, of_key.record, of_key.value.as_str()))
    }

    /// Converts record numbers of the chunk to those of the inputs, whose records begin at `starts`.
    pub fn placed(self, starts: &[InputStart]) -> Misfits {
        let place = |MisfitsOfKey { count, record, value }| {
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

/// Misfits of each key; keys beyond the end have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfits {
    pub(crate) keys: Vec<KeyMisfits>,
}

/// Misfits of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyMisfits {
    pub(crate) count: u64,
    pub(crate) first: Option<Misfit>,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Misfit {
    pub(crate) input: usize,
    /// Records of the input before it.
    pub(crate) record: u64,
    pub(crate) value: String,
}

impl Misfits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.iter().all(|key| key.count == 0)
    }

    /// Adds the misfits of other records.
    pub fn combine(&mut self, others: &Misfits) {
        if self.keys.len() < others.keys.len() {
            self.keys.resize_with(others.keys.len(), KeyMisfits::default);
        }
        for (key, other) in self.keys.iter_mut().zip(&others.keys) {
            key.count += other.count;
            let firsts = key.first.iter().chain(&other.first);
            key.first = firsts.min_by_key(|misfit| (misfit.input, misfit.record)).cloned();
        }
    }
}

/// Error for a column that was taken for text although most of its values look like another type.
pub(crate) fn refuse_fallbacks(columns: &[KeyColumn], input: &str, header: bool) -> Result<()> {
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
            "most values of the column are: write {}, or :text if it is text",
            fix_of(column, fallback)
        ),
    })
}

/// Flags that give a column the type that it looks like.
pub(crate) fn fix_of(column: &KeyColumn, fallback: &Fallback) -> String {
    let Fallback { kind, null, .. } = fallback;
    let key = format!("--key '{}:{kind}'", title(column));
    let is_null = |text: &&String| NULLS.iter().any(|null| text.eq_ignore_ascii_case(null));
    match null.as_ref().filter(is_null) {
        Some(null) if matches!(kind, CsvType::Number | CsvType::Date) => format!("--null '{null}'"),
        Some(null) => format!("{key} --null '{null}'"),
        None => key,
    }
}

/// The name of the column in a key.
pub(crate) fn title(column: &KeyColumn) -> String {
    column.name.clone().unwrap_or_else(|| format!("#{}", column.column + 1))
}
