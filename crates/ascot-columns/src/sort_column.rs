//! Key columns, as a user names them.

use arrow_schema::SchemaRef;

use crate::error::{ColumnsError, Result};

/// A key column and its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortColumn {
    /// The name of the column.
    pub name: String,
    /// The greatest come first.
    pub descending: bool,
    /// Nulls come before all values, whatever the direction; otherwise they come after them.
    pub nulls_first: bool,
}

impl SortColumn {
    /// Ascending, nulls last.
    pub fn new(name: impl Into<String>) -> SortColumn {
        SortColumn { name: name.into(), descending: false, nulls_first: false }
    }
}

/// The positions of the key columns in a schema, without repetitions.
pub(crate) fn key_columns<'k>(
    schema: &SchemaRef,
    keys: &'k [SortColumn],
) -> Result<Vec<(usize, &'k SortColumn)>> {
    let mut columns: Vec<(usize, &SortColumn)> = Vec::new();
    for key in keys {
        let mut found = schema.fields().iter().enumerate().filter(|(_, field)| *field.name() == key.name);
        let Some((column, _)) = found.next() else {
            let known = schema.fields().iter().map(|field| field.name().clone()).collect();
            return Err(ColumnsError::UnknownColumn { name: key.name.clone(), known });
        };
        if found.next().is_some() {
            return Err(ColumnsError::AmbiguousColumn { name: key.name.clone() });
        }
        // Rows that are equal in a column stay equal in it.
        if columns.iter().all(|(other, _)| *other != column) {
            columns.push((column, key));
        }
    }
    if columns.is_empty() { Err(ColumnsError::NoKey) } else { Ok(columns) }
}
