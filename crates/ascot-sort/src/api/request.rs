//! What a caller asks for: plain data, parsed by a face, stored in a job's manifest, carried out here.

use std::path::{Path, PathBuf};

use ascot_io::Compression;
use ascot_model::measurement::{HostMeasurement, VolumeRequests};
use ascot_model::volume::VolumeProfile;
use ascot_record::keys::{ByteRangeKey, CsvKeySpec, KeyOptions};
use ascot_record::layout::Layout;
use serde::{Deserialize, Serialize};

use crate::api::error::SortError;

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
    /// Several files: each key is in one of them only. All of them appear, or none.
    Parts(Parts),
}

impl Output {
    /// Descriptors that complete parts hold until all of them have their names.
    pub fn parts_held(&self) -> usize {
        if let Output::Parts(parts) = self { parts.count as usize } else { 0 }
    }
}

/// Names of several files: `{}` in the pattern, or `{:05}` for five digits, is the number from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The names.
    pub pattern: String,
    /// Number of files, at least one.
    pub count: u32,
}

impl Parts {
    /// Most digits a pattern may ask for.
    const MOST_DIGITS: usize = 20;

    /// A pattern that gives `count` different names.
    pub fn new(pattern: &str, count: u32) -> Result<Parts, SortError> {
        let parts = Parts { pattern: pattern.to_owned(), count };
        if count == 0 {
            return Err(SortError::Request("no parts at all\n  ask for one or more (--parts N)".into()));
        }
        let file_name = Path::new(pattern).file_name().map(|name| name.to_string_lossy().into_owned());
        let mut rest = file_name.unwrap_or_default();
        match Self::place(&rest) {
            Some((place, _)) => rest.replace_range(place, ""),
            None => {
                return Err(SortError::Request(format!(
                    "'{pattern}' has no place for the number of a part\n  write {{}} or {{:05}} into the file's name, as in part-{{:05}}"
                )));
            }
        }
        if Self::place(&rest).is_some() {
            let message =
                format!("'{pattern}' has more than one place for the number of a part\n  keep one {{}}");
            return Err(SortError::Request(message));
        }
        Ok(parts)
    }

    /// The name of part `number`.
    pub fn path(&self, number: u32) -> PathBuf {
        let path = Path::new(&self.pattern);
        let mut name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some((place, digits)) = Self::place(&name) {
            name.replace_range(place, &format!("{number:0digits$}"));
        }
        path.with_file_name(name)
    }

    /// An error where `most` files are fewer than there are parts, or where something else than a file has
    /// the name of a part.
    pub fn check(&self, most: usize) -> Result<(), SortError> {
        if self.count as usize > most {
            return Err(SortError::Request(format!(
                "{} parts need as many open files, and this process may have {most}\n  raise the limit (ulimit -n), or ask for fewer parts and split those again",
                self.count
            )));
        }
        let other = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|stat| !stat.is_file());
        match self.paths().find(other) {
            None => Ok(()),
            Some(path) => Err(SortError::Request(format!(
                "{} is no regular file: a part cannot take its place\n  name the parts otherwise; nothing was written",
                path.display()
            ))),
        }
    }

    /// All names, in order.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        (0..self.count).map(|number| self.path(number))
    }

    /// Where the number goes in a name, and its least number of digits.
    fn place(name: &str) -> Option<(std::ops::Range<usize>, usize)> {
        name.match_indices('{').find_map(|(start, _)| {
            let length = name[start..].find('}')?;
            let inside = &name[start + 1..start + length];
            let digits = match inside.strip_prefix(":0") {
                _ if inside.is_empty() => Some(1),
                Some(digits) => {
                    digits.parse().ok().filter(|&digits| (1..=Self::MOST_DIGITS).contains(&digits))
                }
                None => None,
            };
            Some((start..start + length + 1, digits?))
        })
    }
}

/// What says which part a record goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// Its key: each part has a range of keys. The ranges are sampled, so that parts are about as large.
    Range,
    /// A hash of its key: equal keys share a part.
    Hash,
    /// Its place: each part has as many bytes of the inputs, in their order.
    Size,
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

/// What inputs are held against before and while they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputChecks {
    /// Lines of any bytes: files of other formats are not refused.
    pub any_format: bool,
    /// A value that is not of its column's type is an error.
    pub strict: bool,
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
    /// What inputs are held against.
    #[serde(default)]
    pub checks: InputChecks,
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
    /// A file of records whose keys bound the parts of a split by range; none: bounds are sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundaries: Option<PathBuf>,
    /// The volume that plans are costed on; none: a usual flash volume is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeProfile>,
    /// The requests that volume was measured to be fastest with; none: the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<VolumeRequests>,
    /// The volume of the inputs, where that is not the one of spills and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_volume: Option<VolumeProfile>,
    /// The requests that one was measured to be fastest with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<VolumeRequests>,
    /// What its processors were measured to do; none: what a usual core does is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostMeasurement>,
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
        match &mut absolute.output {
            Output::Path(path) => *path = std::path::absolute(&path)?,
            Output::Parts(parts) => {
                let pattern = std::path::absolute(&parts.pattern)?;
                parts.pattern = pattern.to_string_lossy().into_owned();
            }
            Output::Stdout => {}
        }
        if let Some(path) = &mut absolute.boundaries {
            *path = std::path::absolute(&path)?;
        }
        for dir in &mut absolute.temp_dirs {
            *dir = std::path::absolute(&dir)?;
        }
        Ok(absolute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_parts() {
        let names = |pattern| Parts::new(pattern, 3).map(|parts| parts.paths().collect::<Vec<_>>()).ok();
        let named = |names: [&str; 3]| Some(names.map(PathBuf::from).to_vec());
        assert_eq!(names("out-{:05}"), named(["out-00000", "out-00001", "out-00002"]));
        assert_eq!(names("dir{}/a{}.csv"), named(["dir{}/a0.csv", "dir{}/a1.csv", "dir{}/a2.csv"]));
        assert_eq!(names("{x}-{:02}"), named(["{x}-00", "{x}-01", "{x}-02"]));
        for wrong in ["out", "out-{", "out-{:5}", "out-{:0}", "{}-{}", "dir{}/out", "", "out-{:021}"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
        assert!(Parts::new("{}", 0).is_err());
    }
}
