//! The use of resources as lines of text: mean, extreme and course of each quantity.
//!
//! ```text
//!   resources, 24 samples of 0.05 s
//!     cpus, all 2        busy   mean   71 %        most   99 %        ▁▆██▇▇██▇▅
//!     vda                read   mean  310 MB/s     most  912 MB/s     ▂▇█▇▁▁▁▁▁▁
//! ```
//!
//! The course is a row of blocks where the terminal shows them, otherwise a few numbers in the unit of the line. Both
//! divide the time of the job into equal slices; a slice shows the mean of its time.

use crate::resource_use::{Measure, Resource, ResourceColumn, ResourceUse, Unit};
use crate::units;

/// Slices of a row of blocks.
const BLOCK_SLICES: usize = 40;
/// Slices of a row of numbers.
const NUMBER_SLICES: usize = 8;
/// With more cores than this, all of them share one line.
const MAX_CORE_LINES: usize = 8;
/// Most disks and interfaces with lines of their own: those that moved the most bytes.
const MAX_DEVICES: usize = 4;
/// From nothing to the greatest value.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How the course of a quantity is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// By block characters, one for each slice of the time.
    Blocks,
    /// By numbers.
    Numbers,
}

/// A line: the label, the figures, and the values of the slices.
struct Line<'a> {
    of: String,
    measure: &'a str,
    /// A column of samples, or the mean of several.
    samples: Vec<Option<f64>>,
    unit: Unit,
    mean: f64,
    /// `most`, or `least` if the least is what matters.
    extreme: (&'static str, f64),
    /// The value of a full block.
    full: f64,
}

impl ResourceUse {
    /// The lines, indented as those of a pass.
    #[must_use]
    pub fn lines(&self, marks: Marks) -> Vec<String> {
        let interval = self.interval_seconds * self.intervals_per_sample as f64;
        let interval = (interval * 1e3).round() / 1e3;
        let samples = units::plural(self.seconds.len() as u64, "sample");
        let mut text = vec![format!("  resources, {samples} of {interval} s")];
        let mut lines = self.processor_lines();
        lines.extend(self.of_kind(Resource::Memory).filter_map(plain_line));
        lines.extend(self.device_lines(Resource::Disk));
        lines.extend(self.device_lines(Resource::Network));
        let width = lines.iter().map(|line| line.of.chars().count()).max().unwrap_or(0);
        let measure = lines.iter().map(|line| line.measure.len()).max().unwrap_or(0);
        text.extend(lines.iter().map(|line| {
            let course = course(&self.slices(&line.samples, marks), line, marks);
            let (word, extreme) = line.extreme;
            format!(
                "    {:width$}  {:measure$}  mean {:>10}  {word:>5} {:>10}  {course}",
                line.of,
                line.measure,
                line.unit.text(line.mean),
                line.unit.text(extreme),
            )
        }));
        text.extend(self.notices.iter().map(|notice| format!("    {notice}")));
        text
    }

    fn of_kind(&self, resource: Resource) -> impl Iterator<Item = &ResourceColumn> {
        self.columns.iter().filter(move |column| column.quantity.resource == resource)
    }

