//! A replay on the virtual disk: the time that a device with a profile would take, its switches, and those that its
//! cache avoids.
//!
//! A trace does not say which sequential streams a controller sees: several may run through one file. So a request
//! that begins where an earlier one ended, in the same direction, continues its stream; any other begins a new one. A
//! stream ends when it was not continued during the last [`RECENT_REQUESTS`] requests, and as many bytes as the cache
//! holds were moved since. The virtual disk divides its cache among the streams, and joins runs of each
//! (Stella and Loguinov, section VII.B).

use std::collections::{BTreeMap, HashMap};

use ascot_io::{Direction, VirtualDevice, VirtualStream};
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use super::layout::{Layout, VolumeUse};
use super::moves::{Move, Rounding, for_each_move};
use crate::error::Result;
use crate::format::TraceReader;

/// A stream lives at least this long: more requests than a merge of some thousand streams takes to return to one.
const RECENT_REQUESTS: u64 = 4096;
/// The name of the volume on the virtual disk.
const VOLUME: &str = "volume";

/// A replay on a virtual disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualReplay {
    /// The name of the profile.
    pub profile: String,
    /// Seconds of the device.
    pub seconds: f64,
    /// Bytes of the trace divided by the seconds; 0 without any.
    pub bytes_per_s: f64,
    /// Switches of the device.
    pub switches: u64,
    /// Switches without the cache: runs on the volume.
    pub switches_without_cache: u64,
    /// The most streams at a time.
    pub streams: u64,
    /// The volume, and what lies on it.
    #[serde(flatten)]
    pub volume: VolumeUse,
    /// Requests as whole blocks.
    #[serde(flatten)]
    pub rounding: Rounding,
}

/// Replays a trace on a virtual disk with a profile.
pub fn replay_on_virtual(trace: &TraceReader, profile: &VolumeProfile) -> Result<VirtualReplay> {
    let layout = Layout::new(trace)?;
    let mut replay = Streams::new(profile);
    let rounding = for_each_move(trace, &layout, |next| {
        replay.perform(next);
        Ok(())
    })?;
    let seconds = replay.device.seconds();
    Ok(VirtualReplay {
        profile: profile.name.clone(),
        seconds,
        bytes_per_s: if seconds > 0.0 { rounding.bytes as f64 / seconds } else { 0.0 },
        switches: replay.device.switches(),
        switches_without_cache: replay.runs,
        streams: replay.most_streams,
        volume: layout.volume,
        rounding,
    })
}

/// The end of a stream, and whether it writes.
type StreamEnd = (u64, bool);

struct Stream {
    timed: VirtualStream,
    /// The number of its last request.
    request: u64,
}

struct Streams {
    device: VirtualDevice,
    cache_bytes: u64,
    by_end: HashMap<StreamEnd, Stream>,
    /// The ends of streams by their last request, with the bytes moved until then.
    by_age: BTreeMap<u64, (StreamEnd, u64)>,
    requests: u64,
    moved_bytes: u64,
    position: Option<u64>,
    runs: u64,
    most_streams: u64,
}

impl Streams {
    fn new(profile: &VolumeProfile) -> Streams {
        Streams {
            device: VirtualDevice::new(profile.clone()),
            cache_bytes: profile.cache_bytes,
            by_end: HashMap::new(),
            by_age: BTreeMap::new(),
            requests: 0,
            moved_bytes: 0,
            position: None,
            runs: 0,
            most_streams: 0,
        }
    }

    fn perform(&mut self, next: Move) {
        let direction = if next.writes { Direction::Write } else { Direction::Read };
        let continued = self.by_end.remove(&(next.offset, next.writes));
        let mut timed = match continued {
            Some(stream) => {
                self.by_age.remove(&stream.request);
                stream.timed
            }
            None => self.device.open(VOLUME, direction),
        };
        timed.request(next.offset, next.bytes);
        self.runs += u64::from(self.position != Some(next.offset));
        let end = next.offset + next.bytes;
        self.position = Some(end);
        self.requests += 1;
        self.moved_bytes += next.bytes;
        let stream_end = (end, next.writes);
        if let Some(replaced) = self.by_end.insert(stream_end, Stream { timed, request: self.requests }) {
            self.by_age.remove(&replaced.request);
        }
        self.by_age.insert(self.requests, (stream_end, self.moved_bytes));
        self.end_old();
        self.most_streams = self.most_streams.max(self.by_end.len() as u64);
    }

    fn end_old(&mut self) {
        while let Some((&request, &(stream_end, moved))) = self.by_age.first_key_value()
            && request + RECENT_REQUESTS < self.requests
            && moved + self.cache_bytes < self.moved_bytes
        {
            self.by_age.pop_first();
            self.by_end.remove(&stream_end);
        }
    }
}
