//! The layout of a directory: the scheme, the numbers of partitions and writers, the lengths of keys and values.
//!
//! Invariant: it is the same for all epochs, except for the numbers of partitions and writers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{IndexError, Result};
use crate::format::pointer::{POINTER_BYTES, WRITERS_MAX};
use crate::format::record::{KEY_MAX, RecordForm};
use crate::hash::{key_hash, share};

/// The bytes that are sent to the partition of a key, and those that stay at the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Key and value are sent.
    Records,
    /// Key and a pointer are sent; the value stays in the writer's log.
    Pointers,
    /// The key is sent, for an auxiliary table that names possible writers; the record stays in the writer's tables.
    Ranks,
}

/// How the partition of a key is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// By its hash.
    #[default]
    Hash,
    /// By boundaries of key ranges; every epoch has its own.
    Range,
}

/// The structure of an auxiliary table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuxiliaryKind {
    /// Partial-key cuckoo hashing.
    Cuckoo,
    /// A static function.
    Static,
}

/// The type of an attribute's number in a value; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberKind {
    /// Floating point, 8 bytes.
    F64,
    /// Floating point, 4 bytes.
    F32,
    /// Signed integer, 8 bytes.
    I64,
    /// Unsigned integer, 8 bytes.
    U64,
    /// Signed integer, 4 bytes.
    I32,
    /// Unsigned integer, 4 bytes.
    U32,
}

/// An enumeration whose values have names.
pub trait Named: Copy + PartialEq + 'static {
    /// All values with their names.
    const NAMED: &'static [(&'static str, Self)];

    /// Its name.
    fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }

    /// The value with this name.
    fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(text, _)| *text == name).map(|(_, value)| *value)
    }
}

impl Named for Scheme {
    const NAMED: &'static [(&'static str, Self)] =
        &[("records", Self::Records), ("pointers", Self::Pointers), ("ranks", Self::Ranks)];
}

impl Named for PartitionBy {
    const NAMED: &'static [(&'static str, Self)] = &[("hash", Self::Hash), ("range", Self::Range)];
}

impl Named for AuxiliaryKind {
    const NAMED: &'static [(&'static str, Self)] = &[("cuckoo", Self::Cuckoo), ("static", Self::Static)];
}

impl Named for NumberKind {
    const NAMED: &'static [(&'static str, Self)] = &[
        ("f64", Self::F64),
        ("f32", Self::F32),
        ("i64", Self::I64),
        ("u64", Self::U64),
        ("i32", Self::I32),
        ("u32", Self::U32),
    ];
}

impl NumberKind {
    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            NumberKind::F64 | NumberKind::I64 | NumberKind::U64 => 8,
            NumberKind::F32 | NumberKind::I32 | NumberKind::U32 => 4,
        }
    }
}

/// A number in every value; each block keeps its minimum and maximum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Offset of the number in the value, bytes.
    pub offset: u32,
    /// Its type.
    pub kind: NumberKind,
}

impl Attribute {
    /// The number in `value`; `None` if the value is too short. Integers beyond 2^53 are rounded.
    pub fn of(&self, value: &[u8]) -> Option<f64> {
        let from = value.get(self.offset as usize..)?;
        let eight = from.first_chunk::<8>().copied();
        let four = from.first_chunk::<4>().copied();
        Some(match self.kind {
            NumberKind::F64 => f64::from_le_bytes(eight?),
            NumberKind::F32 => f64::from(f32::from_le_bytes(four?)),
            NumberKind::I64 => i64::from_le_bytes(eight?) as f64,
            NumberKind::U64 => u64::from_le_bytes(eight?) as f64,
            NumberKind::I32 => f64::from(i32::from_le_bytes(four?)),
            NumberKind::U32 => f64::from(u32::from_le_bytes(four?)),
        })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.offset, self.kind.name())
    }
}

