//! Checks whether an input is sorted already (`-c`).

use std::sync::Arc;

use crate::api::{Cancel, Result, SortError, SortRequest};
use crate::order::{OrderCheck, reader};
use crate::read::{Inputs, open_inputs};
use crate::records::{AnyRecords, Records, with_records};

/// The result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sortedness {
    /// All records are in order.
    Sorted,
    /// The first record that is out of order.
    Disorder {
        /// The input.
        input: String,
        /// Its number, from 1; a header counts.
        record: u64,
        /// Its offset, bytes.
        offset: u64,
        /// The record itself.
        line: Vec<u8>,
    },
}

/// Checks the one input of `request`.
pub fn is_sorted(request: &SortRequest, cancel: &Cancel) -> Result<Sortedness> {
    if request.inputs.len() != 1 {
        return Err(SortError::Request(
            "one input at a time can be checked for order\n  give one file, or none for standard input"
                .into(),
        ));
    }
    let (inputs, head) = open_inputs(request)?;
    with_records!(AnyRecords::new(request, &head)?, records => check(&records, request, inputs, cancel))
}

fn check<R: Records>(
    records: &Arc<R>,
    request: &SortRequest,
    inputs: Inputs,
    cancel: &Cancel,
) -> Result<Sortedness> {
    let input = inputs.get(0).map(|input| (input.name(), input.start));
    let (input, mut offset) = input.unwrap_or_default();
    let mut number = u64::from(request.header);
    let mut reader = reader(records, request, inputs, cancel)?;
    let mut order = OrderCheck::new(records, request.unique);
    while let Some(mut placed) = reader.next(&|| ())? {
        cancel.check()?;
        let bytes = placed.chunk.record_bytes_mut();
        records.normalise(bytes);
        if let Some(unordered) = order.observe(bytes) {
            let rest = &bytes[unordered.offset..];
            let mut line = rest[..records.cut(rest, 1).bytes].to_vec();
            records.finish(&mut line);
            let record = number + unordered.before + 1;
            let offset = offset + unordered.offset as u64;
            return Ok(Sortedness::Disorder { input, record, offset, line });
        }
        offset += bytes.len() as u64;
        number += placed.records as u64;
    }
    Ok(Sortedness::Sorted)
}
