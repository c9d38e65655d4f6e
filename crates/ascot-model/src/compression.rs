//! Whether spills are worth compressing, and with which codec: the predicted time of the passes that remain, and a
//! choice that follows what is measured.
//!
//! ```text
//!   pass      inputs ─▶ compute ─▶ compress ─▶ spills ─▶ expand ─▶ compute ─▶ output
//!   volume      B                    B x ratio        B x ratio                 B
//! ```
//!
//! A pass takes the longest of three times: that of the volume, that of all processors, and that of the one thread that
//! compresses or the one that expands. Blocks lie expanded in memory, so a codec changes the bytes that move and not
//! the number of switches.
//!
//! Invariants: no clock and no data, only numbers, so tests need no jobs; a codec is chosen only if it saves a clear
//! share of the predicted time, and given up as soon as it saves nothing.

use crate::account_of_spills::{Decision, SpillsAccount};
use crate::codec::{Codec, Compression, StoredBlock};
use crate::plan::Plan;
use crate::units;
use crate::volume::VolumeProfile;

/// What a codec does with the data of a job. Rates are those of one thread, in bytes before compression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecFigures {
    /// Bytes stored for each byte of data.
    pub ratio: f64,
    /// Compressing, bytes/s.
    pub compress_bytes_per_s: f64,
    /// Expanding, bytes/s.
    pub expand_bytes_per_s: f64,
}

impl CodecFigures {
    /// No codec.
    pub const NONE: CodecFigures =
        CodecFigures { ratio: 1.0, compress_bytes_per_s: f64::INFINITY, expand_bytes_per_s: f64::INFINITY };
    /// Better than any codec: data that shrinks to a tenth in no time.
    pub const BOUND: CodecFigures = CodecFigures { ratio: 0.1, ..CodecFigures::NONE };
}

/// Figures of a codec that were measured on a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The codec.
    pub codec: Codec,
    /// Its figures.
    pub figures: CodecFigures,
}

/// A pass of a job, as far as it concerns spills. Bytes are those of records.
#[derive(Clone, Debug, PartialEq)]
pub struct SpillPass {
    /// Its name.
    pub name: String,
    /// Bytes of inputs that it reads.
    pub inputs_read: f64,
    /// Bytes of the output that it writes.
    pub output_written: f64,
    /// Bytes of spills that it reads.
    pub spills_read: f64,
    /// Bytes of spills that it writes.
    pub spills_written: f64,
    /// Switches.
    pub switches: f64,
    /// Files that it reads and writes at once.
    pub files: f64,
    /// Seconds of all processors together, busy with everything but codecs.
    pub compute_seconds: f64,
}

/// Bytes of a job of unknown size that is costed: only the proportions of its passes matter.
const ANY_BYTES: f64 = 1e9;

/// The passes of a planned job: all but the last write spills, all but the first read them. `threads`: those of the
/// plan. A plan without spills, such as that of a pipe or of a part that turns out too large, becomes one of two
/// passes with the same work for each byte.
pub fn spill_passes(plan: &Plan) -> Vec<SpillPass> {
    let planned = &plan.chosen.passes;
    let spills = planned.len() > 1 && plan.chosen.disk.spills_bytes > 0 && plan.input_bytes.is_some();
    if !spills {
        return two_passes(plan);
    }
    let last = planned.len() - 1;
    let of = |at: usize, here: bool, bytes: u64| if (at > 0) == here { bytes as f64 } else { 0.0 };
    let pass = |at: usize| {
        let pass = &planned[at];
        let written = pass.written_bytes as f64;
        let to_files = pass.bytes_to_files() as f64;
        SpillPass {
            name: pass.name.clone(),
            inputs_read: of(at, false, pass.read_bytes),
            spills_read: of(at, true, pass.read_bytes),
            output_written: if at == last { to_files } else { 0.0 },
            spills_written: if at == last { 0.0 } else { written },
            switches: pass.switches as f64,
            files: (pass.inputs + pass.outputs) as f64,
            compute_seconds: pass.compute_seconds,
        }
    };
    (0..planned.len()).map(pass).collect()
}

