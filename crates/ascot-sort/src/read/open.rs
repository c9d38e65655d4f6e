//! Opens the inputs of a request: refuses files of other formats if text is expected, skips headers, and reads the
//! head of the first input.
//!
//! A pipe is read only as far as the decision needs, two bytes of most text, and these bytes are delivered again later.
//! The header of one CSV input serves as the output's, so all inputs must name the same columns. A first row that
//! looks like a header but is sorted as a record causes a warning.

use std::path::Path;

use ascot_record::file_format::{FileFormat, FileStart, TEXT_BYTES, Verdict, verdict};
use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming};
use ascot_record::keys::{HeaderDifference, KeyOptions, header_difference, header_like};
use ascot_record::layout::Layout;

use crate::api::{Input, Keys, Result, SortError, SortRequest};
use crate::read::inputs::{InputFile, Inputs};
use crate::records::{InputHead, sample_rows};

/// Maximum bytes of the first input read before a plan is made.
const HEAD_BYTES: usize = 256 << 10;

/// Opens the inputs and reads as much of the first as keys or a plan need.
pub fn open_inputs(request: &SortRequest) -> Result<(Inputs, InputHead)> {
    look_at(request, Inputs::open(&request.inputs)?)
}

pub(crate) fn look_at(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, InputHead)> {
    refuse_others(request, &inputs)?;
    if keys_need_head(request) {
        return csv_head(request, inputs);
    }
    // The head of a pipe is not read, which could block.
    let records = match inputs.get(0).filter(|input| input.path().is_some()) {
        Some(input) => input.peek(HEAD_BYTES)?,
        None => Vec::new(),
    };
    let input = inputs.get(0).map_or_else(String::new, InputFile::name);
    Ok((inputs, InputHead { input, header: None, records }))
}

pub(crate) fn keys_need_head(request: &SortRequest) -> bool {
    request.header || matches!(request.layout, Layout::Csv { .. })
}

/// Skips the header of each input, with the layout's record ends.
pub(crate) fn csv_head(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, InputHead)> {
    let layout = request.layout;
    let csv = match layout {
        Layout::Csv { separator, quote } => Some(CsvFraming { separator, quote }),
        _ => None,
    };
    let header_bytes = |head: &[u8]| {
        let end = match layout {
            Layout::Csv { .. } => csv.and_then(|framing| framing.end(head, 0)),
            Layout::Lines { delimiter } => LineFraming(delimiter).end(head, 0),
            Layout::Fixed { len } => FixedFraming(len).end(head, 0),
            _ => return 0,
        };
        end.unwrap_or(head.len())
    };
    let mut inputs = if request.header { inputs.skip_headers(&header_bytes)? } else { inputs };
    if let Some(framing) = csv {
        if request.header {
            refuse_different(&inputs, framing)?;
        }
        inputs = inputs.with_row_ends(&|head| framing.end(head, 0))?;
    }
    let Some(first) = bearer(&inputs) else { return Ok((inputs, InputHead::default())) };
    let start = first.start as usize;
    let mut bytes = first.peek(start + HEAD_BYTES)?;
    let mut records = bytes.split_off(start.min(bytes.len()));
    let mut input = first.name();
    if records.is_empty()
        && let Some(other) = inputs.iter().find(|input| input.size.is_some_and(|size| size > input.start))
    {
        // The first input has a header and no rows.
        let start = other.start as usize;
        records = other.peek(start + HEAD_BYTES)?.split_off(start);
        input = other.name();
    }
    // A header is a line of its own, even if its file lacks the line end.
    if request.header
        && let Some(last) = bytes.last()
        && matches!(layout, Layout::Csv { .. } | Layout::Lines { .. })
    {
        let end = if let Layout::Lines { delimiter } = layout { delimiter } else { b'\n' };
        if *last != end {
            // A header without its line end does not show how rows end; one of another input may.
            let crlf = inputs.iter().any(InputFile::ends_rows_with_crlf) && *last != b'\r';
            bytes.extend(crlf.then_some(b'\r'));
            bytes.push(end);
        }
    }
    let header = (request.header && !bytes.is_empty()).then_some(bytes);
    Ok((inputs, InputHead { input, header, records }))
}

