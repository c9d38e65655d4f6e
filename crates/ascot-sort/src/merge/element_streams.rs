//! Merges sorted element streams of 32-bit integers with the merge of a sort, at a fan-in that the caller chooses;
//! sorts such integers in memory.
//!
//! A sort merges blocks of its own run files, as many files at once as memory allows. A study wants the same merge with
//! other files and a fan-in that is given. This is the adapter: an element stream becomes an input of the bowtie,
//! element by element, and the merged blocks go to an element stream.
//!
//! ```text
//!   element stream 0 ─▶ [blocks] ─╮
//!        ...                      ├─▶  Merge (column by column)  ─▶ element stream
//!   element stream d ─▶ [blocks] ─╯
//! ```
//!
//! Invariants: no more than `fan_in` streams are merged at once; every element is requested once, so that the requests
//! of the streams are those of their files.

use std::collections::VecDeque;
use std::sync::Arc;

use ascot_bowtie::engine::{BlockInput, Bowtie, Completed};
use ascot_bowtie::schedule::FewestHeld;
use ascot_io::elements::{ElementReader, ElementWriter};
use ascot_io::{BlockPool, Buf, IoError, PAGE_BYTES, Pool};
use ascot_record::layout::{Endian, NumberFormat, NumberType};
use ascot_record::{number, vsort};

use super::{EmitThreads, Merge, MergeSink};
use crate::api::{Cancel, Result, SortError};
use crate::records::{MergedBlock, Numbers, Records, Rules};
use crate::resources::Lease;
use crate::runs::RunBlock;

/// A signed integer of 32 bits as it is stored: little-endian.
pub type StoredI32 = [u8; 4];

const ELEMENT_BYTES: usize = size_of::<StoredI32>();
/// Blocks of an input: one is merged while the next is filled.
const BLOCKS_PER_INPUT: usize = 2;
/// Blocks of merged integers, and their length.
const MERGED_BLOCKS: usize = 4;
const MERGED_BLOCK_BYTES: usize = 128 << 10;

/// Merges sorted streams of 32-bit signed integers, any number of times.
pub struct ElementMerge {
    records: Arc<Numbers<u32>>,
    threads: EmitThreads,
    blocks: BlockPool,
    fan_in: usize,
}

impl ElementMerge {
    /// For at most `fan_in` streams at once, in blocks of about `block_bytes` each; `descending`: the largest integer
    /// is the first.
    ///
    /// # Errors
    /// There is no memory or no thread.
    pub fn new(fan_in: usize, block_bytes: usize, descending: bool) -> Result<Self> {
        let block_bytes = block_length(block_bytes);
        let format = NumberFormat { kind: NumberType::I32, endian: Endian::Little };
        let records = Arc::new(Numbers::new(format, descending));
        let pool = Pool::new(Self::memory_bytes(fan_in, block_bytes));
        let region = pool.region(fan_in * BLOCKS_PER_INPUT * block_bytes, "blocks of element streams")?;
        let threads = EmitThreads::start(&records, &pool, 1, MERGED_BLOCKS, MERGED_BLOCK_BYTES)?;
        Ok(Self { records, threads, blocks: BlockPool::new(region, block_bytes), fan_in })
    }

    /// Memory of a merge of `fan_in` streams in blocks of `block_bytes`, beside that of the streams, in bytes.
    pub fn memory_bytes(fan_in: usize, block_bytes: usize) -> usize {
        let inputs = fan_in.saturating_mul(BLOCKS_PER_INPUT).saturating_mul(block_length(block_bytes));
        // Memory comes from the pool in pages.
        inputs.saturating_add(PAGE_BYTES + MERGED_BLOCKS * MERGED_BLOCK_BYTES)
    }

    /// Merges streams into `output`, which stays open; returns the requests that the streams made.
    ///
    /// # Errors
    /// Those of the streams, [`SortError::Cancelled`], and [`SortError::Request`] for more streams than the fan-in.
    pub fn merge(
        &self,
        streams: Vec<ElementReader<StoredI32>>,
        output: &mut ElementWriter<StoredI32>,
        cancel: &Cancel,
    ) -> Result<u64> {
        if streams.len() > self.fan_in {
            let given = streams.len();
            return Err(SortError::Request(format!("{given} streams exceed the fan-in of {}", self.fan_in)));
        }
        let starts = vec![0; streams.len()];
        let input = |reader| ElementInput {
            reader,
            records: Arc::clone(&self.records),
            filled: VecDeque::new(),
            block: 0,
            block_bytes: self.blocks.block_bytes(),
        };
        let inputs = streams.into_iter().map(input).collect();
        let mut bowtie = Bowtie::from_inputs(inputs, self.blocks.clone(), Box::new(FewestHeld));
        let mut sink = ElementSink { records: &self.records, output };
        Merge::new(&*self.records, &self.threads, Rules::default(), cancel).run(
            &mut bowtie,
            starts,
            &mut sink,
        )?;
        Ok(bowtie.streams().map(|input| input.reader.requests()).sum())
    }
}

/// Sorts 32-bit signed integers, given as their bits, with the kernel that sorts chunks of numbers; `descending`: the
/// largest is the first.
pub fn sort_integers(integers: &mut [u32], descending: bool) {
    const NATIVE: NumberFormat = NumberFormat {
        kind: NumberType::I32,
        endian: if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big },
    };
    number::to_ordered(bytemuck::cast_slice_mut(integers), NATIVE, descending);
    vsort::sort(integers);
    number::from_ordered(bytemuck::cast_slice_mut(integers), NATIVE, descending);
}

