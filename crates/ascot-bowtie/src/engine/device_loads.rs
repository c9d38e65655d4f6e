//! The requests of each device, where there are several: a volume may have channels that work side by side, and
//! inputs and outputs may be on different volumes.
//!
//! ```text
//!   device 0   input 0, input 2, output 1     2 requests: busy
//!   device 1   input 1, output 0              none: idle, its streams go first
//! ```
//!
//! If the device of one input is unknown, the devices of all inputs count as unknown; the same holds for outputs.

use crate::constants::BUSY_REQUESTS;
use crate::schedule::Move;

/// The devices, and the requests that each has.
#[derive(Default)]
pub(super) struct DeviceLoads {
    /// The device number of each input, then of each output.
    device: Vec<Option<usize>>,
    inputs: usize,
    requests: Vec<u32>,
    /// Whether the device of each input is busy; empty if that is unknown.
    busy: Vec<bool>,
}

/// The devices of one side, if all are known.
fn known(side: Vec<Option<u64>>) -> Vec<Option<u64>> {
    if side.iter().all(Option::is_some) { side } else { vec![None; side.len()] }
}

impl DeviceLoads {
    /// The devices of these streams; none if there is only one, or none is known.
    pub(super) fn new(inputs: Vec<Option<u64>>, outputs: Vec<Option<u64>>) -> Self {
        let inputs = known(inputs);
        let streams = [inputs.clone(), known(outputs)].concat();
        let mut devices: Vec<u64> = streams.iter().copied().flatten().collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() < 2 {
            return DeviceLoads::default();
        }
        let number = |device: u64| devices.partition_point(|&other| other < device);
        DeviceLoads {
            device: streams.into_iter().map(|device| device.map(number)).collect(),
            inputs: inputs.len(),
            requests: vec![0; devices.len()],
            busy: vec![false; inputs.iter().flatten().count()],
        }
    }

    /// Number of devices; 0 if there is only one.
    pub(super) fn devices(&self) -> usize {
        self.requests.len()
    }

    fn device(&self, step: Move) -> Option<usize> {
        let stream = match step {
            Move::Read(input) => input,
            Move::Write(output) => self.inputs + output,
        };
        self.device.get(stream).copied().flatten()
    }

    /// A request of a stream has begun.
    pub(super) fn begin(&mut self, step: Move) {
        self.count(step, 1);
    }

    /// A request of a stream is complete.
    pub(super) fn end(&mut self, step: Move) {
        self.count(step, -1);
    }

    fn count(&mut self, step: Move, change: i32) {
        let Some(device) = self.device(step) else { return };
        self.requests[device] = self.requests[device].saturating_add_signed(change);
        let is_busy = self.requests[device] >= BUSY_REQUESTS;
        for (busy, _) in self.busy.iter_mut().zip(&self.device).filter(|(_, of)| **of == Some(device)) {
            *busy = is_busy;
        }
    }

    /// Whether the device of each input is busy; empty if there is only one device.
    pub(super) fn busy(&self) -> &[bool] {
        &self.busy
    }

    /// Whether the device of `output` is busy: it has its share of `depth` requests, or more than it needs.
    pub(super) fn is_busy(&self, output: usize, depth: usize) -> bool {
        let share = u32::try_from(depth / self.requests.len().max(1)).unwrap_or(u32::MAX);
        self.device(Move::Write(output))
            .is_some_and(|device| self.requests[device] >= share.max(BUSY_REQUESTS))
    }

    /// Whether the device of `output` is known and has no request.
    pub(super) fn is_idle(&self, output: usize) -> bool {
        self.device(Move::Write(output)).is_some_and(|device| self.requests[device] == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_for_the_devices_of_their_streams() {
        let mut loads = DeviceLoads::new(vec![Some(7), Some(9)], vec![Some(9), Some(8)]);
        assert_eq!(loads.devices(), 3);
        loads.begin(Move::Write(0));
        assert!(!loads.is_idle(0) && loads.is_idle(1) && !loads.is_busy(0, 4));
        loads.begin(Move::Read(1));
        assert_eq!(loads.busy(), [false, true]);
        assert!(loads.is_busy(0, 4) && !loads.is_busy(0, 9) && !loads.is_busy(1, 4));
        loads.end(Move::Write(0));
        assert_eq!(loads.busy(), [false, false]);
    }

    #[test]
    fn one_device_and_unknown_ones_are_none() {
        assert_eq!(DeviceLoads::new(vec![Some(1), Some(1)], vec![Some(1)]).devices(), 0);
        let mut loads = DeviceLoads::new(vec![Some(1), None], vec![Some(1), Some(2)]);
        loads.begin(Move::Read(0));
        assert!(loads.busy().is_empty() && loads.is_idle(0));
    }
}
