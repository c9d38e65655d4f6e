//! Requests: plain data, which a face parses from flags and a job stores in its manifest; and the measured volumes that
//! a job uses:
//!
//! ```text
//!   inputs            input_volume, if they are on a volume of their own; else volume
//!   spills, output    volume
//! ```

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use ascot_device::Profile;
use ascot_io::Compression;
use ascot_model::host_measurement::HostMeasurement;
use ascot_model::known_volume::{Origin, VolumeOrigin};
use ascot_model::measurement::VolumeRequests;
use ascot_model::volume::VolumeProfile;
use ascot_record::keys::{ByteRangeKey, CsvColumn, CsvKeySpec, KeyOptions};
use ascot_record::layout::Layout;
use rustix::fs::{FileType, fstat};
use serde::{Deserialize, Serialize};

use crate::api::error::{Result, SortError};

/// A source of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A file, device or named pipe.
    Path(PathBuf),
    /// A range of a regular file.
    Range(FileRange),
    /// Standard input.
    Stdin,
    /// The program that runs the job makes the records ([`RunOptions::program`](crate::RunOptions::program)).
    Program,
}

impl Input {
    /// A file, or standard input for `-`.
    pub fn from_argument(argument: &Path) -> Input {
        if argument.as_os_str() == "-" { Input::Stdin } else { Input::Path(argument.to_path_buf()) }
    }

    /// The path of the file with its records, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Input::Path(path) | Input::Range(FileRange { path, .. }) => Some(path),
            Input::Stdin | Input::Program => None,
        }
    }
}

/// The bytes from `start` to `end` of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRange {
    /// The file.
    pub path: PathBuf,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl Display for FileRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{} of {}", self.start, self.end, self.path.display())
    }
}

/// The destination of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A file, which appears whole or not at all.
    Path(PathBuf),
    /// Standard output.
    Stdout,
    /// The program that runs the job takes the records ([`RunOptions::program`](crate::RunOptions::program)).
    Program,
    /// Several files, each key in only one of them. All of them appear, or none.
    Parts(Parts),
}

impl Output {
    /// Number of files that it makes. A device or a pipe makes none, and takes no space on a volume.
    pub fn files(&self) -> u64 {
        match self {
            Output::Path(path) => u64::from(std::fs::metadata(path).map_or(true, |stat| stat.is_file())),
            Output::Parts(parts) => parts.count.into(),
            Output::Stdout | Output::Program => 0,
        }
    }

    /// Whether it is standard output that is redirected to a file.
    pub fn is_redirected(&self) -> bool {
        let is_file = |mode| FileType::from_raw_mode(mode).is_file();
        *self == Output::Stdout && fstat(std::io::stdout()).is_ok_and(|stat| is_file(stat.st_mode))
    }

    /// Whether its bytes go to files, where they cost switches, and not to a pipe or a device.
    pub fn writes_files(&self) -> bool {
        self.files() > 0 || self.is_redirected()
    }

    /// Maximum number of descriptors of complete parts, which stay open until all parts have their names.
    pub fn parts_held(&self) -> usize {
        if let Output::Parts(parts) = self { parts.count as usize } else { 0 }
    }
}

/// Names of several files. `{}` in the pattern, or `{:05}` for five digits, stands for the part number, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The pattern of the names.
    pub pattern: String,
    /// Number of files, at least one.
    pub count: u32,
}

impl Parts {
    /// Maximum number of digits in a pattern.
    const DIGITS_MAX: usize = 20;

    /// `count` files named by `pattern`, or an error if their names would not differ.
    pub fn new(pattern: &str, count: u32) -> Result<Parts> {
        let parts = Parts { pattern: pattern.to_owned(), count };
        if count == 0 {
            return Err(SortError::Request("no parts at all\n  ask for one or more (--parts N)".into()));
        }
        let file_name = Path::new(pattern).file_name().map(|name| name.to_string_lossy().into_owned());
        let mut rest = file_name.unwrap_or_default();
        match Self::number_field(&rest) {
            Some((field, _)) => rest.replace_range(field, ""),
            None => {
                return Err(SortError::Request(format!(
                    "'{pattern}' has no place for the number of a part\n  write {{}} or {{:05}} into the \
                     file's name, as in part-{{:05}}"
                )));
            }
        }
        if Self::number_field(&rest).is_some() {
            let message =
                format!("'{pattern}' has more than one place for the number of a part\n  keep one {{}}");
            return Err(SortError::Request(message));
        }
        Ok(parts)
    }

