//! What a report tells of the columns of keys: their types, and the values that are not of them.

use serde::{Deserialize, Serialize};

use crate::units;

/// A column that a key names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnAccount {
    /// Its number, from 1.
    pub column: u64,
    /// Its name, where there is a header.
    pub name: Option<String>,
    /// The type of its values: `text`, `number`, `date`, or one of these with marks or a form.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether that was taken from a sample.
    pub inferred: bool,
    /// Values that are neither of the type nor null.
    pub misfits: u64,
    /// The first of them.
    pub first_misfit: Option<ValuePlace>,
    /// What sampled values look like, where the column was taken for text.
    pub fallback: Option<ColumnFallback>,
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValuePlace {
    /// The input.
    pub input: String,
    /// The row, from 1; a header is one.
    pub row: u64,
    /// The value; a long one is cut off.
    pub value: String,
}

/// What most sampled values look like in a column that was taken for text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnFallback {
    /// The type they are of.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many sampled values are of it.
    pub values: u64,
    /// How many are not, and not null.
    pub others: u64,
    /// The first that kept the column from being of a type.
    pub first: ValuePlace,
    /// Flags by which the column has that type.
    pub fix: String,
}

/// What is said of such columns in one line.
#[must_use]
pub fn column_words(columns: &[ColumnAccount]) -> String {
    let words: Vec<String> = columns.iter().map(ColumnAccount::words).collect();
    words.join("; ")
}

impl ColumnAccount {
    /// Whether there is anything to say of it: its type was inferred, or some values are not of it.
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
