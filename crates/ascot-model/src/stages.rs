//! Where the time of a pass goes: its stages and their threads, and the bottleneck that follows from these figures.
//!
//! A thread is busy, or waits for input, for memory or for the device; the four add up to its wall time. In a chain of
//! stages all but one wait: those before the bottleneck for memory, those after it for input. So the bottleneck is what
//! works for the largest share of the pass: the threads of a stage, the processors together, the devices, or a program
//! at the other end of a pipe.

use serde::{Deserialize, Serialize};

/// The time of threads, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSpent {
    /// From the start of the work for the stage to its end.
    pub wall_seconds: f64,
    /// On a processor.
    pub processor_seconds: f64,
    /// Working, or ready to work without a processor.
    pub busy_seconds: f64,
    /// Waiting for data.
    pub waiting_input_seconds: f64,
    /// Waiting for a free buffer, or for a place in a queue or a pipe.
    pub waiting_memory_seconds: f64,
    /// Waiting for the device.
    pub waiting_device_seconds: f64,
}

/// One thread of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// Its name.
    pub name: String,
    /// Its time.
    #[serde(flatten)]
    pub time: TimeSpent,
}

/// One stage of a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageAccount {
    /// `read`, `sort`, `merge`, `write`, ...
    pub name: String,
    /// Number of its threads.
    pub threads: usize,
    /// Time, summed over its threads.
    #[serde(flatten)]
    pub time: TimeSpent,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Its rate while it worked; none if it moved no bytes.
    pub bytes_per_s: Option<f64>,
    /// Its threads.
    pub by_thread: Vec<ThreadAccount>,
}

// The stages of all jobs. A thread is in the stage that has its name, without its number, unless it says otherwise.

/// The thread that runs the job, while it does nothing else.
pub const MAIN: &str = "main";
/// Reads pipes.
pub const PIPE_IN: &str = "pipe in";
/// Reads blocks of inputs or runs, and cuts records.
pub const READ: &str = "read";
/// Sorts chunks.
pub const SORT: &str = "sort";
/// Finds the part of each record.
pub const SPLIT: &str = "split";
/// Merges sorted sources.
pub const MERGE: &str = "merge";
/// Hands blocks of spills or outputs over to the device.
pub const WRITE: &str = "write";
/// Writes pipes.
pub const PIPE_OUT: &str = "pipe out";
/// Performs requests to devices.
pub const DEVICE: &str = "device";
/// Removes files that are consumed, and frees their blocks.
pub const REMOVE: &str = "remove";
/// Syncs and names files that are complete, while others are written.
pub const SEAL: &str = "seal";
/// Reports progress.
pub const PROGRESS: &str = "progress";

impl TimeSpent {
    fn add(&mut self, more: &TimeSpent) {
        self.wall_seconds += more.wall_seconds;
        self.processor_seconds += more.processor_seconds;
        self.busy_seconds += more.busy_seconds;
        self.waiting_input_seconds += more.waiting_input_seconds;
        self.waiting_memory_seconds += more.waiting_memory_seconds;
        self.waiting_device_seconds += more.waiting_device_seconds;
    }

    fn less(&self, part: &TimeSpent) -> TimeSpent {
        TimeSpent {
            wall_seconds: self.wall_seconds - part.wall_seconds,
            processor_seconds: self.processor_seconds - part.processor_seconds,
            busy_seconds: self.busy_seconds - part.busy_seconds,
            waiting_input_seconds: self.waiting_input_seconds - part.waiting_input_seconds,
            waiting_memory_seconds: self.waiting_memory_seconds - part.waiting_memory_seconds,
            waiting_device_seconds: self.waiting_device_seconds - part.waiting_device_seconds,
        }
    }
}

impl StageAccount {
    /// The stage after an earlier time `before`, without its threads one by one.
    #[must_use]
    pub fn since(&self, before: &TimeSpent) -> StageAccount {
        StageAccount { time: self.time.less(before), by_thread: Vec::new(), ..self.clone() }
    }

    /// A stage of these threads.
    pub fn new(name: &str, by_thread: Vec<ThreadAccount>) -> Self {
        let mut stage = StageAccount { name: name.into(), ..StageAccount::default() };
        by_thread.into_iter().for_each(|thread| stage.add_thread(thread));
        stage
    }

    /// Adds later time of the same stage.
    pub fn add(&mut self, more: StageAccount) {
        self.bytes += more.bytes;
        more.by_thread.into_iter().for_each(|thread| self.add_thread(thread));
    }

    fn add_thread(&mut self, thread: ThreadAccount) {
        self.time.add(&thread.time);
        match self.by_thread.iter_mut().find(|known| known.name == thread.name) {
            Some(known) => known.time.add(&thread.time),
            None => self.by_thread.push(thread),
        }
        self.threads = self.by_thread.len();
    }

    /// Time in which the stage worked, summed over its threads. A thread that performs requests works while some are in
    /// flight, and a thread of a pipe while the other program has to act.
    pub fn working_seconds(&self) -> f64 {
        let TimeSpent { busy_seconds, waiting_input_seconds, waiting_memory_seconds, .. } = self.time;
        busy_seconds
            + match self.name.as_str() {
                DEVICE => self.time.waiting_device_seconds,
                PIPE_IN => waiting_input_seconds,
                PIPE_OUT => waiting_memory_seconds,
                _ => 0.0,
            }
    }