    /// The name of the part with this number.
    pub fn path(&self, number: u32) -> PathBuf {
        let path = Path::new(&self.pattern);
        let mut name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some((field, digits)) = Self::number_field(&name) {
            name.replace_range(field, &format!("{number:0digits$}"));
        }
        path.with_file_name(name)
    }

    /// Refuses more than `parts_max` parts, and names of existing devices or directories.
    pub fn check(&self, parts_max: usize) -> Result<()> {
        if self.count as usize > parts_max {
            return Err(SortError::Request(format!(
                "{} parts need as many open files, and this process may have {parts_max}\n  raise the limit \
                 (ulimit -n), or ask for fewer parts and split those again",
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

    /// The byte range of `{}` or `{:05}` in a name, and the minimum number of digits.
    fn number_field(name: &str) -> Option<(std::ops::Range<usize>, usize)> {
        name.match_indices('{').find_map(|(start, _)| {
            let length = name[start..].find('}')?;
            let inside = &name[start + 1..start + length];
            let digits = match inside.strip_prefix(":0") {
                _ if inside.is_empty() => Some(1),
                Some(digits) => {
                    digits.parse().ok().filter(|&digits| (1..=Self::DIGITS_MAX).contains(&digits))
                }
                None => None,
            };
            Some((start..start + length + 1, digits?))
        })
    }
}

/// The rule by which a record belongs to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// By key: each part has a range of keys. The ranges are sampled, so that parts are about equal.
    Range,
    /// By a hash of the key: equal keys share a part.
    Hash,
    /// By position: each part has an equal number of bytes of the inputs, in their order.
    Size,
}

/// The file of a record among several that are all ordered by the same key: by another key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The rule.
    pub by: RouteBy,
    /// The key that decides; none: the one that orders the records.
    pub keys: Option<Keys>,
}

/// How a key decides on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteBy {
    /// By its hash.
    Hash,
    /// Each value has a file of its own, in the order in which values first come.
    Value,
}

/// The keys that order records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Keys {
    /// Keys and ordering options of the sort command, for lines.
    Command(KeyOptions),
    /// Columns of CSV.
    Columns(Vec<CsvKeySpec>),
    /// Byte ranges of a fixed or length-prefixed record; empty: the whole record.
    Ranges(Vec<ByteRangeKey>),
    /// The value of a number.
    Value {
        /// Largest first.
        descending: bool,
    },
}

impl Keys {
    /// Whether a key is a column by its name, which a header gives it.
    pub fn name_a_column(&self) -> bool {
        let Keys::Columns(columns) = self else { return false };
        columns.iter().any(|key| matches!(key.column, CsvColumn::Name(_)))
    }
}

/// The method of a sort larger than memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The method with the shorter predicted time.
    #[default]
    Auto,
    /// Partition the records by sampled keys into parts that fit in memory, and sort each part.
    Distribute,
    /// Form sorted runs, and merge them.
    Merge,
}

/// Checks of inputs before and while they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputChecks {
    /// Accept files of other formats as lines.
    pub any_format: bool,
    /// Refuse values that do not have the type of their column.
    pub strict: bool,
}