/// Two passes that spill and merge any number of bytes, with the work of a plan for each byte.
pub fn two_passes(plan: &Plan) -> Vec<SpillPass> {
    let planned = &plan.chosen.passes;
    let compute: f64 = planned.iter().map(|pass| pass.compute_seconds).sum();
    let bytes = planned.iter().map(|pass| pass.read_bytes).max().unwrap_or(0).max(1) as f64;
    let pass = |name: &str, forms: f64| SpillPass {
        name: name.into(),
        inputs_read: forms * ANY_BYTES,
        output_written: (1.0 - forms) * ANY_BYTES,
        spills_read: (1.0 - forms) * ANY_BYTES,
        spills_written: forms * ANY_BYTES,
        switches: 0.0,
        files: 2.0,
        compute_seconds: compute / bytes * ANY_BYTES / 2.0,
    };
    vec![pass("form runs", 1.0), pass("merge", 0.0)]
}

/// What the passes that remain cost.
#[derive(Clone, Debug)]
pub struct SpillCost<'a> {
    /// The present pass, and those after it.
    pub passes: &'a [SpillPass],
    /// The volume of spills and output, and of the inputs unless they have their own.
    pub volume: &'a VolumeProfile,
    /// The volume of the inputs.
    pub input_volume: Option<&'a VolumeProfile>,
    /// Processors.
    pub threads: f64,
    /// Measured time of computing, in predicted times.
    pub compute_factor: f64,
    /// Time that a second of a processor takes: more than one if other programs compute, too.
    pub processor_factor: f64,
    /// Measured time of the volume, in predicted times.
    pub device_factor: f64,
    /// The part of the saving predicted for each codec of [`Codec::ALL`] that was seen.
    pub realised: [f64; Codec::ALL.len()],
    /// Bytes stored for each byte of the spills that exist already.
    pub read_ratio: f64,
}

impl SpillCost<'_> {
    /// Seconds of all passes, if all further spills are written with `codec`, which has these figures.
    pub fn seconds(&self, codec: Codec, figures: &CodecFigures) -> f64 {
        let predicted_s = self.predicted_s(figures);
        if codec == Codec::None {
            return predicted_s;
        }
        let none_s = self.seconds_of_none();
        let saved_s = none_s - predicted_s;
        none_s - if saved_s > 0.0 { saved_s * self.realised[codec as usize] } else { saved_s }
    }

    fn predicted_s(&self, figures: &CodecFigures) -> f64 {
        let of = |(at, pass): (usize, &SpillPass)| {
            let read_ratio = if at == 0 { self.read_ratio } else { figures.ratio };
            let expanded = if at == 0 { 0.0 } else { pass.spills_read };
            let expand_s = expanded / figures.expand_bytes_per_s * self.processor_factor;
            let compress_s = pass.spills_written / figures.compress_bytes_per_s * self.processor_factor;
            let computing_s =
                pass.compute_seconds * self.compute_factor + (expand_s + compress_s) / self.threads.max(1.0);
            let written = pass.output_written + pass.spills_written * figures.ratio;
            let spills_read = pass.spills_read * read_ratio;
            let device_s = match self.input_volume {
                Some(inputs) => {
                    let own = self.volume.seconds(spills_read, written, pass.switches, pass.files);
                    own.max(inputs.seconds(pass.inputs_read, 0.0, 0.0, 1.0))
                }
                None => {
                    let read = pass.inputs_read + spills_read;
                    self.volume.seconds(read, written, pass.switches, pass.files)
                }
            };
            (device_s * self.device_factor).max(computing_s).max(compress_s).max(expand_s)
        };
        self.passes.iter().enumerate().map(of).sum()
    }

    fn seconds_of_none(&self) -> f64 {
        self.seconds(Codec::None, &CodecFigures::NONE)
    }

    /// Whether a codec could save a clear share of the time, if the data shrank well.
    pub fn may_pay(&self) -> bool {
        self.seconds(Codec::None, &CodecFigures::BOUND) < WORTH * self.seconds_of_none()
    }
}

