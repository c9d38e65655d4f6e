//! The tables of the paper, predicted from figures outside them, and the deviation of every row.
//!
//! Source: Stella and Loguinov. The speed S of the device and the cost delta of a switch come from section V.A, which
//! describes another job: a merge of 64 TB in 8,000 files. Two of its rates and two unknowns make two equations:
//!
//! ```text
//!   13 passes of 2 files      1/R1 = 13 (1/S + delta / L(2))
//!   passes of 90, 89 files    1/R2 = 1/S + delta / L(90)  +  1/S + delta / L(89)        L(n) = 2M / (n - 1)
//! ```
//!
//! The third rate, of one pass of 8,000 files, gives delta at 8,000 files. A line from there to delta at 90 files, over
//! the logarithm of the number of files, is the curve of the second prediction. `docs/published.md` shows the output.

#![allow(clippy::expect_used, reason = "the fixtures are a part of this example")]

use ascot_model::multipass::{DeviceCost, Passes, split};
use ascot_model::run_length::{Baseline, Scheme, Shape};
use ascot_model::volume::{SwitchCost, VolumeProfile};

const TABLES: &str = include_str!("../tests/published/tables.csv");
const FACTS: &str = include_str!("../tests/published/facts.csv");
const MB: f64 = 1e6;
/// As the paper converts: its sort of 8 GB at 561 MB/s takes 14.6 s, and 1,024 blocks of 2 MB fit into 2 GB.
const GB: f64 = 1024.0 * MB;

/// The lines of a fixture after its comments and its header.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split(',').collect())
}

/// A figure that the paper's text gives.
fn fact(name: &str) -> f64 {
    let line = lines(FACTS).find(|line| line.first() == Some(&name)).expect("the fixture has the fact");
    line.get(1).and_then(|value| value.parse().ok()).expect("the fact is a number")
}

/// A row of the published tables.
pub struct Row {
    /// M.
    pub memory_gb: f64,
    /// The size of the sorted file.
    pub input_gb: f64,
    /// Table I.
    pub stxxl_passes: usize,
    /// Table I.
    pub tuxedo_passes: usize,
    /// Table III, MB/s.
    pub stxxl_replay: f64,
    /// Table III, MB/s.
    pub tuxedo_replay: f64,
    /// Table IV, MB/s.
    pub tuxedo_sort: f64,
}

impl Row {
    /// The files of the bowtie: each fits in memory.
    fn files(&self) -> u32 {
        (self.input_gb / self.memory_gb) as u32
    }

    fn input_bytes(&self) -> f64 {
        self.input_gb * GB
    }
}

/// All rows.
pub fn rows() -> Vec<Row> {
    let row = |line: Vec<&str>| {
        let figure = |k: usize| line[k].parse::<f64>().expect("the fixture holds numbers");
        Row {
            memory_gb: figure(0),
            input_gb: figure(1),
            stxxl_passes: figure(2) as usize,
            tuxedo_passes: figure(3) as usize,
            stxxl_replay: figure(4),
            tuxedo_replay: figure(5),
            tuxedo_sort: figure(6),
        }
    };
    lines(TABLES).map(row).collect()
}

/// The row of an input.
fn row_of(input_gb: f64) -> Row {
    rows().into_iter().find(|row| row.input_gb == input_gb).expect("the fixture has the row")
}

/// The device, as section V.A describes it.
#[derive(Clone, Copy)]
pub struct Device {
    /// Bytes/s, the same both ways.
    pub speed: f64,
    /// Seconds of a switch between 90 files.
    pub switch_s: f64,
    /// Seconds of a switch between 8,000 files.
    pub far_switch_s: f64,
}

impl Device {
    /// Solves the equations for the rates of 13 binary passes, of two passes, and of one, MB/s.
    pub fn of_rates(binary: f64, two: f64, one: f64) -> Self {
        let memory = fact("example_memory_gb") * GB;
        let per_byte = |files: f64| (files - 1.0) / (2.0 * memory);
        let of_binary = 1.0 / (fact("binary_passes") * binary * MB);
        let of_two = 1.0 / (two * MB);
        let both = per_byte(fact("first_factor")) + per_byte(fact("second_factor"));
        let switch_s = (of_two - 2.0 * of_binary) / (both - 2.0 * per_byte(2.0));
        let slowness = of_binary - switch_s * per_byte(2.0);
        let far_switch_s = (1.0 / (one * MB) - slowness) / per_byte(fact("example_files"));
        Device { speed: 1.0 / slowness, switch_s, far_switch_s }
    }

