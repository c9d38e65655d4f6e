//! What is known of a run: stored in the manifest of its job or view.

use std::path::PathBuf;

use ascot_io::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use crate::read::inputs::{Span, SpilledFile};

/// A run (or a part of a distribution) on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its file.
    pub path: PathBuf,
    /// Its number, part of its checksums.
    pub number: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Length of the longest record, bytes.
    pub longest: u64,
    /// Bytes of the largest block, as a buffer must hold it.
    pub block_bytes: usize,
    /// Prefix of the first key of every block, smaller for what comes earlier.
    pub first_keys: Vec<u64>,
    /// Where its unread records start.
    pub start: RunStart,
    /// It has no file: its records are those of inputs.
    #[serde(default)]
    pub input: Option<InputRun>,
    /// Its file is a user's own, with records as they stand there.
    #[serde(default)]
    pub raw: bool,
}

impl Run {
    /// Its file, to be read as an input.
    pub fn file(&self) -> SpilledFile {
        SpilledFile { path: self.path.clone(), number: self.number, bytes: self.bytes }
    }

    /// Memory that a record which spans blocks takes while the run is merged, bytes. There is but one
    /// of a run at a time: none is read while one is being merged, or waits for that.
    pub fn long_bytes(&self) -> usize {
        let longest = self.longest as usize;
        if longest > self.block_bytes { longest.next_multiple_of(PAGE_BYTES) } else { 0 }
    }
}

/// A record of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// Its block.
    pub block: usize,
    /// Its offset in the block's records, bytes.
    pub offset: u32,
}

/// A piece of an input, the records of a key interval of which belong to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputChunk {
    /// Where it lies.
    pub span: Span,
    /// Smallest key that belongs to the run.
    pub lo: Option<Vec<u8>>,
    /// Smallest key behind it that does not.
    pub hi: Option<Vec<u8>>,
}

/// A run that has no file of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRun {
    /// Its records, in the order of the run.
    pub chunks: Vec<InputChunk>,
    /// The input is in reverse order.
    pub backward: bool,
    /// Key of its first record.
    pub first_key: Vec<u8>,
    /// Key of its last record.
    pub last_key: Vec<u8>,
    /// What the input gives next may go on with it.
    pub open: bool,
}
