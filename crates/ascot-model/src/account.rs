//! The bytes and runs that each pass moved, and the time that its stages spent.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::stages::StageAccount;

/// The bytes and runs of one stream, or of several of the same kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StreamAccount {
    /// `input`, `spills`, `output`.
    pub name: String,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Runs read; each lies between two switches. A pipe has none.
    pub read_runs: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Runs written.
    pub written_runs: u64,
}

impl StreamAccount {
    /// Switches of the devices: each run starts with one.
    pub fn switches(&self) -> u64 {
        self.read_runs + self.written_runs
    }
    /// Mean length of a run, read or written, bytes.
    pub fn mean_run(&self) -> u64 {
        mean(self.read_bytes + self.written_bytes, self.switches())
    }
}

/// The bytes and runs of one file in a whole job, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAccount {
    /// The path of an input or output, or the name of a spill within its directory; `None` for a sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of files, for a sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The bytes and runs; the name is the role of the files in the job.
    #[serde(flatten)]
    pub moved: StreamAccount,
}

/// The memory that the schedule of a pass divides among streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferAccount {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Its share of the job's memory.
    pub memory_share: f64,
}

impl BufferAccount {
    /// `blocks` blocks of a job with this much memory.
    pub fn new(blocks: usize, block_bytes: usize, memory_bytes: usize) -> Self {
        let memory_share = (blocks * block_bytes) as f64 / memory_bytes as f64;
        BufferAccount { blocks: blocks as u64, block_bytes: block_bytes as u64, memory_share }
    }
}

/// One finished pass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PassAccount {
    /// The name of the pass.
    pub name: String,
    /// How often it is executed: once for each part or group of runs.
    #[serde(default = "once")]
    pub times: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Start of its first run, in seconds since the job began.
    #[serde(default)]
    pub began_seconds: f64,
    /// End of its last run, in seconds since the job began. Other passes may have run in between.
    #[serde(default)]
    pub ended_seconds: f64,
    /// Streams, read and written.
    pub streams: Vec<StreamAccount>,
    /// Stages.
    pub stages: Vec<StageAccount>,
    /// Time in which a thread waited for a device, or a device had requests in flight, seconds.
    #[serde(default)]
    pub device_seconds: f64,
    /// The bottleneck: a stage, or `device`, `input` or `output`.
    pub bound_by: String,
    /// Maximum number of files read at once.
    pub inputs: u64,
    /// Number of files written.
    pub outputs: u64,
    /// The buffers of its streams, if a schedule divides them.
    #[serde(default)]
    pub buffers: Option<BufferAccount>,
}

fn once() -> u64 {
    1
}

/// The counts, and figures derived from them, so that readers of a report need not divide.
impl Serialize for StreamAccount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("StreamAccount", 9)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("read_bytes", &self.read_bytes)?;
        fields.serialize_field("read_runs", &self.read_runs)?;
        fields.serialize_field("mean_read_run_bytes", &mean(self.read_bytes, self.read_runs))?;
        fields.serialize_field("written_bytes", &self.written_bytes)?;
        fields.serialize_field("written_runs", &self.written_runs)?;
        fields.serialize_field("mean_written_run_bytes", &mean(self.written_bytes, self.written_runs))?;
        fields.serialize_field("switches", &self.switches())?;
        fields.serialize_field("mean_run_bytes", &self.mean_run())?;
        fields.end()
    }
}

impl Serialize for PassAccount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let moved = self.moved();
        let mut fields = serializer.serialize_struct("PassAccount", 14)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("times", &self.times)?;
        fields.serialize_field("seconds", &self.seconds)?;
        fields.serialize_field("began_seconds", &self.began_seconds)?;
        fields.serialize_field("ended_seconds", &self.ended_seconds)?;
        fields.serialize_field("switches", &moved.switches())?;
        fields.serialize_field("mean_run_bytes", &moved.mean_run())?;
        fields.serialize_field("streams", &self.streams)?;
        fields.serialize_field("stages", &self.stages)?;
        fields.serialize_field("device_seconds", &self.device_seconds)?;
        fields.serialize_field("bound_by", &self.bound_by)?;
        fields.serialize_field("inputs", &self.inputs)?;
        fields.serialize_field("outputs", &self.outputs)?;
        fields.serialize_field("buffers", &self.buffers)?;
        fields.end()
    }
}

