//! The records of a job's output as batches.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::files::FileDecoder;
use ascot_columns::{ColumnsError, Decoder};
use ascot_io::Buf;
use pyo3::prelude::*;

use super::batch_reader::BatchReader;
use super::descriptors::Descriptors;
use super::job::JobHandle;
use crate::errors::Result;

/// How records become batches.
pub enum Decoding {
    /// Rows with their key before them.
    Rows(Box<Decoder>),
    /// Records of a file.
    File(FileDecoder),
}

impl Decoding {
    fn schema(&self) -> SchemaRef {
        match self {
            Decoding::Rows(decoder) => SchemaRef::clone(decoder.schema()),
            Decoding::File(decoder) => SchemaRef::clone(decoder.schema()),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<usize, ColumnsError> {
        match self {
            Decoding::Rows(decoder) => decoder.push(bytes),
            Decoding::File(decoder) => decoder.push(bytes),
        }
    }

    fn finish(&mut self) -> Result<(), ColumnsError> {
        match self {
            Decoding::Rows(decoder) => decoder.finish(),
            Decoding::File(decoder) => decoder.finish(),
        }
    }

    fn next_batch(&mut self) -> Option<RecordBatch> {
        match self {
            Decoding::Rows(decoder) => decoder.next_batch(),
            Decoding::File(decoder) => decoder.next_batch(),
        }
    }
}

/// The batches of a job. Dropping it stops the job.
pub struct JobStream {
    job: JobHandle,
    decoding: Decoding,
    /// The block being decoded: its length, and the bytes of it that were decoded.
    block: Option<(Buf, usize, usize)>,
    /// Bytes before the first record that are left out.
    skip: usize,
    ended: bool,
    /// Open files that the job reads by their numbers. They are closed after it has ended.
    _inputs: Descriptors,
}

impl JobStream {
    /// The batches of the output of `job`, which reads `inputs`, and whose first block begins with `skip` bytes of a
    /// header.
    pub fn new(job: JobHandle, decoding: Decoding, skip: usize, inputs: Descriptors) -> JobStream {
        JobStream { job, decoding, block: None, skip, ended: false, _inputs: inputs }
    }

    fn decode(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<()> {
        if self.block.is_none() {
            let skip = std::mem::take(&mut self.skip);
            self.block = self.job.next_block(look)?.map(|(block, len)| (block, len, skip.min(len)));
        }
        match &mut self.block {
            Some((block, len, at)) => {
                *at += self.decoding.push(&block[*at..*len])?;
                if at == len {
                    self.block = None;
                }
            }
            None => {
                self.decoding.finish()?;
                self.ended = true;
            }
        }
        Ok(())
    }
}

impl BatchReader for JobStream {
    fn schema(&self) -> SchemaRef {
        self.decoding.schema()
    }

    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.decoding.next_batch() {
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            self.decode(look)?;
        }
    }
}
