//! Headers of several CSV inputs: one stands for all in the output, so all must name the same columns.

use ascot_record::framing::{CsvFraming, Framing};
use ascot_record::keys::{HeaderDifference, header_difference};

use crate::error::SortError;
use crate::input::{InputFile, Inputs};

/// The input whose header is the output's: the first that has one.
pub(crate) fn bearer(inputs: &Inputs) -> Option<&InputFile> {
    inputs.iter().find(|input| input.start > 0).or(inputs.get(0))
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
