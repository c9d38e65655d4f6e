//! The census of the buckets of a job: how full they were, and how far from the staircase that theory predicts.

use serde::Serialize;

use crate::buckets::TracedBowtie;
use crate::error::Result;
use crate::format::TraceReader;

/// The buckets of a bowtie in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BowtieCensus {
    /// The work, such as `merge`; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The number of inputs.
    pub inputs: u32,
    /// The number of outputs.
    pub outputs: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The number of times at which its buckets were recorded.
    pub turns: u64,
    /// The most that a single bucket held, bytes.
    pub largest_bucket_bytes: u64,
    /// The most that all buckets held, bytes.
    pub peak_bytes: u64,
    /// The distance of the inputs from their staircase.
    pub input_distance: Distance,
    /// The same for the outputs.
    pub output_distance: Distance,
}

/// The mean distance of buckets from a staircase, over the turns at which they were full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    /// The number of these turns; 0 if the schedule keeps no staircase.
    pub turns: u64,
    /// The mean of the distance as a share of the staircase; 0 without turns.
    pub mean: f64,
}

impl Distance {
    /// Counts a distance.
    pub fn add(&mut self, distance: f64) {
        self.turns += 1;
        self.mean += (distance - self.mean) / self.turns as f64;
    }

    /// As text: none without turns.
    pub fn text(&self) -> Option<String> {
        (self.turns > 0).then(|| format!("{:.0}%", self.mean * 100.0))
    }
}

impl BowtieCensus {
    fn new(bowtie: &TracedBowtie) -> Self {
        BowtieCensus {
            name: bowtie.text(),
            inputs: bowtie.inputs,
            outputs: bowtie.outputs,
            block_bytes: bowtie.block_bytes,
            turns: 0,
            largest_bucket_bytes: 0,
            peak_bytes: 0,
            input_distance: Distance::default(),
            output_distance: Distance::default(),
        }
    }

    /// The distances from the staircases, as text: `inputs 4%, outputs 6%`; empty if the schedule keeps none.
    pub fn distances(&self) -> String {
        let sides = [("inputs", self.input_distance), ("outputs", self.output_distance)];
        let texts: Vec<String> = sides
            .iter()
            .filter_map(|(side, distance)| Some(format!("{side} {}", distance.text()?)))
            .collect();
        texts.join(", ")
    }
}

/// Counts the buckets of each bowtie.
pub fn bowties(trace: &TraceReader) -> Result<Vec<BowtieCensus>> {
    let mut counted: Vec<BowtieCensus> = trace.bowties().iter().map(BowtieCensus::new).collect();
    for turn in trace.turns() {
        let turn = turn?;
        let at = turn.bowtie as usize;
        let (Some(census), Some(bowtie)) = (counted.get_mut(at), trace.bowties().get(at)) else { continue };
        census.turns += 1;
        let largest = turn.bytes.iter().copied().max().unwrap_or_default();
        census.largest_bucket_bytes = census.largest_bucket_bytes.max(largest);
        let all = turn.bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        census.peak_bytes = census.peak_bytes.max(all);
        let [inputs, outputs] = turn.sides(bowtie).map(|side| side.distance());
        inputs.into_iter().for_each(|distance| census.input_distance.add(distance));
        outputs.into_iter().for_each(|distance| census.output_distance.add(distance));
    }
    Ok(counted)
}
