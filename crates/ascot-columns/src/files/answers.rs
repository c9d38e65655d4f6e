//! Answers of an index as batches of keys, epochs and values.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::error::ColumnsError;

/// Collects answers of an index, and makes a batch of them: `key` (fixed-size binary), `epoch` (u64) and `value`
/// (binary).
#[derive(Debug)]
pub struct Answers {
    schema: SchemaRef,
    key_bytes: i32,
    keys: Vec<u8>,
    epochs: Vec<u64>,
    ends: Vec<i32>,
    values: Vec<u8>,
}

impl Answers {
    /// No answers yet, of an index whose keys have `key_bytes` bytes.
    ///
    /// # Errors
    /// Keys longer than Arrow allows.
    pub fn new(key_bytes: usize) -> Result<Answers, ColumnsError> {
        let key_bytes = i32::try_from(key_bytes).map_err(|_| ColumnsError::FileBytes {
            reason: format!("keys of {key_bytes} bytes are too long for Arrow, which allows {}", i32::MAX),
        })?;
        let schema = Schema::new(vec![
            Field::new("key", DataType::FixedSizeBinary(key_bytes), false),
            Field::new("epoch", DataType::UInt64, false),
            Field::new("value", DataType::Binary, false),
        ]);
        let schema = Arc::new(schema);
        Ok(Answers {
            schema,
            key_bytes,
            keys: Vec::new(),
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
    pub fn push(&mut self, key: &[u8], epoch: u64, value: &[u8]) -> Result<(), ColumnsError> {
        if i32::try_from(key.len()) != Ok(self.key_bytes) {
            let reason =
                format!("a key has {} bytes; those of this index have {}", key.len(), self.key_bytes);
            return Err(ColumnsError::FileBytes { reason });
        }
        let end = i32::try_from(self.values.len() + value.len()).map_err(|_| ColumnsError::FileBytes {
            reason: "the values of one batch exceed 2 GiB\n  ask for fewer keys at a time".to_owned(),
        })?;
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
    pub fn finish(&mut self) -> Result<RecordBatch, ColumnsError> {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let epochs = std::mem::take(&mut self.epochs);
        let keys = Buffer::from_vec(std::mem::take(&mut self.keys));
        let values = Buffer::from_vec(std::mem::take(&mut self.values));
        let keys = FixedSizeBinaryArray::try_new_with_len(self.key_bytes, keys, None, epochs.len())?;
        let values = BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), values, None)?;
        let columns: Vec<ArrayRef> =
            vec![Arc::new(keys), Arc::new(UInt64Array::from(epochs)), Arc::new(values)];
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
        let mut answers = Answers::new(2).unwrap();
        answers.push(b"ab", 3, b"value").unwrap();
        answers.push(b"cd", u64::MAX, b"").unwrap();
        assert!(answers.push(b"abc", 0, b"").is_err());
        let batch = answers.finish().unwrap();
        assert_eq!(batch.column(0).as_fixed_size_binary().value(1), b"cd");
        assert_eq!(batch.column(1).as_primitive::<UInt64Type>().values(), &[3, u64::MAX]);
        assert_eq!(batch.column(2).as_binary::<i32>().value(0), b"value");
        assert!(answers.is_empty() && answers.finish().unwrap().num_rows() == 0);
    }
}
