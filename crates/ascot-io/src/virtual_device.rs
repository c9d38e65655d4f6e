//! A virtual device: a clock that shows how long a device would have taken for requests.
//!
//! Only requests advance the clock: by their bytes over the rate of their direction, and by the cost of a switch if
//! they do not continue where the last request of their channel ended. Computing takes no virtual time. A request is
//! performed when it begins, so seconds do not depend on the timing of threads.
//!
//! A *channel* is a device with its own position and its own clock; channels work side by side. A request starts when
//! it is issued, or when the earlier requests of its channel are complete. A caller that waits for a request waits
//! until it is complete and issues none meanwhile.
//!
//! A *cache* of C bytes is shared by the open streams: once a device has switched to a stream, it moves C / streams
//! bytes of it before it must switch to that stream again, whatever it does in between. Shorter runs are joined, as
//! in the published bound ((n + m) L < C, Stella and Loguinov, section VII.B). The ledger counts runs as they are
//! requested, and [`VirtualDevice::switches`] as the device performs them.
//!
//! To run the scenario of a large machine at a smaller scale, divide memory, data, cache, blocks and the switch cost by
//! the same factor; the rates stay the same.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_model::volume::VolumeProfile;

use crate::ledger::{Direction, Ledger, Meter};
use crate::sync::Unpoisoned;

/// A device with a clock; clones are the same device.
#[derive(Clone)]
pub struct VirtualDevice {
    state: Arc<Mutex<State>>,
    ledger: Ledger,
}

struct State {
    volume: VolumeProfile,
    /// The number and the channel of each file.
    files: HashMap<String, (usize, usize)>,
    channels: Vec<Channel>,
    /// Streams open now.
    streams: u64,
    switches: u64,
    /// The time of the caller that issues requests and waits for them, in seconds.
    now: f64,
}

#[derive(Clone, Default)]
struct Channel {
    seconds: f64,
    /// The file and byte where the last request ended.
    head: Option<(usize, u64)>,
}

impl VirtualDevice {
    /// A device with the rates, the switch cost and the cache of `volume`.
    pub fn new(volume: VolumeProfile) -> Self {
        let channels = vec![Channel::default()];
        let state = State { volume, files: HashMap::new(), channels, streams: 0, switches: 0, now: 0.0 };
        VirtualDevice { state: Arc::new(Mutex::new(state)), ledger: Ledger::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Assigns a file to a channel; by default files are on channel 0.
    pub fn assign(&self, name: &str, channel: usize) {
        let mut state = self.state();
        state.file(name).1 = channel;
        let channels = state.channels.len().max(channel + 1);
        state.channels.resize(channels, Channel::default());
    }

    /// Opens a stream of requests for a file.
    pub fn open(&self, name: &str, direction: Direction) -> VirtualStream {
        let mut state = self.state();
        let (file, channel) = *state.file(name);
        state.streams += 1;
        let meter = self.ledger.meter(name, Path::new(name), channel as u64, file as u64, direction);
        VirtualStream { device: self.clone(), file, channel, direction, meter, in_cache: 0 }
    }

    /// Counts all bytes moved.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Seconds on the clock of the channel that was busy longest.
    pub fn seconds(&self) -> f64 {
        self.state().channels.iter().map(|channel| channel.seconds).fold(0.0, f64::max)
    }

    /// Switches that the devices performed, without those that the cache avoided.
    pub fn switches(&self) -> u64 {
        self.state().switches
    }
}

impl State {
    fn file(&mut self, name: &str) -> &mut (usize, usize) {
        let number = self.files.len();
        self.files.entry(name.to_owned()).or_insert((number, 0))
    }
}

/// A stream of requests in one direction. They move no data, and may have any offsets, such as those of a trace.
pub struct VirtualStream {
    device: VirtualDevice,
    file: usize,
    channel: usize,
    direction: Direction,
    meter: Meter,
    /// Bytes that the device moves without a switch, because the cache holds them.
    in_cache: u64,
}

impl VirtualStream {
    /// Performs a request and advances the clock. Returns its completion time.
    pub fn begin(&mut self, offset: u64, bytes: u64) -> f64 {
        self.meter.issue(offset, bytes, 1).complete(bytes);
        let mut state = self.device.state();
        let state = &mut *state;
        let channel = &mut state.channels[self.channel];
        let continues = channel.head == Some((self.file, offset));
        channel.head = Some((self.file, offset + bytes));
        channel.seconds = channel.seconds.max(state.now);
        if !continues && self.in_cache < bytes {
            state.switches += 1;
            channel.seconds += state.volume.switch_seconds.seconds(state.streams as f64);
            self.in_cache = state.volume.cache_bytes / state.streams.max(1);
        }
        self.in_cache = self.in_cache.saturating_sub(bytes);
        channel.seconds += bytes as f64
            / match self.direction {
                Direction::Read => state.volume.read_bytes_per_s,
                Direction::Write => state.volume.write_bytes_per_s,
            };
        channel.seconds
    }

    /// Whether a request with this completion time is complete.
    pub fn is_complete(&self, done: f64) -> bool {
        done <= self.device.state().now
    }

    /// Waits for a request with this completion time.
    pub fn wait(&self, done: f64) {
        let mut state = self.device.state();
        state.now = state.now.max(done);
    }

    /// Moves `bytes` from or to `offset`, and waits for them.
    pub fn request(&mut self, offset: u64, bytes: u64) {
        // Streams that were opened meanwhile have their share, too.
        let share = {
            let state = self.device.state();
            state.volume.cache_bytes / state.streams.max(1)
        };
        self.in_cache = self.in_cache.min(share);
        let done = self.begin(offset, bytes);
        self.wait(done);
    }

    /// The channel of the file.
    pub fn channel(&self) -> u64 {
        self.channel as u64
    }
}

impl Drop for VirtualStream {
    fn drop(&mut self) {
        let mut state = self.device.state();
        state.streams = state.streams.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(told: f64, wanted: f64) {
        assert!((told - wanted).abs() < 1e-9, "{told} for {wanted}");
    }

    #[test]
    fn requests_without_data_take_the_same_time() {
        let device = VirtualDevice::new(VolumeProfile::simple("disk", 1000.0, 500.0, 0.25));
        let mut reading = device.open("volume", Direction::Read);
        let mut writing = device.open("volume", Direction::Write);
        reading.request(100, 100);
        writing.request(200, 100);
        near(device.seconds(), 0.25 + 0.1 + 0.2);
        reading.request(0, 100);
        assert_eq!(device.switches(), 2);
        near(device.seconds(), 0.25 + 0.1 + 0.2 + 0.25 + 0.1);
    }
}
