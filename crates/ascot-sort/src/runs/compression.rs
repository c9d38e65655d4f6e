//! The compression of a job's spills: runs, and the parts of a distribution.
//!
//! With `--compress auto` the job tries the codecs on a sample of its sorted records, predicts the time of the passes
//! left with each, and takes the fastest. While it writes it compares what it measures with what it assumed:
//!
//! ```text
//!   volume       its profile, corrected by the requests so far, unless the user gave it; and the time for which the
//!                job waited for it with each codec, beside the time that the profile predicts for the same bytes
//!   processors   the time of this process so far, without codecs, and the time in which it did not wait for the volume
//!   data         the blocks written since the last review, and a sample for the codecs not in use
//! ```
//!
//! Every block carries its codec, so the choice may change within a run.
//!
//! Invariant: a volume that counts as flash without a measurement is never the bottleneck: a job there compresses
//! nothing, and takes no sample.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ascot_io::{
    ChooseCodec, Codec, Direction, Disk, Ledger, SpillCodec, Unpoisoned, processor_time, sample_codec,
};
use ascot_model::account_of_spills::SpillsAccount;
use ascot_model::codec::StoredBlock;
use ascot_model::compression::{CodecChoice, Sample, SpillCost, SpillPass, spill_passes, two_passes};
use ascot_model::plan::Plan;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;

use crate::api::{SortRequest, Volumes};
use crate::plan::{devices, written_dirs};

/// Bytes that a pass moves before its processor time counts as measured.
const MEASURED_BYTES: u64 = 32 << 20;
/// Bounds of the processor time of a pass, in predicted times: a measurement beyond them is ignored.
const MIN_FACTOR: f64 = 0.1;
const MAX_FACTOR: f64 = 100.0;
/// Bound of the time that a second of a processor takes.
const MAX_PROCESSOR_FACTOR: f64 = 10.0;
/// Bytes that a pass spills with a codec before the wait for the volume counts as measured.
const PACE_BYTES: u64 = 8 << 20;
/// A shorter block, the last one of a run, is no sample.
const MIN_SAMPLE_BYTES: usize = 16 << 10;
/// Bound of the time of a volume, in predicted times.
const MAX_DEVICE_FACTOR: f64 = 1.5;
/// A volume is much faster than assumed if the job waits for less than this part of the predicted time.
const MUCH_FASTER: f64 = 0.5;
/// Files among which a pass that writes spills switches; the predicted time of their bytes hardly depends on it.
const FILES: f64 = 2.0;

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
    /// The work of the volume in the pass, with each codec.
    paces: [Pace; Codec::ALL.len()],
    /// Figures at the last review.
    reviewed: Figures,
}

/// The work of a volume for a job.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// Time for which the job waited for it, seconds.
    device_wait_s: f64,
    read_bytes: u64,
    written_bytes: u64,
    /// Bytes of spills, before compression.
    spilled_bytes: u64,
}

/// Figures of the job so far.
#[derive(Clone, Copy, Default)]
struct Figures {
    time: Option<Instant>,
    /// Processor time without codecs, seconds.
    computing_s: f64,
    /// Time in which something was read, and in which writes were queued, seconds.
    reading_s: f64,
    writes_queued_s: f64,
    input_bytes: u64,
    spilled_bytes: u64,
    /// Bytes that the volume read and wrote.
    read_bytes: u64,
    written_bytes: u64,
}

impl Figures {
    /// Seconds since `began` for which the job waited for the volume.
    fn device_wait_s(&self, began: &Figures) -> f64 {
        let reads_s = self.reading_s - began.reading_s;
        reads_s.max(self.writes_queued_s - began.writes_queued_s)
    }

    /// Seconds since `began` in which the job did not wait for it.
    fn other_s(&self, began: &Figures) -> f64 {
        let (Some(now), Some(then)) = (self.time, began.time) else { return 0.0 };
        (now - then).as_secs_f64() - self.device_wait_s(began)
    }
}

