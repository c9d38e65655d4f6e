//! Converts a dictionary of the package to a request for the library.
//!
//! Layouts, keys and amounts are texts in the language of the command (`fixed:100`, `tenant,-ts:number`, `1GiB`), and
//! have its meaning.

use std::path::{Path, PathBuf};

use ascot_device::Profile;
use ascot_io::Compression;
use ascot_model::known_volume::{Origin, VolumeOrigin};
use ascot_model::size;
use ascot_model::volume::VolumeProfile;
use ascot_record::keys::{CsvKeySpec, KeyDef, KeyFlags, KeyOptions, parse_csv_keys, parse_range_keys};
use ascot_record::layout::Layout;
use ascot_sort::plan::volumes::environment_temp_dirs;
use ascot_sort::request::{InputChecks, Parts, Route, RouteBy, SplitBy};
use ascot_sort::resources::control_group::{GroupMemory, lowered};
use ascot_sort::{
    FileRange, Input, Keys, Method, Output, SortRequest, Volumes, Writes, find_volumes,
    is_same_on_any_volume, volumes_for_plan, volumes_of,
};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

/// Bytes, as a number or as a text with a unit.
#[derive(Debug, FromPyObject)]
pub enum Bytes {
    /// A number of bytes.
    Number(u64),
    /// A text such as `1GiB`.
    Text(String),
}

impl Bytes {
    /// The number of bytes.
    pub fn count(&self, argument: &str) -> Result<u64> {
        match self {
            Bytes::Number(0) => Err(Failure::Request(format!("{argument}=0: give bytes, such as '512MiB'"))),
            Bytes::Number(bytes) => Ok(*bytes),
            Bytes::Text(text) => {
                size::data_size(text).map_err(|error| Failure::Request(format!("{argument}: {error}")))
            }
        }
    }

    /// The number of bytes of memory: the same, or a share of the machine's memory such as `25%`.
    pub fn memory(&self, argument: &str) -> Result<u64> {
        let Bytes::Text(text) = self else { return self.count(argument) };
        let amount =
            size::memory_size(text).map_err(|error| Failure::Request(format!("{argument}: {error}")))?;
        Ok(amount.bytes_of(machine_bytes()))
    }
}

/// The most memory this process can have: the machine's, or less if its control groups limit it.
fn machine_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram.saturating_mul(u64::from(system.mem_unit));
    GroupMemory::of_this_process().map_or(machine, |group| group.limit.min(machine))
}

/// The bytes of an argument that may be left out.
pub fn count_of(argument: &str, bytes: Option<&Bytes>) -> Result<Option<u64>> {
    bytes.map(|bytes| bytes.count(argument)).transpose()
}

/// The cap in bytes: `given`, else `ASCOT_MEMORY`, lowered to the memory that the control group allows.
pub fn memory(given: Option<&Bytes>) -> Result<Option<u64>> {
    const VARIABLE: &str = "ASCOT_MEMORY";
    let asked = match given {
        Some(bytes) => Some(bytes.memory("memory")?),
        None => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => Some(Bytes::Text(text).memory(VARIABLE)?),
            _ => None,
        },
    };
    Ok(asked.map(lowered))
}

/// Records and their order.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct RecordOptions {
    /// The layout: `lines`, `fixed:100`.
    layout: String,
    /// The keys, the most important first.
    keys: Vec<String>,
    /// Letters of the orders of lines.
    order: String,
    /// Whether the order is reversed.
    reverse: bool,
    /// The byte between fields of lines.
    separator: Option<u8>,
    /// The quote of CSV.
    quote: Option<u8>,
    /// Spellings of null in CSV.
    nulls: Vec<String>,
    /// Whether the first record of each input is a header.
    header: bool,
}

/// The layout, the keys and whether inputs have headers.
pub struct Records {
    /// The layout.
    pub layout: Layout,
    /// The keys.
    pub keys: Keys,
    /// Whether the first record of each input is a header.
    pub header: bool,
}

impl RecordOptions {
    /// The records that the options describe.
    pub fn records(&self) -> Result<Records> {
        let layout = self.layout()?;
        let keys = self.keys_of(layout, &self.keys, self.reverse)?;
        let header = self.header || keys.name_a_column();
        Ok(Records { layout, keys, header })
    }

