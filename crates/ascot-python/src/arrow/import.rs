//! Python objects as streams of batches.
//!
//! | object | read by |
//! | --- | --- |
//! | with `__arrow_c_stream__`: a table, a data frame, a relation | its C functions |
//! | with `__arrow_c_array__`: one batch | its capsules |
//! | an iterator or a list of these; `pyarrow.RecordBatchReader` | Python's `next` |
//!
//! A reader of pyarrow is used as an iterator, since its C functions replace the exceptions of a generator by texts.

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyString};

use super::capsule::{ForeignStream, batch_from_capsules, schema_from_capsule, type_name};
use super::fit::fitted;
use crate::errors::{Failure, Result};

/// What an object exports by the protocol of Arrow.
pub enum Exported {
    /// One batch.
    Batch(RecordBatch),
    /// A stream of batches.
    Stream(ForeignStream),
}

impl Exported {
    /// What `object` exports; none if it exports nothing, and is perhaps an iterator of objects that do.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Option<Exported>> {
        if let Some(export) = object.getattr_opt("__arrow_c_stream__")? {
            return Ok(Some(Exported::Stream(ForeignStream::from_capsule(&export.call0()?)?)));
        }
        if let Some(export) = object.getattr_opt("__arrow_c_array__")? {
            return Ok(Some(Exported::Batch(batch_from_capsules(&export.call0()?)?)));
        }
        Ok(None)
    }

    fn schema(&self) -> SchemaRef {
        match self {
            Exported::Batch(batch) => batch.schema(),
            Exported::Stream(stream) => SchemaRef::clone(stream.schema()),
        }
    }
}

/// A stream of batches of one schema, from a Python object.
pub struct Source {
    schema: SchemaRef,
    /// The export being read.
    exported: Option<Exported>,
    /// The items after it.
    items: Option<Py<PyIterator>>,
    /// Number of exports begun.
    begun: u64,
}

impl Source {
    /// The stream of `object`. The first item of an iterator is taken at once, as it has the schema.
    ///
    /// # Errors
    /// An object without batches, or the exception that it raises.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Source> {
        // A reader of pyarrow.
        let reads = object.hasattr("read_next_batch")?;
        let exported = if reads { None } else { Exported::new(object)? };
        if let Some(exported) = exported {
            return Ok(Source { schema: exported.schema(), exported: Some(exported), items: None, begun: 1 });
        }
        let no_items = object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyBytes>()
            || object.is_instance_of::<PyByteArray>()
            || object.is_instance_of::<PyDict>();
        let items = object.try_iter().ok().filter(|_| !no_items);
        let items = items.ok_or_else(|| no_batches(&format!("{} has", type_name(object)), object))?.unbind();
        let schema = match object.getattr_opt("schema")?.filter(|_| reads) {
            Some(schema) => Some(schema_from_capsule(&schema.call_method0("__arrow_c_schema__")?)?),
            None => None,
        };
        let mut source =
            Source { schema: Schema::empty().into(), exported: None, items: Some(items), begun: 0 };
        match schema {
            Some(schema) => source.schema = schema,
            None if source.next_item(object.py())? => {
                source.schema = source.exported.as_ref().map_or(source.schema, Exported::schema);
            }
            None => {
                let text = "the source has no batches, so its columns are unknown\n  give at least one batch, which \
                            may be empty";
                return Err(Failure::Request(text.into()).into());
            }
        }
        Ok(source)
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The stream itself, if the interpreter is not needed to read it. The source is empty afterwards.
    pub fn take_stream(&mut self) -> Option<ForeignStream> {
        match (&self.items, self.exported.take()) {
            (None, Some(Exported::Stream(stream))) => Some(stream),
            (_, exported) => {
                self.exported = exported;
                None
            }
        }
    }

    /// The next batch; none at the end. The interpreter is released while another library computes it.
    ///
    /// # Errors
    /// The exception of an iterator, the error of a stream, a batch that contradicts itself, or one of another schema.
    pub fn next(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            let batch = match self.exported.take() {
                Some(Exported::Batch(batch)) => Some(batch),
                Some(Exported::Stream(mut stream)) => {
                    let batch = py.detach(|| stream.next())?;
                    if batch.is_some() {
                        self.exported = Some(Exported::Stream(stream));
                    }
                    batch
                }
                None if self.next_item(py)? => None,
                None => return Ok(None),
            };
            if let Some(batch) = batch {
                return Ok(Some(self.fitted(&batch)?));
            }
        }
    }

    /// Begins the next item; `false` if there is none.
    fn next_item(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(items) = &self.items else { return Ok(false) };
        let Some(item) = items.bind(py).clone().next().transpose()? else {
            self.items = None;
            return Ok(false);
        };
        self.begun += 1;
        let exported = Exported::new(&item)?;
        self.exported = Some(exported.ok_or_else(|| {
            no_batches(
                &format!("item {} of the source, of type {}, has", self.begun, type_name(&item)),
                &item,
            )
        })?);
        Ok(true)
    }

    /// The batch with the columns of the first; refuses others.
    fn fitted(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        fitted(&self.schema, batch).map_err(|text| {
            Failure::Batch(format!("item {} of the source has another schema: {text}", self.begun))
        })
    }
}

/// The error for an object without batches.
pub fn no_batches(subject: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let methods = ["to_batches", "iter_batches", "collect_batches", "to_arrow"];
    let method = methods.iter().find(|method| object.hasattr(**method).unwrap_or(false));
    let remedy = method.map_or(String::new(), |method| format!("\n  give the result of its {method}()"));
    PyTypeError::new_err(format!(
        "{subject} no Arrow batches: give an object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, \
         pandas, duckdb), or an iterator of batches{remedy}"
    ))
}
