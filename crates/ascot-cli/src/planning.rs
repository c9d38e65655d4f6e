//! `ascot plan`: what a job on many files would cost, and why.

use std::fmt::Write;

use ascot_model::multipass::{self, DeviceCost, PassCost, Passes};
use ascot_model::run_length::{Baseline, Scheme, Shape};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Failure;
use crate::numbers;
use crate::sort::print;
use crate::sort_planning::SortPlan;
use crate::view_flags::is_given;
use crate::volume;

/// Bytes of the smallest blocks that are worth reading or writing.
const LEAST_BLOCK_BYTES: u64 = 64 << 10;
/// Files of the smallest pass that changes their number: two at one end, one at the other.
const LEAST_STREAMS: u32 = 3;

/// `ascot plan`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let what = matches.get_one::<String>("what").map_or("bowtie", String::as_str);
    refuse_meaningless(matches, what)?;
    let profile = volume::profile(matches)?;
    let volume = &profile.volume;
    let memory_bytes = numbers::memory(matches, "memory", 1 << 30)?;
    let (inputs, outputs) =
        (numbers::streams(matches, "inputs", 1)?, numbers::streams(matches, "outputs", 1)?);
    let alpha = numbers::alpha(matches)?;
    let most = match numbers::whole(matches, "most-streams")? {
        Some(most) => u32::try_from(most).unwrap_or(u32::MAX),
        None => u32::try_from(memory_bytes / (2 * LEAST_BLOCK_BYTES)).unwrap_or(u32::MAX),
    };
    let text = if what == "bowtie" {
        let shape = numbers::shape(inputs, outputs, alpha)?;
        if shape.streams() > most {
            return Err(too_many(matches, shape.streams(), memory_bytes));
        }
        let plan = BowtiePlan::new(shape, memory_bytes, volume);
        if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() }
    } else {
        let input_bytes = numbers::memory(matches, "input", 0)?;
        if input_bytes == 0 {
            return Err(Failure::usage("how much data?", "--input 8TB says how much there is to read"));
        }
        if what == "sort" {
            let plan = SortPlan::new(matches, input_bytes, memory_bytes, &profile)?;
            print(&if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() })?;
            return Ok(0);
        }
        let job = Job { what, inputs, outputs, input_bytes: input_bytes as f64, alpha };
        let memory = memory_bytes as f64;
        let cost = DeviceCost { volume, memory_bytes: memory, max_streams: most, baseline: None };
        let way = job.best(&cost)?.ok_or_else(|| too_many(matches, LEAST_STREAMS, memory_bytes))?;
        let plan = PassesPlan::new(&job, way, &cost, memory_bytes);
        if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() }
    };
    print(&text)?;
    Ok(0)
}

/// What is given that means nothing for what is planned.
fn refuse_meaningless(matches: &ArgMatches, what: &str) -> Result<(), Failure> {
    const OF_RECORDS: [&str; 3] = ["record-bytes", "format", "key"];
    let (none, why): (&[&str], _) = match what {
        "bowtie" => (&["input"], "a bowtie is planned for any amount of data"),
        "merge" => (&["outputs"], "a merge has one output; plan reshape has several"),
        "split" => (&["inputs"], "a split has one input; plan reshape has several"),
        "sort" => (&["inputs", "outputs", "alpha"], "a sort is planned by its bytes and records"),
        _ => (&[], ""),
    };
    let given = |ids: &[&'static str]| ids.iter().find(|id| is_given(matches, id)).copied();
    if let Some(id) = given(none) {
        return Err(Failure::usage(format!("--{id} means nothing for plan {what}"), why));
    }
    match given(&OF_RECORDS).filter(|_| what != "sort") {
        None => Ok(()),
        Some(id) => Err(Failure::usage(
            format!("--{id} means nothing for plan {what}"),
            "it goes with plan sort only",
        )),
    }
}

fn too_many(matches: &ArgMatches, streams: u32, memory_bytes: u64) -> Failure {
    if let Some(most) = matches.get_one::<String>("most-streams") {
        return Failure::usage(
            format!("--most-streams {most} is too few: {streams} files at once are needed"),
            format!("--most-streams {streams} is the least"),
        );
    }
    let least = u64::from(streams) * 2 * LEAST_BLOCK_BYTES;
    Failure::usage(
        format!("{streams} files at once do not fit into {}", units::memory(memory_bytes)),
        format!("--memory {}KiB is the least that has two blocks for each", least >> 10),
    )
}

/// One bowtie.
#[derive(Serialize)]
struct BowtiePlan<'a> {
    shape: Shape,
    memory_bytes: u64,
    schedule: &'static str,
    /// Inputs filled together, outputs written together.
    read_group: f64,
    write_group: f64,
    read_memory_bytes: f64,
    write_memory_bytes: f64,
    /// Mean bytes between two switches, no more than a request moves; none: a single stream never switches.
    run_bytes: Option<f64>,
    rate_bytes_per_s: f64,
    /// False: runs are so short that the device's cache joins them, and it is faster than said.
    formula_holds: bool,
    /// Runs and rate where every stream has an equal part of the memory.
    equal_parts_run_bytes: f64,
    equal_parts_rate_bytes_per_s: f64,
    volume: &'a VolumeProfile,
}

