//! Inputs of other formats than text, refused where text is expected: by the name of the format and the command
//! that makes text of it. What the formats are, [`ascot_record::file_format`] knows.
//!
//! A pipe is read only as far as it takes to tell, of most text two bytes, and what was read is given again.

use std::path::Path;

use ascot_record::file_format::{FileFormat, FileStart, TEXT_BYTES, Verdict, verdict};
use ascot_record::layout::Layout;

use crate::api::error::SortError;
use crate::api::request::SortRequest;
use crate::read::inputs::{InputFile, Inputs};

/// The format of an input, if it is one of these.
fn format_of(input: &InputFile) -> Result<Option<FileFormat>, SortError> {
    // A file is there at once; a pipe is waited for no longer than it takes.
    let mut wanted = if input.path().is_some() { TEXT_BYTES } else { 1 };
    let (size, tail) = match (input.path(), input.size) {
        (Some(_), Some(size)) => (Some(size), input.sample(size.saturating_sub(8), 8)?.try_into().ok()),
        _ => (None, None),
    };
    loop {
        let bytes = input.peek(wanted)?;
        let whole = bytes.len() < wanted;
        match verdict(&FileStart { bytes: &bytes, whole, size, tail }) {
            Verdict::Is(format) => return Ok(Some(format)),
            Verdict::More(bytes) if !whole => wanted = bytes.max(wanted + 1),
            _ => return Ok(None),
        }
    }
}

/// The format of the file at `path`, if it is one of these.
///
/// # Errors
/// What refuses to read it.
pub fn recognise_file(path: &Path) -> Result<Option<FileFormat>, SortError> {
    let inputs = Inputs::open(&[crate::api::request::Input::Path(path.to_path_buf())])?;
    inputs.get(0).map_or(Ok(None), format_of)
}

/// An error where text is expected and one of the inputs is a file of another format.
pub(crate) fn refuse_unless_text(inputs: &Inputs, layout: Layout) -> Result<(), SortError> {
    let zero_ended = match layout {
        Layout::Lines { delimiter } => delimiter == 0,
        Layout::Csv { .. } => false,
        Layout::Fixed { .. } | Layout::Number(_) | Layout::Prefixed { .. } => return Ok(()),
    };
    for input in inputs.iter() {
        match format_of(input)? {
            None => {}
            // Lines of one byte, each ended by NUL.
            Some(FileFormat::Utf16Le | FileFormat::Utf16Be) if zero_ended => {}
            Some(format) => {
                let (name, file) = (input.name(), input.path().map(Path::to_path_buf));
                return Err(SortError::OtherFormat {
                    input: name,
                    file,
                    format,
                    inputs: inputs.iter().count(),
                });
            }
        }
    }
    Ok(())
}

/// The same for the inputs of a request, unless it says that they are lines whatever they look like.
pub(crate) fn refuse_others(request: &SortRequest, inputs: &Inputs) -> Result<(), SortError> {
    if request.checks.any_format { Ok(()) } else { refuse_unless_text(inputs, request.layout) }
}
