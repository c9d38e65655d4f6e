//! A cell of the study: one merge sort, and the I/Os that formulas predict for it.

use std::fmt;
use std::path::PathBuf;

use ascot_io::elements::StreamKind;
use ascot_model::merge_sort_cost::{Ios, MergeSort};
use ascot_sort::merge::element_streams::ElementMerge;

use crate::streams::cell::ELEMENT_BYTES;
use crate::streams::{Backend, Cache};

/// Blocks of the merge are as long as those of the streams that it reads, within these bounds.
const MERGE_BLOCK_BYTES: (usize, usize) = (16 << 10, 1 << 20);

/// A kind of streams, and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamChoice {
    /// The back-end.
    pub backend: Backend,
    /// B = 2^exponent bytes; 0 for back-ends without B.
    pub exponent: u8,
}

impl StreamChoice {
    /// Streams of a back-end with B = 2^exponent bytes, which back-ends without B ignore.
    pub fn new(backend: Backend, exponent: u8) -> Self {
        Self { backend, exponent: if backend.has_blocks() { exponent } else { 0 } }
    }

    /// The kind.
    pub fn kind(self) -> StreamKind {
        self.backend.kind(self.exponent)
    }

    /// Bytes of a request.
    pub fn request_bytes(self) -> u64 {
        self.kind().request_bytes(ELEMENT_BYTES as usize) as u64
    }
}

impl fmt::Display for StreamChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.word())?;
        if self.backend.has_blocks() { write!(f, " 2^{}", self.exponent) } else { Ok(()) }
    }
}

/// The integers that a cell sorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Pseudo-random integers of the full range, made from this seed.
    Random(u64),
    /// A file of the user, which is only read.
    File(PathBuf),
}

/// One measurement: N integers sorted with runs of M integers and a fan-in of d.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SortCell {
    /// N: integers to sort.
    pub elements: u64,
    /// M: integers in memory while runs are formed.
    pub memory_elements: u64,
    /// d: streams merged at once, at least 2.
    pub fan_in: u32,
    /// The streams that are read.
    pub read: StreamChoice,
    /// The streams that are written.
    pub write: StreamChoice,
    /// Whether the largest integer is the first.
    pub descending: bool,
    /// The page cache.
    pub cache: Cache,
    /// Loops measured; one more, which comes first, is left out.
    pub loops: u32,
    /// The integers.
    pub source: Source,
    /// The file that gets the sorted integers, if they are kept.
    pub output: Option<PathBuf>,
}

impl SortCell {
    /// The sort as formulas see it.
    pub fn model(&self) -> MergeSort {
        MergeSort {
            elements: self.elements,
            run_elements: self.memory_elements,
            fan_in: u64::from(self.fan_in),
            element_bytes: ELEMENT_BYTES,
        }
    }

    /// The I/Os of all files with blocks of these streams: the number that is expected exactly.
    pub fn predicted_ios(&self) -> Ios {
        self.model().ios(self.read.request_bytes(), self.write.request_bytes())
    }

    /// Bytes of the integers.
    pub fn data_bytes(&self) -> u64 {
        self.elements.saturating_mul(ELEMENT_BYTES)
    }

    /// Streams that a merge of this cell reads at once at most.
    pub fn merged_streams(&self) -> u64 {
        u64::from(self.fan_in).min(self.model().runs())
    }

    /// Memory of the streams while files are merged: those of d files, the output, and the merge itself, in bytes.
    pub fn stream_bytes(&self) -> u64 {
        let streams = usize::try_from(self.merged_streams()).unwrap_or(usize::MAX);
        let one = |choice: StreamChoice| choice.kind().memory_bytes(ELEMENT_BYTES as usize);
        let merge = ElementMerge::memory_bytes(streams, self.merge_block_bytes());
        one(self.read).saturating_mul(streams).saturating_add(one(self.write)).saturating_add(merge) as u64
    }

    /// Memory of a run while it is formed, in bytes.
    pub fn run_bytes(&self) -> u64 {
        self.memory_elements.min(self.elements).saturating_mul(ELEMENT_BYTES)
    }

    /// Bytes of the blocks of a merge.
    pub fn merge_block_bytes(&self) -> usize {
        let (min, max) = MERGE_BLOCK_BYTES;
        usize::try_from(self.read.request_bytes()).unwrap_or(max).clamp(min, max)
    }

    /// The word of the order.
    pub fn order_word(&self) -> &'static str {
        if self.descending { "descending" } else { "ascending" }
    }
}

impl fmt::Display for SortCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elements, memory_elements, fan_in, read, write, .. } = self;
        write!(f, "sort N = {elements}, M = {memory_elements}, d = {fan_in}, {read} to {write}")?;
        if self.descending {
            f.write_str(", descending")?;
        }
        write!(f, ", {}", self.cache.word())
    }
}
