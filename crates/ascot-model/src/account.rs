//! What a pass moved, and where its stages spent their time.

use serde::{Deserialize, Serialize, Serializer};

/// What one stream (or a group of alike streams) moved, one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
    /// Switches of the devices that led to it: each run begins with one.
    pub fn switches(&self) -> u64 {
        self.read_runs + self.written_runs
    }
    /// Mean length of a run, read or written, bytes.
    pub fn mean_run(&self) -> u64 {
        (self.read_bytes + self.written_bytes).checked_div(self.switches()).unwrap_or(0)
    }
}

/// What one file moved in a whole job, or several that are not told one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAccount {
    /// The path of an input or output, the name of a spill within its directory; none for the sum of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How many files these are, where it is a sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// What moved; its name says what they are to the job.
    #[serde(flatten)]
    pub moved: StreamAccount,
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PassAccount {
    /// What it did.
    pub name: String,
    /// Times it was gone through: once for each part, or group of runs.
    #[serde(default = "once")]
    pub times: u64,
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

fn once() -> u64 {
    1
}

/// As it was counted, and with what follows from that: readers of a report need not divide.
impl Serialize for StreamAccount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            name: &'a str,
            read_bytes: u64,
            read_runs: u64,
            mean_read_run_bytes: u64,
            written_bytes: u64,
            written_runs: u64,
            mean_written_run_bytes: u64,
            switches: u64,
            mean_run_bytes: u64,
        }
        let StreamAccount { name, read_bytes, read_runs, written_bytes, written_runs } = self;
        let shown = Shown {
            name,
            read_bytes: *read_bytes,
            read_runs: *read_runs,
            mean_read_run_bytes: self.mean_read_run(),
            written_bytes: *written_bytes,
            written_runs: *written_runs,
            mean_written_run_bytes: self.mean_written_run(),
            switches: self.switches(),
            mean_run_bytes: self.mean_run(),
        };
        shown.serialize(serializer)
    }
}

impl Serialize for PassAccount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            name: &'a str,
            times: u64,
            seconds: f64,
            switches: u64,
            mean_run_bytes: u64,
            streams: &'a [StreamAccount],
            stages: &'a [StageAccount],
            bound_by: &'a str,
            inputs: u64,
            outputs: u64,
        }
        let switches = self.switches();
        let shown = Shown {
            name: &self.name,
            times: self.times,
            seconds: self.seconds,
            switches,
            mean_run_bytes: (self.read_bytes() + self.written_bytes()).checked_div(switches).unwrap_or(0),
            streams: &self.streams,
            stages: &self.stages,
            bound_by: &self.bound_by,
            inputs: self.inputs,
            outputs: self.outputs,
        };
        shown.serialize(serializer)
    }
}

impl StreamAccount {
    /// Adds what the same stream moved later, or another.
    pub fn add(&mut self, more: &StreamAccount) {
        self.read_bytes += more.read_bytes;
        self.read_runs += more.read_runs;
        self.written_bytes += more.written_bytes;
        self.written_runs += more.written_runs;
    }
}

impl StageAccount {
    /// Adds the time the same stage spent later.
    fn add(&mut self, more: &StageAccount) {
        self.threads = self.threads.max(more.threads);
        self.busy_seconds += more.busy_seconds;
        self.waiting_data_seconds += more.waiting_data_seconds;
        self.waiting_memory_seconds += more.waiting_memory_seconds;
        self.waiting_device_seconds += more.waiting_device_seconds;
    }
}

impl PassAccount {
    /// Adds a pass that did the same again. What held that back is what counts if it took longer than
    /// those before on average.
    pub fn add(&mut self, more: PassAccount) {
        if more.seconds > self.seconds / self.times.max(1) as f64 {
            self.bound_by = more.bound_by;
        }
        self.times += more.times;
        self.seconds += more.seconds;
        self.inputs = self.inputs.max(more.inputs);
        self.outputs += more.outputs;
        self.add_streams(&more.streams);
        for stage in more.stages {
            match self.stages.iter_mut().find(|known| known.name == stage.name) {
                Some(known) => known.add(&stage),
                None => self.stages.push(stage),
            }
        }
    }

    /// Adds what streams moved.
    pub fn add_streams(&mut self, streams: &[StreamAccount]) {
        for stream in streams {
            match self.streams.iter_mut().find(|known| known.name == stream.name) {
                Some(known) => known.add(stream),
                None => self.streams.push(stream.clone()),
            }
        }
    }

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
    /// Switches of the devices: each run begins with one.
    pub fn switches(&self) -> u64 {
        self.read_runs() + self.written_runs()
    }

    /// What all streams of all passes moved.
    pub fn moved_by(passes: &[PassAccount]) -> StreamAccount {
        let mut moved = StreamAccount { name: "all".into(), ..StreamAccount::default() };
        passes.iter().flat_map(|pass| &pass.streams).for_each(|stream| moved.add(stream));
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_do_the_same_add_up() {
        let stream =
            |name: &str, read_bytes| StreamAccount { name: name.into(), read_bytes, ..Default::default() };
        let pass = |seconds, bound: &str, streams| PassAccount {
            name: "merge".into(),
            times: 1,
            seconds,
            streams,
            bound_by: bound.into(),
            inputs: 3,
            outputs: 1,
            ..PassAccount::default()
        };
        let mut sum = pass(1.0, "reading", vec![stream("spills", 10)]);
        sum.add(pass(3.0, "computing", vec![stream("input", 4), stream("spills", 5)]));
        sum.add(pass(1.5, "writing", Vec::new()));
        assert_eq!((sum.times, sum.seconds, sum.inputs, sum.outputs), (3, 5.5, 3, 3));
        assert_eq!(sum.streams, [stream("spills", 15), stream("input", 4)]);
        assert_eq!(sum.bound_by, "computing");
    }
}
