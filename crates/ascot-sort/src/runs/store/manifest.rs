//! The manifest: a job's progress, stored so that it can be resumed after a kill (docs/formats/manifest.md).
//!
//! Invariant: it names only files that are complete and durable up to the recorded length.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;

use ascot_model::duplicates::Duplicates;
use ascot_record::checksum::RecordSum;
use serde::{Deserialize, Serialize};

use crate::api::{SortRequest, SplitBy};
use crate::output::{DurableOutput, FileIdentity, SealedPart};
use crate::read::{Fingerprint, InputPosition};
use crate::records::{Merged, Misfits};
use crate::runs::run_file::{Run, RunStart};

/// Version of the manifest; another version cannot be resumed.
pub const MANIFEST_VERSION: u32 = 7;

/// Version 6 had no held chunks of several inputs, version 5 no outputs of several files except those of splits,
/// version 4 no merges of sorted files, version 3 no held ends of inputs, version 2 no splits, version 1 no spellings
/// of null and no date formats either; all else is the same.
pub(super) const OLDEST_VERSION: u32 = 1;

/// Memory for the indexes of runs, bytes: part of the constant that a job uses beside its cap. It holds the indexes of
/// 85 GB in blocks of 512 KiB.
const INDEX_BYTES_MAX: usize = 4 << 20;

/// The progress of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub version: u32,
    /// The request; paths are absolute.
    pub request: SortRequest,
    /// The inputs when the job began.
    pub inputs: Vec<Fingerprint>,
    /// Memory cap, bytes.
    pub memory_bytes: u64,
    /// Compute threads.
    pub threads: usize,
    /// The method of the job.
    #[serde(rename = "way")]
    pub method: StoredMethod,
    /// The job's directories, this one first.
    pub dirs: Vec<PathBuf>,
    /// Number of the next run.
    pub next_number: u64,
    /// Complete runs, in input order; parts, in key order.
    pub runs: Vec<Run>,
    /// Parts being written: each with its index so far.
    pub parts: Vec<OpenPart>,
    /// Position in the inputs up to which the runs or parts contain them.
    #[serde(rename = "read_upto")]
    pub read_end: InputPosition,
    /// Whether the runs or parts contain all inputs.
    pub all_read: bool,
    /// Sum of the records read.
    pub sum_in: RecordSum,
    /// Values of these records that are not of their column's type.
    #[serde(default)]
    pub misfits: Misfits,
    /// Sum of the records left out before the last pass.
    pub dropped: RecordSum,
    /// If duplicates are dropped: the bytes read for the runs of the first pass, and those that they kept.
    #[serde(default)]
    pub duplicates: Duplicates,
    /// The unfinished output file.
    pub temporary: Option<PathBuf>,
    /// If the output is several files that are written one after another: the temporary name of each.
    #[serde(default)]
    pub temporaries: Vec<PathBuf>,
    /// The last pass so far, if it has begun.
    pub output: Option<OutputState>,
    /// A group of runs that is being merged into one run.
    #[serde(default)]
    pub merging: Option<MergingGroup>,
    /// A part larger than memory that is being sorted: `runs` are its runs.
    #[serde(default)]
    pub large: Option<LargePart>,
    /// The complete output, about to be renamed to its final name.
    #[serde(default)]
    pub finished: Option<Finished>,
    /// The view to be made of the runs.
    #[serde(default)]
    pub view: Option<StoredView>,
    /// A split in several passes.
    #[serde(default)]
    pub split: Option<SplitState>,
    /// Of a distribution in several splits: the parts of each run, while one has several.
    #[serde(default)]
    pub groups: Vec<SplitNode>,
    /// Of a distribution: the end of the inputs that no part contains.
    #[serde(default)]
    pub held: Option<HeldInput>,
    /// Bytes read and written so far.
    pub moved: (u64, u64),
    /// Seconds worked so far.
    pub seconds: f64,
}

impl Manifest {
    /// The manifest of a job before its first pass.
    pub fn new(request: &SortRequest, memory_bytes: u64, threads: usize) -> Self {
        Manifest {
            version: MANIFEST_VERSION,
            request: request.absolute().unwrap_or_else(|_| request.clone()),
            inputs: Vec::new(),
            memory_bytes,
            threads,
            method: StoredMethod::Merge,
            dirs: Vec::new(),
            next_number: 1,
            runs: Vec::new(),
            parts: Vec::new(),
            read_end: InputPosition::default(),
            all_read: false,
            sum_in: RecordSum::new(),
            misfits: Misfits::default(),
            dropped: RecordSum::new(),
            duplicates: Duplicates::default(),
            temporary: None,
            temporaries: Vec::new(),
            output: None,
            merging: None,
            large: None,
            finished: None,
            view: None,
            split: None,
            groups: Vec::new(),
            held: None,
            moved: (0, 0),
            seconds: 0.0,
        }
    }

