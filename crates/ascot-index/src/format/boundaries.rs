//! Reads the boundaries of all epochs in a manifest within a memory bound: a short text can contain very many empty
//! strings, and each takes memory.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

/// Maximum number of boundaries of all epochs plus epochs that have them.
pub const BOUNDARIES_MAX: usize = 1 << 20;

/// Number of epochs and boundaries of a list.
pub fn count(boundaries: &[Vec<String>]) -> usize {
    boundaries.iter().fold(0, |sum, keys| sum + 1 + keys.len())
}

/// Reads the boundaries of all epochs; an error if there are more than [`BOUNDARIES_MAX`].
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<String>>, D::Error> {
    let text = <&RawValue>::deserialize(from)?.get();
    // Each epoch and the list itself have a bracket, each boundary two quotes: they are counted before any string is
    // allocated.
    let brackets = text.bytes().filter(|&byte| byte == b'[').count();
    let quotes = text.bytes().filter(|&byte| byte == b'"').count();
    if brackets + quotes / 2 > BOUNDARIES_MAX + 1 {
        return Err(D::Error::custom("there are too many boundaries"));
    }
    serde_json::from_str(text).map_err(D::Error::custom)
}
