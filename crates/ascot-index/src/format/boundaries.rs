//! The boundaries in a manifest, of every epoch, read within a bound: a short text can name very many strings of no
//! length, each of which takes memory.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

/// Most boundaries of all epochs of a directory, and epochs that have them, together.
pub const BOUNDARIES_MAX: usize = 1 << 20;

/// Epochs and boundaries of a list.
pub fn count(boundaries: &[Vec<String>]) -> usize {
    boundaries.iter().fold(0, |sum, keys| sum + 1 + keys.len())
}

/// Reads the boundaries of all epochs; an error where there are more than [`BOUNDARIES_MAX`].
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<String>>, D::Error> {
    let text = <&RawValue>::deserialize(from)?.get();
    // Each epoch has a bracket, as the whole list has, and each boundary two quotes: counted before any is made.
    let brackets = text.bytes().filter(|&byte| byte == b'[').count();
    let quotes = text.bytes().filter(|&byte| byte == b'"').count();
    if brackets + quotes / 2 > BOUNDARIES_MAX + 1 {
        return Err(D::Error::custom("there are too many boundaries"));
    }
    serde_json::from_str(text).map_err(D::Error::custom)
}