    /// Writes two lines, the manifest and the checksum of that line, and returns their length. They are streamed, never
    /// held in memory as a whole: the indexes of many parts are long.
    pub(super) fn write_to(&self, out: impl Write) -> io::Result<u64> {
        let mut line = Summed { out, hasher: crc32fast::Hasher::new(), bytes: 0 };
        {
            let mut buffered = BufWriter::new(&mut line);
            serde_json::to_writer(&mut buffered, self)?;
            buffered.flush()?;
        }
        let Summed { mut out, hasher, bytes } = line;
        let end = format!("\n{}", check_line_of(hasher.finalize()));
        out.write_all(end.as_bytes())?;
        Ok(bytes + end.len() as u64)
    }

    /// Whether it can be stored: paths that are not UTF-8 have no form in JSON.
    pub fn is_storable(&self) -> bool {
        serde_json::to_writer(io::sink(), &self.request).is_ok()
    }

    /// Records that the runs `which` are consumed up to `starts`.
    pub fn move_starts(&mut self, which: Range<usize>, starts: &[RunStart]) {
        for (run, start) in self.runs[which].iter_mut().zip(starts) {
            run.start = *start;
        }
    }

    /// Keeps the indexes of the first runs, as far as memory for indexes holds them. Those of later runs are read from
    /// their files.
    pub fn limit_indexes(&mut self) {
        limit_indexes(&mut self.runs, INDEX_BYTES_MAX);
    }

    /// All spills that a resumed job needs.
    pub fn spills(&self) -> impl Iterator<Item = &Run> {
        let parts = self.parts.iter().map(|part| &part.run);
        let merging = self
            .merging
            .iter()
            .flat_map(|group| group.open.done.iter().chain(std::iter::once(&group.open.open.run)));
        let large = self.large.iter().flat_map(|large| std::iter::once(&large.part).chain(&large.later));
        self.runs.iter().chain(parts).chain(merging).chain(large).filter(|run| run.input.is_none())
    }

    /// Unfinished outputs that the job names.
    pub fn unfinished(&self) -> impl Iterator<Item = &PathBuf> {
        let of_split = self.split.iter().flat_map(|split| &split.temporaries);
        self.temporary.iter().chain(&self.temporaries).chain(of_split)
    }

    /// None if the checksum does not match, or the first line is not a valid manifest.
    pub(super) fn from_bytes(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|&byte| byte == b'\n')?;
        let line = &text[..end];
        let sum = &text[end + 1..];
        if sum != check_line(line).as_bytes() {
            return None;
        }
        serde_json::from_slice(line).ok().filter(Manifest::is_consistent)
    }

    /// Whether an output of several files has names for all of them, and its files are those before the open one.
    fn has_files_of_output(&self) -> bool {
        let names = self.temporaries.len();
        let is_first = |(number, sealed): (usize, &SealedPart)| sealed.part as usize == number;
        let files = self.output.iter().filter_map(|output| output.durable.files.as_ref());
        let mut lists = files.map(|files| (&files.sealed, names.saturating_sub(1)));
        let complete = self.finished.iter().map(|finished| (&finished.parts, names));
        (names == 0 || names == self.request.output.parts_held())
            && lists.all(|(list, most)| list.len() <= most && list.iter().enumerate().all(is_first))
            && complete.into_iter().all(|(list, all)| {
                (list.is_empty() || list.len() == all) && list.iter().enumerate().all(is_first)
            })
    }

    /// Whether parts and their files correspond.
    fn is_consistent(&self) -> bool {
        if !self.has_files_of_output() {
            return false;
        }
        if self.all_read && !self.groups.is_empty() && self.groups.len() != self.runs.len() {
            return false;
        }
        let Some(split) = &self.split else { return true };
        let parts = split.temporaries.len() as u64;
        let is_inside = |node: &SplitNode| {
            node.count > 0 && u64::from(node.first) + u64::from(node.count) <= parts && node.pass > 0
        };
        self.request.output.parts_held() as u64 == parts
            && !split.factors.is_empty()
            && split.nodes.iter().all(is_inside)
            && (!self.all_read || split.nodes.len() == self.runs.len())
            && split.done.iter().all(|done| u64::from(done.part) < parts)
    }
}

/// Drops the indexes of the last runs, so that those of the others take at most `bytes_max`.
fn limit_indexes(runs: &mut [Run], bytes_max: usize) {
    let mut bytes = 0;
    for run in runs {
        bytes += run.index.as_ref().map_or(0, |index| size_of_val(index.blocks.as_slice()));
        if bytes > bytes_max {
            run.index = None;
        }
    }
}

pub(crate) fn check_line(line: &[u8]) -> String {
    check_line_of(crc32fast::hash(line))
}

