//! Plan and account of one job, as written by `--report` (schema: docs/report.md).
//!
//! The columns of keys of a CSV are part of it: their types, and the values that are not of their column's type.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::account::{FileAccount, PassAccount, StreamAccount};
use crate::account_of_spills::SpillsAccount;
use crate::duplicates::DuplicatesAccount;
use crate::plan::Plan;
use crate::resource_use::ResourceUse;
use crate::stages::StageAccount;
use crate::units;
use crate::volume::VolumeProfile;
use crate::volume_pace::SeenRates;

/// Version of the JSON schema.
pub const REPORT_VERSION: u32 = 2;

/// A finished job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this schema.
    pub version: u32,
    /// The kind of job: `sorted`, `merged`.
    pub verb: String,
    /// The request.
    pub request: serde_json::Value,
    /// The plan it followed.
    pub plan: Option<Plan>,
    /// Predicted seconds.
    pub predicted_seconds: Option<f64>,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Records read.
    pub records_in: u64,
    /// Bytes of records read.
    pub bytes_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Bytes of records written.
    pub bytes_out: u64,
    /// Records omitted on request (`--unique`, `--top`).
    pub records_dropped: u64,
    /// Order-independent checksum of the records read, hexadecimal; it equals that of the records written and
    /// dropped.
    pub checksum: String,
    /// The passes, in order.
    pub passes: Vec<PassAccount>,
    /// The sum over all passes.
    #[serde(default)]
    pub moved: StreamAccount,
    /// The bytes and runs of each file: the first inputs, spills and outputs, in the order in which they were opened.
    #[serde(default)]
    pub streams: Vec<FileAccount>,
    /// The bytes and runs of all other files: one sum each for inputs, spills and outputs.
    #[serde(default)]
    pub streams_left_out: Vec<FileAccount>,
    /// The rates of its volumes, as predicted and as measured.
    #[serde(default)]
    pub volumes: Vec<VolumeSeen>,
    /// The compression of spills; `None` without spills.
    #[serde(default)]
    pub compression: Option<SpillsAccount>,
    /// The duplicates that its merges expected; `None` if none were dropped, or without spills.
    #[serde(default)]
    pub duplicates: Option<DuplicatesAccount>,
    /// The columns of keys of CSV, in the order of the keys.
    #[serde(default)]
    pub columns: Vec<ColumnAccount>,
    /// The memory cap, bytes.
    pub memory_bytes: u64,
    /// Peak resident memory, as the kernel counts it, bytes.
    pub peak_memory_bytes: u64,
    /// Peak bytes of spills.
    pub peak_spill_bytes: u64,
    /// Peak bytes of spills and unfinished output.
    pub peak_disk_bytes: u64,
    /// The predicted peak; `None` if the plan has none.
    #[serde(default)]
    pub predicted_peak_disk_bytes: Option<u64>,
    /// Whether a killed job was resumed; bytes moved before that are not counted.
    pub resumed: bool,
    /// Notices for the user.
    pub notices: Vec<String>,
    /// The program of a flow, and its streams.
    #[serde(default)]
    pub flow: Option<FlowAccount>,
    /// The use of resources over time, if it was sampled.
    #[serde(default)]
    pub monitor: Option<ResourceUse>,
}

/// A user's program, and the bytes of its streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowAccount {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The measured share of reading in the bytes of files; `None` if no files were moved.
    pub alpha: Option<f64>,
    /// Bytes given to each input of the program.
    pub inputs: Vec<FlowStream>,
    /// Bytes taken from each of its outputs.
    pub outputs: Vec<FlowStream>,
}

/// A stream of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStream {
    /// The file, pipe or socket.
    pub file: String,
    /// Bytes moved.
    pub bytes: u64,
}

/// The rates of a volume in a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeSeen {
    /// Its files: `inputs`, or `spills and output`, or `all files`.
    pub of: String,
    /// The profile by which the job was planned.
    pub predicted: VolumeProfile,
    /// The figures measured during the job.
    pub measured: SeenRates,
    /// Whether the passes after the first followed the measured figures.
    pub corrected: bool,
}

impl fmt::Display for VolumeSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VolumeSeen { predicted, measured, .. } = self;
        let rates = [
            ("reads", measured.read_bytes_per_s, Some(predicted.read_bytes_per_s)),
            ("writes", measured.write_bytes_per_s, Some(predicted.write_bytes_per_s)),
            ("both at once", measured.duplex_bytes_per_s, predicted.duplex_bytes_per_s),
        ];
        let mut words: Vec<String> = Vec::new();
        for (name, seen, predicted) in rates {
            let Some(seen) = seen else { continue };
            let of = predicted.map_or(String::new(), |rate| format!(" ({} predicted)", units::rate(rate)));
            words.push(format!("{name} {}{of}", units::rate(seen)));
        }
        if let Some(seen) = measured.switch_seconds {
            let predicted_ms = predicted.switch_seconds.seconds(2.0) * 1e3;
            words.push(format!("a switch {:.3} ms ({predicted_ms:.3} predicted)", seen * 1e3));
        }
        let follows = if self.corrected { "; later passes followed these figures" } else { "" };
        write!(f, "volume of {}: {}{follows}", self.of, words.join(", "))
    }
}