    fn layout(&self) -> Result<Layout> {
        let layout = Layout::parse(&self.layout).map_err(|error| Failure::Request(error.to_string()))?;
        match (layout, self.quote) {
            (Layout::Csv { separator, .. }, Some(quote)) if quote == separator => {
                let quote = char::from(quote).escape_default();
                Err(Failure::Request(format!("'{quote}' cannot be both separator and quote\n  change one")))
            }
            (Layout::Csv { separator, .. }, Some(quote)) => Ok(Layout::Csv { separator, quote }),
            (layout, _) => Ok(layout),
        }
    }

    /// The keys that `texts` describe.
    fn keys_of(&self, layout: Layout, texts: &[String], reverse: bool) -> Result<Keys> {
        match layout {
            Layout::Lines { delimiter } => {
                let mut global = KeyFlags { reverse, ..KeyFlags::default() };
                if let Some(letter) = self.order.chars().find(|letter| !global.set(*letter)) {
                    return Err(Failure::Request(format!(
                        "order: '{letter}' is no option of the sort command\n  accepted: b d f g h i M n V"
                    )));
                }
                let keys = texts.iter().map(|text| line_key(text)).collect::<Result<_, _>>()?;
                let separator = self.separator;
                let options = KeyOptions { keys, global, separator, delimiter, ..KeyOptions::default() };
                if options.needs_salt() {
                    return Err(Failure::Request(
                        "the package has no random order (R)\n  use the command: ascot sort -R".into(),
                    ));
                }
                Ok(Keys::Command(options))
            }
            Layout::Csv { .. } => self.columns(texts, reverse).map(Keys::Columns),
            Layout::Fixed { .. } | Layout::Prefixed { .. } => {
                let ranges = parse_range_keys(texts, reverse);
                ranges.map(Keys::Ranges).map_err(|error| Failure::Request(format!("key: {error}")))
            }
            Layout::Number(_) if texts.is_empty() => Ok(Keys::Value { descending: reverse }),
            Layout::Number(_) => Err(Failure::Request(
                "a number is its own key\n  leave out the key; reverse=True puts the largest first".into(),
            )),
        }
    }

    fn columns(&self, texts: &[String], reverse: bool) -> Result<Vec<CsvKeySpec>> {
        let mut columns = Vec::new();
        for text in texts {
            let keys = parse_csv_keys(text).map_err(|error| Failure::Request(format!("key: {error}")))?;
            columns.extend(keys);
        }
        if columns.is_empty() && reverse {
            return Err(Failure::Request("reverse=True needs a column to reverse\n  give a key".into()));
        }
        for key in &mut columns {
            key.descending ^= reverse;
            key.nulls.clone_from(&self.nulls);
        }
        Ok(columns)
    }
}

fn line_key(text: &str) -> Result<KeyDef> {
    KeyDef::parse(text).map_err(|error| {
        Failure::Request(format!(
            "key '{text}': {error}\n  keys of lines are numbers of fields, such as 2 or '2,2nr'; for columns give \
             layout=ascot.Csv(), for byte ranges layout=ascot.Fixed(length)"
        ))
    })
}

/// A source of a job: the name of a file, or a tuple of name, start and end of a range of one, bytes.
#[derive(Debug, FromPyObject)]
pub enum SourceFile {
    /// A whole file.
    Whole(PathBuf),
    /// A range of a file.
    Range(PathBuf, u64, u64),
}

impl SourceFile {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            SourceFile::Whole(path) | SourceFile::Range(path, ..) => path,
        }
    }

    /// Its name for messages.
    pub fn name(&self) -> String {
        match self.input() {
            Input::Range(range) => range.to_string(),
            _ => self.path().display().to_string(),
        }
    }

    /// The input of a request.
    pub fn input(&self) -> Input {
        match self {
            SourceFile::Whole(path) => Input::Path(path.clone()),
            &SourceFile::Range(ref path, start, end) => {
                Input::Range(FileRange { path: path.clone(), start, end })
            }
        }
    }
}

/// A sort, merge, split or reshape.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct JobOptions {
    /// None is one in this process.
    inputs: Vec<Option<SourceFile>>,
    /// Their records.
    pub records: RecordOptions,
    /// The output file, or the pattern of the names of its parts.
    output: Option<PathBuf>,
    parts: Option<u32>,
    /// `range`, `hash` or `value`: the file of a record of a merge into several.
    route: Option<String>,
    /// The keys that decide on the file; empty: those that order the records.
    route_keys: Vec<String>,
    boundaries: Option<PathBuf>,
    merge: bool,
    unique: bool,
    stable: bool,
    strict: bool,
    any_format: bool,
    top: Option<u64>,
    memory: Option<Bytes>,
    temp: Vec<PathBuf>,
    method: String,
    compress: String,
    threads: Option<usize>,
    fan_in: Option<usize>,
    volume: Option<PathBuf>,
}

