//! Explains how a part of a view would be read and written, without reading a block of it (`--explain`).
//!
//! The numbers come from the functions that a reading uses: its memory, the order of its blocks, its turns with the
//! output, and its predicted time. Where a part begins inside the view, its first and last blocks are estimates.

use std::fmt;
use std::ops::Range;

use ascot_model::known_volume::VolumeOrigin;
use ascot_model::plan::PassPlan;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use crate::api::{Output, Result};
use crate::plan::{RunOptions, check_output_space, output_disk};
use crate::view::copy::PartPlan;
use crate::view::reader::View;
use crate::view::stream::{ReadOrder, StreamPlan};

/// How a part of a view would be read.
#[derive(Clone, Debug, Serialize)]
pub struct ReadExplanation {
    /// Bytes of the part.
    pub bytes: u64,
    /// Bytes of the view.
    pub view_bytes: u64,
    /// Runs of the view.
    pub view_runs: u64,
    /// The layout of the records, in words.
    pub records: String,
    /// The memory cap, bytes.
    pub memory_bytes: u64,
    /// Threads that merge.
    pub threads: usize,
    /// The volume by which it is costed.
    pub volume: VolumeProfile,
    /// Where the profile comes from.
    pub origins: Vec<VolumeOrigin>,
    /// How its runs are read.
    pub reading: StreamPlan,
    /// The output, in words.
    pub into: String,
    /// Whether reading and writing the output take turns.
    pub in_turns: bool,
    /// The prediction.
    pub pass: PassPlan,
    /// Predicted seconds.
    pub seconds: f64,
}

/// Explains [`write_part`](crate::view::write_part) without running it. Refuses an output without space, as it does.
pub fn explain_part(
    view: &dyn View,
    part: Range<u64>,
    output: &Output,
    options: &RunOptions,
) -> Result<ReadExplanation> {
    let bytes = part.end - part.start;
    if let Output::Path(path) = output {
        check_output_space(&output_disk(options, view.ledger()), path, bytes)?;
    }
    let PartPlan { reading, in_turns, pass } = PartPlan::new(view, &part, output)?;
    let volumes = &view.request().volumes;
    Ok(ReadExplanation {
        bytes,
        view_bytes: view.bytes(),
        view_runs: view.runs(),
        records: view.request().layout.to_string(),
        memory_bytes: view.pool().budget() as u64,
        threads: view.threads(),
        volume: volumes.profile(),
        origins: volumes.origins.clone(),
        reading,
        into: match output {
            Output::Path(path) => path.display().to_string(),
            Output::Stdout | Output::Parts(_) => "standard output".into(),
            Output::Program => "the program".into(),
        },
        in_turns,
        seconds: pass.seconds(),
        pass,
    })
}

impl fmt::Display for ReadExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadExplanation { reading, volume, pass, .. } = self;
        let is_whole = self.bytes == self.view_bytes;
        let size = units::bytes(self.bytes);
        let part = if is_whole { size } else { format!("{size} of {}", units::bytes(self.view_bytes)) };
        let duplex = volume.duplex_bytes_per_s;
        writeln!(
            f,
            "{part} in {} ({}), memory {}, {}, volume {} (read {}, write {}{})",
            units::plural(self.view_runs, "run"),
            self.records,
            units::memory(self.memory_bytes),
            units::plural(self.threads as u64, "thread"),
            volume.name,
            units::rate(volume.read_bytes_per_s),
            units::rate(volume.write_bytes_per_s),
            duplex.map_or(String::new(), |rate| format!(", both at once {} each", units::rate(rate))),
        )?;
        let runs = units::plural(reading.runs as u64, "run");
        let order = match reading.order {
            ReadOrder::Forecast => "block by block, as the merge needs them",
            ReadOrder::LongRuns => "in long runs by A3, in an order decided before the first read",
            ReadOrder::Groups => "in long runs by A4, groups of inputs together",
        };
        let about = if is_whole { "" } else { "about " };
        writeln!(f, "\n  plan     merge {runs}, read {order}")?;
        let turns = if self.in_turns { ", on the view's volume: reading and writing take turns" } else { "" };
        writeln!(f, "  into     {}{turns}", self.into)?;
        if !self.origins.is_empty() {
            let origins: Vec<String> = self.origins.iter().map(ToString::to_string).collect();
            writeln!(f, "  volumes  {}", origins.join("; "))?;
        }
        let block = units::memory(reading.block_bytes as u64);
        writeln!(f, "  memory   {} of {block} for the runs", units::plural(reading.blocks as u64, "block"))?;
        let stored = units::bytes(reading.stored_bytes);
        let blocks = units::plural(reading.blocks_to_read as u64, "block");
        let written = units::bytes(pass.written_bytes);
        writeln!(f, "  moves    {about}{stored} read in {about}{blocks}, {written} written")?;
        write!(f, "  time     about {}, bound by {}", units::seconds(self.seconds), pass.bound_by())
    }
}