/// The name of the line with the sums.
const IN_ALL: &str = "in all";
/// Number of streams with the shortest runs that the summary names.
const SHORTEST_SHOWN: usize = 3;

impl Report {
    /// The sums, and the files with the shortest runs: if switches cost time, most of it was spent on them. A file
    /// that was moved in one run does not count.
    fn moved_lines(&self, width: usize) -> String {
        let StreamAccount { read_bytes, read_runs, written_bytes, written_runs, .. } = self.moved;
        let mut text = format!(
            "  {IN_ALL:width$}  {:>7}   read {}, wrote {}",
            units::seconds(self.seconds),
            bytes_in_runs(read_bytes, read_runs),
            bytes_in_runs(written_bytes, written_runs),
        );
        if self.moved.switches() > 0 {
            text += &format!("   {} a run", units::bytes(self.moved.mean_run()));
        }
        let mut short: Vec<(u64, &str)> = self
            .streams
            .iter()
            .filter(|stream| stream.moved.read_runs > 1 || stream.moved.written_runs > 1)
            .filter_map(|stream| Some((stream.moved.mean_run(), stream.file.as_deref()?)))
            .collect();
        short.sort_unstable();
        short.truncate(SHORTEST_SHOWN);
        if !short.is_empty() {
            let shown: Vec<String> =
                short.iter().map(|&(run, file)| format!("{} in {file}", units::bytes(run))).collect();
            text += &format!("\n  shortest runs  {}", shown.join(", "));
        }
        text
    }
}

/// The alternate form (`{:#}`) shows the stages of each pass.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.bytes_in.max(self.bytes_out) as f64 / self.seconds.max(1e-9);
        match &self.flow {
            Some(_) => write!(f, "{} {} in", self.verb, units::bytes(self.bytes_in))?,
            // Not all records of a part of a view are counted.
            None if self.records_in == 0 && self.bytes_in > 0 => write!(f, "{} a part", self.verb)?,
            None => write!(f, "{} {} records", self.verb, units::count(self.records_in))?,
        }
        let moved = if self.flow.is_some() { self.bytes_out } else { self.bytes_in };
        let out = if self.flow.is_some() { " out" } else { "" };
        let seconds = units::seconds(self.seconds);
        write!(f, ", {}{out}, in {seconds} ({}", units::bytes(moved), units::rate(rate))?;
        match self.predicted_seconds {
            Some(predicted_s) => writeln!(f, "; predicted {})", units::seconds(predicted_s))?,
            None => writeln!(f, ")")?,
        }
        let names = self.passes.iter().map(|pass| pass_name(pass).len());
        let width = names.max().unwrap_or(0).max(if self.passes.len() > 1 { IN_ALL.len() } else { 0 });
        for pass in &self.passes {
            writeln!(f, "{}", pass_line(pass, width))?;
            if f.alternate() {
                let names = pass.stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0);
                pass.stages.iter().try_for_each(|stage| writeln!(f, "{}", stage_line(stage, names)))?;
            }
        }
        if self.passes.len() > 1 {
            writeln!(f, "{}", self.moved_lines(width))?;
        }
        for volume in self.volumes.iter().filter(|volume| !volume.measured.is_empty()) {
            writeln!(f, "  {volume}")?;
        }
        if let Some(spills) = self.compression.as_ref().filter(|spills| spills.is_worth_a_word()) {
            writeln!(f, "  {spills}")?;
        }
        if let Some(duplicates) = &self.duplicates {
            writeln!(f, "  {duplicates}")?;
        }
        if self.records_dropped > 0 {
            writeln!(
                f,
                "  left out {} records, as asked; wrote {}",
                units::count(self.records_dropped),
                units::count(self.records_out)
            )?;
        }
        // The program itself counts too; with a small cap it may be most of the memory.
        let program = self.peak_memory_bytes.saturating_sub(self.memory_bytes);
        let cap = units::memory(self.memory_bytes);
        let memory = match program {
            0 => format!("{} of the {cap} cap", units::memory(self.peak_memory_bytes)),
            _ => format!("within the {cap} cap, and {} for the program itself", units::memory(program)),
        };
        let disk = match self.predicted_peak_disk_bytes {
            Some(predicted) if predicted > 0 => format!(" of {} predicted", units::bytes(predicted)),
            _ => String::new(),
        };
        write!(f, "  memory {memory}\n  disk {}{disk}", units::bytes(self.peak_disk_bytes))?;
        match &self.flow {
            Some(FlowAccount { alpha: Some(alpha), .. }) => {
                write!(f, "; {:.0} percent of the bytes of files were read", alpha * 100.0)
            }
            Some(_) => Ok(()),
            None if self.checksum.is_empty() => Ok(()),
            None => write!(f, "; records in and out agree (checksum {})", self.checksum),
        }
    }
}

