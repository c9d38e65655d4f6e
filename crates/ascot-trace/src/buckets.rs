//! The buckets of the bowties of a job: the memory that each stream has of the one that all of them share.
//!
//! Invariants: `bowtie` of a turn is an index of the table of its trace; `bytes` has an entry for each input and then
//! for each output of the bowtie.

use ascot_model::bucket_steps::Steps;

/// Streams that share a memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedBowtie {
    /// The work, such as `merge`, as bytes.
    pub name: Vec<u8>,
    /// The number of inputs.
    pub inputs: u32,
    /// The number of outputs.
    pub outputs: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl TracedBowtie {
    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.inputs as usize + self.outputs as usize
    }

    /// The name of a stream: `input 0`, or `output 3`.
    pub fn stream_name(&self, stream: usize) -> String {
        match stream.checked_sub(self.inputs as usize) {
            None => format!("input {stream}"),
            Some(output) => format!("output {output}"),
        }
    }

    /// Its name as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The buckets of a bowtie at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Nanoseconds since the beginning of the recording.
    pub time_ns: u64,
    /// The bowtie, an index.
    pub bowtie: u32,
    /// The stream of which the next block moves; none if no block moves next.
    pub next: Option<u32>,
    /// The staircase that the schedule keeps for the inputs, in bytes; none if it keeps none.
    pub input_steps: Option<Steps>,
    /// The same for the outputs.
    pub output_steps: Option<Steps>,
    /// Bytes that each stream holds.
    pub bytes: Vec<u64>,
}

/// One side of a bowtie at a turn.
#[derive(Clone, Copy, Debug)]
pub struct SideBuckets<'a> {
    /// Bytes of its buckets.
    pub bytes: &'a [u64],
    /// Its staircase.
    pub steps: Option<Steps>,
}

/// From this share of its memory on, a side counts as full.
const FULL_SHARE: f64 = 0.9;

impl SideBuckets<'_> {
    /// The distance from its staircase, if it keeps one and is full: the theorems describe a full memory.
    pub fn distance(&self) -> Option<f64> {
        let held = self.bytes.iter().sum::<u64>() as f64;
        let steps = self.steps.filter(|steps| held >= FULL_SHARE * steps.memory)?;
        Some(steps.distance(self.bytes))
    }
}

impl Turn {
    /// Both sides: inputs, outputs.
    pub fn sides(&self, bowtie: &TracedBowtie) -> [SideBuckets<'_>; 2] {
        let (inputs, outputs) = self.bytes.split_at((bowtie.inputs as usize).min(self.bytes.len()));
        [
            SideBuckets { bytes: inputs, steps: self.input_steps },
            SideBuckets { bytes: outputs, steps: self.output_steps },
        ]
    }
}
