//! Charts as SVG: `ascot probe --plot` draws the cost of a switch by number of files, and `ascot simulate --plot`
//! draws the bytes that each stream holds.
//!
//! The number of files has a logarithmic axis, on which plans interpolate as well; whiskers show the spread. Nothing
//! is drawn below zero: a cost smaller than the spread counts as zero.

use std::fmt::{Arguments, Write};

use ascot_model::measured_profile::MeasuredProfile;
use ascot_model::measurement::SwitchPoint;
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

/// A chart being drawn.
struct Drawing(String);

impl Drawing {
    /// An empty chart with a title.
    fn new(title: &str, subtitle: &str) -> Self {
        let mut drawing = Drawing(String::new());
        drawing.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\" fill=\"#ffffff\"/>"
        ));
        drawing.label(LEFT, 28.0, "start", INK, title);
        drawing.label(LEFT, 48.0, "start", PALE, subtitle);
        drawing
    }

    fn add(&mut self, element: Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }

    fn label(&mut self, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    /// Horizontal lines from 0 to `max`, labelled by `name`.
    fn grid(&mut self, max: f64, name: impl Fn(f64) -> String) {
        let end = WIDTH - RIGHT;
        for line in 0..=GRID_LINES {
            let share = f64::from(line) / f64::from(GRID_LINES);
            let y = height_of(share);
            self.add(format_args!("<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"{GRID}\"/>"));
            self.label(LEFT - 10.0, y + 4.0, "end", PALE, &name(max * share));
        }
    }

    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
    }

    /// The name of a colour; `number` counts the names from the top.
    fn legend(&mut self, number: u32, colour: &str, name: &str) {
        self.label(WIDTH - RIGHT + 18.0, TOP + 20.0 * f64::from(number) + 12.0, "start", colour, name);
    }

    fn finish(mut self) -> String {
        self.add(format_args!("</svg>"));
        self.0
    }
}

/// The position of a value, as a share of the greatest.
fn height_of(share: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
}

/// Maps costs of switches to positions.
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
        height_of((ms.max(0.0) / self.max_ms).min(1.0))
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
    let title = format!("What a switch between files costs: {}", profile.volume.name);
    let figures = format!(
        "reads {}, writes {}, both at once {} each; runs of {}",
        units::rate(measured.read.rate.value),
        units::rate(measured.write.rate.value),
        units::rate(measured.duplex.value),
        units::memory(measured.run_bytes)
    );
    let mut drawing = Drawing::new(&title, &figures);
    drawing.grid(scale.max_ms, |ms| format!("{ms:.3} ms"));
    for point in &measured.read_switches {
        let x = scale.x(f64::from(point.files));
        drawing.label(x, HEIGHT - BOTTOM + 20.0, "middle", PALE, &point.files.to_string());
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    drawing.label(middle, HEIGHT - 14.0, "middle", PALE, "files that requests alternate between");
    for (number, (name, colour, points)) in (0..).zip(lines) {
        curve(&mut drawing, &scale, colour, points);
        drawing.legend(number, colour, name);
    }
    drawing.finish()
}

fn curve(drawing: &mut Drawing, scale: &Scale, colour: &str, points: &[SwitchPoint]) {
    let x = |point: &SwitchPoint| scale.x(f64::from(point.files));
    let y = |seconds: f64| scale.y(seconds * 1e3);
    drawing.line(points.iter().map(|point| (x(point), y(point.seconds.value))), colour);
    for point in points {
        let x = x(point);
        let middle = y(point.seconds.value);
        let low = y(point.seconds.value - point.seconds.spread);
        let high = y(point.seconds.value + point.seconds.spread);
        drawing.add(format_args!("<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/>"));
        drawing.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"3.5\" fill=\"{colour}\"/>"));
    }
}

/// The streams on one side of a bowtie.
pub struct Streams<'a> {
    /// Their name and the time of the sample.
    pub name: &'a str,
    /// Bytes each stream held, descending.
    pub seen: &'a [f64],
    /// The same, as the theory predicts it.
    pub theory: &'a [f64],
}

/// The chart of the bytes that streams hold when memory is full: bars show the simulation, a line the theory. A side
/// with one stream is not shown.
pub fn streams(title: &str, subtitle: &str, sides: &[Streams<'_>]) -> String {
    let mut drawing = Drawing::new(title, subtitle);
    let shown: Vec<&Streams<'_>> = sides.iter().filter(|side| side.seen.len() > 1).collect();
    let all = shown.iter().flat_map(|side| side.seen.iter().chain(side.theory));
    let max = all.copied().fold(1.0, f64::max);
    let y = |bytes: f64| height_of(bytes / max);
    drawing.grid(max, |bytes| units::bytes(bytes as u64));
    let width = (WIDTH - RIGHT - LEFT) / shown.len().max(1) as f64;
    for (number, side) in shown.iter().enumerate() {
        let left = LEFT + width * number as f64;
        let step = (width - 24.0) / side.seen.len() as f64;
        let x = |stream: usize| left + step * stream as f64;
        for (stream, &bytes) in side.seen.iter().enumerate() {
            let x = x(stream);
            let top = y(bytes);
            let bar = (step * 0.86).max(0.4);
            let tall = y(0.0) - top;
            drawing.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{tall:.1}\" fill=\"{READING}\"/>"
            ));
        }
        let ends = |(stream, &bytes): (usize, &f64)| [(x(stream), y(bytes)), (x(stream) + step, y(bytes))];
        drawing.line(side.theory.iter().enumerate().flat_map(ends), WRITING);
        drawing.label(left, HEIGHT - BOTTOM + 20.0, "start", INK, side.name);
    }
    drawing.legend(0, READING, "seen");
    drawing.legend(1, WRITING, "theory");
    drawing.finish()
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

    #[test]
    fn every_stream_has_a_bar_and_a_step() {
        let (seen, theory) = ([30.0, 20.0, 10.0], [31.0, 21.0, 11.0]);
        let one = Streams { name: "in", seen: &[5.0], theory: &[5.0] };
        let svg = streams("a < b", "", &[one, Streams { name: "out", seen: &seen, theory: &theory }]);
        assert_eq!(svg.matches("<rect x=").count(), 3);
        assert_eq!(svg.matches("polyline").count(), 1);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
