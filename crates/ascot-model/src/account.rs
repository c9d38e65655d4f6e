//! What a pass moved, and where its stages spent their time.

use serde::{Deserialize, Serialize};

/// What one stream (or a group of alike streams) moved, one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAccount {
    /// `input`, `spills`, `output`.
    pub name: String,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Stretches read between two switches.
    pub read_runs: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Stretches written between two switches.
    pub written_runs: u64,
}

impl StreamAccount {
    /// Mean length of a read run, bytes.
    pub fn mean_read_run(&self) -> u64 {
        self.read_bytes.checked_div(self.read_runs).unwrap_or(0)
    }
    /// Mean length of a written run, bytes.
    pub fn mean_written_run(&self) -> u64 {
        self.written_bytes.checked_div(self.written_runs).unwrap_or(0)
    }
}

/// Where one stage of a pass spent its time, seconds, summed over its threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageAccount {
    /// `read`, `sort`, `merge`, `write`.
    pub name: String,
    /// Threads of the stage.
    pub threads: usize,
    /// Working.
    pub busy_seconds: f64,
    /// Waiting for data from the stage before.
    pub waiting_data_seconds: f64,
    /// Waiting for a free buffer.
    pub waiting_memory_seconds: f64,
    /// Waiting for the device.
    pub waiting_device_seconds: f64,
}

/// One pass as it went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassAccount {
    /// What it did.
    pub name: String,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Streams, both ways.
    pub streams: Vec<StreamAccount>,
    /// Stages.
    pub stages: Vec<StageAccount>,
    /// What held it back: `reading`, `writing`, `computing`, `the reader of the output`.
    pub bound_by: String,
    /// Files read from at once, at most.
    pub inputs: u64,
    /// Files written to.
    pub outputs: u64,
}

impl PassAccount {
    /// Bytes read, all streams.
    pub fn read_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.read_bytes).sum()
    }
    /// Bytes written, all streams.
    pub fn written_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.written_bytes).sum()
    }
    /// Runs read, all streams.
    pub fn read_runs(&self) -> u64 {
        self.streams.iter().map(|stream| stream.read_runs).sum()
    }
    /// Runs written, all streams.
    pub fn written_runs(&self) -> u64 {
        self.streams.iter().map(|stream| stream.written_runs).sum()
    }
}
