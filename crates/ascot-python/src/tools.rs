//! Generates and checks records; amounts as text for people.

use std::path::PathBuf;

use ascot_model::units;
use ascot_record::gensort::Encoding;
use ascot_sort::Output;
use ascot_sort::check::{CheckReport, CheckRequest, with_files_of_directories};
use ascot_sort::generate::GenerateRequest;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::request::{Bytes, RecordOptions, Records, SourceFile, at_least, memory};
use crate::running::run;

/// Bytes as text: `19.7 GB`.
#[pyfunction]
pub fn bytes_text(count: f64) -> String {
    units::bytes(count.max(0.0).round() as u64)
}

/// A count with commas: `80,000,000`.
#[pyfunction]
pub fn count_text(count: u64) -> String {
    units::count(count)
}

/// A time as text: `0.4 s`, `2 min 5 s`.
#[pyfunction]
pub fn seconds_text(seconds: f64) -> String {
    units::seconds(seconds)
}

/// A cap of memory in bytes, lowered to the memory that the control group allows.
#[pyfunction]
pub fn memory_bytes(memory_cap: Bytes) -> PyResult<u64> {
    let bytes = memory(Some(&memory_cap))?;
    Ok(bytes.ok_or_else(|| Failure::Request("memory: give bytes, such as '512MiB'".into()))?)
}

/// The bytes of an argument that no memory of this machine limits: a number, or a text such as `8GiB`.
#[pyfunction]
pub fn size_bytes(argument: &str, bytes: Bytes) -> PyResult<u64> {
    Ok(bytes.count(argument)?)
}

/// The records to make.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct GenerateOptions {
    output: PathBuf,
    count: u64,
    start: u128,
    ascii: bool,
    skewed: bool,
    threads: Option<usize>,
}

/// Writes benchmark records to a file; returns their bytes.
#[pyfunction]
pub fn generate(py: Python<'_>, options: GenerateOptions, progress: Option<Py<PyAny>>) -> PyResult<u64> {
    let GenerateOptions { output, count, start, ascii, skewed, threads } = options;
    let encoding = if ascii { Encoding::Ascii } else { Encoding::Binary };
    let threads = at_least("threads", threads, 1)?;
    let request = GenerateRequest { count, start, encoding, skewed, output: Output::Path(output), threads };
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        ascot_sort::generate::generate(&request, observer, cancel)
    })?;
    Ok(finished.result)
}

/// The result of a check: records, bytes, duplicate keys, checksum in hexadecimal, and the input, number and offset
/// of the first record out of order.
pub type Checked = (u64, u64, u64, String, Option<(String, u64, Option<u64>)>);

/// Counts and sums up the records of files, and checks their order.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    inputs: Vec<SourceFile>,
    records: RecordOptions,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Checked> {
    let Records { layout, keys, header } = records.records()?;
    let threads = at_least("threads", threads, 1)?;
    let inputs = inputs.iter().map(SourceFile::input).collect();
    let inputs = with_files_of_directories(inputs).map_err(Failure::from)?;
    let request = CheckRequest { inputs, layout, keys, header, threads };
    let checked =
        run(py, progress.as_ref(), |observer, cancel| ascot_sort::check::check(&request, observer, cancel))?
            .result;
    Ok(checked_of(&checked))
}

/// The result of a check, the normalised keys of the first and the last record (empty if there is none), and whether
/// greater keys come first.
pub type CheckedPart = (Checked, Py<PyBytes>, Py<PyBytes>, bool);

/// Checks one file of a sequence that several processes check.
#[pyfunction]
pub fn check_part(py: Python<'_>, input: SourceFile, records: RecordOptions) -> PyResult<CheckedPart> {
    let Records { layout, keys, header } = records.records()?;
    let request = CheckRequest { inputs: vec![input.input()], layout, keys, header, threads: Some(1) };
    let checked =
        run(py, None, |observer, cancel| ascot_sort::check::check(&request, observer, cancel))?.result;
    let key = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
    let first = key(&checked.validation.first_key);
    let last = key(&checked.validation.last_key);
    Ok((checked_of(&checked), first, last, checked.descending))
}

/// The result of a check for the package.
pub fn checked_of(checked: &CheckReport) -> Checked {
    let validation = &checked.validation;
    let first = checked.unordered.as_ref().map(|place| (place.input.clone(), place.record, place.offset));
    let checksum = format!("{:x}", validation.checksum);
    (validation.records, checked.bytes, validation.duplicates, checksum, first)
}
