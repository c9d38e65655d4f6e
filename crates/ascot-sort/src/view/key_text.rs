//! Keys as a user writes them, for ranges of a view.

use ascot_record::hex::from_hex;
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};

use crate::api::error::SortError;
use crate::api::request::{Keys, SortRequest};

/// A record that has the key a user wrote, in the form of a user's file: 0x and hexadecimal digits, or the
/// text itself; a number as such.
pub fn record_with_key(request: &SortRequest, text: &str) -> Result<Vec<u8>, SortError> {
    let bytes = match text.strip_prefix("0x").map(from_hex) {
        Some(Some(bytes)) if !matches!(request.layout, Layout::Number(_)) => bytes,
        Some(None) if !matches!(request.layout, Layout::Number(_)) => {
            return Err(SortError::Request(format!(
                "'{text}' is no key in hexadecimal\n  write two digits for each byte, as in 0x41ff"
            )));
        }
        _ => text.as_bytes().to_vec(),
    };
    match (request.layout, &request.keys) {
        (Layout::Lines { delimiter }, Keys::Command(options)) if options.keys.is_empty() => {
            Ok([&bytes[..], &[delimiter]].concat())
        }
        (Layout::Fixed { len }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map_or(len, |range| range.end.min(len));
            too_long(text, bytes.len(), end.saturating_sub(start))?;
            let mut record = vec![0; len];
            record[start..start + bytes.len()].copy_from_slice(&bytes);
            Ok(record)
        }
        (Layout::Prefixed { width, endian }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map(|range| range.end).filter(|&end| end != usize::MAX);
            too_long(text, bytes.len(), end.map_or(usize::MAX, |end| end - start))?;
            let mut body = vec![0; start];
            body.extend_from_slice(&bytes);
            body.resize(body.len().max(end.unwrap_or(0)), 0);
            let length = (body.len() as u64).to_le_bytes();
            let mut record = length[..usize::from(width)].to_vec();
            if endian == Endian::Big {
                record.reverse();
            }
            record.extend_from_slice(&body);
            Ok(record)
        }
        (Layout::Number(format), _) => number_bytes(format, text).ok_or_else(|| {
            SortError::Request(format!("'{text}' is no number of the view's format, {}\n  write it in decimal digits", request.layout))
        }),
        _ => Err(SortError::Request(
            "a range of keys is understood for numbers, for lines ordered as a whole, and for one byte range\n  ask for records or bytes instead: --at-record N, --range A..B".into(),
        )),
    }
}

/// A number as it stands in a file.
fn number_bytes(format: NumberFormat, text: &str) -> Option<Vec<u8>> {
    let mut bytes = match (format.kind, text.strip_prefix("0x")) {
        (NumberType::U32, Some(digits)) => u32::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, Some(digits)) => u64::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U32, None) => text.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, None) => text.parse::<u64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I32, _) => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I64, _) => text.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F32, _) => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F64, _) => text.parse::<f64>().ok()?.to_le_bytes().to_vec(),
    };
    if format.endian == Endian::Big {
        bytes.reverse();
    }
    Some(bytes)
}

fn too_long(text: &str, have: usize, most: usize) -> Result<(), SortError> {
    if have <= most {
        return Ok(());
    }
    Err(SortError::Request(format!(
        "the key '{text}' has {have} bytes, and keys of the view have {most}\n  give fewer"
    )))
}