fn pass_name(pass: &PassAccount) -> String {
    match pass.times {
        0 | 1 => pass.name.clone(),
        times => format!("{}, {} times", pass.name, units::count(times)),
    }
}

fn pass_line(pass: &PassAccount, width: usize) -> String {
    let mut text = format!("  {:width$}  {:>7}", pass_name(pass), units::seconds(pass.seconds));
    let StreamAccount { read_bytes, read_runs, written_bytes, written_runs, .. } = pass.moved();
    if read_bytes > 0 {
        text += &format!("   read {}", bytes_in_runs(read_bytes, read_runs));
    }
    if written_bytes > 0 {
        text += &format!(", wrote {}", bytes_in_runs(written_bytes, written_runs));
    }
    if !pass.bound_by.is_empty() {
        text += &format!("   {} binds", pass.bound_by);
    }
    text
}

/// Bytes and their runs; pipes have none.
fn bytes_in_runs(bytes: u64, runs: u64) -> String {
    match runs {
        0 => units::bytes(bytes),
        _ => format!("{} in {}", units::bytes(bytes), units::plural(runs, "run")),
    }
}

/// A stage: its threads, its rate while it worked, and the shares of their time.
fn stage_line(stage: &StageAccount, width: usize) -> String {
    let StageAccount { name, threads, time, .. } = stage;
    let percent = |seconds: f64| format!("{:.0} %", 100.0 * seconds / time.wall_seconds.max(1e-9));
    let threads = units::plural(*threads as u64, "thread");
    let rate = stage.bytes_per_s.map_or(String::new(), units::rate);
    format!(
        "    {name:width$}  {threads:>10}  {rate:>11}   busy {:>5}, waits for input {:>5}, memory {:>5}, device {:>5}",
        percent(time.busy_seconds),
        percent(time.waiting_input_seconds),
        percent(time.waiting_memory_seconds),
        percent(time.waiting_device_seconds)
    )
}

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnAccount {
    /// Its number, from 1.
    pub column: u64,
    /// Its name, if there is a header.
    pub name: Option<String>,
    /// The type of its values: `text`, `number`, `date`, or one of these with marks or a form.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the type was inferred from a sample.
    pub inferred: bool,
    /// Values that are neither of the type nor null.
    pub misfits: u64,
    /// The first of those values.
    pub first_misfit: Option<ValuePosition>,
    /// The type of most sampled values, if the column was taken for text.
    pub fallback: Option<ColumnFallback>,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValuePosition {
    /// The input file.
    pub input: String,
    /// The row, from 1; a header counts.
    pub row: u64,
    /// The value; a long one is truncated.
    pub value: String,
}

/// The type of most sampled values of a column that was taken for text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnFallback {
    /// That type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of sampled values of this type.
    pub values: u64,
    /// Number of sampled values that are neither of this type nor null.
    pub others: u64,
    /// The first value that prevented the column from having a type.
    pub first: ValuePosition,
    /// Flags that give the column this type.
    pub fix: String,
}

/// The columns in one line of text.
#[must_use]
pub fn column_words(columns: &[ColumnAccount]) -> String {
    let words: Vec<String> = columns.iter().map(ColumnAccount::words).collect();
    words.join("; ")
}

impl ColumnAccount {
    /// Whether the user should know about it: its type was inferred, or some values are not of this type.
    #[must_use]
    pub fn is_worth_a_word(&self) -> bool {
        self.inferred || self.misfits > 0
    }

    fn words(&self) -> String {
        let name = self.name.clone().unwrap_or_else(|| format!("#{}", self.column));
        let mut text = format!("{name} as {}{}", self.kind, if self.inferred { " (inferred)" } else { "" });
        if let Some(first) = &self.first_misfit {
            let (are, singular) = if self.misfits == 1 { ("is not", "value") } else { ("are not", "values") };
            text += &format!(
                ", {} {singular} {are} of that type, the first '{}' in row {} of {}",
                units::count(self.misfits),
                first.value,
                first.row,
                first.input
            );
        }
        if let Some(fallback) = &self.fallback {
            let ColumnFallback { kind, values, others, first, fix } = fallback;
            text += &format!(
                ", although {} of {} sampled values are of type {kind}; {}: '{}' in row {} of {} ({fix})",
                units::count(*values),
                units::count(values + others),
                if *others == 0 { "the first" } else { "the first that is not" },
                first.value,
                first.row,
                first.input,
            );
        }
        text
    }
}
