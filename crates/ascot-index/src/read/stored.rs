//! Values as a lookup finds them: short ones in memory, long ones as locations in the files.

use ascot_io::Reservation;

use crate::error::Result;
use crate::read::long_value::part_bytes;
use crate::read::{Directory, LongValue};

/// A value that was appended to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Minimum length of a value left in the files if memory is short: less takes no more than its location.
const PLACE_BYTES: usize = 256;

/// A value that was appended to a key.
#[derive(Clone, Debug)]
pub struct StoredValue {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its bytes, or their location.
    pub content: Content,
}

/// The bytes of a value, or their location.
#[derive(Clone, Debug)]
pub enum Content {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// A value that is longer than the inline limit.
    Long(LongValue),
}

/// The value of a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordValue<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// A value that is longer than the inline limit.
    Long(&'a LongValue),
}

impl RecordValue<'_> {
    /// Its bytes.
    pub fn length(&self) -> u64 {
        match self {
            RecordValue::Bytes(bytes) => bytes.len() as u64,
            RecordValue::Long(long) => long.length(),
        }
    }

    /// Hands all of it to `take`, part by part.
    ///
    /// # Errors
    /// Those of [`LongValue::for_each_part`].
    pub fn for_each_part(
        &self,
        directory: &Directory,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            RecordValue::Bytes(bytes) => take(bytes),
            RecordValue::Long(long) => long.for_each_part(directory, take),
        }
    }
}

impl<'a> From<&'a Content> for RecordValue<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Bytes(bytes) => RecordValue::Bytes(bytes),
            Content::Long(long) => RecordValue::Long(long),
        }
    }
}

/// The inline limit: longer values are left in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    /// A small part of the reader's memory.
    Usual,
    /// The memory that a location takes.
    Least,
}

impl Inline {
    /// The limit in bytes.
    pub fn bytes(self, directory: &Directory) -> usize {
        match self {
            Inline::Usual => part_bytes(directory),
            Inline::Least => PLACE_BYTES,
        }
    }
}

impl Content {
    /// Bytes of the value.
    pub fn length(&self) -> u64 {
        RecordValue::from(self).length()
    }

    /// Reads from `offset` into `into`, as many bytes as there are and fit; returns their number.
    ///
    /// # Errors
    /// Those of [`LongValue::read_at`].
    pub fn read_at(&self, directory: &Directory, offset: u64, into: &mut [u8]) -> Result<usize> {
        match self {
            Content::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let count = into.len().min(bytes.len() - from);
                into[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(count)
            }
            Content::Long(long) => long.read_at(directory, offset, into),
        }
    }

    /// Hands the whole value to `take`, part by part.
    ///
    /// # Errors
    /// Those of [`LongValue::for_each_part`].
    pub fn for_each_part(&self, directory: &Directory, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        RecordValue::from(self).for_each_part(directory, take)
    }

    /// Its bytes if they are in memory, otherwise none.
    pub(crate) fn in_memory(&self) -> &[u8] {
        match self {
            Content::Bytes(bytes) => bytes,
            Content::Long(_) => &[],
        }
    }

    /// Verifies the checksums of a value that is not in memory.
    pub(crate) fn check(&self, directory: &Directory) -> Result<()> {
        match self {
            Content::Bytes(_) => Ok(()),
            Content::Long(long) => long.check(directory),
        }
    }

    /// Loads a value that is not in memory; returns its memory reservation.
    pub(crate) fn load(&mut self, directory: &Directory) -> Result<Option<Reservation>> {
        let Content::Long(long) = &self else { return Ok(None) };
        let (bytes, memory) = long.to_bytes(directory)?;
        *self = Content::Bytes(bytes);
        Ok(Some(memory))
    }
}

impl StoredValue {
    /// The value, if it is in memory.
    pub(crate) fn into_value(self) -> Option<Value> {
        match self.content {
            Content::Bytes(bytes) => Some(Value { epoch: self.epoch, bytes }),
            Content::Long(_) => None,
        }
    }
}