/// Mean bytes of a run; 0 without runs.
fn mean(bytes: u64, runs: u64) -> u64 {
    bytes.checked_div(runs).unwrap_or(0)
}

impl StreamAccount {
    /// Adds the counts of another stream, or later counts of the same stream.
    pub fn add(&mut self, more: &StreamAccount) {
        self.read_bytes += more.read_bytes;
        self.read_runs += more.read_runs;
        self.written_bytes += more.written_bytes;
        self.written_runs += more.written_runs;
    }
}

impl PassAccount {
    /// Adds a later run of the same pass.
    pub fn add(&mut self, more: PassAccount) {
        self.times += more.times;
        self.seconds += more.seconds;
        self.ended_seconds = more.ended_seconds;
        self.inputs = self.inputs.max(more.inputs);
        self.outputs += more.outputs;
        let larger = |buffers: &BufferAccount| self.buffers.is_none_or(|known| known.blocks < buffers.blocks);
        self.buffers = more.buffers.filter(larger).or(self.buffers);
        self.device_seconds += more.device_seconds;
        self.add_streams(&more.streams);
        self.add_stages(more.stages);
    }

    /// Adds the time of stages, by name.
    pub fn add_stages(&mut self, stages: Vec<StageAccount>) {
        for stage in stages {
            match self.stages.iter_mut().find(|known| known.name == stage.name) {
                Some(known) => known.add(stage),
                None => self.stages.push(stage),
            }
        }
    }

    /// Adds the counts of streams, by name.
    pub fn add_streams(&mut self, streams: &[StreamAccount]) {
        for stream in streams {
            match self.streams.iter_mut().find(|known| known.name == stream.name) {
                Some(known) => known.add(stream),
                None => self.streams.push(stream.clone()),
            }
        }
    }

    /// The sum of all its streams.
    pub fn moved(&self) -> StreamAccount {
        Self::moved_by(std::slice::from_ref(self))
    }

    /// The sum of all streams of all passes.
    pub fn moved_by(passes: &[PassAccount]) -> StreamAccount {
        Self::sum_of(passes.iter().flat_map(|pass| &pass.streams))
    }

    /// The sum of some streams.
    pub fn sum_of<'a>(streams: impl IntoIterator<Item = &'a StreamAccount>) -> StreamAccount {
        let mut moved = StreamAccount { name: "all".into(), ..StreamAccount::default() };
        streams.into_iter().for_each(|stream| moved.add(stream));
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_pass_add_up() {
        let stream =
            |name: &str, read_bytes| StreamAccount { name: name.into(), read_bytes, ..Default::default() };
        let pass = |ended_seconds, seconds, streams| PassAccount {
            name: "merge".into(),
            times: 1,
            seconds,
            began_seconds: ended_seconds - seconds,
            ended_seconds,
            streams,
            inputs: 3,
            outputs: 1,
            ..PassAccount::default()
        };
        let mut sum = pass(1.0, 1.0, vec![stream("spills", 10)]);
        sum.add(pass(9.0, 3.0, vec![stream("input", 4), stream("spills", 5)]));
        sum.add(pass(10.5, 1.5, Vec::new()));
        assert_eq!((sum.times, sum.seconds, sum.inputs, sum.outputs), (3, 5.5, 3, 3));
        assert_eq!((sum.began_seconds, sum.ended_seconds), (0.0, 10.5));
        assert_eq!(sum.streams, [stream("spills", 15), stream("input", 4)]);
    }
}
