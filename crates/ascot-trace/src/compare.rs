//! Traces side by side: one column for each, one row for each measure.
//!
//! The measures follow Stella and Loguinov, tables I to III: bytes and passes over the data, switches, and the rate of
//! a replay.

use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use crate::census::{Census, census};
use crate::error::Result;
use crate::format::TraceReader;
use crate::replay::{VirtualReplay, replay_on_virtual};

/// A trace with its measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The name of the trace.
    pub trace: String,
    /// Bytes moved, divided by those of reading and writing the data once; none if the size of the data is unknown.
    pub passes: Option<f64>,
    /// The replay on the virtual disk, if a profile was given.
    pub replay: Option<VirtualReplay>,
    /// The census.
    pub census: Census,
}

impl Compared {
    /// Measures a trace. `data_bytes` is the size of the data that the program processed.
    pub fn new(
        name: String,
        trace: &TraceReader,
        data_bytes: Option<u64>,
        profile: Option<&VolumeProfile>,
    ) -> Result<Compared> {
        let census = census(trace)?;
        let moved = census.counts.read_bytes.saturating_add(census.counts.written_bytes);
        let passes = data_bytes.filter(|bytes| *bytes > 0).map(|bytes| moved as f64 / (bytes as f64 * 2.0));
        let replay = profile.map(|profile| replay_on_virtual(trace, profile)).transpose()?;
        Ok(Compared { trace: name, passes, replay, census })
    }
}

/// Remarks on what the traces do not show, and on differences that make a comparison unfair.
pub fn remarks(traces: &[Compared]) -> Vec<String> {
    let named = |one: &Compared| {
        let name = one.trace.clone();
        one.census.remarks().into_iter().map(move |remark| format!("{name}: {remark}"))
    };
    let mut remarks: Vec<String> = traces.iter().flat_map(named).collect();
    let of_disks: Vec<&str> =
        traces.iter().filter(|one| is_of_disks(&one.census)).map(|one| one.trace.as_str()).collect();
    if !of_disks.is_empty() && of_disks.len() < traces.len() {
        remarks.push(format!(
            "{}: requests below the page cache, beside the calls of programs above it",
            of_disks.join(", ")
        ));
    }
    remarks
}

/// Whether a trace has the requests that disks got; a cut has no counts of them.
fn is_of_disks(census: &Census) -> bool {
    census.block.is_some() || census.source.starts_with(crate::block::SOURCE)
}

/// A measure of all traces as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The measure.
    pub name: &'static str,
    /// Its value for each trace.
    pub values: Vec<String>,
}

/// The table; measures that no trace has are left out.
pub fn rows(traces: &[Compared]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name, value: &dyn Fn(&Compared) -> String| {
        rows.push(Row { name, values: traces.iter().map(value).collect() });
    };
    if traces.iter().any(|one| one.passes.is_some()) {
        add("passes over the data", &|one| {
            one.passes.map(|passes| format!("{passes:.2}")).unwrap_or_default()
        });
    }
    add("bytes read", &|one| units::bytes(one.census.counts.read_bytes));
    add("bytes written", &|one| units::bytes(one.census.counts.written_bytes));
    add("requests", &|one| units::count(one.census.counts.reads + one.census.counts.writes));
    add("events", &|one| units::count(one.census.events));
    add("processes", &|one| units::count(one.census.processes));
    add("files", &|one| units::count(one.census.files));
    add("switches attempted", &|one| units::count(one.census.counts.attempts));
    add("switches", &|one| units::count(one.census.counts.runs));
    add("mean run", &|one| units::bytes(one.census.counts.mean_run_bytes));
    add("recorded time", &|one| units::fine_seconds(one.census.duration_ns as f64 / 1e9));
    if traces.iter().any(|one| one.replay.is_some()) {
        let replayed = |one: &Compared, text: &dyn Fn(&VirtualReplay) -> String| {
            one.replay.as_ref().map(text).unwrap_or_default()
        };
        add("switches in replay", &|one| replayed(one, &|replay| units::count(replay.switches)));
        add("replay time", &|one| replayed(one, &|replay| units::fine_seconds(replay.seconds)));
        add("replay rate", &|one| replayed(one, &|replay| units::rate(replay.bytes_per_s)));
    }
    rows
}
