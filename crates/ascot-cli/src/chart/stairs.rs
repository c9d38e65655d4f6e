//! The bytes that each stream of a simulated bowtie holds when memory is full, in descending order: bars show the
//! simulation, a line the theory.

use std::fmt::Write;

use ascot_model::units;

use super::{BOTTOM, GRID, GRID_LINES, HEIGHT, INK, LEFT, PALE, READING, RIGHT, TOP, WIDTH, WRITING};
use super::{label, sheet};

/// One side of a bowtie.
pub struct Side<'a> {
    /// Its name and the time of the sample.
    pub name: &'a str,
    /// Bytes each stream held, descending.
    pub seen: &'a [f64],
    /// The same, as the theory predicts it.
    pub theory: &'a [f64],
}

/// The chart of all sides with more than one stream.
pub fn chart(title: &str, subtitle: &str, sides: &[Side<'_>]) -> String {
    let mut svg = sheet(title);
    label(&mut svg, LEFT, 48.0, "start", PALE, subtitle);
    let shown: Vec<&Side<'_>> = sides.iter().filter(|side| side.seen.len() > 1).collect();
    let all = || shown.iter().flat_map(|side| side.seen.iter().chain(side.theory));
    let max = all().copied().fold(1.0, f64::max);
    let y = |bytes: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes / max;
    for line in 0..=GRID_LINES {
        let bytes = max * f64::from(line) / f64::from(GRID_LINES);
        let at = y(bytes);
        let end = WIDTH - RIGHT;
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"{GRID}\"/>");
        label(&mut svg, LEFT - 10.0, at + 4.0, "end", PALE, &units::bytes(bytes as u64));
    }
    let width = (WIDTH - RIGHT - LEFT) / shown.len().max(1) as f64;
    for (number, side) in shown.iter().enumerate() {
        let left = LEFT + width * number as f64;
        let step = (width - 24.0) / side.seen.len() as f64;
        for (stream, &bytes) in side.seen.iter().enumerate() {
            let x = left + step * stream as f64;
            let bar = (step * 0.86).max(0.4);
            let top = y(bytes);
            let tall = y(0.0) - y(bytes);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{tall:.1}\" fill=\"{READING}\"/>"
            );
        }
        let points: Vec<String> = side
            .theory
            .iter()
            .enumerate()
            .flat_map(|(stream, &bytes)| {
                let x = left + step * stream as f64;
                [format!("{x:.1},{:.1}", y(bytes)), format!("{:.1},{:.1}", x + step, y(bytes))]
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{WRITING}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        label(&mut svg, left, HEIGHT - BOTTOM + 20.0, "start", INK, side.name);
    }
    label(&mut svg, WIDTH - RIGHT + 18.0, TOP + 12.0, "start", READING, "seen");
    label(&mut svg, WIDTH - RIGHT + 18.0, TOP + 32.0, "start", WRITING, "theory");
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_a_bar_and_a_step() {
        let (seen, theory) = ([30.0, 20.0, 10.0], [31.0, 21.0, 11.0]);
        let one = Side { name: "in", seen: &[5.0], theory: &[5.0] };
        let svg = chart("a < b", "", &[one, Side { name: "out", seen: &seen, theory: &theory }]);
        assert_eq!(svg.matches("<rect x=").count(), 3);
        assert_eq!(svg.matches("polyline").count(), 1);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
