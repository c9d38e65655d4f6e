//! The time of a device's requests, divided by kind: those that continue the last request show the rates of the device,
//! and those after a switch show its cost.
//!
//! Invariant: the times add up to the time with a request in flight.

use std::time::Instant;

use ascot_model::volume_pace::{Pace, VolumePace};

use super::observer::Direction;

/// The requests in flight to one device, and the time of those that ended.
#[derive(Debug, Default)]
pub(super) struct DevicePace {
    seen: VolumePace,
    in_flight: [u64; 2],
    last_end: Option<Instant>,
    /// The moment from which writes wait in a queue, if none has ended since.
    queued_since: Option<Instant>,
}

/// Writes in flight from which on they wait for the device.
const QUEUED: u64 = 3;

impl DevicePace {
    pub(super) fn start(&mut self, direction: Direction, now: Instant) {
        self.in_flight[direction as usize] += 1;
        if self.in_flight[Direction::Write as usize] >= QUEUED {
            self.queued_since.get_or_insert(now);
        }
    }

    /// A request of `bytes` that was issued at `since` ends; `switched`: it did not continue the request before it.
    pub(super) fn stop(
        &mut self,
        direction: Direction,
        switched: bool,
        bytes: u64,
        since: Instant,
        now: Instant,
    ) {
        let own = direction as usize;
        self.in_flight[own] = self.in_flight[own].saturating_sub(1);
        if direction == Direction::Write
            && let Some(since) = self.queued_since
        {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            self.seen.queued_write.add(Pace { requests: 1, bytes, seconds });
            self.queued_since = Some(now).filter(|_| self.in_flight[own] >= QUEUED);
        }
        let began = self.last_end.map_or(since, |last| last.max(since));
        self.last_end = Some(now);
        let seconds = now.saturating_duration_since(began).as_secs_f64();
        let seen = &mut self.seen;
        let pace = match (direction, switched) {
            (Direction::Read, true) => &mut seen.switched_read,
            (Direction::Write, true) => &mut seen.switched_write,
            _ if self.in_flight[1 - own] > 0 => &mut seen.both,
            (Direction::Read, false) => &mut seen.read,
            (Direction::Write, false) => &mut seen.write,
        };
        pace.add(Pace { requests: 1, bytes, seconds });
    }

    pub(super) fn seen(&self) -> VolumePace {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_of_a_request_begins_with_the_end_of_the_one_before() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut device = DevicePace::default();
        for _ in 0..2 {
            device.start(Direction::Read, at(0));
        }
        device.stop(Direction::Read, true, 100, at(0), at(10));
        device.stop(Direction::Read, false, 100, at(1), at(13));
        device.start(Direction::Write, at(20));
        device.start(Direction::Read, at(20));
        // Nothing was in flight until 20.
        device.stop(Direction::Write, false, 50, at(20), at(25));
        device.stop(Direction::Read, false, 70, at(20), at(26));
        let seen = device.seen();
        let figures = |pace: Pace| (pace.requests, pace.bytes, (pace.seconds * 1e3).round() as u64);
        assert_eq!(figures(seen.switched_read), (1, 100, 10));
        assert_eq!(figures(seen.read), (2, 170, 3 + 1));
        assert_eq!(figures(seen.both), (1, 50, 5));
        assert_eq!(figures(seen.write), (0, 0, 0));
        assert_eq!(figures(seen.queued_write), (0, 0, 0));
    }

    #[test]
    fn writes_that_wait_behind_each_other_show_the_rate_of_the_device() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut device = DevicePace::default();
        for ms in [0, 1, 10] {
            device.start(Direction::Write, at(ms));
        }
        device.stop(Direction::Write, false, 100, at(0), at(12));
        // Two in flight are no queue: the job may be the slower one.
        device.stop(Direction::Write, false, 100, at(1), at(90));
        device.start(Direction::Write, at(91));
        device.start(Direction::Write, at(92));
        device.start(Direction::Write, at(93));
        device.stop(Direction::Write, false, 100, at(10), at(95));
        device.stop(Direction::Write, false, 100, at(91), at(99));
        let Pace { requests, bytes, seconds } = device.seen().queued_write;
        assert_eq!((requests, bytes, (seconds * 1e3).round() as u64), (3, 300, 2 + 3 + 4));
    }
}