impl<'a> BowtiePlan<'a> {
    fn new(shape: Shape, memory_bytes: u64, volume: &'a VolumeProfile) -> Self {
        let scheme = Scheme::best(shape);
        let (memory, files) = (memory_bytes as f64, f64::from(shape.streams()));
        let run = scheme.run_length(memory);
        let equal = Baseline::EqualParts.run_length(&shape, memory);
        BowtiePlan {
            shape,
            memory_bytes,
            schedule: scheme.algorithm.name(),
            read_group: scheme.read_group,
            write_group: scheme.write_group,
            read_memory_bytes: memory * scheme.read_share(),
            write_memory_bytes: memory * (1.0 - scheme.read_share()),
            run_bytes: Some(volume.unbroken(run)).filter(|bytes| bytes.is_finite()),
            rate_bytes_per_s: volume.rate(shape.alpha, run, files),
            formula_holds: volume.formula_holds(run, files),
            equal_parts_run_bytes: volume.unbroken(equal),
            equal_parts_rate_bytes_per_s: volume.rate(shape.alpha, equal, files),
            volume,
        }
    }
}

impl std::fmt::Display for BowtiePlan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { inputs, outputs, alpha } = self.shape;
        writeln!(
            f,
            "bowtie    {inputs} x {outputs}, {:.0}% of the bytes read, {}",
            alpha * 100.0,
            units::memory(self.memory_bytes)
        )?;
        writeln!(f, "volume    {}", describe(self.volume, self.shape.streams()))?;
        write!(f, "schedule  {}", self.schedule)?;
        if self.read_group > 1.0 {
            write!(f, ", inputs filled {} at a time", self.read_group)?;
        }
        if self.write_group > 1.0 {
            write!(f, ", outputs written {} at a time", self.write_group)?;
        }
        writeln!(f)?;
        let side = |bytes: f64| units::memory(bytes as u64);
        writeln!(
            f,
            "memory    {} for inputs, {} for outputs",
            side(self.read_memory_bytes),
            side(self.write_memory_bytes)
        )?;
        match self.run_bytes {
            None => writeln!(f, "runs      one: a stream that is alone never switches")?,
            Some(run) => writeln!(
                f,
                "runs      {} between two switches; {:.1} times as long as with equal parts of memory",
                units::bytes(run as u64),
                run / self.equal_parts_run_bytes,
            )?,
        }
        writeln!(
            f,
            "rate      {} read and written together; {} with equal parts",
            units::rate(self.rate_bytes_per_s),
            units::rate(self.equal_parts_rate_bytes_per_s),
        )?;
        if !self.formula_holds {
            writeln!(
                f,
                "note      all runs fit into the device's cache, which joins them: it will be faster"
            )?;
        }
        Ok(())
    }
}

/// One line on a volume.
pub fn describe(volume: &VolumeProfile, files: u32) -> String {
    let mut text = format!(
        "{}: reads {}, writes {}",
        volume.name,
        units::rate(volume.read_bytes_per_s),
        units::rate(volume.write_bytes_per_s)
    );
    if let Some(duplex) = volume.duplex_bytes_per_s {
        let _ = write!(text, ", both at once {} each", units::rate(duplex));
    }
    let switch_ms = volume.switch_seconds.seconds(f64::from(files)) * 1e3;
    let _ = write!(text, ", {switch_ms:.3} ms a switch");
    text
}

/// What is to be done in several passes.
struct Job<'a> {
    what: &'a str,
    inputs: u32,
    outputs: u32,
    input_bytes: f64,
    alpha: f64,
}

