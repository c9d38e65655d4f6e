//! The charts of commands: `ascot probe --plot` draws the cost of a switch by number of files, and `ascot simulate
//! --plot` draws the bytes that each stream holds. Nothing is below zero: a cost smaller than the spread counts as
//! zero.

use ascot_bowtie::simulate::SimulationReport;
use ascot_lab::page::chart::{Axis, Chart, Line, Marks, Scale};
use ascot_model::measured_profile::MeasuredProfile;
use ascot_model::measurement::SwitchPoint;
use ascot_model::units;

/// The cost of a switch by number of files, with its spread.
pub fn switches(profile: &MeasuredProfile) -> String {
    let measured = &profile.measurement;
    let line = |name: &str, points: &[SwitchPoint]| {
        let ms = |seconds: f64| seconds.max(0.0) * 1e3;
        let point = |point: &SwitchPoint| (f64::from(point.files).log2(), ms(point.seconds.value));
        let marks = Marks::Whiskers(points.iter().map(|point| ms(point.seconds.spread)).collect());
        Line { marks, ..Line::new(name, points.iter().map(point).collect()) }
    };
    let figures = format!(
        "reads {}, writes {}, both at once {} each; runs of {}",
        units::rate(measured.read.rate.value),
        units::rate(measured.write.rate.value),
        units::rate(measured.duplex.value),
        units::memory(measured.run_bytes)
    );
    drawn(&Chart {
        title: vec![format!("What a switch between files costs: {}", profile.volume.name), figures],
        x: Axis::new("files that requests alternate between", Scale::PowersOfTwo),
        y: Axis::new("ms", Scale::Linear),
        lines: vec![line("reading", &measured.read_switches), line("writing", &measured.write_switches)],
    })
}

/// What streams hold when memory is full, as seen and by theory. A side with one stream is not shown.
pub fn occupancies(report: &SimulationReport) -> String {
    let mebibytes = |bytes: &[f64]| bytes.iter().map(|bytes| bytes / f64::from(1 << 20)).collect::<Vec<_>>();
    let size = |bytes: Option<f64>| bytes.map_or("none".into(), |bytes| units::bytes(bytes as u64));
    let sides = [
        ("inputs", &report.input_stairs_bytes, &report.formula_input_stairs_bytes),
        ("outputs", &report.output_stairs_bytes, &report.formula_output_stairs_bytes),
    ];
    let mut lines = Vec::new();
    for (side, seen, theory) in sides.into_iter().filter(|(_, seen, _)| seen.len() > 1) {
        lines.push(Line::steps(side, 0.0, &mebibytes(seen), Marks::Area));
        lines.push(Line::steps("theory", 0.0, &mebibytes(theory), Marks::None));
    }
    drawn(&Chart {
        title: vec![
            format!(
                "What streams hold: {} x {} by {}, {}",
                report.inputs,
                report.outputs,
                report.schedule,
                units::memory(report.memory_bytes)
            ),
            format!(
                "runs of {}, by the formula {}; with equal parts of memory {}",
                size(report.run_bytes),
                size(report.formula_run_bytes),
                units::bytes(report.equal_parts_run_bytes as u64)
            ),
        ],
        x: Axis::new("stream, when one has run out or there is no room, the fullest first", Scale::Linear),
        y: Axis::new("MiB", Scale::Linear),
        lines,
    })
}

/// The drawing; an empty one if there is nothing to draw.
fn drawn(chart: &Chart) -> String {
    chart.svg().unwrap_or_else(|| "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_bowtie::simulate::SimulationRequest;

    #[test]
    fn each_side_with_several_streams_has_an_area_and_a_line() {
        let request = SimulationRequest { inputs: 4, memory_bytes: 4 << 20, ..SimulationRequest::default() };
        let mut report = request.run().unwrap();
        let sides = |report: &SimulationReport| {
            let svg = occupancies(report);
            assert!(svg.contains("What streams hold: 4 x 1 by a4"), "{svg}");
            (svg.matches("<polygon").count(), svg.matches("theory").count())
        };
        assert_eq!(sides(&report), (1, 1));
        report.output_stairs_bytes = vec![3.0, 2.0];
        report.formula_output_stairs_bytes = vec![3.0, 1.0];
        assert_eq!(sides(&report), (2, 2));
    }

    #[test]
    fn an_empty_chart_is_an_image() {
        let axis = || Axis::new("", Scale::Linear);
        assert!(drawn(&Chart::new(axis(), axis(), Vec::new())).starts_with("<svg"));
    }
}