    /// The share of a pass of `seconds` in which the threads of the stage worked.
    fn working_share(&self, seconds: f64) -> f64 {
        share(self.working_seconds(), self.threads as f64 * seconds)
    }

    /// Sets the rate, once all bytes are counted.
    pub fn set_rate(&mut self) {
        let seconds = self.working_seconds() / self.threads.max(1) as f64;
        self.bytes_per_s = (self.bytes > 0 && seconds > 0.0).then(|| self.bytes as f64 / seconds);
    }

    /// Whether the stage computes: its threads do more than hand over requests.
    fn computes(&self) -> bool {
        ![DEVICE, PIPE_IN, PIPE_OUT, PROGRESS].contains(&self.name.as_str())
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The bottleneck of a pass that took `seconds` on `processors` processors, `device_seconds` of them with devices at
/// work: the name of a stage that computes, `device`, or `input` or `output` for a program at the other end of a pipe.
/// Empty if nothing worked.
pub fn bottleneck(stages: &[StageAccount], seconds: f64, device_seconds: f64, processors: usize) -> String {
    let pipe = |name: &str| {
        let stage = stages.iter().find(|stage| stage.name == name);
        stage.map_or(0.0, |stage| stage.working_share(seconds))
    };
    let computing = || stages.iter().filter(|stage| stage.computes());
    let busy: f64 = stages.iter().map(|stage| stage.time.busy_seconds).sum();
    let processors_share = share(busy, processors.max(1) as f64 * seconds).min(1.0);
    let by_share =
        |a: &&StageAccount, b: &&StageAccount| a.working_share(seconds).total_cmp(&b.working_share(seconds));
    let busiest = computing().max_by(by_share);
    let busiest_share = busiest.map_or(0.0, |stage| stage.working_share(seconds));
    // If the processors are short, the stage that takes most of their time limits the pass, however many threads it
    // has.
    let by_time = |a: &&StageAccount, b: &&StageAccount| a.time.busy_seconds.total_cmp(&b.time.busy_seconds);
    let stage = if processors_share >= busiest_share { computing().max_by(by_time) } else { busiest };
    let computed = stage.map_or("", |stage| stage.name.as_str());
    let others =
        [(DEVICE, share(device_seconds, seconds)), ("input", pipe(PIPE_IN)), ("output", pipe(PIPE_OUT))];
    let all = others.into_iter().chain([(computed, busiest_share.max(processors_share))]);
    // Of equal shares the last counts.
    all.filter(|(_, share)| *share > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("", |(name, _)| name)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage of `threads` threads, each busy and waiting for the device for a share of a second.
    fn stage(name: &str, threads: usize, busy_seconds: f64, waiting_device_seconds: f64) -> StageAccount {
        let rest = 1.0 - busy_seconds - waiting_device_seconds;
        let time = TimeSpent {
            wall_seconds: 1.0,
            processor_seconds: busy_seconds,
            busy_seconds,
            waiting_input_seconds: if name == PIPE_OUT { 0.0 } else { rest },
            waiting_memory_seconds: if name == PIPE_OUT { rest } else { 0.0 },
            waiting_device_seconds,
        };
        let thread = |number| ThreadAccount { name: format!("{name} {number}"), time };
        StageAccount::new(name, (0..threads).map(thread).collect())
    }

    #[test]
    fn the_bottleneck_works_while_others_wait() {
        let chain = |sort, write| {
            [stage("read", 1, 0.1, 0.2), stage("sort", 4, sort, 0.0), stage("write", 1, write, 0.1)]
        };
        assert_eq!(bottleneck(&chain(0.9, 0.2), 1.0, 0.5, 8), "sort");
        assert_eq!(bottleneck(&chain(0.3, 0.9), 1.0, 0.5, 8), "write");
        assert_eq!(bottleneck(&chain(0.3, 0.5), 1.0, 0.95, 8), "device");
        // A thread that is always busy limits the pass, unless the processors are short.
        assert_eq!(bottleneck(&chain(0.8, 0.95), 1.0, 0.5, 8), "write");
        assert_eq!(bottleneck(&chain(0.8, 0.95), 1.0, 0.5, 4), "sort");
        assert_eq!(bottleneck(&[], 1.0, 0.0, 4), "");
    }

    #[test]
    fn programs_at_pipes_are_bottlenecks_too() {
        let read = || stage("read", 1, 0.1, 0.0);
        assert_eq!(bottleneck(&[read(), stage(PIPE_IN, 1, 0.1, 0.0)], 1.0, 0.0, 2), "input");
        assert_eq!(bottleneck(&[read(), stage(PIPE_OUT, 1, 0.1, 0.0)], 1.0, 0.0, 2), "output");
    }

    #[test]
    fn rates_are_those_of_the_time_at_work() {
        let mut sort = stage("sort", 2, 0.5, 0.0);
        sort.add(StageAccount { bytes: 100, ..stage("sort", 2, 0.5, 0.0) });
        sort.set_rate();
        assert_eq!((sort.threads, sort.time.wall_seconds, sort.bytes_per_s), (2, 4.0, Some(100.0)));
        let mut device = StageAccount { bytes: 100, ..stage(DEVICE, 1, 0.1, 0.4) };
        device.set_rate();
        assert_eq!(device.bytes_per_s, Some(200.0));
    }
}