/// A whole number of elements.
fn block_length(block_bytes: usize) -> usize {
    block_bytes.max(1).next_multiple_of(ELEMENT_BYTES)
}

/// An element stream as an input of the engine.
struct ElementInput {
    reader: ElementReader<StoredI32>,
    records: Arc<Numbers<u32>>,
    /// Blocks that were requested, and their bytes.
    filled: VecDeque<(Buf, usize)>,
    /// Number of the next block.
    block: usize,
    block_bytes: usize,
}

impl BlockInput for ElementInput {
    type Block = RunBlock;

    fn remaining(&self) -> u32 {
        let bytes = self.reader.remaining().saturating_mul(ELEMENT_BYTES as u64);
        u32::try_from(bytes.div_ceil(self.block_bytes as u64)).unwrap_or(u32::MAX - 1)
    }

    fn begin(&mut self, mut buf: Buf) -> Result<(), IoError> {
        let mut len = 0;
        while len + ELEMENT_BYTES <= self.block_bytes && !self.reader.end_of_stream() {
            buf[len..len + ELEMENT_BYTES].copy_from_slice(&self.reader.read_next()?);
            len += ELEMENT_BYTES;
        }
        self.records.normalise(&mut buf[..len]);
        self.filled.push_back((buf, len));
        Ok(())
    }

    fn complete(&mut self) -> Result<Completed<RunBlock>, IoError> {
        let Some((buf, len)) = self.filled.pop_front().filter(|(_, len)| *len > 0) else {
            return Ok(Completed::Ended);
        };
        let segment = self.records.whole(Arc::new(self.records.index(Lease::plain(buf), 0..len)));
        self.block += 1;
        Ok(Completed::Block(RunBlock::new(segment, self.block - 1)))
    }

    fn ready(&mut self) -> bool {
        !self.filled.is_empty()
    }
}

/// Writes merged integers to an element stream.
struct ElementSink<'a> {
    records: &'a Numbers<u32>,
    output: &'a mut ElementWriter<StoredI32>,
}

impl MergeSink<ElementInput> for ElementSink<'_> {
    fn block(&mut self, mut block: MergedBlock, _streams: &mut Bowtie<ElementInput>) -> Result<()> {
        let bytes = &mut block.buf[..block.len];
        self.records.finish(bytes);
        for element in bytes.as_chunks().0 {
            self.output.write(*element)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ascot_io::elements::StreamKind;
    use proptest::prelude::*;

    use super::*;

    const KIND: StreamKind = StreamKind::Sized { block_bytes: 64 };

    fn merged(
        directory: &Path,
        runs: &[Vec<i32>],
        fan_in: usize,
        descending: bool,
    ) -> Result<Vec<i32>, SortError> {
        let mut streams = Vec::new();
        let mut blocks = 0;
        for (number, run) in runs.iter().enumerate() {
            let path = directory.join(number.to_string());
            let mut writer = ElementWriter::create(&path, KIND)?;
            run.iter().try_for_each(|value| writer.write(value.to_le_bytes()))?;
            blocks += writer.close()?.requests;
            streams.push(ElementReader::open(&path, KIND)?);
        }
        let path = directory.join("merged");
        let mut output = ElementWriter::create(&path, KIND)?;
        let merge = ElementMerge::new(fan_in, 40, descending)?;
        let requests = merge.merge(streams, &mut output, &Cancel::new())?;
        assert_eq!(requests, blocks, "every block is read once");
        output.close()?;
        let bytes = std::fs::read(path).unwrap();
        Ok(bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn streams_are_merged(
            runs in prop::collection::vec(prop::collection::vec(prop_oneof![any::<i32>(), -3..3], 0..200), 0..9),
            descending: bool,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut runs = runs;
            let mut wanted = runs.concat();
            for run in runs.iter_mut().chain([&mut wanted]) {
                run.sort_unstable();
                if descending {
                    run.reverse();
                }
            }
            prop_assert_eq!(merged(directory.path(), &runs, 9, descending).unwrap(), wanted);
        }
    }

    #[test]
    fn integers_are_sorted_with_their_signs() {
        let mut integers = [3, -1, i32::MIN, 0, i32::MAX, -1].map(i32::cast_unsigned);
        sort_integers(&mut integers, false);
        assert_eq!(integers.map(u32::cast_signed), [i32::MIN, -1, -1, 0, 3, i32::MAX]);
        sort_integers(&mut integers, true);
        assert_eq!(integers.map(u32::cast_signed), [i32::MAX, 3, 0, -1, -1, i32::MIN]);
    }

    #[test]
    fn more_streams_than_the_fan_in_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = merged(directory.path(), &vec![vec![1]; 4], 3, false).unwrap_err();
        assert!(error.to_string().contains("4 streams exceed the fan-in of 3"), "{error}");
    }

    #[test]
    fn a_merge_can_be_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let mut writer = ElementWriter::create(&path, KIND).unwrap();
        writer.write([0; 4]).unwrap();
        writer.close().unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        let mut output = ElementWriter::create(&directory.path().join("merged"), KIND).unwrap();
        let merge = ElementMerge::new(2, 40, false).unwrap();
        let streams = vec![ElementReader::open(&path, KIND).unwrap()];
        assert!(matches!(merge.merge(streams, &mut output, &cancel), Err(SortError::Cancelled)));
    }
}