impl SpillCompression {
    /// The compression of the spills of a job that follows `plan`.
    pub fn new(request: &SortRequest, plan: &Plan, disk: &Disk) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let choice = CodecChoice::new(request.compression);
        let state = State {
            choice,
            pass: "",
            began: Figures::default(),
            spilled: 0,
            read_ratio: 1.0,
            paces: Default::default(),
            reviewed: Figures::default(),
        };
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

    /// The expected compression before the job begins, in words; none if the plan spills nothing.
    pub fn forecast(request: &SortRequest, plan: &Plan, disk: &Disk) -> Option<String> {
        if plan.chosen.disk.spills_bytes == 0 {
            return None;
        }
        let asked = request.compression;
        let choice = match asked.fixed() {
            Some(Codec::None) => return Some("as they are (--compress none)".into()),
            Some(codec) => return Some(format!("compressed with {} (--compress)", codec.word())),
            None => Self::new(request, plan, disk).0,
        };
        let state = choice.state.lock().unpoisoned();
        let words = match choice.volume() {
            None => "as they are: the volume counts as flash".into(),
            Some(volume) if choice.cost(&state, &volume).may_pay() => format!(
                "compressed if the first sorted records shrink: the volume writes {}",
                units::rate(volume.write_bytes_per_s)
            ),
            Some(volume) => format!(
                "as they are: the volume, which writes {}, is not the bottleneck",
                units::rate(volume.write_bytes_per_s)
            ),
        };
        Some(words)
    }

    /// The codec of the spills of the pass `pass`, which begins unless it has begun before.
    pub fn of_pass(&self, pass: &'static str) -> SpillCodec {
        let mut state = self.0.state.lock().unpoisoned();
        if state.pass != pass {
            state.read_ratio = state.choice.account().ratio_of(state.pass);
            state.began = self.0.figures(&state);
            state.reviewed = state.began;
            state.paces = Default::default();
            state.pass = pass;
            state.choice.pass_begins();
        }
        SpillCodec::new(Arc::clone(&self.0) as Arc<dyn ChooseCodec>)
    }

    /// The work done so far.
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
            && block.len() >= MIN_SAMPLE_BYTES
            && let Some(volume) = self.volume()
        {
            let pass = state.pass;
            self.note_requests(&mut state);
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
    /// The volume of the spills; none if it counts as flash without a measurement: it is never the bottleneck.
    fn volume(&self) -> Option<VolumeProfile> {
        let profile = self.volumes.volume.clone()?;
        if self.volumes.are_given() {
            return Some(profile);
        }
        let pace = self.ledger.pace(&self.devices);
        let Some(write_bytes_per_s) = pace.queued_write.queued_rate() else { return Some(profile) };
        let read_bytes_per_s = pace.rates().read_bytes_per_s.unwrap_or(profile.read_bytes_per_s);
        // Whether one direction disturbs the other shows in the time for which the job waits.
        Some(VolumeProfile { read_bytes_per_s, write_bytes_per_s, duplex_bytes_per_s: None, ..profile })
    }

    /// Counts the work of the volume since the last review for the codec in use.
    fn note_requests(&self, state: &mut State) {
        let now = self.figures(state);
        let pace = &mut state.paces[state.choice.codec() as usize];
        pace.device_wait_s += now.device_wait_s(&state.reviewed);
        pace.read_bytes += now.read_bytes - state.reviewed.read_bytes;
        pace.written_bytes += now.written_bytes - state.reviewed.written_bytes;
        pace.spilled_bytes += now.spilled_bytes - state.reviewed.spilled_bytes;
        state.reviewed = now;
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
            processor_factor: self.processor_factor(state),
            device_factor: self.device_factor(state, volume),
            realised: Codec::ALL.map(|codec| self.realised(state, volume, codec)),
            read_ratio: state.read_ratio,
        }
    }