impl JobOptions {
    /// The request. `writes` are the files of the job, whose volumes are looked up.
    pub fn request(&self, writes: Writes<'_>) -> Result<SortRequest> {
        self.request_with(self.inputs(), self.output()?, self.records.records()?, writes)
    }

    /// Its inputs.
    pub fn inputs(&self) -> Vec<Input> {
        let input = |file: &Option<SourceFile>| file.as_ref().map_or(Input::Program, SourceFile::input);
        self.inputs.iter().map(input).collect()
    }

    /// The cap, bytes.
    pub fn memory_bytes(&self) -> Result<Option<u64>> {
        memory(self.memory.as_ref())
    }

    /// The request with other inputs, another output and other records.
    pub fn request_with(
        &self,
        inputs: Vec<Input>,
        output: Output,
        records: Records,
        writes: Writes<'_>,
    ) -> Result<SortRequest> {
        let Records { layout, keys, header } = records;
        let request = SortRequest {
            inputs,
            output,
            layout,
            keys,
            header,
            checks: InputChecks { any_format: self.any_format, strict: self.strict },
            unique: self.unique,
            stable: self.stable,
            merge_only: self.merge,
            top: self.top,
            memory_bytes: self.memory_bytes()?,
            temp_dirs: self.temp.clone(),
            method: self.method()?,
            compression: self.compression()?,
            threads: at_least("threads", self.threads, 1)?,
            batch_size: at_least("fan_in", self.fan_in, 2)?,
            boundaries: self.boundaries.clone(),
            route: self.route(layout)?,
            volumes: Volumes::default(),
        };
        with_volumes(request, self.volume.as_deref(), writes)
    }

    /// Its output, a file or several.
    pub fn output(&self) -> Result<Output> {
        let Some(path) = &self.output else {
            // The library wants an output in any request; one that only explains or makes a view writes none.
            return Ok(Output::Stdout);
        };
        let Some(count) = self.parts else { return Ok(Output::Path(path.clone())) };
        if self.unique || self.top.is_some() {
            return Err(Failure::Request(
                "parts= cannot be combined with unique= or top=: the sizes of parts follow from those of the inputs\n  \
                 sort to one file first, then split it by='size'"
                    .into(),
            ));
        }
        let pattern = path.to_str().ok_or_else(|| {
            Failure::Request(format!("{} is not UTF-8\n  name parts in UTF-8", path.display()))
        })?;
        Ok(Output::Parts(Parts::new(pattern, count)?))
    }

    fn route(&self, layout: Layout) -> Result<Option<Route>> {
        let words = [("range", None), ("hash", Some(RouteBy::Hash)), ("value", Some(RouteBy::Value))];
        let Some(by) = choice("by", self.route.as_deref().unwrap_or("range"), &words)? else {
            return Ok(None);
        };
        if self.route_keys.is_empty() {
            return Ok(Some(Route { by, keys: None }));
        }
        let keys = self.records.keys_of(layout, &self.route_keys, false)?;
        Ok(Some(Route { by, keys: Some(keys) }))
    }

    fn method(&self) -> Result<Method> {
        let words = [("auto", Method::Auto), ("merge", Method::Merge), ("distribute", Method::Distribute)];
        choice("method", &self.method, &words)
    }

    fn compression(&self) -> Result<Compression> {
        let words = [
            ("auto", Compression::Auto),
            ("none", Compression::None),
            ("lz4", Compression::Lz4),
            ("zstd", Compression::Zstd),
        ];
        choice("compress", &self.compress, &words)
    }
}

/// The error for a word that an argument does not know.
pub fn unknown(argument: &str, word: &str, accepted: &str) -> Failure {
    Failure::Request(format!("{argument}='{word}' is not known\n  accepted: {accepted}"))
}

/// What a word means to an argument.
pub fn choice<C: Copy>(argument: &str, word: &str, choices: &[(&str, C)]) -> Result<C> {
    let found = choices.iter().find(|(name, _)| *name == word).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        unknown(argument, word, &known.join(", "))
    })
}

/// A number that has a minimum.
pub fn at_least(argument: &str, number: Option<usize>, min: usize) -> Result<Option<usize>> {
    match number {
        Some(number) if number < min => {
            Err(Failure::Request(format!("{argument}={number} is too few\n  give at least {min}")))
        }
        number => Ok(number),
    }
}