    /// By the published rates.
    pub fn published() -> Self {
        Self::of_rates(fact("binary_passes_mb_s"), fact("two_passes_mb_s"), fact("one_pass_mb_s"))
    }

    /// By published rates that were rounded, each by up to half a unit, as far up or down as a sign says.
    pub fn rounded(binary: f64, two: f64) -> Self {
        let rate = |name, sign| fact(name) + 0.5 * sign;
        Self::of_rates(
            rate("binary_passes_mb_s", binary),
            rate("two_passes_mb_s", two),
            fact("one_pass_mb_s"),
        )
    }

    fn volume(&self, switch_seconds: SwitchCost) -> VolumeProfile {
        VolumeProfile { switch_seconds, ..VolumeProfile::simple("24 disks", self.speed, self.speed, 0.0) }
    }

    /// One delta for any number of files.
    pub fn constant(&self) -> VolumeProfile {
        self.volume(SwitchCost::Constant(self.switch_s))
    }

    /// The delta of 8,000 files for any number of files.
    pub fn far(&self) -> VolumeProfile {
        self.volume(SwitchCost::Constant(self.far_switch_s))
    }

    /// Delta over the number of files.
    pub fn curve(&self) -> VolumeProfile {
        let near = (fact("first_factor"), self.switch_s);
        self.volume(SwitchCost::Curve(vec![near, (fact("example_files"), self.far_switch_s)]))
    }
}

/// The passes that the planner chooses for a row on a volume.
pub fn plan(row: &Row, volume: &VolumeProfile) -> Passes {
    let memory_bytes = row.memory_gb * GB;
    let cost = DeviceCost { volume, memory_bytes, max_streams: u32::MAX, baseline: None };
    split(row.files(), &|_| row.input_bytes(), &cost).expect("memory has no limit of streams")
}

/// MB/s of input and output in all passes.
pub fn replay_mb_s(row: &Row, plan: &Passes) -> f64 {
    2.0 * row.input_bytes() / plan.seconds / MB
}

/// MB/s of input of a sort that never waits for its processor: two sequential files to make chunks, and the bowtie.
pub fn device_sort_mb_s(row: &Row, plan: &Passes, device: &Device) -> f64 {
    row.input_bytes() / (2.0 * row.input_bytes() / device.speed + plan.seconds) / MB
}

/// STXXL merges 2N/M files: at once if memory has a block for each, and otherwise their square root at a time.
pub fn stxxl_passes(row: &Row) -> usize {
    let blocks = 2.0 * row.input_gb / row.memory_gb * fact("stxxl_block_mb") * MB;
    if blocks <= row.memory_gb * GB { 1 } else { 2 }
}

/// MB/s of STXXL, and whether the formula holds for runs that short.
pub fn stxxl_replay_mb_s(row: &Row, volume: &VolumeProfile) -> (f64, bool) {
    let files = (2.0 * row.input_gb / row.memory_gb).powf(1.0 / stxxl_passes(row) as f64) + 1.0;
    let run = fact("stxxl_run_mb") * MB;
    let volume = VolumeProfile { cache_bytes: (fact("cache_gb") * GB) as u64, ..volume.clone() };
    let rate = volume.rate(0.5, run, files) / stxxl_passes(row) as f64 / MB;
    (rate, volume.formula_holds(run, files))
}

/// Runs of STXXL to one of the staircase: the ratio of their switches.
pub fn switches_ratio(row: &Row) -> f64 {
    let shape = Shape { inputs: 1, outputs: row.files(), alpha: 0.5 };
    let stxxl = Baseline::FixedBlocks { bytes: fact("stxxl_run_mb") * MB };
    let memory = row.memory_gb * GB;
    Scheme::best(shape).run_length(memory) / stxxl.run_length(&shape, memory)
}

/// A prediction and its deviation from what is published.
fn beside(predicted: f64, published: f64) -> String {
    format!("{predicted:>7.0} {:>+6.1}%", 100.0 * (predicted / published - 1.0))
}

/// What opens a line: memory and input in GB.
fn label(row: &Row) -> String {
    format!("{:>3} {:>6}", row.memory_gb, row.input_gb)
}