/// The properties of a directory, the same for all epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The bytes that are sent.
    pub scheme: Scheme,
    /// Partitions of the keys.
    pub partitions: u32,
    /// Number of writing processes.
    pub writers: u32,
    /// Bytes of every key; `None` if they differ.
    pub key_bytes: Option<u32>,
    /// Bytes of every value; `None` if they differ.
    pub value_bytes: Option<u32>,
    /// Seed of the keys' hash, XXH3-64.
    pub seed: u64,
    /// How the partition of a key is determined.
    pub partition_by: PartitionBy,
    /// The number in values whose minimum and maximum each block keeps.
    pub attribute: Option<Attribute>,
    /// Maximum bytes of a data block, unless a record is longer.
    pub block_bytes: u32,
    /// The structure of auxiliary tables.
    pub auxiliary: AuxiliaryKind,
    /// Bits of a fingerprint in auxiliary tables.
    pub fingerprint_bits: u8,
    /// How records were divided into keys and values if they came from files; appended files must use the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Layout {
    /// Default bytes of a data block.
    pub const USUAL_BLOCK_BYTES: u32 = 32 << 10;
    /// Default bits of a fingerprint.
    pub const USUAL_FINGERPRINT_BITS: u8 = 8;

    /// A layout with default details.
    pub fn new(scheme: Scheme, partitions: u32, writers: u32) -> Self {
        Self {
            scheme,
            partitions,
            writers,
            key_bytes: None,
            value_bytes: None,
            seed: 0,
            partition_by: PartitionBy::Hash,
            attribute: None,
            block_bytes: Self::USUAL_BLOCK_BYTES,
            auxiliary: AuxiliaryKind::Cuckoo,
            fingerprint_bits: Self::USUAL_FINGERPRINT_BITS,
            source: None,
        }
    }

    /// Refuses an impossible layout.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(IndexError::Request(what.into()));
        if self.partitions == 0 || self.writers == 0 {
            return wrong("a directory has one partition and one writer at least");
        }
        if self.partitions > WRITERS_MAX || self.writers > WRITERS_MAX {
            return wrong("a directory has at most 16777216 partitions and as many writers");
        }
        if self.key_bytes.is_some_and(|bytes| bytes as usize > KEY_MAX) {
            return wrong("keys have at most 1 MiB");
        }
        if self.form().key == Some(0) && self.form().value == Some(0) {
            // Otherwise any number of records would take no bytes.
            return wrong("a record has one byte at least: keys and values cannot both have none");
        }
        if !self.block_bytes.is_multiple_of(4096) || self.block_bytes == 0 || self.block_bytes > 1 << 24 {
            return wrong("a block's size is a multiple of 4096 bytes, and at most 16 MiB");
        }
        if !(1..=16).contains(&self.fingerprint_bits) {
            return wrong("a fingerprint has 1 to 16 bits");
        }
        if let (Some(attribute), Some(bytes)) = (&self.attribute, self.value_bytes)
            && u64::from(attribute.offset) + attribute.kind.bytes() > u64::from(bytes)
        {
            return Err(IndexError::Request(format!(
                "the attribute {} lies behind the end of values of {bytes} bytes (it begins at byte {} of the value)",
                attribute.name, attribute.offset
            )));
        }
        if self.attribute.is_some() && self.scheme == Scheme::Pointers {
            return wrong("an attribute needs values beside their keys: take the scheme records or ranks");
        }
        Ok(())
    }

    /// The form of records in the directory's tables.
    pub fn form(&self) -> RecordForm {
        let value = match self.scheme {
            Scheme::Pointers => Some(POINTER_BYTES as u32),
            Scheme::Records | Scheme::Ranks => self.value_bytes,
        };
        RecordForm { key: self.key_bytes, value }
    }

    /// Refuses keys and values whose lengths differ from the directory's fixed lengths.
    pub fn check_record(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_lengths(key.len(), value.len())
    }

    /// Refuses lengths of keys and values that differ from the directory's fixed lengths.
    pub fn check_lengths(&self, key: usize, value: usize) -> Result<()> {
        self.check_key_length(key)?;
        match self.value_bytes {
            Some(bytes) if bytes as usize != value => {
                Err(IndexError::Length { what: "value", got: value, expected: bytes as usize })
            }
            _ if value as u64 > u64::from(u32::MAX) => {
                Err(IndexError::TooLong { what: "value", got: value as u64, max: u64::from(u32::MAX) })
            }
            _ => Ok(()),
        }
    }

    /// Refuses keys whose length differs from the directory's fixed length.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        self.check_key_length(key.len())
    }

    fn check_key_length(&self, key: usize) -> Result<()> {
        match self.key_bytes {
            Some(bytes) if bytes as usize != key => {
                Err(IndexError::Length { what: "key", got: key, expected: bytes as usize })
            }
            _ if key > KEY_MAX => {
                Err(IndexError::TooLong { what: "key", got: key as u64, max: KEY_MAX as u64 })
            }
            _ => Ok(()),
        }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        key_hash(self.seed, key)
    }

    /// The partition of a key in the next epoch: by its hash, or by the epoch's boundaries.
    pub fn partition_of(&self, key: &[u8], boundaries: &[Vec<u8>]) -> u32 {
        self.partition_among(self.partitions, key, boundaries)
    }

    /// The partition of a key among `partitions`.
    pub fn partition_among(&self, partitions: u32, key: &[u8], boundaries: &[Vec<u8>]) -> u32 {
        match self.partition_by {
            PartitionBy::Hash => share(self.hash(key), partitions),
            PartitionBy::Range => {
                // Fewer than the number of partitions.
                let before = boundaries.partition_point(|boundary| boundary.as_slice() <= key) as u32;
                before.min(partitions.saturating_sub(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_between_boundaries() {
        let mut layout = Layout::new(Scheme::Records, 3, 1);
        layout.partition_by = PartitionBy::Range;
        let boundaries = [b"d".to_vec(), b"m".to_vec()];
        let parts = ["a", "d", "dd", "m", "z"].map(|key| layout.partition_of(key.as_bytes(), &boundaries));
        assert_eq!(parts, [0, 1, 1, 2, 2]);
        assert_eq!(layout.partition_of(b"x", &[]), 0);
    }

    #[test]
    fn numbers_of_values() {
        let value = [&1.5f64.to_le_bytes()[..], &(-3i32).to_le_bytes()].concat();
        let at = |offset, kind| Attribute { name: "x".into(), offset, kind }.of(&value);
        assert_eq!((at(0, NumberKind::F64), at(8, NumberKind::I32)), (Some(1.5), Some(-3.0)));
        assert_eq!((at(5, NumberKind::U64), at(90, NumberKind::F32)), (None, None));
    }
}
