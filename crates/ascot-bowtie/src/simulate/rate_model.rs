//! The function of a simulated bowtie: consumes its inputs and fills its outputs at given rates.
//!
//! It advances from one end of a block to the next. What it moves in between is given in whole units, so that a flow
//! that moves one byte for each unit does exactly the same.

use ascot_model::random::SplitMix64;
use ascot_model::run_length::Scheme;

use crate::schedule::BlockedOn;

/// Units of a block.
pub const UNITS: u64 = 4096;

/// What the function knows of its streams.
pub(crate) trait StreamState {
    /// Whether an input holds blocks or has blocks to come.
    fn is_live(&self, input: usize) -> bool;
    /// Whether an input has data now.
    fn has_data(&self, input: usize) -> bool;
    /// Whether an output takes more now.
    fn has_free(&self, output: usize) -> bool;
}

/// What the function moves in one advance, in units of each stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Portion {
    /// Consumed of each input.
    pub(crate) consumed: Vec<u64>,
    /// Filled into each output.
    pub(crate) filled: Vec<u64>,
}

/// How far the function has come in a block: exactly, and in the units that it has moved.
#[derive(Clone, Copy, Debug, Default)]
struct BlockOffset {
    part: f64,
    units: u64,
}

impl BlockOffset {
    /// Advances by a part of a block; returns the units that this moves.
    fn advance(&mut self, part: f64) -> u64 {
        self.part += part;
        if (self.part - 1.0).abs() < 1e-9 {
            self.part = 1.0;
        }
        let units = ((self.part * UNITS as f64) as u64).min(UNITS);
        let moved = units - self.units;
        self.units = units;
        moved
    }

    fn is_at_end(self) -> bool {
        self.part >= 1.0
    }
}

/// The function.
pub(crate) struct RateModel {
    input_skew: Skew,
    output_skew: Skew,
    random: SplitMix64,
    /// Offsets in each input's first block.
    consumed: Vec<BlockOffset>,
    /// Offsets in the block that each output fills.
    filled: Vec<BlockOffset>,
    input_rates: Vec<f64>,
    output_rates: Vec<f64>,
    /// Blocks written for each block consumed.
    gain: f64,
    /// Blocks still to come where there are no inputs.
    source: f64,
    produced: f64,
    portion: Portion,
}

impl RateModel {
    /// The function of a setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        let shape = setup.scheme.shape;
        let n = shape.inputs as usize;
        let m = shape.outputs as usize;
        RateModel {
            input_rates: setup.input_skew.rates(n),
            output_rates: setup.output_skew.rates(m),
            input_skew: setup.input_skew.clone(),
            output_skew: setup.output_skew.clone(),
            random: SplitMix64(setup.seed),
            consumed: vec![BlockOffset::default(); n],
            filled: vec![BlockOffset::default(); m],
            gain: if n > 0 && m > 0 { (1.0 - shape.alpha) / shape.alpha } else { 1.0 },
            source: if n == 0 { setup.total_blocks as f64 } else { 0.0 },
            produced: 0.0,
            portion: Portion { consumed: vec![0; n], filled: vec![0; m] },
        }
    }

    /// Whether data without inputs are still to come.
    pub(crate) fn has_source(&self) -> bool {
        self.source > 0.0
    }

    /// Blocks that have passed through the function.
    pub(crate) fn produced(&self) -> f64 {
        self.produced
    }

    /// What moves next, up to the next end of a block; or what the function is blocked on.
    pub(crate) fn advance(&mut self, streams: &impl StreamState) -> Result<&Portion, BlockedOn> {
        self.vary(streams);
        let inputs = self.consumed.len();
        let has_more = if inputs == 0 { self.has_source() } else { (0..inputs).any(|i| streams.is_live(i)) };
        if !has_more {
            return Err(BlockedOn::End);
        }
        if let Some(empty) = (0..inputs).find(|&i| self.wants(streams, i) && !streams.has_data(i)) {
            return Err(BlockedOn::Input(empty));
        }
        for output in 0..self.filled.len() {
            if self.filled[output].is_at_end() {
                if !streams.has_free(output) {
                    return Err(BlockedOn::OutputMemory);
                }
                self.filled[output] = BlockOffset::default();
            }
        }
        self.move_to_block_end(streams);
        Ok(&self.portion)
    }

    /// Whether the function needs data of an input to go on.
    fn wants(&self, streams: &impl StreamState, input: usize) -> bool {
        streams.is_live(input) && self.input_rates[input] > 0.0
    }

    /// Consumes and fills up to the next end of a block.
    fn move_to_block_end(&mut self, streams: &impl StreamState) {
        let inputs = self.consumed.len();
        let live = (0..inputs).filter(|&input| streams.is_live(input));
        let consuming: f64 = live.map(|input| self.input_rates[input]).sum();
        let filling: f64 = self.output_rates.iter().sum();
        let mut amount = if inputs == 0 { self.source } else { f64::INFINITY };
        for input in (0..inputs).filter(|&input| self.wants(streams, input)) {
            amount = amount.min((1.0 - self.consumed[input].part) * consuming / self.input_rates[input]);
        }
        for output in (0..self.filled.len()).filter(|&output| self.output_rates[output] > 0.0) {
            let left = (1.0 - self.filled[output].part).max(0.0);
            amount = amount.min(left * filling / (self.output_rates[output] * self.gain));
        }
        let amount = if amount.is_finite() { amount } else { 1.0 };
        for input in 0..inputs {
            let wanted = self.wants(streams, input);
            let part = if wanted { amount * self.input_rates[input] / consuming } else { 0.0 };
            self.portion.consumed[input] = self.consumed[input].advance(part);
            if self.consumed[input].is_at_end() {
                self.consumed[input] = BlockOffset::default();
            }
        }
        for output in 0..self.filled.len() {
            let part = amount * self.gain * self.output_rates[output] / filling;
            self.portion.filled[output] = self.filled[output].advance(part);
        }
        self.source -= if inputs == 0 { amount } else { 0.0 };
        if self.source < 1e-9 {
            self.source = 0.0;
        }
        self.produced += amount;
    }

    /// Changes the rates that vary with time.
    fn vary(&mut self, streams: &impl StreamState) {
        let produced = self.produced;
        let change = |skew: &Skew, rates: &mut [f64], random: &mut SplitMix64| match skew {
            Skew::Noise(max) => {
                for rate in rates {
                    *rate = (1.0 + max * (2.0 * random.fraction() - 1.0)).max(0.01);
                }
            }
            Skew::Bursts(blocks) if !rates.is_empty() => {
                let now = (produced / blocks) as usize % rates.len();
                for (at, rate) in rates.iter_mut().enumerate() {
                    *rate = if at == now { 1.0 } else { 0.0 };
                }
            }
            _ => {}
        };
        change(&self.input_skew, &mut self.input_rates, &mut self.random);
        change(&self.output_skew, &mut self.output_rates, &mut self.random);
        // A burst of an input that has ended is over.
        let inputs = self.consumed.len();
        if inputs > 0 && !(0..inputs).any(|input| self.wants(streams, input)) {
            self.input_rates.fill(1.0);
        }
    }
}

/// How fast streams are consumed or filled, relative to each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Skew {
    /// All alike.
    Equal,
    /// The k-th stream at the rate `1 / k^exponent`.
    Zipf(f64),
    /// The first stream this number of times as fast as each other one.
    OneFast(f64),
    /// Each stream at its own rate.
    #[cfg(test)]
    Rates(Vec<f64>),
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
            #[cfg(test)]
            Skew::Rates(rates) => rates[(k - 1) % rates.len().max(1)],
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