impl Job<'_> {
    fn output_bytes(&self) -> f64 {
        self.input_bytes * (1.0 - self.alpha) / self.alpha
    }

    /// Files at either end.
    fn ends(&self) -> (u32, u32) {
        match self.what {
            "merge" => (self.inputs, 1),
            "split" => (1, self.outputs),
            _ => (self.inputs, self.outputs),
        }
    }

    /// The same job by a factor that stays the same: all at once, two at a time, or as many as others
    /// take.
    fn by(&self, factor: u32, cost: &DeviceCost<'_>) -> Option<Passes> {
        let (before, after) = (self.input_bytes, self.output_bytes());
        let merging = move |files: f64| if files <= 1.0 { after } else { before };
        let splitting = move |files: f64| if files <= 1.0 { before } else { after };
        match self.what {
            "merge" => multipass::merge_by(factor, self.inputs, &merging, cost),
            "split" => multipass::split_by(factor, self.outputs, &splitting, cost),
            _ => {
                let into_one = multipass::merge_by(factor, self.inputs, &|_| before, cost)?;
                let out_of_one = multipass::split_by(factor, self.outputs, &splitting, cost)?;
                let seconds = into_one.seconds + out_of_one.seconds;
                Some(Passes { passes: [into_one.passes, out_of_one.passes].concat(), seconds })
            }
        }
    }

    /// What was not chosen: all in one pass, two files at a time, the same passes with equal parts of
    /// memory, and requests of a fixed size (4 MB, as external-memory libraries take) with the smallest
    /// number of equal passes for which memory has two of them for each file: one pass of all, where it has
    /// them for the files of both ends.
    fn alternatives(&self, way: &Passes, cost: &DeviceCost<'_>) -> Vec<Alternative> {
        const REQUEST_BYTES: f64 = 4e6;
        let (inputs, outputs) = self.ends();
        let mut others = Vec::new();
        let shape = Shape { inputs, outputs, alpha: self.alpha };
        let (read_bytes, written_bytes) = (self.input_bytes, self.output_bytes());
        let at_once = |cost: &DeviceCost<'_>| {
            let seconds = cost.seconds(&shape, read_bytes, written_bytes);
            let pass = multipass::Pass { shape, bowties: 1, read_bytes, written_bytes, seconds };
            Passes { passes: vec![pass], seconds }
        };
        if way.passes.len() > 1 {
            others.push(Alternative::new("in one pass".into(), Some(at_once(cost)), cost));
        }
        if way.factors().iter().any(|&factor| factor > 2) {
            others.push(Alternative::new("two files at a time".into(), self.by(2, cost), cost));
        }
        let equal = DeviceCost { baseline: Some(Baseline::EqualParts), ..cost.clone() };
        let best = self.best(&equal).ok().flatten();
        others.push(Alternative::new("with equal parts of memory".into(), best, &equal));
        let fixed =
            DeviceCost { baseline: Some(Baseline::FixedBlocks { bytes: REQUEST_BYTES }), ..cost.clone() };
        let most = (cost.memory_bytes / (2.0 * REQUEST_BYTES)).max(2.0);
        if inputs > 1 && outputs > 1 && f64::from(shape.streams()) <= most {
            let name = "by requests of 4 MB, all files at once".into();
            others.push(Alternative::new(name, Some(at_once(&fixed)), &fixed));
        } else {
            let files = f64::from(inputs.max(outputs));
            let passes = (1..=32).find(|&passes| files.powf(1.0 / f64::from(passes)) <= most).unwrap_or(32);
            let factor = files.powf(1.0 / f64::from(passes)).ceil() as u32;
            let name = format!("by requests of 4 MB, {factor} files at a time");
            others.push(Alternative::new(name, self.by(factor, &fixed), &fixed));
        }
        // One file that stays one is in nobody's passes.
        others.retain(|other| other.seconds.is_none() || other.passes > 0);
        others.sort_by(|a, b| {
            let seconds = |other: &Alternative| other.seconds.unwrap_or(f64::INFINITY);
            seconds(a).total_cmp(&seconds(b))
        });
        others
    }

    /// The best way; none where none fits. Data that shrink (or grow) do so in one step: where the
    /// function is applied, that is in the last merge or the first split.
    fn best(&self, cost: &DeviceCost<'_>) -> Result<Option<Passes>, Failure> {
        if !(self.alpha > 0.0 && self.alpha < 1.0) || self.inputs == 0 || self.outputs == 0 {
            return Err(Failure::usage(
                "passes over files need inputs and outputs",
                "ascot plan bowtie computes 0 x m and n x 0",
            ));
        }
        let (before, after) = (self.input_bytes, self.output_bytes());
        let merging = move |files: f64| if files <= 1.0 { after } else { before };
        let splitting = move |files: f64| if files <= 1.0 { before } else { after };
        Ok(match self.what {
            "merge" => multipass::merge(self.inputs, &merging, cost),
            "split" => multipass::split(self.outputs, &splitting, cost),
            _ => multipass::interconnect(self.inputs, self.outputs, &|_| before, &|_| after, cost),
        })
    }
}

