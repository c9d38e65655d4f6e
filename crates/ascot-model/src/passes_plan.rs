//! The plan of a merge, split or reshape of many files: its passes, and the alternatives.

use serde::Serialize;

use crate::growth::{Growth, Narrow, best_by_pass, merged_bytes, split_bytes};
use crate::multipass::{self, DeviceCost, PassCost, Passes};
use crate::plan::PassPlan;
use crate::run_length::{Baseline, Scheme, Shape};
use crate::units;
use crate::volume::VolumeProfile;

/// A job without inputs or without outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("passes over files need inputs and outputs\n  ascot plan bowtie computes 0 x m and n x 0")]
pub struct NoEnds;

/// A job on files, in one pass or several.
#[derive(Clone, Copy, Debug)]
pub struct FileJob<'a> {
    /// `merge`, `split` or `reshape`.
    pub what: &'a str,
    /// Number of input files.
    pub inputs: u32,
    /// Number of output files.
    pub outputs: u32,
    /// Bytes of all inputs.
    pub input_bytes: f64,
    /// The share of reading in all bytes that move.
    pub alpha: f64,
    /// The bytes that passes leave, of a split after its one file, otherwise before the one file; none: as `alpha`
    /// says, in the pass with one file.
    pub growth: Option<&'a Growth>,
    /// The same of a reshape, after its one file.
    pub growth_out: Option<&'a Growth>,
    /// Whether all files are moved at once: no passes before or after are possible.
    pub at_once: bool,
}

/// The figures of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassFigures {
    /// Switches.
    pub switches: f64,
    /// Seconds of the device.
    pub seconds: f64,
}

/// How passes are carried out: the same for a plan and for its alternatives.
pub trait PassModel {
    /// The schedule of a shape, in words.
    fn schedule(&self, shape: &Shape) -> &'static str;
    /// The figures of a pass whose files are moved by the schedule, or by a baseline.
    fn figures(&self, pass: &multipass::Pass, baseline: Option<Baseline>) -> PassFigures;
    /// What the job costs beside its passes, whichever they are.
    fn beside_passes(&self) -> PassFigures {
        PassFigures::default()
    }
}

/// By the formulas, which hold for any function.
impl PassModel for DeviceCost<'_> {
    fn schedule(&self, shape: &Shape) -> &'static str {
        Scheme::best(*shape).algorithm.name()
    }

    fn figures(&self, pass: &multipass::Pass, baseline: Option<Baseline>) -> PassFigures {
        let cost = DeviceCost { baseline, ..self.clone() };
        let (_, switches) = cost.switches(&pass.shape, pass.read_bytes + pass.written_bytes);
        let seconds = cost.seconds(&pass.shape, pass.read_bytes, pass.written_bytes);
        PassFigures { switches, seconds }
    }
}

