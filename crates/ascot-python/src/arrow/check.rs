//! Checks of batches.

use std::sync::{Arc, OnceLock};

use ascot_columns::Encoder;
use ascot_io::ProgramStreams;
use ascot_sort::check::{CheckRequest, check_with};
use ascot_sort::{Input, Keys};
use pyo3::prelude::*;

use super::columns::ArrowOptions;
use super::import::Source;
use super::job::{JobHandle, Shared, Until};
use super::records::{Encoding, record_sources};
use crate::errors::{Failure, Result};
use crate::request::{RecordOptions, Records, at_least};
use crate::tools::{Checked, checked_of};

/// Checks the order of batches by columns, or of the records of a layout that they become; counts and sums them up.
#[pyfunction]
pub fn check_batches(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    records: Option<RecordOptions>,
    arrow: ArrowOptions,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Checked> {
    let threads = at_least("threads", threads, 1)?;
    let source = Source::new(source)?;
    let (encoding, Records { layout, keys, .. }) = encoding_of(&source, records, &arrow)?;
    let request = CheckRequest { inputs: vec![Input::Program], layout, keys, header: false, threads };
    let shared = Arc::new(Shared::new(1));
    let (mut sources, made) = record_sources(&shared, vec![(source, encoding)]);
    let result = Arc::new(OnceLock::new());
    let done = Arc::clone(&result);
    let work = move |shared: &Shared| {
        let checked = check_with(&request, ProgramStreams::new(made, None), shared, shared.cancel())?;
        // The only one.
        let _ = done.set(checked);
        Ok(None)
    };
    let mut handle = JobHandle::begin(&shared, work)?;
    let attended = handle.attend(py, &mut sources, progress.as_ref(), Until::End);
    if attended.is_err() {
        // A thread of the job may need the interpreter to release the stream of another library.
        py.detach(|| handle.stop());
    }
    attended?;
    handle.check()?;
    let checked = result.get().ok_or_else(|| Failure::Source("a thread of the check has died".into()))?;
    Ok(checked_of(checked))
}

/// How the batches of `source` become records, and which.
fn encoding_of(
    source: &Source,
    records: Option<RecordOptions>,
    arrow: &ArrowOptions,
) -> Result<(Encoding, Records)> {
    if let Some(records) = records {
        let records = records.records()?;
        let encoding = Encoding::of_file(records.layout, arrow.fields(records.layout)?, source.schema())?;
        return Ok((encoding, records));
    }
    let encoder = Encoder::new(Arc::clone(source.schema()), &arrow.sort_columns())?;
    let records = Records { layout: encoder.layout(), keys: Keys::Ranges(encoder.keys()), header: false };
    Ok((Encoding::Rows(encoder), records))
}
