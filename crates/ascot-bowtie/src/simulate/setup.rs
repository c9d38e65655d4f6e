//! What to simulate: a scheme, its memory, and the rates of the streams.

use ascot_model::run_length::Scheme;

/// How fast streams are consumed or filled, relative to each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Skew {
    /// All alike.
    Equal,
    /// The k-th stream at the rate `1 / k^exponent`.
    Zipf(f64),
    /// The first stream this number of times as fast as each other one.
    OneFast(f64),
    /// Each stream at a random rate, up to this share more or less than the mean, drawn again for every block.
    Noise(f64),
    /// One stream after the other has the whole rate, for this number of blocks.
    Bursts(f64),
    /// Equal rates; the k-th stream ends after `k / count` of the bytes of the last one.
    Ends,
}

impl Skew {
    /// The rates of `count` streams at the start.
    pub(super) fn rates(&self, count: usize) -> Vec<f64> {
        let rate = |k: usize| match self {
            Skew::Zipf(exponent) => (k as f64).powf(-exponent),
            Skew::OneFast(times) if k == 1 => *times,
            _ => 1.0,
        };
        (1..=count).map(rate).collect()
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The schedule.
    pub scheme: Scheme,
    /// Blocks of memory, for inputs and outputs.
    pub memory_blocks: u32,
    /// Blocks that move until the end, about.
    pub total_blocks: u64,
    /// Rates of the inputs.
    pub input_skew: Skew,
    /// Rates of the outputs.
    pub output_skew: Skew,
    /// Seed of the random rates.
    pub seed: u64,
}

impl Setup {
    /// Blocks of each input.
    pub(crate) fn input_blocks(&self) -> Vec<u32> {
        let shape = self.scheme.shape;
        let n = shape.inputs as usize;
        let weights = match self.input_skew {
            Skew::Ends => (1..=n).map(|k| k as f64 / n as f64).collect(),
            _ => self.input_skew.rates(n),
        };
        let sum: f64 = weights.iter().sum();
        let total = self.total_blocks as f64;
        weights.iter().map(|weight| ((total * shape.alpha * weight / sum).ceil() as u32).max(1)).collect()
    }
}