/// Passes, with what each of them is.
#[derive(Serialize)]
struct PassesPlan<'a> {
    job: String,
    memory_bytes: u64,
    seconds: f64,
    bytes: f64,
    switches: f64,
    money: f64,
    passes: Vec<PassLine>,
    /// What others would do, and what was not chosen, the quickest first.
    alternatives: Vec<Alternative>,
    volume: &'a VolumeProfile,
}

/// Another way to do the same.
#[derive(Serialize)]
struct Alternative {
    name: String,
    /// None: it does not fit into the memory.
    seconds: Option<f64>,
    bytes: f64,
    switches: f64,
    passes: usize,
}

impl Alternative {
    fn new(name: String, way: Option<Passes>, cost: &DeviceCost<'_>) -> Self {
        let switches = |pass: &multipass::Pass| {
            let (_, switches) = cost.switches(&pass.shape, pass.read_bytes + pass.written_bytes);
            switches
        };
        let way = way.filter(|way| way.seconds.is_finite());
        let passes = way.as_ref().map_or(&[][..], |way| &way.passes);
        Alternative {
            name,
            seconds: way.as_ref().map(|way| way.seconds),
            bytes: way.as_ref().map_or(0.0, Passes::bytes),
            switches: passes.iter().map(switches).fold(0.0, |all, one| all + one),
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

impl<'a> PassesPlan<'a> {
    fn new(job: &Job<'_>, way: Passes, cost: &DeviceCost<'a>, memory_bytes: u64) -> Self {
        let line = |pass: &multipass::Pass| {
            let bytes = pass.read_bytes + pass.written_bytes;
            let (scheme, switches) = cost.switches(&pass.shape, bytes);
            let run = scheme.run_length(cost.memory_bytes);
            PassLine {
                inputs: pass.shape.inputs,
                outputs: pass.shape.outputs,
                bowties: pass.bowties,
                schedule: scheme.algorithm.name(),
                read_bytes: pass.read_bytes,
                written_bytes: pass.written_bytes,
                run_bytes: run.is_finite().then_some(run),
                switches,
                seconds: pass.seconds,
            }
        };
        let passes: Vec<PassLine> = way.passes.iter().map(line).collect();
        let money = way.passes.iter().zip(&passes).map(|(pass, line)| {
            let share = pass.read_bytes / (pass.read_bytes + pass.written_bytes);
            cost.volume.money(line.switches * share, line.switches * (1.0 - share), line.seconds)
        });
        let (inputs, outputs) = job.ends();
        PassesPlan {
            job: format!("{} {inputs} x {outputs}, {}", job.what, units::bytes(job.input_bytes as u64)),
            memory_bytes,
            seconds: way.seconds,
            bytes: way.bytes(),
            switches: passes.iter().map(|pass| pass.switches).fold(0.0, |all, one| all + one),
            money: money.fold(0.0, |all, one| all + one),
            alternatives: if way.passes.is_empty() { Vec::new() } else { job.alternatives(&way, cost) },
            passes,
            volume: cost.volume,
        }
    }
}

impl std::fmt::Display for PassesPlan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = self.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::memory(self.memory_bytes))?;
        writeln!(f, "volume    {}", describe(self.volume, most))?;
        for (number, pass) in self.passes.iter().enumerate() {
            let run = pass
                .run_bytes
                .map_or_else(|| "one run".into(), |run| format!("runs of {}", units::bytes(run as u64)));
            writeln!(
                f,
                "pass {:<4} {} x {} by {}, {}: {run}, {}",
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
        // The plan is of moving files on a volume, whoever does it; these commands do not write parts of parts.
        let splits = self.passes.iter().filter(|pass| pass.outputs > 1).count();
        if splits > 1 {
            writeln!(
                f,
                "ascot     split and reshape write all parts in one pass; for more, split the parts again"
            )?;
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
