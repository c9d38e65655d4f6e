//! What the devices behind streams have to do, where there are several: a volume may have channels that work
//! side by side, and inputs and outputs may be on volumes of their own.
//!
//! ```text
//!   device 0   input 0, input 2, output 1     2 requests: busy
//!   device 1   input 1, output 0              none: idle, its streams go first
//! ```
//!
//! A side that has a stream whose device is not known is left out of it.

use crate::schedule::Move;

/// Requests that keep a device at work: the one it performs and the one that follows.
const ENOUGH: u32 = 2;

/// The devices, and the requests each has.
#[derive(Default)]
pub(super) struct Channels {
    /// Of each input, then of each output, the number of its device.
    of: Vec<Option<usize>>,
    inputs: usize,
    load: Vec<u32>,
    /// Of each input whether its device has enough to do; empty where that is of no use.
    busy: Vec<bool>,
}

impl Channels {
    /// The devices behind streams; nothing where there is one, or none is known.
    pub(super) fn of(inputs: &[Option<u64>], outputs: &[Option<u64>]) -> Self {
        let known = |side: &[Option<u64>]| side.iter().all(Option::is_some);
        let told = |side: &[Option<u64>]| if known(side) { side.to_vec() } else { vec![None; side.len()] };
        let streams = [told(inputs), told(outputs)].concat();
        let mut devices: Vec<u64> = streams.iter().copied().flatten().collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() < 2 {
            return Channels::default();
        }
        let number = |device: u64| devices.partition_point(|&other| other < device);
        Channels {
            of: streams.into_iter().map(|device| device.map(number)).collect(),
            inputs: inputs.len(),
            load: vec![0; devices.len()],
            busy: vec![false; if known(inputs) { inputs.len() } else { 0 }],
        }
    }

    /// Devices; none where there is only one.
    pub(super) fn devices(&self) -> usize {
        self.load.len()
    }

    fn device(&self, step: Move) -> Option<usize> {
        let stream = match step {
            Move::Read(input) => input,
            Move::Write(output) => self.inputs + output,
        };
        self.of.get(stream).copied().flatten()
    }

    /// A request of a stream has begun (1) or is complete (-1).
    pub(super) fn count(&mut self, step: Move, more: i32) {
        let Some(device) = self.device(step) else { return };
        self.load[device] = self.load[device].saturating_add_signed(more);
        let enough = self.load[device] >= ENOUGH;
        for (busy, _) in self.busy.iter_mut().zip(&self.of).filter(|(_, of)| **of == Some(device)) {
            *busy = enough;
        }
    }

    /// The inputs whose device has enough to do; empty where there is but one device.
    pub(super) fn busy(&self) -> &[bool] {
        &self.busy
    }

    /// Whether the device of `output` has enough to do, which is its share of `depth` requests at most.
    pub(super) fn is_busy(&self, output: usize, depth: usize) -> bool {
        let share = u32::try_from(depth / self.load.len().max(1)).unwrap_or(u32::MAX);
        self.device(Move::Write(output)).is_some_and(|device| self.load[device] >= share.max(ENOUGH))
    }

    /// Whether the device of `output` has nothing to do.
    pub(super) fn is_idle(&self, output: usize) -> bool {
        self.device(Move::Write(output)).is_some_and(|device| self.load[device] == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_inputs_and_outputs_are_of_their_devices() {
        let mut channels = Channels::of(&[Some(7), Some(9)], &[Some(9), Some(8)]);
        assert_eq!(channels.devices(), 3);
        channels.count(Move::Write(0), 1);
        assert!(!channels.is_idle(0) && channels.is_idle(1) && !channels.is_busy(0, 4));
        channels.count(Move::Read(1), 1);
        assert_eq!(channels.busy(), [false, true]);
        assert!(channels.is_busy(0, 4) && !channels.is_busy(0, 9) && !channels.is_busy(1, 4));
        channels.count(Move::Write(0), -1);
        assert_eq!(channels.busy(), [false, false]);
    }

    #[test]
    fn one_device_and_unknown_ones_are_none() {
        assert_eq!(Channels::of(&[Some(1), Some(1)], &[Some(1)]).devices(), 0);
        let mut channels = Channels::of(&[Some(1), None], &[Some(1), Some(2)]);
        channels.count(Move::Read(0), 1);
        assert!(channels.busy().is_empty() && channels.is_idle(0));
    }
}