    /// All cores together, each core if there are few, and the process.
    fn processor_lines(&self) -> Vec<Line<'_>> {
        let is_core = |column: &&ResourceColumn| column.quantity.measure == Measure::Busy;
        let cores: Vec<&ResourceColumn> = self.of_kind(Resource::Processor).filter(is_core).collect();
        let mut lines = Vec::new();
        if cores.len() > 1 {
            lines.extend(all_cores(&cores));
        }
        if cores.len() <= MAX_CORE_LINES {
            lines.extend(cores.iter().filter_map(|core| plain_line(core)));
        }
        for process in self.of_kind(Resource::Processor).filter(|column| !is_core(column)) {
            let line = plain_line(process);
            lines.extend(line.map(|line| Line { full: line.full.max(cores.len() as f64), ..line }));
        }
        lines
    }

    /// The process, and the devices that moved the most bytes.
    fn device_lines(&self, resource: Resource) -> Vec<Line<'_>> {
        let moved = |of: &str| -> f64 {
            let rates = self.of_kind(resource).filter(|column| column.quantity.of == of);
            rates
                .filter(|column| column.quantity.unit == Unit::BytesPerS)
                .filter_map(|column| column.mean)
                .sum()
        };
        let process = crate::resource_use::PROCESS;
        let mut devices: Vec<&str> = Vec::new();
        for column in self.of_kind(resource).filter(|column| column.quantity.of != process) {
            if !devices.contains(&&*column.quantity.of) {
                devices.push(&column.quantity.of);
            }
        }
        devices.sort_by(|one, other| moved(other).total_cmp(&moved(one)));
        devices.truncate(MAX_DEVICES);
        devices.insert(0, process);
        let of_device = |of: &&str| {
            let of = (*of).to_owned();
            self.of_kind(resource).filter(move |column| column.quantity.of == of).filter_map(plain_line)
        };
        devices.iter().flat_map(of_device).collect()
    }

    /// The means of equal slices of the time.
    fn slices(&self, samples: &[Option<f64>], marks: Marks) -> Vec<Option<f64>> {
        let most = if marks == Marks::Blocks { BLOCK_SLICES } else { NUMBER_SLICES };
        let count = most.min(self.seconds.len());
        let end = self.seconds.last().copied().unwrap_or(0.0);
        let mut slices = vec![(0.0, 0.0); count];
        let mut since = 0.0;
        for (&until, &value) in self.seconds.iter().zip(samples) {
            let Some(value) = value else {
                since = until;
                continue;
            };
            let slice_of = |second: f64| second / end * count as f64;
            let first = slice_of(since).floor() as usize;
            let last = slice_of(until).ceil() as usize;
            for (number, slice) in slices.iter_mut().enumerate().take(last).skip(first) {
                let bound = |number: usize| end * number as f64 / count as f64;
                let seconds = until.min(bound(number + 1)) - f64::max(since, bound(number));
                if seconds > 0.0 {
                    slice.0 += value * seconds;
                    slice.1 += seconds;
                }
            }
            since = until;
        }
        slices.into_iter().map(|(sum, seconds)| (seconds > 0.0).then(|| sum / seconds)).collect()
    }
}

/// The mean over cores. The extreme is that of the kept samples.
fn all_cores(cores: &[&ResourceColumn]) -> Option<Line<'static>> {
    let samples: Vec<Option<f64>> = (0..cores.first()?.samples.len())
        .map(|sample| {
            let known: Vec<f64> = cores.iter().filter_map(|core| *core.samples.get(sample)?).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        })
        .collect();
    let means: Vec<f64> = cores.iter().filter_map(|core| core.mean).collect();
    let most = samples.iter().flatten().copied().fold(0.0, f64::max);
    Some(Line {
        of: format!("cpus, all {}", cores.len()),
        measure: "busy",
        samples,
        unit: Unit::Share,
        mean: means.iter().sum::<f64>() / means.len().max(1) as f64,
        extreme: ("most", most),
        full: 1.0,
    })
}

/// The line of a column; none if it was never known, or if it is the most memory so far, which the memory has.
fn plain_line(column: &ResourceColumn) -> Option<Line<'_>> {
    let quantity = &column.quantity;
    if quantity.measure == Measure::PeakResident {
        return None;
    }
    let mean = column.mean?;
    let most = column.maximum?;
    let extreme = match quantity.measure {
        Measure::Available => ("least", column.minimum?),
        _ => ("most", most),
    };
    Some(Line {
        of: quantity.of.clone(),
        measure: quantity.measure.word(),
        samples: column.samples.clone(),
        unit: quantity.unit,
        mean,
        extreme,
        full: if quantity.unit == Unit::Share { 1.0 } else { most },
    })
}

