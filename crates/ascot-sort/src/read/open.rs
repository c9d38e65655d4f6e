//! Opening the inputs of a request: other formats are refused, headers taken off, the head of the first looked at.

use ascot_record::layout::Layout;

use crate::api::error::SortError;
use crate::api::request::SortRequest;
use crate::read::file_format::refuse_others;
use crate::read::header;
use crate::read::inputs::{InputFile, Inputs};
use crate::records::Head;

/// Bytes of the first input looked at before a plan is made.
const HEAD_BYTES: usize = 256 << 10;

/// Opens the inputs and looks at the head of the first, as far as keys or a plan need it.
pub fn open_inputs(request: &SortRequest) -> Result<(Inputs, Head), SortError> {
    look_at(request, Inputs::open(&request.inputs)?)
}

pub(crate) fn look_at(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, Head), SortError> {
    refuse_others(request, &inputs)?;
    if keys_need_head(request) {
        return csv_head(request, inputs);
    }
    // A pipe is not kept waiting for a look at its head.
    let records = match inputs.get(0).filter(|input| input.path().is_some()) {
        Some(input) => input.peek(HEAD_BYTES)?,
        None => Vec::new(),
    };
    let input = inputs.get(0).map_or_else(String::new, InputFile::name);
    Ok((inputs, Head { input, header: None, records }))
}

pub(crate) fn keys_need_head(request: &SortRequest) -> bool {
    request.header || matches!(request.layout, Layout::Csv { .. })
}

/// Takes the header off each input, as the layout ends its records.
pub(crate) fn csv_head(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, Head), SortError> {
    use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming};
    let layout = request.layout;
    let header_bytes = move |head: &[u8]| match layout {
        Layout::Csv { separator, quote } => {
            CsvFraming { separator, quote }.end(head, 0).unwrap_or(head.len())
        }
        Layout::Lines { delimiter } => LineFraming(delimiter).end(head, 0).unwrap_or(head.len()),
        Layout::Fixed { len } => FixedFraming(len).end(head, 0).unwrap_or(head.len()),
        _ => 0,
    };
    let inputs = if request.header { inputs.skip_headers(&header_bytes)? } else { inputs };
    if let (true, Layout::Csv { separator, quote }) = (request.header, layout) {
        header::refuse_different(&inputs, CsvFraming { separator, quote })?;
    }
    let inputs = match layout {
        Layout::Csv { separator, quote } => {
            let framing = CsvFraming { separator, quote };
            inputs.with_row_ends(&|head| framing.end(head, 0))?
        }
        _ => inputs,
    };
    let Some(first) = header::bearer(&inputs) else { return Ok((inputs, Head::default())) };
    let start = first.start as usize;
    let mut bytes = first.peek(start + HEAD_BYTES)?;
    let records = bytes.split_off(start.min(bytes.len()));
    // A header is a line of its own, whatever the file does at its end.
    if let (true, Some(last), Layout::Csv { .. } | Layout::Lines { .. }) =
        (request.header, bytes.last(), layout)
    {
        let end = if let Layout::Lines { delimiter } = layout { delimiter } else { b'\n' };
        if *last != end {
            // A header without its end tells nothing of how rows end; those of another input may.
            let crlf = inputs.iter().any(InputFile::ends_rows_with_crlf) && *last != b'\r';
            bytes.extend(crlf.then_some(b'\r'));
            bytes.push(end);
        }
    }
    let header = (request.header && !bytes.is_empty()).then_some(bytes);
    let input = first.name();
    Ok((inputs, Head { input, header, records }))
}