    /// Time for which the present pass waited for the volume, in times of the prediction for the same bytes: without
    /// codec, if that was seen.
    fn device_factor(&self, state: &State, volume: &VolumeProfile) -> f64 {
        let factor = |codec: Codec, max: f64| {
            let pace = self.pace_of(state, codec)?;
            let predicted_s = volume.seconds(pace.read_bytes as f64, pace.written_bytes as f64, 0.0, FILES);
            Some((pace.device_wait_s / predicted_s).min(max))
        };
        let plain = factor(Codec::None, MAX_DEVICE_FACTOR);
        let coded = factor(state.choice.codec(), 1.0);
        // A volume that is much faster than assumed is tried without codec.
        plain.or(coded.map(|coded| if coded < MUCH_FASTER { 0.0 } else { coded })).unwrap_or(1.0)
    }

    /// The part of the saving predicted for `codec` that was seen in the present pass; all of it as long as the pass
    /// has not been with and without it.
    fn realised(&self, state: &State, volume: &VolumeProfile, codec: Codec) -> f64 {
        let plain = self.pace_of(state, Codec::None);
        let coded = self.pace_of(state, codec);
        let (Some(plain), Some(coded)) = (plain, coded) else { return 1.0 };
        let device_wait_s = |pace: &Pace| pace.device_wait_s / pace.spilled_bytes as f64;
        let predicted_s = |pace: &Pace| {
            let moved_s = volume.seconds(pace.read_bytes as f64, pace.written_bytes as f64, 0.0, FILES);
            moved_s / pace.spilled_bytes as f64
        };
        let saving_s = predicted_s(plain) - predicted_s(coded);
        if saving_s <= 0.0 {
            return 1.0;
        }
        ((device_wait_s(plain) - device_wait_s(coded)) / saving_s).clamp(0.0, 1.0)
    }

    /// The work of the volume in the present pass with a codec; none if that was little, or the profile is not to be
    /// corrected.
    fn pace_of<'s>(&self, state: &'s State, codec: Codec) -> Option<&'s Pace> {
        let measured = !self.volumes.are_given() && self.volumes.input_volume.is_none();
        Some(&state.paces[codec as usize]).filter(|pace| measured && pace.spilled_bytes >= PACE_BYTES)
    }

    /// Time in which the present pass did not wait for the volume, in times of what all processors would need for it.
    fn processor_factor(&self, state: &State) -> f64 {
        let now = self.figures(state);
        let computing_s = (now.computing_s - state.began.computing_s) / self.threads;
        if now.spilled_bytes - state.began.spilled_bytes < PACE_BYTES || computing_s <= 0.0 {
            return 1.0;
        }
        (now.other_s(&state.began) / computing_s).clamp(1.0, MAX_PROCESSOR_FACTOR)
    }

    /// Time of computing in the present pass so far, in times of the prediction for its part that is done.
    fn compute_factor(&self, state: &State, pass: &SpillPass) -> f64 {
        let now = self.figures(state);
        let began = &state.began;
        let read = now.input_bytes - began.input_bytes;
        let spilled = now.spilled_bytes - began.spilled_bytes;
        let moved = if pass.inputs_read > 0.0 { read + spilled } else { spilled };
        let share = moved as f64 / (pass.inputs_read + pass.spills_written).max(1.0);
        let predicted_s = pass.compute_seconds * share;
        if moved < MEASURED_BYTES || predicted_s <= 0.0 {
            return self.planned_threads / self.threads;
        }
        let computing_s = (now.computing_s - began.computing_s) / self.threads;
        (computing_s.max(now.other_s(began)) / predicted_s).clamp(MIN_FACTOR, MAX_FACTOR)
    }

    fn figures(&self, state: &State) -> Figures {
        let pace = self.ledger.pace(&self.devices);
        let totals = self.ledger.totals();
        let mut figures = Figures {
            time: Some(Instant::now()),
            computing_s: processor_time::of_process().as_secs_f64() - state.choice.account().seconds(),
            spilled_bytes: state.spilled,
            writes_queued_s: pace.queued_write.seconds,
            read_bytes: totals.read_bytes,
            written_bytes: totals.written_bytes,
            ..Figures::default()
        };
        for stream in self.ledger.account() {
            if stream.direction == Direction::Read {
                figures.reading_s += stream.busy.as_secs_f64();
                figures.input_bytes += if stream.name == "input" { stream.bytes } else { 0 };
            }
        }
        figures
    }
}
