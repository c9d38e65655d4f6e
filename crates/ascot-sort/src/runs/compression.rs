//! The compression of a job's spills: runs, and the parts of a distribution.
//!
//! With `--compress auto` the job tries the codecs on a sample of its sorted records, predicts the time of the passes left
//! with each, and takes the fastest. While it writes it compares what it measures with what it assumed:
//!
//! ```text
//!   volume       its profile, corrected by the requests so far, unless the user gave it
//!   processors   the time of this process so far, without codecs, beside that of the plan
//!   data         the blocks written since the last review, and a sample for the codecs not in use
//! ```
//!
//! Every block carries its codec, so the choice may change within a run.
//!
//! Invariant: a volume that only counts as flash, because nothing is known of it, is never the bottleneck before its
//! rates are measured.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ascot_io::{ChooseCodec, Codec, Direction, Disk, Ledger, SpillCodec, Unpoisoned, sample_codec};
use ascot_model::account_of_spills::SpillsAccount;
use ascot_model::codec::StoredBlock;
use ascot_model::compression::{CodecChoice, Sample, SpillCost, SpillPass, spill_passes, two_passes};
use ascot_model::plan::Plan;
use ascot_model::volume::VolumeProfile;

use crate::api::{SortRequest, Volumes};
use crate::plan::{devices, seen_profile, written_dirs};

/// Bytes that a pass moves before its processor time tells anything.
const TOLD_BYTES: u64 = 32 << 20;
/// Bounds of the processor time of a pass, in predicted times: a measurement beyond them says nothing.
const MIN_FACTOR: f64 = 0.1;
const MAX_FACTOR: f64 = 30.0;

/// The compression of a job's spills; clones share it.
#[derive(Clone)]
pub struct SpillCompression(Arc<Choice>);

struct Choice {
    volumes: Volumes,
    /// The devices of spills and output.
    devices: Vec<u64>,
    ledger: Ledger,
    /// Processors that the job may use.
    threads: f64,
    /// Threads of the plan.
    planned_threads: f64,
    planned: Vec<SpillPass>,
    /// For passes that the plan does not have.
    unplanned: Vec<SpillPass>,
    state: Mutex<State>,
}

struct State {
    choice: CodecChoice,
    /// The name of the present pass.
    pass: &'static str,
    /// Figures at the beginning of the pass.
    began: Figures,
    /// Bytes of spills so far, before compression.
    spilled: u64,
    /// Bytes stored for each byte of spills that the pass reads.
    read_ratio: f64,
}

#[derive(Clone, Copy, Default)]
struct Figures {
    /// Processor time without codecs, seconds.
    computing_s: f64,
    input_bytes: u64,
    spilled_bytes: u64,
}

impl SpillCompression {
    /// The compression of the spills of a job that follows `plan`.
    pub fn new(request: &SortRequest, plan: &Plan, disk: &Disk) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let choice = CodecChoice::new(request.compression);
        let state = State { choice, pass: "", began: Figures::default(), spilled: 0, read_ratio: 1.0 };
        SpillCompression(Arc::new(Choice {
            volumes: request.volumes.clone(),
            devices: devices(&written_dirs(request)),
            ledger: disk.ledger().clone(),
            threads: plan.threads.clamp(1, cores) as f64,
            planned_threads: plan.threads.max(1) as f64,
            planned: spill_passes(plan),
            unplanned: two_passes(plan),
            state: Mutex::new(state),
        }))
    }

    /// The codec of the spills of the pass `pass`, which begins unless it has begun before.
    pub fn of_pass(&self, pass: &'static str) -> SpillCodec {
        let mut state = self.0.state.lock().unpoisoned();
        if state.pass != pass {
            state.read_ratio = state.choice.account().ratio_of(state.pass);
            state.began = self.0.figures(&state);
            state.pass = pass;
            state.choice.pass_begins();
        }
        SpillCodec::new(Arc::clone(&self.0) as Arc<dyn ChooseCodec>)
    }

    /// What was done so far.
    pub fn account(&self) -> SpillsAccount {
        self.0.state.lock().unpoisoned().choice.account().clone()
    }

    /// Bytes stored for each byte of the spills that the latest pass wrote.
    pub fn latest_ratio(&self) -> f64 {
        let state = self.0.state.lock().unpoisoned();
        state.choice.account().ratio_of(state.pass)
    }
}

impl ChooseCodec for Choice {
    fn choose(&self, block: &[u8]) -> Codec {
        let mut state = self.state.lock().unpoisoned();
        if state.choice.is_due()
            && let Some(volume) = self.volume()
        {
            let pass = state.pass;
            let cost = self.cost(&state, &volume);
            let samples: Vec<Sample> = if cost.may_pay() {
                state.choice.to_sample().filter_map(|codec| sample_codec(codec, block)).collect()
            } else {
                Vec::new()
            };
            state.choice.review(pass, &cost, &samples);
        }
        state.choice.codec()
    }

    fn note(&self, stored: StoredBlock) {
        let mut state = self.state.lock().unpoisoned();
        let pass = state.pass;
        state.spilled += stored.bytes;
        state.choice.note(pass, stored);
    }
}

impl Choice {
    /// The volume of the spills; none if nothing is known of it.
    fn volume(&self) -> Option<VolumeProfile> {
        if self.volumes.are_given() {
            // What counts as flash on request is never the bottleneck.
            return self.volumes.volume.clone();
        }
        let seen = self.ledger.pace(&self.devices).rates();
        let written = seen.write_bytes_per_s.is_some() || seen.duplex_bytes_per_s.is_some();
        (self.volumes.volume.is_some() || written).then(|| seen_profile(&self.volumes.profile(), &seen))
    }

    /// The cost of the passes left.
    fn cost<'a>(&'a self, state: &State, volume: &'a VolumeProfile) -> SpillCost<'a> {
        let at = self.planned.iter().position(|pass| pass.name == state.pass);
        let passes = at.map_or(&self.unplanned[..], |at| &self.planned[at..]);
        SpillCost {
            passes,
            volume,
            input_volume: self.volumes.input_volume.as_ref(),
            threads: self.threads,
            compute_factor: passes.first().map_or(1.0, |pass| self.compute_factor(state, pass)),
            read_ratio: state.read_ratio,
        }
    }

    /// Processor time of the present pass so far, in times of the prediction for its part that is done.
    fn compute_factor(&self, state: &State, pass: &SpillPass) -> f64 {
        let now = self.figures(state);
        let read = now.input_bytes - state.began.input_bytes;
        let spilled = now.spilled_bytes - state.began.spilled_bytes;
        let moved = if pass.inputs_read > 0.0 { read + spilled } else { spilled };
        let share = moved as f64 / (pass.inputs_read + pass.spills_written).max(1.0);
        let predicted_s = pass.compute_seconds * self.planned_threads * share;
        if moved < TOLD_BYTES || predicted_s <= 0.0 {
            return self.planned_threads / self.threads;
        }
        let factor = (now.computing_s - state.began.computing_s) / predicted_s;
        factor.clamp(MIN_FACTOR, MAX_FACTOR) * self.planned_threads / self.threads
    }

    fn figures(&self, state: &State) -> Figures {
        let inputs = self.ledger.account().into_iter();
        let inputs = inputs.filter(|stream| stream.direction == Direction::Read && stream.name == "input");
        Figures {
            computing_s: processor_time().as_secs_f64() - state.choice.account().seconds(),
            input_bytes: inputs.map(|stream| stream.bytes).sum(),
            spilled_bytes: state.spilled,
        }
    }
}

/// Processor time of all threads of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