/// A codec must save this share of the time that is left, or it is not begun: predictions are no more exact.
const WORTH: f64 = 0.92;
/// One codec follows another if it saves this share.
const BETTER: f64 = 0.95;
/// Bytes between two reviews of the choice: from the first to the second figure, twice as many after each review that
/// changes nothing.
const REVIEW_BYTES: u64 = 8 << 20;
const MAX_REVIEW_BYTES: u64 = 64 << 20;
/// Changes after which the time between two reviews is no longer doubled.
const MAX_DOUBLINGS: u32 = 3;
/// Blocks in sequence that did not shrink, after which a codec is reviewed at once.
const USELESS_BLOCKS: u32 = 6;
/// Bytes after which the blocks written tell more about a codec than its sample.
const TOLD_BYTES: u64 = 1 << 20;
/// Data that does not shrink below this ratio is said not to shrink.
const HARDLY: f64 = 0.95;

/// Blocks written with a codec.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    bytes: u64,
    stored_bytes: u64,
    /// Seconds of processors.
    seconds: f64,
}

/// Chooses the codec of the next block.
#[derive(Clone, Debug)]
pub struct CodecChoice {
    codec: Codec,
    figures: [Option<CodecFigures>; 2],
    /// Blocks since the last review.
    since: Written,
    useless_blocks: u32,
    /// Bytes from the last review to the next.
    interval: u64,
    decided: bool,
    /// Changes so far.
    changes: u32,
    /// Bytes of spills so far.
    bytes: u64,
    account: SpillsAccount,
}

impl CodecChoice {
    /// A choice that is still to be made; `fixed`: the user made it.
    pub fn new(asked: Compression) -> Self {
        CodecChoice {
            codec: asked.fixed().unwrap_or_default(),
            figures: [None; 2],
            since: Written::default(),
            useless_blocks: 0,
            interval: REVIEW_BYTES,
            decided: asked.fixed().is_some(),
            changes: 0,
            bytes: 0,
            account: SpillsAccount::new(asked),
        }
    }

    /// The codec of the next block.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// What was done so far.
    pub fn account(&self) -> &SpillsAccount {
        &self.account
    }

    /// Whether the next block calls for a first choice or a review.
    pub fn is_due(&self) -> bool {
        let reviewed = self.account.asked == Compression::Auto;
        let useless = self.useless_blocks >= USELESS_BLOCKS;
        reviewed && (!self.decided || self.since.bytes >= self.interval || useless)
    }

    /// The codecs whose figures a review takes from a sample: those not in use, and those in use for a short time.
    pub fn to_sample(&self) -> impl Iterator<Item = Codec> + use<> {
        let known = Some(self.codec).filter(|_| self.since.bytes >= TOLD_BYTES);
        Codec::COMPRESSING.into_iter().filter(move |codec| Some(*codec) != known)
    }

    /// A further pass begins: its cost calls for a review.
    pub fn pass_begins(&mut self) {
        self.interval = 0;
    }

    /// Notes a block of the pass `pass`.
    pub fn note(&mut self, pass: &str, block: StoredBlock) {
        self.bytes += block.bytes;
        self.since.bytes += block.bytes;
        self.since.stored_bytes += block.stored_bytes;
        self.since.seconds += block.seconds;
        let shrank = block.stored_bytes < block.bytes || block.codec == Codec::None;
        self.useless_blocks = if shrank { 0 } else { self.useless_blocks + 1 };
        self.account.note(pass, &block);
    }

    /// The figures of a codec.
    fn figures_of(&self, codec: Codec) -> Option<CodecFigures> {
        match codec {
            Codec::None => Some(CodecFigures::NONE),
            Codec::Lz4 => self.figures[0],
            Codec::Zstd => self.figures[1],
        }
    }

