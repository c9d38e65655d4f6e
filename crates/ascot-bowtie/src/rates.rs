//! How fast inputs are consumed relative to each other, and how much is written for it: learned from the past.
//!
//! Both forget: when as many blocks as the window holds have been consumed, the past counts a third.

use crate::constants::MIN_RATE_SHARE;

/// The share of each input in the consumed bytes.
#[derive(Clone, Debug)]
pub struct Rates {
    consumed: Vec<f64>,
    window: f64,
}

impl Rates {
    /// Equal shares, to be corrected over `window` blocks.
    pub fn new(inputs: usize, window: f64) -> Self {
        let equal = window / inputs.max(1) as f64;
        Rates { consumed: vec![equal; inputs], window: window.max(1.0) }
    }

    /// Counts `blocks`, or a part of one, consumed of `input`.
    pub fn add(&mut self, input: usize, blocks: f64) {
        self.consumed[input] += blocks;
    }

    /// Lets the past fade after `blocks` were consumed of all inputs together.
    pub fn fade(&mut self, blocks: f64) {
        let kept = (-blocks / self.window).exp();
        for consumed in &mut self.consumed {
            *consumed *= kept;
        }
    }

    /// Writes the shares into `shares`: they add up to one over the inputs for which `live` holds and are zero for
    /// others. No live input has less than [`MIN_RATE_SHARE`] of an equal share.
    pub fn write_shares(&self, live: impl Fn(usize) -> bool, shares: &mut Vec<f64>) {
        let inputs = 0..self.consumed.len();
        let count = inputs.clone().filter(|&input| live(input)).count().max(1) as f64;
        let all: f64 = inputs.clone().filter(|&input| live(input)).map(|input| self.consumed[input]).sum();
        let min = MIN_RATE_SHARE * all.max(f64::MIN_POSITIVE) / count;
        shares.clear();
        shares.extend(inputs.map(|input| if live(input) { self.consumed[input].max(min) } else { 0.0 }));
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share = if sum > 0.0 { *share / sum } else { 0.0 });
    }
}

/// Blocks written for each block read.
#[derive(Clone, Debug)]
pub struct Gain {
    window: f64,
    read: f64,
    written: f64,
}

impl Gain {
    /// Expects `gain`, to be corrected over `window` blocks.
    pub fn new(gain: f64, window: f64) -> Self {
        Gain { window, read: window, written: window * gain }
    }

    /// Counts blocks that were consumed of all inputs, and those that outputs were filled by meanwhile.
    pub fn add(&mut self, read: f64, written: f64) {
        let kept = (-read / self.window).exp();
        self.read = (self.read + read) * kept;
        self.written = (self.written + written) * kept;
    }

    /// The mean of late.
    pub fn value(&self) -> f64 {
        self.written / self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(rates: &Rates, live: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut shares = Vec::new();
        rates.write_shares(live, &mut shares);
        shares
    }

    #[test]
    fn shares_follow_consumption() {
        let mut rates = Rates::new(4, 100.0);
        assert!(shares_of(&rates, |_| true).iter().all(|share| (share - 0.25).abs() < 1e-12));
        for _ in 0..1000 {
            rates.add(0, 0.75);
            rates.add(1, 0.25);
            rates.fade(1.0);
        }
        let shares = shares_of(&rates, |_| true);
        assert!((shares[0] / shares[1] - 3.0).abs() < 0.01, "{shares:?}");
        assert!(shares[2] > 0.0 && shares[2] < 0.02, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let without = shares_of(&rates, |input| input != 0);
        assert!(without[0] == 0.0 && (without.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
