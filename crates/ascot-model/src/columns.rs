//! The columns of keys in a report: their types, and the values that are not of their column's type.

use serde::{Deserialize, Serialize};

use crate::units;

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnAccount {
    /// Its number, from 1.
    pub column: u64,
    /// Its name, if there is a header.
    pub name: Option<String>,
    /// The type of its values: `text`, `number`, `date`, or one of these with marks or a form.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the type was inferred from a sample.
    pub inferred: bool,
    /// Values that are neither of the type nor null.
    pub misfits: u64,
    /// The first of those values.
    pub first_misfit: Option<ValuePlace>,
    /// The type of most sampled values, if the column was taken for text.
    pub fallback: Option<ColumnFallback>,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValuePlace {
    /// The input file.
    pub input: String,
    /// The row, from 1; a header counts.
    pub row: u64,
    /// The value; a long one is truncated.
    pub value: String,
}

/// The type of most sampled values of a column that was taken for text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnFallback {
    /// That type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of sampled values of this type.
    pub values: u64,
    /// Number of sampled values that are not, and not null.
    pub others: u64,
    /// The first value that kept the column from having a type.
    pub first: ValuePlace,
    /// Flags that give the column this type.
    pub fix: String,
}

/// The columns in one line of text.
#[must_use]
pub fn column_words(columns: &[ColumnAccount]) -> String {
    let words: Vec<String> = columns.iter().map(ColumnAccount::words).collect();
    words.join("; ")
}

impl ColumnAccount {
    /// Whether the user should know of it: its type was inferred, or some values are not of this type.
    #[must_use]
    pub fn is_worth_a_word(&self) -> bool {
        self.inferred || self.misfits > 0
    }

    fn words(&self) -> String {
        let name = self.name.clone().unwrap_or_else(|| format!("#{}", self.column));
        let mut text = format!("{name} as {}{}", self.kind, if self.inferred { " (inferred)" } else { "" });
        if let Some(first) = &self.first_misfit {
            let (are, singular) = if self.misfits == 1 { ("is not", "value") } else { ("are not", "values") };
            text += &format!(
                ", {} {singular} {are} of that type, the first '{}' in row {} of {}",
                units::count(self.misfits),
                first.value,
                first.row,
                first.input
            );
        }
        if let Some(fallback) = &self.fallback {
            let ColumnFallback { kind, values, others, first, fix } = fallback;
            text += &format!(
                ", although {} of {} sampled values are of type {kind}; {}: '{}' in row {} of {} ({fix})",
                units::count(*values),
                units::count(values + others),
                if *others == 0 { "the first" } else { "the first that is not" },
                first.value,
                first.row,
                first.input,
            );
        }
        text
    }
}
