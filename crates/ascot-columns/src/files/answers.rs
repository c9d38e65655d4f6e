//! Answers of an index as batches of keys, epochs and values.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::error::{ColumnsError, Result};

/// Collects answers of an index, and makes a batch of them: `key` (fixed-size binary, or binary if the lengths of keys
/// differ), `epoch` (u64) and `value` (binary).
#[derive(Debug)]
pub struct Answers {
    schema: SchemaRef,
    key_bytes: Option<i32>,
    keys: Vec<u8>,
    /// Ends of the keys, if their lengths differ.
    key_ends: Vec<i32>,
    epochs: Vec<u64>,
    ends: Vec<i32>,
    values: Vec<u8>,
}

impl Answers {
    /// No answers yet, of an index whose keys have `key_bytes` bytes, or different lengths.
    ///
    /// # Errors
    /// Keys longer than Arrow allows.
    pub fn new(key_bytes: Option<usize>) -> Result<Answers> {
        let too_long = |bytes| ColumnsError::FileBytes {
            reason: format!("keys of {bytes} bytes are too long for Arrow, which allows {}", i32::MAX),
        };
        let key_bytes =
            key_bytes.map(|bytes| i32::try_from(bytes).map_err(|_| too_long(bytes))).transpose()?;
        let schema = Schema::new(vec![
            Field::new("key", key_bytes.map_or(DataType::Binary, DataType::FixedSizeBinary), false),
            Field::new("epoch", DataType::UInt64, false),
            Field::new("value", DataType::Binary, false),
        ]);
        Ok(Answers {
            schema: Arc::new(schema),
            key_bytes,
            keys: Vec::new(),
            key_ends: vec![0],
            epochs: Vec::new(),
            ends: vec![0],
            values: Vec::new(),
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Answers so far.
    pub fn len(&self) -> usize {
        self.epochs.len()
    }

    /// Whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Bytes of the keys and values so far.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// Appends a value of `key` in `epoch`.
    ///
    /// # Errors
    /// A key of another length, or more than 2 GiB of values: take the batch before.
    pub fn push(&mut self, key: &[u8], epoch: u64, value: &[u8]) -> Result<()> {
        if let Some(key_bytes) = self.key_bytes
            && i32::try_from(key.len()) != Ok(key_bytes)
        {
            let reason = format!("a key has {} bytes; those of this index have {key_bytes}", key.len());
            return Err(ColumnsError::FileBytes { reason });
        }
        let end_after = |before: usize, more: usize| {
            i32::try_from(before + more).map_err(|_| ColumnsError::FileBytes {
                reason: "the keys or values of one batch exceed 2 GiB\n  ask for fewer keys at a time"
                    .to_owned(),
            })
        };
        let end = end_after(self.values.len(), value.len())?;
        if self.key_bytes.is_none() {
            self.key_ends.push(end_after(self.keys.len(), key.len())?);
        }
        self.keys.extend_from_slice(key);
        self.epochs.push(epoch);
        self.values.extend_from_slice(value);
        self.ends.push(end);
        Ok(())
    }

    /// The batch of all answers; there are none afterwards.
    ///
    /// # Errors
    /// None, unless Arrow refuses arrays of these sizes.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let epochs = std::mem::take(&mut self.epochs);
        let keys = Buffer::from_vec(std::mem::take(&mut self.keys));
        let values = Buffer::from_vec(std::mem::take(&mut self.values));
        let key_ends = std::mem::replace(&mut self.key_ends, vec![0]);
        let keys: ArrayRef = match self.key_bytes {
            Some(bytes) => Arc::new(FixedSizeBinaryArray::try_new_with_len(bytes, keys, None, epochs.len())?),
            None => {
                Arc::new(BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(key_ends)), keys, None)?)
            }
        };
        let values = BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), values, None)?;
        let columns: Vec<ArrayRef> = vec![keys, Arc::new(UInt64Array::from(epochs)), Arc::new(values)];
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;

    use super::*;

    #[test]
    fn answers_become_a_batch() {
        let mut answers = Answers::new(Some(2)).unwrap();
        answers.push(b"ab", 3, b"value").unwrap();
        answers.push(b"cd", u64::MAX, b"").unwrap();
        assert!(answers.push(b"abc", 0, b"").is_err());
        let batch = answers.finish().unwrap();
        assert_eq!(batch.column(0).as_fixed_size_binary().value(1), b"cd");
        assert_eq!(batch.column(1).as_primitive::<UInt64Type>().values(), &[3, u64::MAX]);
        assert_eq!(batch.column(2).as_binary::<i32>().value(0), b"value");
        assert!(answers.is_empty() && answers.finish().unwrap().num_rows() == 0);
        let mut answers = Answers::new(None).unwrap();
        answers.push(b"a", 0, b"").unwrap();
        answers.push(b"", 1, b"").unwrap();
        let batch = answers.finish().unwrap();
        assert_eq!(
            batch.column(0).as_binary::<i32>().iter().collect::<Vec<_>>(),
            [Some(&b"a"[..]), Some(b"")]
        );
    }
}