    fn set_figures(&mut self, codec: Codec, figures: CodecFigures) {
        match codec {
            Codec::None => {}
            Codec::Lz4 => self.figures[0] = Some(figures),
            Codec::Zstd => self.figures[1] = Some(figures),
        }
    }

    /// Makes or reviews the choice in the pass `pass`, with samples of the next block; without samples, no codec can
    /// pay.
    pub fn review(&mut self, pass: &str, cost: &SpillCost<'_>, samples: &[Sample]) {
        for sample in samples {
            self.set_figures(sample.codec, sample.figures);
        }
        let since = std::mem::take(&mut self.since);
        self.useless_blocks = 0;
        if since.bytes >= TOLD_BYTES
            && since.seconds > 0.0
            && let Some(sampled) = self.figures_of(self.codec)
        {
            let told = CodecFigures {
                ratio: since.stored_bytes as f64 / since.bytes as f64,
                compress_bytes_per_s: since.bytes as f64 / since.seconds,
                ..sampled
            };
            self.set_figures(self.codec, told);
        }
        let seconds = |codec: Codec| {
            let usable = codec == Codec::None || !samples.is_empty();
            let figures = self.figures_of(codec).filter(|_| usable);
            figures.map_or(f64::INFINITY, |figures| cost.seconds(codec, &figures))
        };
        let next = next_codec(self.codec, &seconds);
        let changes = next != self.codec;
        if changes || !self.decided {
            let reason = self.reason(next, cost, samples.is_empty());
            let from = Some(self.codec).filter(|_| self.decided);
            let after_bytes = self.bytes;
            self.account.decide(Decision { pass: pass.into(), after_bytes, from, to: next, reason });
        }
        // A choice that has changed often is changed less often.
        let calm = self.decided && !changes;
        self.changes += u32::from(self.decided && changes);
        let least = REVIEW_BYTES << self.changes.min(MAX_DOUBLINGS);
        self.interval = if calm { (2 * self.interval).max(least).min(MAX_REVIEW_BYTES) } else { least };
        self.codec = next;
        self.decided = true;
    }

    /// Why `next` is the codec from now on.
    fn reason(&self, next: Codec, cost: &SpillCost<'_>, no_codec_pays: bool) -> String {
        let none_s = units::seconds(cost.seconds_of_none());
        let percent = |figures: CodecFigures| (figures.ratio * 100.0).round();
        let volume = units::rate(cost.volume.write_bytes_per_s);
        if let Some(figures) = self.figures_of(next).filter(|_| next != Codec::None) {
            let with_s = units::seconds(cost.seconds(next, &figures));
            return format!(
                "the data shrinks to {} percent, and the volume writes {volume}: {with_s} instead of {none_s} \
                 for the passes left",
                percent(figures)
            );
        }
        if no_codec_pays {
            return format!("the volume, which writes {volume}, is not the bottleneck");
        }
        let tried = if self.codec == Codec::None { Codec::Zstd } else { self.codec };
        match self.figures_of(tried) {
            Some(figures) if figures.ratio > HARDLY => {
                format!("the data shrinks only to {} percent", percent(figures))
            }
            Some(figures) => format!(
                "the volume writes {volume}: {} with {} instead of {none_s} for the passes left",
                units::seconds(cost.seconds(tried, &figures)),
                tried.word()
            ),
            None => "no sample of the data was taken".into(),
        }
    }
}

/// The codec to use after `codec`, by the seconds with each.
fn next_codec(codec: Codec, seconds: &dyn Fn(Codec) -> f64) -> Codec {
    let best =
        |codecs: [Codec; 2]| if seconds(codecs[1]) < seconds(codecs[0]) { codecs[1] } else { codecs[0] };
    let other = best(Codec::COMPRESSING);
    let none_s = seconds(Codec::None);
    if codec == Codec::None || seconds(codec) >= none_s {
        return if seconds(other) < WORTH * none_s { other } else { Codec::None };
    }
    if seconds(other) < BETTER * seconds(codec) { other } else { codec }
}

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