impl FileJob<'_> {
    /// A merge or split that writes the bytes that it reads.
    pub fn moving(what: &str, inputs: u32, outputs: u32, input_bytes: f64) -> FileJob<'_> {
        FileJob {
            what,
            inputs,
            outputs,
            input_bytes,
            alpha: 0.5,
            growth: None,
            growth_out: None,
            at_once: false,
        }
    }

    /// Bytes of all outputs.
    fn output_bytes(&self) -> f64 {
        match (self.what, self.growth) {
            ("merge", Some(Growth::ByFiles(_))) => self.merged(1.0),
            (_, Some(Growth::ByPass(shares))) => self.input_bytes * shares.first().unwrap_or(&1.0),
            (_, None) if self.growth_out.is_none() => self.after(),
            _ => self.split(self.outputs.into()),
        }
    }

    /// Bytes after the pass with one file, by `alpha`.
    fn after(&self) -> f64 {
        self.input_bytes * (1.0 - self.alpha) / self.alpha
    }

    /// Bytes before the pass that splits, by number of files.
    fn merged(&self, files: f64) -> f64 {
        match self.growth {
            Some(Growth::ByFiles(points)) if self.what != "split" => {
                merged_bytes(points, self.inputs, self.input_bytes, files)
            }
            _ if self.what == "merge" && files <= 1.0 => self.after(),
            _ => self.input_bytes,
        }
    }

    /// Bytes after the pass that merges, by number of files.
    fn split(&self, files: f64) -> f64 {
        let growth = if self.what == "split" { self.growth } else { self.growth_out };
        match (growth, self.growth) {
            (Some(Growth::ByFiles(points)), _) => split_bytes(points, self.merged(1.0), files),
            (None, Some(Growth::ByFiles(_))) => self.merged(1.0),
            _ if self.what == "split" && files <= 1.0 => self.input_bytes,
            _ => self.after(),
        }
    }

    /// Its files and bytes in words.
    pub fn name(&self) -> String {
        let (inputs, outputs) = self.ends();
        format!("{} {inputs} x {outputs}, {}", self.what, units::bytes(self.input_bytes as u64))
    }

    /// Numbers of files at both ends.
    fn ends(&self) -> (u32, u32) {
        match self.what {
            "merge" => (self.inputs, 1),
            "split" => (1, self.outputs),
            _ => (self.inputs, self.outputs),
        }
    }

    /// The same job with the same fan-in or fan-out in all passes.
    fn by(&self, factor: u32, cost: &DeviceCost<'_>) -> Option<Passes> {
        let merging = |files: f64| self.merged(files);
        let splitting = |files: f64| self.split(files);
        match self.what {
            _ if matches!(self.growth, Some(Growth::ByPass(_))) => None,
            "merge" => multipass::merge_by(factor, self.inputs, &merging, cost),
            "split" => multipass::split_by(factor, self.outputs, &splitting, cost),
            _ => {
                let into_one = multipass::merge_by(factor, self.inputs, &merging, cost)?;
                let out_of_one = multipass::split_by(factor, self.outputs, &splitting, cost)?;
                let seconds = into_one.seconds + out_of_one.seconds;
                Some(Passes { passes: [into_one.passes, out_of_one.passes].concat(), seconds })
            }
        }
    }

    /// The alternatives: everything in one pass; two files at a time; the best passes with equal parts of memory; and
    /// requests of a fixed size, 4 MB as in external-memory libraries, with the fewest equal passes for which memory
    /// holds two requests for each file. All have the figures of `model`.
    fn alternatives(&self, way: &Passes, cost: &DeviceCost<'_>, model: &dyn PassModel) -> Vec<Alternative> {
        const REQUEST_BYTES: f64 = 4e6;
        let mut others = Vec::new();
        let mut add = |name: &str, way: Option<Passes>, baseline: Option<Baseline>| {
            let figures = |pass: &multipass::Pass| model.figures(pass, baseline);
            others.push(Alternative::new(name.into(), way, &figures, model.beside_passes()));
        };
        if way.passes.len() > 1 {
            add("in one pass", Some(self.in_one_pass(cost)), None);
        }
        if matches!(self.growth, Some(Growth::ByPass(_))) {
            // Other numbers of passes leave other bytes.
            return others;
        }
        if !self.at_once && way.factors().iter().any(|&factor| factor > 2) {
            add("two files at a time", self.by(2, cost), None);
        }
        let equal_parts = Some(Baseline::EqualParts);
        let equal = DeviceCost { baseline: equal_parts, ..cost.clone() };
        let best =
            if self.at_once { Some(self.in_one_pass(&equal)) } else { self.best(&equal).ok().flatten() };
        add("with equal parts of memory", best, equal_parts);
        let requests = Some(Baseline::FixedBlocks { bytes: REQUEST_BYTES });
        let fixed = DeviceCost { baseline: requests, ..cost.clone() };
        let max_streams = (cost.memory_bytes / (2.0 * REQUEST_BYTES)).max(2.0);
        let (inputs, outputs) = self.ends();
        if inputs > 1 && outputs > 1 && f64::from(inputs.saturating_add(outputs)) <= max_streams {
            add("by requests of 4 MB, all files at once", Some(self.in_one_pass(&fixed)), requests);
        } else {
            let files = f64::from(inputs.max(outputs));
            let passes =
                (1..=32).find(|&passes| files.powf(1.0 / f64::from(passes)) <= max_streams).unwrap_or(32);
            let factor = files.powf(1.0 / f64::from(passes)).ceil() as u32;
            let name = format!("by requests of 4 MB, {factor} files at a time");
            add(&name, self.by(factor, &fixed), requests);
        }
        // If one file stays one file, no pass is needed.
        others.retain(|other| other.seconds.is_none() || other.passes > 0);
        others.sort_by(|a, b| {
            let seconds = |other: &Alternative| other.seconds.unwrap_or(f64::INFINITY);
            seconds(a).total_cmp(&seconds(b))
        });
        others
    }

    /// All files in one pass.
    fn in_one_pass(&self, cost: &DeviceCost<'_>) -> Passes {
        let (inputs, outputs) = self.ends();
        let read_bytes = self.input_bytes;
        let written_bytes = self.output_bytes();
        let shape = Shape::moving(inputs, outputs, read_bytes, written_bytes);
        let seconds = cost.seconds(&shape, read_bytes, written_bytes);
        let pass = multipass::Pass { shape, bowties: 1, read_bytes, written_bytes, seconds };
        Passes { passes: vec![pass], seconds }
    }

    /// The best passes; `None` if memory suffices for none. Data shrinks or grows where the function is applied: in
    /// the last merge or the first split.
    pub fn best(&self, cost: &DeviceCost<'_>) -> Result<Option<Passes>, NoEnds> {
        if !(self.alpha > 0.0 && self.alpha < 1.0) || self.inputs == 0 || self.outputs == 0 {
            return Err(NoEnds);
        }
        let merging = |files: f64| self.merged(files);
        let splitting = |files: f64| self.split(files);
        Ok(match (self.what, self.growth) {
            ("merge", Some(Growth::ByPass(shares))) => {
                best_by_pass(Narrow::Output, self.inputs, self.input_bytes, shares, cost)
            }
            ("split", Some(Growth::ByPass(shares))) => {
                best_by_pass(Narrow::Input, self.outputs, self.input_bytes, shares, cost)
            }
            ("merge", _) => multipass::merge(self.inputs, &merging, cost),
            ("split", _) => multipass::split(self.outputs, &splitting, cost),
            _ => multipass::interconnect(self.inputs, self.outputs, &merging, &splitting, cost),
        })
    }
}

