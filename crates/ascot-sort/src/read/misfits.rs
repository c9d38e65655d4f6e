//! Misfits, values that are not of their column's type: the number in each key column, and the position of the first.
//! They are counted once each, as records are read, and stored with the progress of the job.
//!
//! Counting costs nothing if all values fit: records are examined again only if a key among them was written for
//! a misfit ([`ascot_record::keys::misfits_written`]).

use ascot_model::report::{ColumnAccount, ColumnFallback, ValuePosition};
use ascot_record::keys::KeyColumn;

use crate::api::{Result, SortError};
use crate::read::inputs::{InputFile, Inputs};
use crate::read::open::bearer;
use crate::records::{KeyMisfits, Misfit, Misfits, fix_of, title};

impl Misfits {
    /// Error for the misfit that comes first in the inputs, if there is any.
    pub fn refuse(&self, columns: &[KeyColumn], inputs: &Inputs, header: bool) -> Result<()> {
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
            advice: "name another type (--key COLUMN:TYPE), name the spellings of null (--null TEXT), or \
                     leave out --strict: such values then sort last"
                .into(),
        })
    }

    /// The accounts of the key columns, with their misfits.
    pub fn accounts(&self, columns: &[KeyColumn], inputs: &Inputs, header: bool) -> Vec<ColumnAccount> {
        let none = KeyMisfits::default();
        let account = |(at, column): (usize, &KeyColumn)| {
            let key = self.keys.get(at).unwrap_or(&none);
            let place = |misfit: &Misfit| ValuePosition {
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

/// The account of a column that was taken for text although it looks like another type.
fn fallback_of(column: &KeyColumn, inputs: &Inputs, header: bool) -> Option<ColumnFallback> {
    let fallback = column.fallback.as_ref()?;
    let (row, value) = &fallback.first;
    let sampled = bearer(inputs);
    Some(ColumnFallback {
        kind: fallback.kind.to_string(),
        values: fallback.fitting as u64,
        others: fallback.others as u64,
        first: ValuePosition {
            input: sampled.map_or_else(String::new, InputFile::name),
            row: *row as u64 + 1 + u64::from(header),
            value: value.clone(),
        },
        fix: fix_of(column, fallback),
    })
}

fn name_of(inputs: &Inputs, number: usize) -> String {
    inputs.get(number).map_or_else(String::new, InputFile::name)
}

/// The row number of a misfit, from 1, counting the header.
fn row_of(misfit: &Misfit, header: bool) -> u64 {
    misfit.record + 1 + u64::from(header)
}