/// The format of an input, if it is a known one.
fn format_of(input: &InputFile) -> Result<Option<FileFormat>> {
    // A file can be read at once; of a pipe only the bytes needed are awaited.
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

/// The format of the file at `path`, if it is a known one.
///
/// # Errors
/// The file cannot be read.
pub fn recognise_file(path: &Path) -> Result<Option<FileFormat>> {
    let inputs = Inputs::open(&[Input::Path(path.to_path_buf())])?;
    inputs.get(0).map_or(Ok(None), format_of)
}

/// Refuses an input if its format is another one and `layout` is of text.
///
/// # Errors
/// Another format; the file cannot be read.
pub fn refuse_other_format(input: &Input, layout: Layout) -> Result<()> {
    refuse_unless_text(&Inputs::open(std::slice::from_ref(input))?, layout)
}

/// Refuses inputs of another format if text is expected.
pub(crate) fn refuse_unless_text(inputs: &Inputs, layout: Layout) -> Result<()> {
    let zero_ended = match layout {
        Layout::Lines { delimiter } => delimiter == 0,
        Layout::Csv { .. } => false,
        Layout::Fixed { .. } | Layout::Number(_) | Layout::Prefixed { .. } => return Ok(()),
    };
    for input in inputs.iter() {
        match format_of(input)? {
            None => {}
            // UTF-16 text may also be lines of one byte, each ended by NUL.
            Some(FileFormat::Utf16Le | FileFormat::Utf16Be) if zero_ended => {}
            Some(format) => {
                return Err(SortError::OtherFormat {
                    input: input.name(),
                    file: input.path().map(Path::to_path_buf),
                    format,
                    inputs: inputs.iter().count(),
                });
            }
        }
    }
    Ok(())
}

/// The same for the inputs of a request, unless it says that they are lines in any case.
pub(crate) fn refuse_others(request: &SortRequest, inputs: &Inputs) -> Result<()> {
    if request.checks.any_format { Ok(()) } else { refuse_unless_text(inputs, request.layout) }
}

/// The input whose header becomes the output's and whose rows are sampled: the first that has a header, else the
/// first that is not empty.
pub(crate) fn bearer(inputs: &Inputs) -> Option<&InputFile> {
    let headed = inputs.iter().find(|input| input.start > 0);
    headed.or(inputs.iter().find(|input| input.size != Some(0))).or(inputs.get(0))
}

/// Refuses `inputs` whose headers, already skipped, name different columns. An empty input has no header and fits any.
pub(crate) fn refuse_different(inputs: &Inputs, framing: CsvFraming) -> Result<()> {
    let mut with_header = inputs.iter().filter(|input| input.start > 0);
    let Some(first) = with_header.next() else { return Ok(()) };
    let header_of = |input: &InputFile| input.peek(input.start as usize);
    let mut wanted = None;
    for other in with_header {
        let wanted = match &mut wanted {
            Some(wanted) => wanted,
            None => wanted.insert(header_of(first)?),
        };
        let header = header_of(other)?;
        if *wanted == header {
            continue;
        }
        let bodies = [framing.body(wanted), framing.body(&header)];
        if let Some(difference) = header_difference(bodies, framing.separator, framing.quote) {
            return Err(SortError::Request(told(&difference, [&first.name(), &other.name()])));
        }
    }
    Ok(())
}

fn told(difference: &HeaderDifference, files: [&str; 2]) -> String {
    let column = |name: &Option<String>| name.as_ref().map_or("missing".into(), |name| format!("'{name}'"));
    let [one, other] = &difference.names;
    format!(
        "{} and {} have different headers: column #{} is {} in the one, {} in the other\n  \
         sort files of the same columns in the same order together, others one by one",
        files[0],
        files[1],
        difference.column,
        column(one),
        column(other),
    )
}

/// Bytes of a file of lines that are searched for a header.
const LINES_HEAD_BYTES: usize = 64 << 10;

/// A notice if the first row of the inputs looks like a header and the flags make it a record, with the flags that
/// make it a header.
pub(crate) fn notice_of_unnamed(
    request: &SortRequest,
    inputs: &Inputs,
    head: &InputHead,
) -> Result<Option<String>> {
    let Some(first) = inputs.get(0).filter(|_| !request.header) else { return Ok(None) };
    let (framing, lines) = match (&request.keys, request.layout) {
        (Keys::Columns(_), Layout::Csv { separator, quote }) => (CsvFraming { separator, quote }, None),
        (Keys::Command(options), Layout::Lines { delimiter: b'\n' }) => match separator_of(first, options) {
            Some(separator) => (CsvFraming { separator, quote: b'"' }, Some(options)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    // This is a file: `separator_of` returns none for lines from a pipe, which could block here.
    let bytes = if lines.is_some() { first.peek(LINES_HEAD_BYTES)? } else { head.records.clone() };
    let rows = sample_rows(framing, &bytes);
    let Some((row, below)) = rows.split_first() else { return Ok(None) };
    let Some(names) = header_like(row, below, framing.separator, framing.quote) else { return Ok(None) };
    let flags = match lines {
        None => "--header".to_owned(),
        Some(options) => flags_of_columns(options, &names, framing.separator),
    };
    Ok(Some(format!(
        "{}: the first row looks like a header ({}) and is sorted like any other row; to keep it first: {flags}",
        first.name(),
        names.join(", "),
    )))
}

/// The byte between the columns of a file of lines whose extension says that it is a table.
fn separator_of(file: &InputFile, options: &KeyOptions) -> Option<u8> {
    let ending = file.path().and_then(Path::extension)?.to_str()?.to_ascii_lowercase();
    match (ending.as_str(), options.separator) {
        ("csv" | "tsv", Some(separator)) => Some(separator),
        ("csv", None) => Some(b','),
        ("tsv", None) => Some(b'\t'),
        _ => None,
    }
}

/// The flags that make the lines rows with a header, in the order of the given keys.
fn flags_of_columns(options: &KeyOptions, names: &[String], separator: u8) -> String {
    let separator = match separator {
        b',' => String::new(),
        b'\t' => " -t tab".into(),
        other => format!(" -t '{}'", char::from(other)),
    };
    let column = |field: usize| names.get(field.saturating_sub(1)).filter(|name| !name.is_empty());
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let key = |(field, reverse, numeric): (usize, bool, bool)| {
        let name = match column(field) {
            Some(name) if plain(name) => name.clone(),
            _ => format!("#{field}"),
        };
        format!("{}{name}{}", if reverse { "-" } else { "" }, if numeric { ":number" } else { "" })
    };
    let global = options.global;
    let of_key = |def: &ascot_record::keys::KeyDef| {
        let own = def.flags != ascot_record::keys::KeyFlags::default();
        let flags = if own { def.flags } else { global };
        key((def.start.field, flags.reverse, flags.numeric || flags.general_numeric))
    };
    let mut keys: Vec<String> = options.keys.iter().map(of_key).collect();
    if keys.is_empty() {
        // A sort by whole lines orders by the first column first.
        keys.push(key((1, global.reverse, global.numeric || global.general_numeric)));
    }
    format!("--csv --header{separator} --key '{}' (without -k and order letters)", keys.join(","))
}