/// The passes of a job, with their figures.
#[derive(Serialize)]
pub struct PassesPlan {
    job: String,
    memory_bytes: u64,
    seconds: f64,
    bytes: f64,
    switches: f64,
    money: f64,
    passes: Vec<PassLine>,
    /// Alternatives, the fastest first.
    alternatives: Vec<Alternative>,
    volume: VolumeProfile,
    /// Remarks for users.
    notes: Vec<&'static str>,
}

/// Other passes for the same job.
#[derive(Serialize)]
struct Alternative {
    name: String,
    /// `None`: it does not fit in memory.
    seconds: Option<f64>,
    bytes: f64,
    switches: f64,
    passes: usize,
}

impl Alternative {
    fn new(
        name: String,
        way: Option<Passes>,
        figures: &dyn Fn(&multipass::Pass) -> PassFigures,
        beside: PassFigures,
    ) -> Self {
        let way = way.filter(|way| way.seconds.is_finite());
        let passes = way.as_ref().map_or(&[][..], |way| &way.passes);
        let figures: Vec<PassFigures> = passes.iter().map(figures).collect();
        let beside = if way.is_some() { beside } else { PassFigures::default() };
        Alternative {
            name,
            seconds: way.as_ref().map(|_| figures.iter().fold(beside.seconds, |all, one| all + one.seconds)),
            bytes: way.as_ref().map_or(0.0, Passes::bytes),
            switches: figures.iter().fold(beside.switches, |all, one| all + one.switches),
            passes: passes.len(),
        }
    }
}

#[derive(Serialize)]
struct PassLine {
    inputs: u32,
    outputs: u32,
    bowties: u32,
    schedule: &'static str,
    read_bytes: f64,
    written_bytes: f64,
    run_bytes: Option<f64>,
    switches: f64,
    seconds: f64,
}

impl PassLine {
    /// A pass with its mean run.
    fn new(pass: &multipass::Pass, schedule: &'static str, switches: f64) -> Self {
        let bytes = pass.read_bytes + pass.written_bytes;
        PassLine {
            inputs: pass.shape.inputs,
            outputs: pass.shape.outputs,
            bowties: pass.bowties,
            schedule,
            read_bytes: pass.read_bytes,
            written_bytes: pass.written_bytes,
            run_bytes: Some(bytes / switches.max(1.0)),
            switches,
            seconds: pass.seconds,
        }
    }
}

impl PassesPlan {
    /// The plan of `job` in these passes, with the alternatives, by the formulas.
    pub fn new(job: &FileJob<'_>, way: &Passes, cost: &DeviceCost<'_>, memory_bytes: u64) -> Self {
        let line = |pass: &multipass::Pass| {
            let bytes = pass.read_bytes + pass.written_bytes;
            let (scheme, switches) = cost.switches(&pass.shape, bytes);
            let run = scheme.run_length(cost.memory_bytes);
            let run_bytes = run.is_finite().then_some(run);
            PassLine { run_bytes, ..PassLine::new(pass, scheme.algorithm.name(), switches) }
        };
        let passes = way.passes.iter().map(line).collect();
        Self::with_lines(job, way, passes, cost, cost, memory_bytes)
    }

