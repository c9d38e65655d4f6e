//! The function of a bowtie of numbers: consumes from its inputs and fills its outputs at given rates.
//!
//! It goes on from one end of a block to the next. What it moves in between is told in whole units, so
//! that a flow of as many bytes to a block does exactly the same.

use ascot_model::random::SplitMix64;

use crate::schedule::Stall;
use crate::simulate::{Setup, Skew};

/// Units of a block.
pub const UNITS: u64 = 4096;

/// The streams as the function sees them.
pub trait Streams {
    /// Whether an input has more to give.
    fn live(&self, input: usize) -> bool;
    /// Whether an input has data now.
    fn has_data(&self, input: usize) -> bool;
    /// Whether an output takes more now.
    fn has_room(&self, output: usize) -> bool;
}

/// What the function moves at a time, units of each stream.
#[derive(Clone, Debug, Default)]
pub struct Portion {
    /// Of each input.
    pub consumed: Vec<u64>,
    /// Of each output.
    pub filled: Vec<u64>,
}

/// The function.
pub struct Mill {
    input_skew: Skew,
    output_skew: Skew,
    chance: SplitMix64,
    /// Of each input's first block and of each output's last block, what has passed.
    eaten: Vec<Place>,
    filled: Vec<Place>,
    input_rates: Vec<f64>,
    output_rates: Vec<f64>,
    /// Blocks written for one consumed.
    gain: f64,
    /// Blocks a source without streams has still to give.
    source: f64,
    produced: f64,
    portion: Portion,
}

/// A place in a block: exactly, and in the units told.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    part: f64,
    units: u64,
}

impl Place {
    /// Goes on by a part of a block; the units that makes.
    fn pass(&mut self, part: f64) -> u64 {
        self.part += part;
        if (self.part - 1.0).abs() < 1e-9 {
            self.part = 1.0;
        }
        let units = ((self.part * UNITS as f64) as u64).min(UNITS);
        let passed = units - self.units;
        self.units = units;
        passed
    }

    fn at_end(self) -> bool {
        self.part >= 1.0
    }
}

impl Mill {
    /// The function of a setup.
    pub fn new(setup: &Setup) -> Self {
        let shape = setup.scheme.shape;
        let (n, m) = (shape.inputs as usize, shape.outputs as usize);
        let ends = setup.input_skew == Skew::Ends;
        Mill {
            input_skew: setup.input_skew.clone(),
            output_skew: setup.output_skew.clone(),
            chance: SplitMix64(setup.seed),
            eaten: vec![Place::default(); n],
            filled: vec![Place::default(); m],
            input_rates: if ends { vec![1.0; n] } else { rates(&setup.input_skew, n) },
            output_rates: rates(&setup.output_skew, m),
            gain: if n > 0 && m > 0 { (1.0 - shape.alpha) / shape.alpha } else { 1.0 },
            source: if n == 0 { setup.total_blocks as f64 } else { 0.0 },
            produced: 0.0,
            portion: Portion { consumed: vec![0; n], filled: vec![0; m] },
        }
    }

    /// Blocks each input has in all.
    pub fn lengths(setup: &Setup) -> Vec<u32> {
        let shape = setup.scheme.shape;
        let n = shape.inputs as usize;
        let weights = match setup.input_skew {
            Skew::Ends => (1..=n).map(|k| k as f64 / n as f64).collect(),
            _ => rates(&setup.input_skew, n),
        };
        let (sum, total) = (weights.iter().sum::<f64>(), setup.total_blocks as f64);
        weights.iter().map(|weight| ((total * shape.alpha * weight / sum).ceil() as u32).max(1)).collect()
    }

    /// What of the source is left, where there are no inputs.
    pub fn source(&self) -> f64 {
        self.source
    }

    /// How far the function has come, blocks.
    pub fn produced(&self) -> f64 {
        self.produced
    }

    /// What moves next, up to the next end of a block; or why nothing does.
    pub fn grind(&mut self, streams: &impl Streams) -> Result<&Portion, Stall> {
        self.vary(streams);
        let inputs = self.eaten.len();
        if if inputs == 0 { self.source <= 0.0 } else { (0..inputs).all(|input| !streams.live(input)) } {
            return Err(Stall::Ended);
        }
        if let Some(empty) = (0..inputs).find(|&i| self.wants(streams, i) && !streams.has_data(i)) {
            return Err(Stall::Input(empty));
        }
        for output in 0..self.filled.len() {
            if self.filled[output].at_end() {
                if !streams.has_room(output) {
                    return Err(Stall::Room);
                }
                self.filled[output] = Place::default();
            }
        }
        self.flow(streams);
        Ok(&self.portion)
    }

    /// Whether the function needs data of an input to go on.
    fn wants(&self, streams: &impl Streams, input: usize) -> bool {
        streams.live(input) && self.input_rates[input] > 0.0
    }

    /// Consumes and fills up to the next end of a block.
    fn flow(&mut self, streams: &impl Streams) {
        let inputs = self.eaten.len();
        let consuming: f64 = (0..inputs).filter(|&i| streams.live(i)).map(|i| self.input_rates[i]).sum();
        let filling: f64 = self.output_rates.iter().sum();
        let mut amount = if inputs == 0 { self.source } else { f64::INFINITY };
        for input in (0..inputs).filter(|&input| self.wants(streams, input)) {
            amount = amount.min((1.0 - self.eaten[input].part) * consuming / self.input_rates[input]);
        }
        for output in (0..self.filled.len()).filter(|&output| self.output_rates[output] > 0.0) {
            let room = (1.0 - self.filled[output].part).max(0.0);
            amount = amount.min(room * filling / (self.output_rates[output] * self.gain));
        }
        let amount = if amount.is_finite() { amount } else { 1.0 };
        for input in 0..inputs {
            let wanted = self.wants(streams, input);
            let part = if wanted { amount * self.input_rates[input] / consuming } else { 0.0 };
            self.portion.consumed[input] = self.eaten[input].pass(part);
            if self.eaten[input].at_end() {
                self.eaten[input] = Place::default();
            }
        }
        for output in 0..self.filled.len() {
            let part = amount * self.gain * self.output_rates[output] / filling;
            self.portion.filled[output] = self.filled[output].pass(part);
        }
        self.source -= if inputs == 0 { amount } else { 0.0 };
        if self.source < 1e-9 {
            self.source = 0.0;
        }
        self.produced += amount;
    }

    /// Rates that change as time goes.
    fn vary(&mut self, streams: &impl Streams) {
        let produced = self.produced;
        let change = |skew: &Skew, rates: &mut [f64], chance: &mut SplitMix64| match skew {
            Skew::Noise(most) => {
                for rate in rates {
                    *rate = (1.0 + most * (2.0 * chance.fraction() - 1.0)).max(0.01);
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
        change(&self.input_skew, &mut self.input_rates, &mut self.chance);
        change(&self.output_skew, &mut self.output_rates, &mut self.chance);
        // A burst of an input that has ended is over.
        let inputs = self.eaten.len();
        if inputs > 0 && !(0..inputs).any(|input| self.wants(streams, input)) {
            self.input_rates.fill(1.0);
        }
    }
}

fn rates(skew: &Skew, count: usize) -> Vec<f64> {
    (1..=count)
        .map(|k| match skew {
            Skew::Zipf(exponent) => (k as f64).powf(-exponent),
            Skew::OneFast(times) if k == 1 => *times,
            _ => 1.0,
        })
        .collect()
}
