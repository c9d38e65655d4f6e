//! What a job stores of how far it has come, so that it can go on after a kill (docs/formats/manifest.md).
//!
//! Invariant: it names only files that are complete and durable as far as it says.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_record::checksum::RecordSum;
use serde::{Deserialize, Serialize};

use crate::api::SortRequest;
use crate::output::DurableOutput;
use crate::read::{Fingerprint, InputPosition};
use crate::records::{Merged, Misfits};
use crate::runs::run_file::{Run, RunStart};

/// Version of the manifest; another version cannot be resumed.
pub const MANIFEST_VERSION: u32 = 2;

/// The version before knew neither spellings of null nor forms of dates; all else is alike.
pub(super) const OLDEST_VERSION: u32 = 1;

/// How far a job has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub version: u32,
    /// What was asked for; paths are absolute.
    pub request: SortRequest,
    /// The inputs as they were.
    pub inputs: Vec<Fingerprint>,
    /// The cap, bytes.
    pub memory_bytes: u64,
    /// Compute threads.
    pub threads: usize,
    /// Which way was taken.
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
    /// What of the inputs is in the runs or parts.
    #[serde(rename = "read_upto")]
    pub read_end: InputPosition,
    /// All of the inputs is.
    pub all_read: bool,
    /// Sum of the records read.
    pub sum_in: RecordSum,
    /// Values of these records that are not of their column's type.
    #[serde(default)]
    pub misfits: Misfits,
    /// Sum of the records left out before the last pass.
    pub dropped: RecordSum,
    /// The unfinished output file.
    pub temporary: Option<PathBuf>,
    /// The output so far.
    pub output: Option<OutputState>,
    /// Some runs that are being merged into one.
    #[serde(default)]
    pub merging: Option<MergingGroup>,
    /// A part larger than memory that is being sorted: the runs are its own.
    #[serde(default)]
    pub large: Option<LargePart>,
    /// The whole output, about to get its name.
    #[serde(default)]
    pub finished: Option<Finished>,
    /// The view that the runs are to be.
    #[serde(default)]
    pub view: Option<StoredView>,
    /// Bytes read and written up to here.
    pub moved: (u64, u64),
    /// Seconds worked up to here.
    pub seconds: f64,
}

impl Manifest {
    /// Writes two lines, the manifest and the checksum of that line, and tells their length. They are never in memory
    /// as a whole: the indexes of many parts are long.
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

    /// The runs `which` are consumed up to `starts`.
    pub fn move_starts(&mut self, which: Range<usize>, starts: &[RunStart]) {
        for (run, start) in self.runs[which].iter_mut().zip(starts) {
            run.start = *start;
        }
    }

    /// All spills that are of use to who goes on.
    pub fn spills(&self) -> impl Iterator<Item = &Run> {
        let parts = self.parts.iter().map(|part| &part.run);
        let merging = self
            .merging
            .iter()
            .flat_map(|group| group.open.done.iter().chain(std::iter::once(&group.open.open.run)));
        let large = self.large.iter().flat_map(|large| std::iter::once(&large.part).chain(&large.later));
        self.runs.iter().chain(parts).chain(merging).chain(large).filter(|run| run.input.is_none())
    }

    /// None where the two lines do not fit, or make no manifest.
    pub(super) fn from_bytes(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|&byte| byte == b'\n')?;
        let line = &text[..end];
        let sum = &text[end + 1..];
        if sum != check_line(line).as_bytes() {
            return None;
        }
        serde_json::from_slice(line).ok()
    }
}

pub(crate) fn check_line(line: &[u8]) -> String {
    check_line_of(crc32fast::hash(line))
}

fn check_line_of(sum: u32) -> String {
    format!("{{\"crc32\":\"{sum:08x}\"}}\n")
}

/// A writer that sums up what goes through it.
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

/// A view that is being made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredView {
    /// Its name.
    pub path: PathBuf,
    /// Sum of the records in its runs.
    pub sum: RecordSum,
}

/// The way a stored job goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredMethod {
    /// Runs, then merges.
    Merge,
    /// Parts bounded by these keys, ascending, doubled ones standing twice; then sorts.
    Distribute(Vec<Vec<u8>>),
}

/// A part that is still being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenPart {
    /// What is in it.
    pub run: Run,
    /// Its index, as the run format has it, in hexadecimal.
    pub index: String,
}

/// The last pass so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputState {
    /// What is safe on disk.
    pub durable: DurableOutput,
    /// What is known of the records in it.
    #[serde(flatten)]
    pub so_far: Merged,
}

/// Runs that are being merged into one, what is consumed of them having been given back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergingGroup {
    /// The first of them.
    pub first: usize,
    /// How many they are.
    pub count: usize,
    /// What they are merged into.
    pub open: OpenSpill,
    /// What is known of it.
    pub so_far: Merged,
}

/// A spill that is still being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSpill {
    /// Its runs that are complete.
    pub done: Vec<Run>,
    /// The one after them.
    pub open: OpenPart,
    /// Bytes it is expected to come to.
    pub expected: u64,
}

/// A part of a distribution that is larger than memory, while it is being sorted by runs and merges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargePart {
    /// The part, of which what is in the runs has been given back.
    pub part: Run,
    /// The parts behind it.
    pub later: Vec<Run>,
    /// All of it is in the runs.
    pub formed: bool,
}

/// An output that is complete, so that a job killed between naming it and removing its own
/// directory is known to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The file, which keeps its identity when it is renamed.
    pub file: FileIdentity,
    /// Sum of the records in it.
    pub out: RecordSum,
    /// Sum of all records left out.
    pub dropped: RecordSum,
}

/// What tells a file from any other, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The volume's number.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

impl FileIdentity {
    /// The identity of the file at `path`, if there is one.
    pub fn of(path: &Path) -> Option<Self> {
        let stat = fs::metadata(path).ok()?;
        Some(FileIdentity { device: stat.dev(), inode: stat.ino(), bytes: stat.len() })
    }
}
