//! Charts as SVG: `ascot probe --plot` draws the cost of a switch by number of files, and `ascot simulate --plot`
//! draws the bytes that each stream holds ([`stairs`]).
//!
//! The number of files has a logarithmic axis, on which plans interpolate as well; whiskers show the spread. Nothing
//! is drawn below zero: a cost smaller than the spread counts as zero.

pub mod stairs;

use std::fmt::Write;

use ascot_model::measurement::{MeasuredProfile, SwitchPoint};
use ascot_model::units;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 56.0;
const INK: &str = "#1d2830";
const PALE: &str = "#5c6b76";
const GRID: &str = "#dde3e7";
const READING: &str = "#0b6e6e";
const WRITING: &str = "#c4702b";
/// Horizontal lines, without the axis.
const GRID_LINES: u32 = 4;

/// Maps values to positions.
struct Scale {
    files: (f64, f64),
    max_ms: f64,
}

impl Scale {
    fn new(points: &[&SwitchPoint]) -> Scale {
        let files = points.iter().map(|point| f64::from(point.files));
        let (min, max) = files.fold((f64::MAX, 1.0), |(min, max), files| (files.min(min), files.max(max)));
        let top = points.iter().map(|point| point.seconds.value + point.seconds.spread).fold(0.0, f64::max);
        Scale { files: (min.min(max), max), max_ms: round_up(top * 1e3) }
    }

    fn x(&self, files: f64) -> f64 {
        let (min, max) = self.files;
        let span = (max / min).ln().max(1e-9);
        LEFT + (WIDTH - LEFT - RIGHT) * (files / min).ln() / span
    }

    fn y(&self, ms: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (ms.max(0.0) / self.max_ms).min(1.0)
    }
}

/// The next power of ten, or 2 or 5 times one.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(power)
}

/// The chart of a profile.
pub fn switches(profile: &MeasuredProfile) -> String {
    let measured = &profile.measurement;
    let lines =
        [("reading", READING, &measured.read_switches), ("writing", WRITING, &measured.write_switches)];
    let all: Vec<&SwitchPoint> = lines.iter().flat_map(|(_, _, points)| points.iter()).collect();
    let scale = Scale::new(&all);
    let mut svg = sheet(&format!("What a switch between files costs: {}", profile.volume.name));
    let figures = format!(
        "reads {}, writes {}, both at once {} each; runs of {}",
        units::rate(measured.read.rate.value),
        units::rate(measured.write.rate.value),
        units::rate(measured.duplex.value),
        units::memory(measured.run_bytes)
    );
    label(&mut svg, LEFT, 48.0, "start", PALE, &figures);
    axes(&mut svg, &scale, &measured.read_switches);
    for (at, (name, colour, points)) in lines.into_iter().enumerate() {
        curve(&mut svg, &scale, colour, points);
        let y = TOP + 20.0 * at as f64 + 12.0;
        label(&mut svg, WIDTH - RIGHT + 18.0, y, "start", colour, name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// An empty sheet with a title.
fn sheet(title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    label(&mut svg, LEFT, 28.0, "start", INK, title);
    svg
}

fn axes(svg: &mut String, scale: &Scale, points: &[SwitchPoint]) {
    for line in 0..=GRID_LINES {
        let ms = scale.max_ms * f64::from(line) / f64::from(GRID_LINES);
        let y = scale.y(ms);
        let end = WIDTH - RIGHT;
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"{GRID}\"/>");
        label(svg, LEFT - 10.0, y + 4.0, "end", PALE, &format!("{ms:.3} ms"));
    }
    for point in points {
        let x = scale.x(f64::from(point.files));
        label(svg, x, HEIGHT - BOTTOM + 20.0, "middle", PALE, &point.files.to_string());
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    label(svg, middle, HEIGHT - 14.0, "middle", PALE, "files that requests alternate between");
}

fn curve(svg: &mut String, scale: &Scale, colour: &str, points: &[SwitchPoint]) {
    let place = |point: &SwitchPoint| (scale.x(f64::from(point.files)), point.seconds);
    let path: Vec<String> = points
        .iter()
        .map(place)
        .map(|(x, seconds)| format!("{x:.1},{:.1}", scale.y(seconds.value * 1e3)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    for (x, seconds) in points.iter().map(place) {
        let y = |seconds: f64| scale.y(seconds * 1e3);
        let low = y(seconds.value - seconds.spread);
        let high = y(seconds.value + seconds.spread);
        let _ = writeln!(svg, "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/>");
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
            y(seconds.value)
        );
    }
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

/// Text escaped for XML: a directory may have any name.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ if letter.is_control() => out.push('?'),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::measurement::Figure;

    #[test]
    fn scales_are_round_and_hold_every_point() {
        assert!((round_up(0.3) - 0.5).abs() < 1e-12);
        assert!((round_up(11.0) - 20.0).abs() < 1e-12);
        assert!(round_up(0.0) > 0.0);
        let point = |files, value| SwitchPoint { files, seconds: Figure { value, spread: 1e-4 } };
        let points = [point(2, 1e-3), point(256, 9e-3)];
        let scale = Scale::new(&points.iter().collect::<Vec<_>>());
        assert!((scale.x(2.0) - LEFT).abs() < 1e-9 && (scale.x(256.0) - (WIDTH - RIGHT)).abs() < 1e-9);
        assert!(scale.y(-1.0) > scale.y(9.1) && scale.y(9.1) >= TOP);
        assert!(Scale::new(&[]).x(2.0).is_finite());
    }

    #[test]
    fn names_do_not_break_the_drawing() {
        assert_eq!(escaped("<a&b>\n"), "&lt;a&amp;b&gt;?");
    }
}