/// The directories for spills of a job that writes `output` and was given those of `temp`.
#[pyfunction]
pub fn spill_directories(output: PathBuf, temp: Vec<PathBuf>) -> Vec<PathBuf> {
    let usual = environment_temp_dirs().into_iter();
    let beside = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lists = std::iter::once(temp).chain(usual).find(|dirs| !dirs.is_empty());
    lists.unwrap_or_else(|| vec![beside.to_path_buf()])
}

/// The rule of a split.
pub fn split_by(word: &str) -> Result<SplitBy> {
    choice("by", word, &[("range", SplitBy::Range), ("hash", SplitBy::Hash), ("size", SplitBy::Size)])
}

/// The default of `volume=`.
const VARIABLE: &str = "ASCOT_VOLUME";

/// The request with the profiles of its volumes: those of `volume` or `ASCOT_VOLUME` (a kind or the file of a
/// profile), else those that are found.
fn with_volumes(request: SortRequest, volume: Option<&Path>, writes: Writes<'_>) -> Result<SortRequest> {
    if let Some(volumes) = named_volumes(volume)? {
        return Ok(SortRequest { volumes, ..request });
    }
    let one_output = matches!(writes, Writes::SpillsAndOutput | Writes::Nothing);
    if one_output && !request.merge_only && is_same_on_any_volume(&request.inputs) {
        return Ok(request);
    }
    let (volumes, _) = find_volumes(&request, writes);
    Ok(SortRequest { volumes, ..request })
}

/// The volumes of a flow: those that are named, else that of its first output, or of its inputs if it has none.
pub fn volumes_of_flow(inputs: Vec<Input>, output: Option<Output>, volume: Option<&Path>) -> Result<Volumes> {
    let writes = if output.is_some() { Writes::Output } else { Writes::Nothing };
    let keys = Keys::Ranges(Vec::new());
    let request = SortRequest {
        merge_only: true,
        ..SortRequest::new(inputs, output.unwrap_or(Output::Stdout), Layout::Fixed { len: 1 }, keys)
    };
    if let Some(volumes) = named_volumes(volume)? {
        return Ok(volumes);
    }
    let (Volumes { volume, host, requests, origins, .. }, _) = find_volumes(&request, writes);
    Ok(Volumes { volume, host, requests, origins, ..Volumes::default() })
}

/// The volumes of files that need not exist: those named, else those of the working directory.
pub fn volumes_of_plan(volume: Option<&Path>) -> Result<Volumes> {
    Ok(match named_profile(volume)? {
        Some((profile, _)) => Volumes::for_plan(profile),
        None => volumes_for_plan(Path::new(".")).0,
    })
}

/// The volume that an argument names: a kind, or the file of a profile.
pub fn volume_profile(volume: &Path) -> Result<VolumeProfile> {
    let named = named_profile(Some(volume))?.and_then(|(profile, _)| profile);
    Ok(named.map_or_else(VolumeProfile::assumed_flash, |profile| profile.volume))
}

/// The volumes of a view that is read; none: those on which it was made.
pub fn volumes_of_view(dir: &Path) -> Result<Option<Volumes>> {
    Ok(named_volumes(None)?.or_else(|| volumes_of(dir).0))
}

/// The volumes that the argument `volume` or the variable names.
fn named_volumes(volume: Option<&Path>) -> Result<Option<Volumes>> {
    let Some((profile, by)) = named_profile(volume)? else { return Ok(None) };
    let origin = VolumeOrigin { of: "all files".into(), mount: None, origin: Origin::Given(by.into()) };
    let volumes = Volumes { origins: vec![origin], ..Volumes::default() };
    Ok(Some(match profile {
        None => volumes,
        Some(Profile { volume, host, requests }) => {
            Volumes { volume: Some(volume), host, requests, ..volumes }
        }
    }))
}

/// The profile that the argument `volume` or the variable names (`None` for flash, as without any), and which does.
fn named_profile(volume: Option<&Path>) -> Result<Option<(Option<Profile>, &'static str)>> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let (name, by) = match (volume, variable) {
        (Some(path), _) => (path.as_os_str().to_owned(), "volume="),
        (None, Some(value)) => (value, VARIABLE),
        (None, None) => return Ok(None),
    };
    let refused =
        |error| Failure::Request(format!("{}='{}': {error}", by.trim_end_matches('='), name.display()));
    let profile = Profile::named(&name).map_err(refused)?;
    Ok(Some((profile, by)))
}