fn check_line_of(sum: u32) -> String {
    format!("{{\"crc32\":\"{sum:08x}\"}}\n")
}

/// A writer that computes the checksum of the bytes written.
struct Summed<W> {
    out: W,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A split in several passes: `runs` of the manifest are its intermediate files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SplitState {
    /// The rule by which a record belongs to a part.
    pub by: SplitBy,
    /// The first key of each part, except the first part; empty by hash.
    pub bounds: Vec<Vec<u8>>,
    /// The fan-out of each pass.
    pub factors: Vec<u64>,
    /// The temporary name of each part.
    pub temporaries: Vec<PathBuf>,
    /// The parts of each intermediate file.
    pub nodes: Vec<SplitNode>,
    /// The complete parts.
    pub done: Vec<SealedPart>,
    /// Sum of the records in them.
    pub out: RecordSum,
}

/// The parts whose records an intermediate file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitNode {
    /// The first of them.
    pub first: u32,
    /// Their number.
    pub count: u32,
    /// Number of the pass that splits it, from 0.
    pub pass: usize,
}

/// A view that is being made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredView {
    /// Its name.
    pub path: PathBuf,
    /// Sum of the records in its runs.
    pub sum: RecordSum,
}

/// The method of a stored job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredMethod {
    /// Runs, then merges.
    Merge,
    /// Parts bounded by these keys, ascending, a doubled key listed twice; then sorts.
    Distribute(Vec<Vec<u8>>),
}

/// A part that is still being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenPart {
    /// Its records so far.
    pub run: Run,
    /// Its index, as the run format has it, in hexadecimal.
    pub index: String,
    /// Bytes of it that come from the inputs after the stored position.
    #[serde(default)]
    pub skip: u64,
}

/// The last pass so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputState {
    /// The durable part of the output.
    pub durable: DurableOutput,
    /// Sums of the records in it.
    #[serde(flatten)]
    pub so_far: Merged,
}

/// Runs that are being merged into one; the space of their consumed records has been freed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergingGroup {
    /// Index of the first of them.
    pub first: usize,
    /// Number of them.
    pub count: usize,
    /// The spill they are merged into.
    pub open: OpenSpill,
    /// Sums of the records in it so far.
    pub so_far: Merged,
}

/// A spill that is still being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSpill {
    /// Its complete runs.
    pub done: Vec<Run>,
    /// The run after them, still open.
    pub open: OpenPart,
    /// Expected length in all, bytes.
    pub expected: u64,
}

/// The end of the inputs of a distribution, which memory held when the job was killed. A resumed job reads it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldInput {
    /// Position of its first record.
    pub start: InputPosition,
    /// Sum of the records before it.
    pub sum: RecordSum,
    /// Values of those records that are not of their column's type.
    pub misfits: Misfits,
}

/// A part of a partitioned write that is larger than memory, while it is sorted by runs and merges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargePart {
    /// The part; the space of records already in the runs has been freed.
    pub part: Run,
    /// The parts after it.
    pub later: Vec<Run>,
    /// Whether all of it is in the runs.
    pub formed: bool,
    /// Number of the first runs that hold records which memory held. In the order of the inputs they are the last.
    #[serde(default)]
    pub held_runs: usize,
}

/// A complete output. It shows that a job is done which was killed after renaming the output and before removing
/// its directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The output file, whose identity does not change when it is renamed; none if the output is several files.
    #[serde(default)]
    pub file: Option<FileIdentity>,
    /// The files, if the output is several.
    #[serde(default)]
    pub parts: Vec<SealedPart>,
    /// Sum of the records in it.
    pub out: RecordSum,
    /// Sum of all records left out.
    pub dropped: RecordSum,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ascot_io::{BlockEntry, Codec, RunId, RunIndex};

    use super::*;

    /// A run of `blocks` blocks with its index in memory.
    fn run(blocks: usize) -> Run {
        let mut index = RunIndex::new(RunId(1));
        let codec = Codec::None;
        let entry = BlockEntry { offset: 0, stored: 0, raw: 0, crc: 0, first_record: 0, codec };
        index.blocks = vec![entry; blocks];
        Run { number: 1, index: Some(Arc::new(index)), ..Run::default() }
    }

    #[test]
    fn indexes_beyond_their_memory_are_dropped() {
        let entry_bytes = size_of::<BlockEntry>();
        let mut runs = vec![run(10), run(20), run(30)];
        limit_indexes(&mut runs, 30 * entry_bytes);
        assert_eq!(runs.iter().map(|run| run.index.is_some()).collect::<Vec<_>>(), [true, true, false]);
        limit_indexes(&mut runs, 5 * entry_bytes);
        assert!(runs.iter().all(|run| run.index.is_none()));
    }
}