fn tell_device(device: &Device, out: &mut String) {
    let corners = [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)];
    let corners = corners.map(|(binary, two)| Device::rounded(binary, two));
    let range = |of: &dyn Fn(&Device) -> f64| {
        let lowest = corners.iter().map(of).fold(f64::INFINITY, f64::min);
        let highest = corners.iter().map(of).fold(0.0, f64::max);
        (lowest, highest)
    };
    let (slowest, fastest) = range(&|device| device.speed / MB);
    let (shortest, longest) = range(&|device| device.switch_s * 1e3);
    *out += &format!(
        "The device by section V.A, between the limits of rounded figures\n\
         S      {:>6.0} MB/s ({slowest:.0} to {fastest:.0})\n\
         delta  {:>6.2} ms at 90 files ({shortest:.2} to {longest:.2})\n\
         delta  {:>6.2} ms at 8,000 files\n\n",
        device.speed / MB,
        device.switch_s * 1e3,
        device.far_switch_s * 1e3
    );
}

fn tell_bowtie(device: &Device, out: &mut String) {
    *out += "The bowtie: passes (Table I), and MB/s of input and output (Table III)\n \
             GB     GB  files    I  model  factors     III   one delta          curve\n";
    for row in rows() {
        let (one, curved) = (plan(&row, &device.constant()), plan(&row, &device.curve()));
        let factors: Vec<String> = one.factors().iter().map(u32::to_string).collect();
        *out += &format!(
            "{} {:>6} {:>4} {:>6}  {:<8} {:>6}{}{}\n",
            label(&row),
            row.files(),
            row.tuxedo_passes,
            one.passes.len(),
            factors.join(" x "),
            row.tuxedo_replay,
            beside(replay_mb_s(&row, &one), row.tuxedo_replay),
            beside(replay_mb_s(&row, &curved), row.tuxedo_replay),
        );
    }
}

fn tell_sort(device: &Device, out: &mut String) {
    let bound = |row: &Row| device_sort_mb_s(row, &plan(row, &device.constant()), device);
    *out += "\nThe whole sort: MB/s of input (Table IV); the model's processor takes no time\n \
             GB     GB      IV   one delta\n";
    for row in rows() {
        *out += &format!("{} {:>7}{}\n", label(&row), row.tuxedo_sort, beside(bound(&row), row.tuxedo_sort));
    }
    let whole = row_of(4096.0);
    let megabytes = whole.input_gb * GB / MB;
    let saved_s = 60.0 * fact("replay_shorter_by_minutes_4096gb");
    let alone = megabytes / (megabytes / whole.tuxedo_sort - saved_s);
    *out +=
        &format!("{} {alone:>7.0}{} without the processor\n", label(&whole), beside(bound(&whole), alone));
}

fn tell_stxxl(device: &Device, out: &mut String) {
    *out += "\nSTXXL: passes, and MB/s of input and output in runs of 4 MB (Tables I and III)\n \
             GB     GB    I  model     III   one delta          curve          of 8,000 files\n";
    for row in rows() {
        let (one, holds) = stxxl_replay_mb_s(&row, &device.constant());
        let (curved, _) = stxxl_replay_mb_s(&row, &device.curve());
        let (far, _) = stxxl_replay_mb_s(&row, &device.far());
        *out += &format!(
            "{} {:>4} {:>6} {:>7}{}{}{}{}\n",
            label(&row),
            row.stxxl_passes,
            stxxl_passes(&row),
            row.stxxl_replay,
            beside(one, row.stxxl_replay),
            beside(curved, row.stxxl_replay),
            beside(far, row.stxxl_replay),
            if holds { "" } else { " *" }
        );
    }
}

fn tell_switches(out: &mut String) {
    *out +=
        "\nSwitches of STXXL to one of the staircase (Table II, by its text)\n GB     GB    text   model\n";
    for (input_gb, name) in [(8.0, "stxxl_switches_8gb"), (1280.0, "stxxl_switches_1280gb")] {
        let row = row_of(input_gb);
        *out += &format!("{} {:>7}{}\n", label(&row), fact(name), beside(switches_ratio(&row), fact(name)));
    }
}

/// What the example prints.
pub fn report() -> String {
    let device = Device::published();
    let mut out = String::new();
    tell_device(&device, &mut out);
    tell_bowtie(&device, &mut out);
    tell_sort(&device, &mut out);
    tell_stxxl(&device, &mut out);
    tell_switches(&mut out);
    out
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() {
    print!("{}", report());
}
