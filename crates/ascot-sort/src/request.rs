//! What a caller asks for: plain data, parsed by a face, stored in a job's manifest, carried out here.

use std::path::{Path, PathBuf};

use ascot_io::Compression;
use ascot_model::volume::VolumeProfile;
use ascot_record::keys::{ByteRangeKey, CsvKeySpec, KeyOptions};
use ascot_record::layout::Layout;
use serde::{Deserialize, Serialize};

/// Where records come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A file, device or named pipe.
    Path(PathBuf),
    /// Standard input.
    Stdin,
}

impl Input {
    /// `-` is standard input, as everywhere.
    pub fn from_argument(argument: &Path) -> Input {
        if argument.as_os_str() == "-" { Input::Stdin } else { Input::Path(argument.to_path_buf()) }
    }
}

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A file: it appears whole or not at all.
    Path(PathBuf),
    /// Standard output.
    Stdout,
}

/// What orders the records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Keys {
    /// The sort command's keys and ordering options (lines).
    Command(KeyOptions),
    /// Columns (CSV).
    Columns(Vec<CsvKeySpec>),
    /// Byte ranges of a fixed or length-prefixed record; empty: the whole record.
    Ranges(Vec<ByteRangeKey>),
    /// The value itself (numbers).
    Value {
        /// Largest first.
        descending: bool,
    },
}

/// How a sort larger than memory goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The cheaper one by predicted time.
    #[default]
    Auto,
    /// Split by sampled keys into parts that fit, sort each.
    Distribute,
    /// Form sorted runs, merge them.
    Merge,
}

/// A sort (or, with `merge_only`, a merge of sorted inputs).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SortRequest {
    /// Inputs, read in order; equal keys keep this order where order is promised.
    pub inputs: Vec<Input>,
    /// The result.
    pub output: Output,
    /// How bytes are cut into records.
    pub layout: Layout,
    /// What orders them.
    pub keys: Keys,
    /// The first record (line, row) of each input is a header: the first input's is copied to the
    /// output, the others are dropped.
    pub header: bool,
    /// Keep only the first of records with equal keys.
    pub unique: bool,
    /// Records with equal keys keep their input order.
    pub stable: bool,
    /// Inputs are sorted already: merge them.
    pub merge_only: bool,
    /// Keep only the first so many records of the result.
    pub top: Option<u64>,
    /// Hard cap of memory, in bytes; none: a share of what the machine or cgroup has.
    pub memory_bytes: Option<u64>,
    /// Directories for spills; empty: `ASCOT_TMPDIR`, `TMPDIR`, or beside the output.
    pub temp_dirs: Vec<PathBuf>,
    /// The way to go.
    pub method: Method,
    /// Compression of spills.
    pub compression: Compression,
    /// Compute threads; none: one a core.
    pub threads: Option<usize>,
    /// Most files merged at once; none: what memory and descriptors allow.
    pub batch_size: Option<usize>,
    /// The volume that plans are costed on; none: a usual flash volume is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeProfile>,
}

impl SortRequest {
    /// The same request, meaning the same from any working directory.
    pub fn absolute(&self) -> std::io::Result<SortRequest> {
        let mut absolute = self.clone();
        for input in &mut absolute.inputs {
            if let Input::Path(path) = input {
                *path = std::path::absolute(&path)?;
            }
        }
        if let Output::Path(path) = &mut absolute.output {
            *path = std::path::absolute(&path)?;
        }
        for dir in &mut absolute.temp_dirs {
            *dir = std::path::absolute(&dir)?;
        }
        Ok(absolute)
    }
}
