//! Results of studies and traces as tables: typed columns of equal length, as lists of Python or as Arrow batches.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, RecordBatchOptions,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::arrow::Batch;
use crate::errors::{Failure, Result};

/// Columns of equal length.
#[pyclass(frozen, module = "ascot._native")]
pub struct Table {
    batch: RecordBatch,
}

#[pymethods]
impl Table {
    /// A table of columns: the name of each, its kind (`text`, `count`, `number`, `flag`), and its values or None.
    #[new]
    fn new(columns: Vec<(String, String, Bound<'_, PyAny>)>) -> PyResult<Table> {
        let array = |kind: &str, values: &Bound<'_, PyAny>| -> PyResult<ArrayRef> {
            Ok(match kind {
                "text" => Arc::new(StringArray::from(values.extract::<Vec<Option<String>>>()?)),
                "count" => Arc::new(UInt64Array::from(values.extract::<Vec<Option<u64>>>()?)),
                "number" => Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?)),
                "flag" => Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?)),
                other => return Err(PyTypeError::new_err(format!("there is no kind of column '{other}'"))),
            })
        };
        let mut made = Columns::new(&[(); 0]);
        for (name, kind, values) in &columns {
            made.add(name, array(kind, values)?);
        }
        Ok(made.table()?)
    }

    /// Number of rows.
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The table as an Arrow batch.
    fn batch(&self) -> Batch {
        Batch::new(self.batch.clone())
    }

    /// The values of a column from row `start` to row `stop`; None for a null.
    #[pyo3(signature = (name, start=0, stop=None))]
    fn values<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        start: usize,
        stop: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let column = self.batch.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let stop = stop.unwrap_or(column.len()).min(column.len());
        list_of(py, &column.slice(start.min(stop), stop - start.min(stop)))
    }
}

/// The values of an array.
fn list_of<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match array.data_type() {
        DataType::UInt64 => PyList::new(py, array.as_primitive::<UInt64Type>().iter().collect::<Vec<_>>()),
        DataType::Float64 => PyList::new(py, array.as_primitive::<Float64Type>().iter().collect::<Vec<_>>()),
        DataType::Boolean => PyList::new(py, array.as_boolean().iter().collect::<Vec<_>>()),
        DataType::Dictionary(..) => {
            let words = array.as_dictionary::<UInt32Type>();
            let known = list_of(py, words.values())?;
            let word = |key: Option<u32>| {
                key.map_or_else(|| Ok(py.None().into_bound(py)), |key| known.get_item(key as usize))
            };
            PyList::new(py, words.keys().iter().map(word).collect::<PyResult<Vec<_>>>()?)
        }
        _ => PyList::new(py, array.as_string::<i32>().iter().collect::<Vec<_>>()),
    }
}

/// The columns of a table, which is made of one row for each of some results.
pub struct Columns<'r, R> {
    rows: &'r [R],
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl<'r, R> Columns<'r, R> {
    /// No columns yet, of a table of `rows`.
    pub fn new(rows: &'r [R]) -> Self {
        Columns { rows, fields: Vec::new(), arrays: Vec::new() }
    }

    fn add(&mut self, name: &str, array: ArrayRef) {
        self.fields.push(Field::new(name, array.data_type().clone(), true));
        self.arrays.push(array);
    }

    fn with(mut self, name: &str, array: ArrayRef) -> Self {
        self.add(name, array);
        self
    }

    /// A column of text.
    pub fn text<T: AsRef<str>>(self, name: &str, value: impl Fn(&'r R) -> T) -> Self {
        let values = StringArray::from_iter_values(self.rows.iter().map(value));
        self.with(name, Arc::new(values))
    }

    /// A column of text that repeats: each row has the number of a word.
    pub fn words(self, name: &str, words: &[String], value: impl Fn(&'r R) -> u32) -> Result<Self> {
        let keys = UInt32Array::from_iter_values(self.rows.iter().map(value));
        let words = DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(StringArray::from(words.to_vec())));
        Ok(self.with(name, Arc::new(words.map_err(wrong)?)))
    }

    /// A column of whole numbers.
    pub fn count(self, name: &str, value: impl Fn(&'r R) -> u64) -> Self {
        self.count_or_null(name, |row| Some(value(row)))
    }

    /// The same, in which numbers may be missing.
    pub fn count_or_null(self, name: &str, value: impl Fn(&'r R) -> Option<u64>) -> Self {
        let values: UInt64Array = self.rows.iter().map(value).collect();
        self.with(name, Arc::new(values))
    }

    /// A column of numbers.
    pub fn number(self, name: &str, value: impl Fn(&'r R) -> f64) -> Self {
        self.number_or_null(name, |row| Some(value(row)))
    }

    /// The same, in which numbers may be missing.
    pub fn number_or_null(self, name: &str, value: impl Fn(&'r R) -> Option<f64>) -> Self {
        let values: Float64Array = self.rows.iter().map(value).collect();
        self.with(name, Arc::new(values))
    }

    /// A column of yes and no.
    pub fn flag(self, name: &str, value: impl Fn(&'r R) -> bool) -> Self {
        let values: BooleanArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.with(name, Arc::new(values))
    }

    /// The table.
    ///
    /// # Errors
    /// Columns of different lengths.
    pub fn table(self) -> Result<Table> {
        let schema = Arc::new(Schema::new(self.fields));
        let rows = self.arrays.first().map_or(0, |array| array.len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(Table { batch: RecordBatch::try_new_with_options(schema, self.arrays, &options).map_err(wrong)? })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn wrong(error: ArrowError) -> Failure {
    Failure::Request(format!("the columns are no table: {error}"))
}
