//! Headers of CSV inputs. One stands for all in the output, so all must name the same columns; and a first row that
//! looks like a header but is sorted as a record is worth a warning.

use ascot_record::framing::{CsvFraming, Framing};
use std::path::Path;

use ascot_record::keys::{HeaderDifference, KeyOptions, header_difference, header_like};
use ascot_record::layout::Layout;

use crate::api::error::SortError;
use crate::api::request::{Keys, SortRequest};
use crate::read::inputs::{InputFile, Inputs};
use crate::records::{Head, sample_rows};

/// The input whose header is the output's, and whose rows are sampled: the first that has a header, else the first that
/// is not empty.
pub(crate) fn bearer(inputs: &Inputs) -> Option<&InputFile> {
    let headed = inputs.iter().find(|input| input.start > 0);
    headed.or(inputs.iter().find(|input| input.size != Some(0))).or(inputs.get(0))
}

/// An error where the headers of `inputs`, which have been skipped, name different columns. An empty input
/// has none and fits all.
pub(crate) fn refuse_different(inputs: &Inputs, framing: CsvFraming) -> Result<(), SortError> {
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

/// Bytes of a file of lines that are looked at for a header.
const HEAD_BYTES: usize = 64 << 10;

/// What to say where the first row of the inputs looks like a header and is a record by the flags, with the flags that
/// make it one.
pub(crate) fn notice_of_unnamed(
    request: &SortRequest,
    inputs: &Inputs,
    head: &Head,
) -> Result<Option<String>, SortError> {
    let Some(first) = inputs.get(0).filter(|_| !request.header) else { return Ok(None) };
    let (framing, lines) = match (&request.keys, request.layout) {
        (Keys::Columns(_), Layout::Csv { separator, quote }) => (CsvFraming { separator, quote }, None),
        (Keys::Command(options), Layout::Lines { delimiter: b'\n' }) => match separator_of(first, options) {
            Some(separator) => (CsvFraming { separator, quote: b'"' }, Some(options)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    // What lines come through a pipe is not waited for.
    let bytes = if lines.is_some() { first.peek(HEAD_BYTES)? } else { head.records.clone() };
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

/// The byte between the columns of a file of lines that is a table by its name.
fn separator_of(file: &InputFile, options: &KeyOptions) -> Option<u8> {
    let ending = file.path().and_then(Path::extension)?.to_str()?.to_ascii_lowercase();
    match (ending.as_str(), options.separator) {
        ("csv" | "tsv", Some(separator)) => Some(separator),
        ("csv", None) => Some(b','),
        ("tsv", None) => Some(b'\t'),
        _ => None,
    }
}

/// The flags by which lines are rows with a header, in the order of the keys given.
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
        // The whole line is ordered by its first column first.
        keys.push(key((1, global.reverse, global.numeric || global.general_numeric)));
    }
    format!("--csv --header{separator} --key '{}' (without -k and order letters)", keys.join(","))
}