    /// The plan that a job of Ascot carries out, in the passes `planned`; `job` is compared with other passes, all by
    /// `model`.
    pub fn of_job(
        job: &FileJob<'_>,
        planned: &[PassPlan],
        cost: &DeviceCost<'_>,
        model: &dyn PassModel,
        memory_bytes: u64,
    ) -> Self {
        let count = |files: u64| u32::try_from(files).unwrap_or(u32::MAX);
        let pass = |plan: &PassPlan| {
            let inputs = count(plan.inputs);
            // A pass of several merges has as many outputs.
            let outputs = if plan.name.starts_with("merge") { 1 } else { count(plan.outputs) };
            let read_bytes = plan.read_bytes as f64;
            let written_bytes = plan.written_bytes as f64;
            multipass::Pass {
                shape: Shape::moving(inputs, outputs, read_bytes, written_bytes),
                bowties: count(plan.times),
                read_bytes,
                written_bytes,
                seconds: plan.device_seconds,
            }
        };
        let passes: Vec<multipass::Pass> = planned.iter().map(pass).collect();
        let seconds = passes.iter().map(|pass| pass.seconds).fold(0.0, |all, one| all + one);
        let line = |(pass, plan): (&multipass::Pass, &PassPlan)| {
            PassLine::new(pass, model.schedule(&pass.shape), plan.switches as f64)
        };
        let lines = passes.iter().zip(planned).map(line).collect();
        Self::with_lines(job, &Passes { passes, seconds }, lines, cost, model, memory_bytes)
    }

    fn with_lines(
        job: &FileJob<'_>,
        way: &Passes,
        passes: Vec<PassLine>,
        cost: &DeviceCost<'_>,
        model: &dyn PassModel,
        memory_bytes: u64,
    ) -> Self {
        let mut plan = PassesPlan {
            job: job.name(),
            memory_bytes,
            seconds: way.seconds,
            bytes: way.bytes(),
            switches: 0.0,
            money: 0.0,
            alternatives: if way.passes.is_empty() { Vec::new() } else { job.alternatives(way, cost, model) },
            passes,
            volume: cost.volume.clone(),
            notes: Vec::new(),
        };
        plan.add_up();
        plan
    }

    /// The same plan under another name of the job, with remarks.
    pub fn described(self, job: String, notes: Vec<&'static str>) -> Self {
        PassesPlan { job, notes, ..self }
    }

    /// The sums of all passes.
    fn add_up(&mut self) {
        let sum = |figure: &dyn Fn(&PassLine) -> f64| {
            // Not `sum`: the sum of no numbers is -0.
            self.passes.iter().map(figure).fold(0.0, |all, one| all + one)
        };
        let switches = sum(&|pass| pass.switches);
        let money = sum(&|pass| {
            let share = pass.read_bytes / (pass.read_bytes + pass.written_bytes);
            self.volume.money(pass.switches * share, pass.switches * (1.0 - share), pass.seconds)
        });
        self.switches = switches;
        self.money = money;
    }
}

impl std::fmt::Display for PassesPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let max_streams = self.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::memory(self.memory_bytes))?;
        writeln!(f, "volume    {}", self.volume.summary(max_streams))?;
        for (number, pass) in self.passes.iter().enumerate() {
            let run = pass
                .run_bytes
                .map_or_else(|| "one run".into(), |run| format!("runs of {}", units::bytes(run as u64)));
            let grown = if (pass.read_bytes - pass.written_bytes).abs() < 1.0 {
                String::new()
            } else {
                let read = units::bytes(pass.read_bytes as u64);
                format!("{read} to {}, ", units::bytes(pass.written_bytes as u64))
            };
            writeln!(
                f,
                "pass {:<4} {} x {} by {}, {}: {run}, {grown}{}",
                number + 1,
                pass.inputs,
                pass.outputs,
                pass.schedule,
                if pass.bowties == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times", units::count(pass.bowties.into()))
                },
                units::seconds(pass.seconds),
            )?;
        }
        writeln!(
            f,
            "in all    {}, {} moved, {} switches",
            units::seconds(self.seconds),
            units::bytes(self.bytes as u64),
            units::count(self.switches as u64)
        )?;
        if self.money > 0.0 {
            writeln!(f, "money     {:.2}", self.money)?;
        }
        if self.passes.is_empty() {
            writeln!(f, "why       one file is there already")?;
        }
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        for (number, other) in self.alternatives.iter().enumerate() {
            let label = if number == 0 { "why not" } else { "" };
            match other.seconds {
                None => writeln!(f, "{label:<9} {}: does not fit into the memory", other.name)?,
                Some(seconds) => writeln!(
                    f,
                    "{label:<9} {}: {}, {} moved, {} switches",
                    other.name,
                    units::seconds(seconds),
                    units::bytes(other.bytes as u64),
                    units::count(other.switches as u64)
                )?,
            }
        }
        Ok(())
    }
}