/// A sort (or, with `merge_only`, a merge of sorted inputs).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SortRequest {
    /// Inputs, in the order in which stable sorts keep records with equal keys.
    pub inputs: Vec<Input>,
    /// The output.
    pub output: Output,
    /// The layout: how bytes are divided into records.
    pub layout: Layout,
    /// The keys that order them.
    pub keys: Keys,
    /// The first record (line, row) of each input is a header. The header of the first input is copied to the output,
    /// the others are dropped.
    pub header: bool,
    /// Checks of the inputs.
    #[serde(default)]
    pub checks: InputChecks,
    /// Keep only the first of records with equal keys.
    pub unique: bool,
    /// Records with equal keys keep their input order.
    pub stable: bool,
    /// Inputs are sorted: merge them.
    pub merge_only: bool,
    /// Keep only the first `top` records of the result.
    pub top: Option<u64>,
    /// Cap of memory, bytes; none: a fraction of the memory of the machine or control group.
    pub memory_bytes: Option<u64>,
    /// Spill directories; empty: `ASCOT_TMPDIR`, `TMPDIR`, or the directory of the output.
    pub temp_dirs: Vec<PathBuf>,
    /// The method.
    pub method: Method,
    /// Compression of spills.
    pub compression: Compression,
    /// Compute threads; none: one per core.
    pub threads: Option<usize>,
    /// Maximum number of files merged at once; none: as many as memory and descriptors allow.
    pub batch_size: Option<usize>,
    /// A file of records whose keys bound the parts of a split by range; none: bounds are sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundaries: Option<PathBuf>,
    /// Of a merge into several files: the file of each record; none: each file has a range of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// Measurements of its volumes and processors.
    #[serde(flatten)]
    pub volumes: Volumes,
}

impl SortRequest {
    /// A sort in which all else is as usual.
    pub fn new(inputs: Vec<Input>, output: Output, layout: Layout, keys: Keys) -> SortRequest {
        SortRequest {
            inputs,
            output,
            layout,
            keys,
            header: false,
            checks: InputChecks::default(),
            unique: false,
            stable: false,
            merge_only: false,
            top: None,
            memory_bytes: None,
            temp_dirs: Vec::new(),
            method: Method::default(),
            compression: Compression::default(),
            threads: None,
            batch_size: None,
            boundaries: None,
            route: None,
            volumes: Volumes::default(),
        }
    }

    /// The same request with absolute paths.
    pub fn absolute(&self) -> std::io::Result<SortRequest> {
        let mut absolute = self.clone();
        for input in &mut absolute.inputs {
            if let Input::Path(path) | Input::Range(FileRange { path, .. }) = input {
                *path = std::path::absolute(&path)?;
            }
        }
        match &mut absolute.output {
            Output::Path(path) => *path = std::path::absolute(&path)?,
            Output::Parts(parts) => {
                let pattern = std::path::absolute(&parts.pattern)?;
                parts.pattern = pattern.to_string_lossy().into_owned();
            }
            Output::Stdout | Output::Program => {}
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

/// Measurements of the volumes and processors of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// The volume by which plans are costed; none: a usual flash volume is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeProfile>,
    /// The requests with which that volume is fastest; none: the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<VolumeRequests>,
    /// The volume of the inputs, if it is not the one of spills and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_volume: Option<VolumeProfile>,
    /// The requests with which the volume of the inputs is fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<VolumeRequests>,
    /// The processors; none: usual ones are assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostMeasurement>,
    /// The source of these profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<VolumeOrigin>,
}

impl Volumes {
    /// The volume of a job on files that need not exist; `None`: flash is assumed.
    pub fn for_plan(profile: Option<Profile>) -> Volumes {
        let profile = profile.unwrap_or_else(|| Profile::assumed(VolumeProfile::assumed_flash()));
        Volumes { volume: Some(profile.volume), host: profile.host, ..Volumes::default() }
    }

    /// Whether the user described a volume.
    pub fn are_given(&self) -> bool {
        let given = |of: &VolumeOrigin| matches!(of.origin, Origin::Given(_));
        self.origins.iter().any(given) || (self.origins.is_empty() && self.volume.is_some())
    }

    /// The volume of spills and output, or the one that is assumed.
    pub fn profile(&self) -> VolumeProfile {
        self.volume.clone().unwrap_or_else(VolumeProfile::assumed_flash)
    }

    /// Whether moving blocks of `files` files in turn would spend the time of the volume on switches.
    pub fn wants_runs(&self, files: usize) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.wants_runs(files as f64))
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