/// The slices as blocks or as numbers; `-` or a space where a value is not known.
fn course(slices: &[Option<f64>], line: &Line<'_>, marks: Marks) -> String {
    let block = |value: Option<f64>| match value {
        None => ' ',
        Some(value) => {
            let share = (value / line.full.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
            BLOCKS[(share * (BLOCKS.len() - 1) as f64).round() as usize]
        }
    };
    // In the unit that the greatest number has, without the name of the unit.
    let most = slices.iter().flatten().copied().fold(0.0, f64::max);
    let scale = match line.unit {
        Unit::Share => 0.01,
        Unit::Processors => 1.0,
        Unit::Bytes => units::binary_unit(most).0,
        Unit::BytesPerS => units::decimal_unit(most).0,
    };
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value / scale >= 9.95 || line.unit == Unit::Share => format!("{:.0}", value / scale),
        Some(value) => format!("{:.1}", value / scale),
    };
    let name = match line.unit {
        Unit::Share => " %".to_owned(),
        Unit::Processors => String::new(),
        Unit::Bytes => format!(" {}", units::binary_unit(most).1),
        Unit::BytesPerS => format!(" {}/s", units::decimal_unit(most).1),
    };
    match marks {
        Marks::Blocks => slices.iter().map(|slice| block(*slice)).collect(),
        Marks::Numbers => {
            let numbers: Vec<String> = slices.iter().map(|slice| number(*slice)).collect();
            format!("{}{name}", numbers.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_use::{MACHINE, PROCESS, Quantity, Series};

    fn column(resource: Resource, of: &str, measure: Measure, unit: Unit) -> Quantity {
        Quantity { resource, of: of.into(), measure, unit }
    }

    /// Two cores, memory and a disk, over four seconds.
    fn example() -> ResourceUse {
        let core = |name| column(Resource::Processor, name, Measure::Busy, Unit::Share);
        let mut series = Series::new(vec![
            core("cpu0"),
            core("cpu1"),
            column(Resource::Memory, PROCESS, Measure::Resident, Unit::Bytes),
            column(Resource::Memory, MACHINE, Measure::Available, Unit::Bytes),
            column(Resource::Disk, "vda", Measure::Read, Unit::BytesPerS),
        ]);
        let gib = f64::from(1 << 30);
        series.add(1.0, &[1.0, 0.0, 10.0 * gib, 4.0 * gib, 5e8]);
        series.add(2.0, &[1.0, 0.5, 14.0 * gib, 3.0 * gib, f64::NAN]);
        series.add(4.0, &[1.0, 1.0, 14.0 * gib, 6.0 * gib, 1e9]);
        series.result(1.0)
    }

    #[test]
    fn a_line_has_figures_and_a_course() {
        let lines = example().lines(Marks::Blocks);
        let found = |name: &str| lines.iter().find(|line| line.contains(name)).unwrap().as_str();
        assert_eq!(lines[0], "  resources, 3 samples of 1 s");
        assert!(found("cpus, all 2").ends_with("mean       81 %   most      100 %  ▅▇█"), "{lines:#?}");
        assert!(found("cpu1").ends_with("mean       62 %   most      100 %  ▂▆█"), "{lines:#?}");
        assert!(found("available").contains("least   3.00 GiB"), "{lines:#?}");
        assert!(found("vda").contains("mean   833 MB/s   most  1.00 GB/s"), "{lines:#?}");
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn without_blocks_the_course_is_numbers() {
        let lines = example().lines(Marks::Numbers);
        assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
        let found = |name: &str| lines.iter().find(|line| line.contains(name)).unwrap().as_str();
        assert!(found("cpu1").ends_with("  12 75 100 %"), "{lines:#?}");
        assert!(found("vda").ends_with("  0.5 1.0 1.0 GB/s"), "{lines:#?}");
        assert!(found("resident").ends_with("  11 14 14 GiB"), "{lines:#?}");
    }

    #[test]
    fn many_cores_share_a_line_and_few_devices_are_shown() {
        let core =
            |number: usize| column(Resource::Processor, &format!("cpu{number}"), Measure::Busy, Unit::Share);
        let disk =
            |number: usize| column(Resource::Disk, &format!("sd{number}"), Measure::Read, Unit::BytesPerS);
        let quantities: Vec<Quantity> = (0..64).map(core).chain((0..9).map(disk)).collect();
        let mut series = Series::new(quantities);
        let row: Vec<f64> = (0..64).map(|_| 0.25).chain((1..10).map(f64::from)).collect();
        series.add(1.0, &row);
        let lines = series.result(1.0).lines(Marks::Numbers);
        assert_eq!(lines.iter().filter(|line| line.contains("cpu")).count(), 1);
        assert_eq!(lines.iter().filter(|line| line.contains("sd")).count(), MAX_DEVICES);
        assert!(
            lines.iter().any(|line| line.contains("sd8")) && !lines.iter().any(|line| line.contains("sd0"))
        );
    }

    #[test]
    fn nothing_sampled_is_no_fault() {
        let nothing = ResourceUse { notices: vec!["no /proc".into()], ..ResourceUse::default() };
        assert_eq!(nothing.lines(Marks::Blocks), ["  resources, 0 samples of 0 s", "    no /proc"]);
    }
}
