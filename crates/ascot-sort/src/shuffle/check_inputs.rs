//! Checks the inputs of a job before it begins, and finds what all nodes must know of them: where records begin, the
//! header of the parts, and the columns of the keys.

use std::path::Path;

use ascot_io::{Action, During};
use ascot_record::keys::{CsvKeySpec, KeyColumn};
use ascot_record::layout::Layout;

use crate::api::{Input, Keys, Missing, Result, SortError, SortRequest};
use crate::read::open_inputs;
use crate::records::{AnyRecords, RecordEnds, Records, with_records};

/// What is known of the inputs of a job before it begins.
#[derive(Clone, Debug)]
pub struct CheckedInputs {
    /// The files, in the order of the request.
    pub files: Vec<CheckedFile>,
    /// The header for the parts, with its terminator; empty without one.
    pub header: Vec<u8>,
    /// The keys, if they are columns, each with the number and the type of its column, in the language of the command.
    pub columns: Option<Vec<String>>,
}

/// A regular file.
#[derive(Clone, Copy, Debug)]
pub struct CheckedFile {
    /// Its size, bytes.
    pub size: u64,
    /// The time of its last change, ns since 1970.
    pub modified_ns: i128,
    /// Where its records begin, after a header.
    pub records_at: u64,
}

/// Checks that the inputs of `request` are as the sort needs them: regular files, of text if they have lines or rows,
/// or of whole records of one length, with one header if they have headers.
///
/// # Errors
/// Those of opening the files; [`SortError::OtherFormat`] for files that are not text, [`SortError::CutShort`] for
/// a last record that is cut short, [`SortError::Request`] for pipes, for headers that differ, and for a layout whose
/// records cannot be found from the middle of a file.
pub fn check_inputs(request: &SortRequest) -> Result<CheckedInputs> {
    if let layout @ Layout::Prefixed { .. } = request.layout {
        return Err(SortError::Request(format!(
            "records of format {layout} cannot be found from the middle of a file, so nodes cannot share one\n  a \
             cluster sorts lines, CSV, fixed records and numbers; sort the file on one machine"
        )));
    }
    let (inputs, head) = open_inputs(request)?;
    let records = AnyRecords::new(request, &head)?;
    let record_bytes = with_records!(&records, records => records.record_bytes());
    let mut files = Vec::new();
    for (input, named) in inputs.iter().zip(&request.inputs) {
        let (Some(path), Some(size), Input::Path(_)) = (input.path(), input.size, named) else {
            return Err(SortError::Request(format!(
                "{}: several nodes cannot read one pipe\n  write it to a file that all nodes see",
                input.name()
            )));
        };
        if let Some(len) = record_bytes.map(|len| len as u64)
            && size % len != 0
        {
            return Err(SortError::CutShort {
                input: input.name(),
                record: size / len + 1,
                offset: size / len * len,
                have: size % len,
                missing: Missing::BytesOf(len),
            });
        }
        files.push(CheckedFile { size, modified_ns: modified_ns(path)?, records_at: input.start });
    }
    let columns = match &request.keys {
        Keys::Columns(keys) => {
            Some(with_records!(&records, records => resolved(keys, records.key_columns())))
        }
        _ => None,
    };
    Ok(CheckedInputs { files, header: head.header.unwrap_or_default(), columns })
}

/// The keys `keys` with the numbers and types of their `columns`.
fn resolved(keys: &[CsvKeySpec], columns: &[KeyColumn]) -> Vec<String> {
    let text = |(key, column): (&CsvKeySpec, &KeyColumn)| {
        let direction = if key.descending { ":desc" } else { "" };
        let nulls = if key.nulls_first { ":nulls-first" } else { "" };
        format!("#{}{direction}:{}{nulls}", column.column + 1, column.kind)
    };
    keys.iter().zip(columns).map(text).collect()
}

fn modified_ns(path: &Path) -> Result<i128> {
    use std::os::unix::fs::MetadataExt;
    let stat = std::fs::metadata(path).during(Action::Inspect, path)?;
    Ok(i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec()))
}
