//! Line charts as SVG, drawn by plotters.

use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::{
    Color, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, IntoLogRange, RGBColor, SVGBackend, WHITE,
};
use plotters::series::LineSeries;

const SIZE: (u32, u32) = (720, 420);
const COLOURS: [RGBColor; 8] = [
    RGBColor(11, 110, 110),
    RGBColor(196, 112, 43),
    RGBColor(88, 80, 160),
    RGBColor(160, 40, 70),
    RGBColor(70, 130, 40),
    RGBColor(40, 90, 170),
    RGBColor(120, 110, 30),
    RGBColor(90, 90, 90),
];
const FONT: &str = "sans-serif";
const FONT_SIZE: i32 = 13;
/// Of the legend, which stands beside the lines and hides none: a line, its gap, and the way from one to the next.
const LEGEND_LINE: i32 = 18;
const LEGEND_GAP: i32 = 6;
const LEGEND_STEP: i32 = 20;
/// Of the lines above a chart: from one to the next, and their left end.
const TITLE_STEP: i32 = 22;
const TITLE_LEFT: i32 = 14;
const AREA_OPACITY: f64 = 0.35;
/// The width of a letter on average, as a share of its height.
const LETTER_WIDTH: f64 = 0.56;
/// The most labels of the horizontal axis that do not touch.
const X_LABELS: usize = 8;

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, ascending in x.
    pub points: Vec<(f64, f64)>,
    /// The marks on it.
    pub marks: Marks,
}

/// What is drawn beside the line itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Marks {
    /// A dot at each point.
    Dots,
    /// A dot at each point, and a whisker of this half length in y.
    Whiskers(Vec<f64>),
    /// The area below the line.
    Area,
    /// Nothing.
    None,
}

impl Line {
    /// A line with a dot at each point.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, marks: Marks::Dots }
    }

    /// A line of steps: each value holds for one unit of x, from `start` on.
    pub fn steps(name: &str, start: f64, values: &[f64], marks: Marks) -> Self {
        let ends = |(at, &value): (usize, &f64)| {
            let x = start + at as f64;
            [(x, value), (x + 1.0, value)]
        };
        Self { name: name.into(), points: values.iter().enumerate().flat_map(ends).collect(), marks }
    }
}

/// The text of a value on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Plain numbers, from 0 on.
    Linear,
    /// Powers of ten; only positive values are drawn.
    Logarithmic,
    /// Exponents of two, on a linear axis.
    PowersOfTwo,
}

impl Scale {
    fn text(self, value: f64) -> String {
        match self {
            Self::PowersOfTwo => format!("2^{value:.0}"),
            _ => short_number(value),
        }
    }
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Its name, with the unit.
    pub name: String,
    /// Its scale.
    pub scale: Scale,
}

impl Axis {
    /// An axis.
    pub fn new(name: &str, scale: Scale) -> Self {
        Self { name: name.to_owned(), scale }
    }
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Lines of text above the chart, the first its title.
    pub title: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, at least one with a point.
    pub lines: Vec<Line>,
}

/// A number in few letters: `1e6`, `0.25`, `1500`.
fn short_number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e5 || (size > 0.0 && size < 1e-2) {
        format!("{value:.1e}").replace(".0e", "e")
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Chart {
    /// A chart without a title.
    pub fn new(x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self { title: Vec::new(), x, y, lines }
    }

    /// The chart as an SVG element; `None` if it has no point or cannot be drawn.
    pub fn svg(&self) -> Option<String> {
        let lines = self.drawable();
        let all = || lines.iter().flat_map(|line| line.points.iter());
        let x = range(all().map(|point| point.0), self.x.scale)?;
        let spreads = lines.iter().flat_map(|line| match &line.marks {
            Marks::Whiskers(spreads) => spreads.as_slice(),
            _ => &[],
        });
        let spread = spreads.copied().fold(0.0, f64::max);
        let y = range(all().map(|point| point.1), self.y.scale)?;
        let y = y.start..y.end + spread;
        let mut text = String::new();
        let drawn = self.draw(&mut text, &lines, x, y);
        drawn.ok().map(|()| text)
    }

    /// The lines without the points that a logarithmic axis cannot have.
    fn drawable(&self) -> Vec<Line> {
        let fits = |value: f64, scale| value.is_finite() && (scale != Scale::Logarithmic || value > 0.0);
        let kept = |point: &&(f64, f64)| fits(point.0, self.x.scale) && fits(point.1, self.y.scale);
        let of =
            |line: &Line| Line { points: line.points.iter().filter(kept).copied().collect(), ..line.clone() };
        self.lines.iter().map(of).filter(|line| !line.points.is_empty()).collect()
    }

    fn draw(&self, text: &mut String, lines: &[Line], x: Range<f64>, y: Range<f64>) -> Drawn {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let legend_width = if lines.len() > 1 { legend_width(lines) } else { 0 };
        let title_height = TITLE_STEP * self.title.len() as i32;
        let (top, below) = root.split_vertically(title_height);
        for (number, text) in self.title.iter().enumerate() {
            // The name of a directory may contain anything; SVG allows no control characters.
            let text = text.replace(char::is_control, "?");
            let at = (TITLE_LEFT, TITLE_STEP * number as i32 + 8);
            top.draw(&Text::new(text, at, (FONT, FONT_SIZE).into_font()))?;
        }
        let (area, legend) = below.split_horizontally(SIZE.0 as i32 - legend_width);
        draw_legend(&legend, lines)?;
        let mut builder = ChartBuilder::on(&area);
        builder.margin(14).x_label_area_size(46).y_label_area_size(74);
        // The types of the four combinations differ.
        macro_rules! draw {
            ($x:expr, $y:expr) => {{
                let mut chart = builder.build_cartesian_2d($x, $y)?;
                chart
                    .configure_mesh()
                    .x_desc(self.x.name.as_str())
                    .y_desc(self.y.name.as_str())
                    .x_label_formatter(&|value| self.x.scale.text(*value))
                    .y_label_formatter(&|value| self.y.scale.text(*value))
                    .label_style((FONT, 13))
                    .x_labels(X_LABELS)
                    .light_line_style(WHITE)
                    .draw()?;
                for (number, line) in lines.iter().enumerate() {
                    let colour = COLOURS[number % COLOURS.len()];
                    let points = || line.points.iter().copied();
                    chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
                    match &line.marks {
                        Marks::None => {}
                        Marks::Area => {
                            let ends = [line.points.last(), line.points.first()];
                            let floor = ends.into_iter().flatten().map(|end| (end.0, y.start));
                            let area = points().chain(floor).collect::<Vec<_>>();
                            chart.draw_series([Polygon::new(area, colour.mix(AREA_OPACITY).filled())])?;
                        }
                        Marks::Dots | Marks::Whiskers(_) => {
                            chart
                                .draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
                        }
                    }
                    if let Marks::Whiskers(spreads) = &line.marks {
                        let whiskers = points().zip(spreads).map(|((x, at), spread)| {
                            let ends = [(at - spread).max(y.start), (at + spread).min(y.end)];
                            PathElement::new(ends.map(|end| (x, end)).to_vec(), colour)
                        });
                        chart.draw_series(whiskers)?;
                    }
                }
            }};
        }
        let is_log = |scale| scale == Scale::Logarithmic;
        match (is_log(self.x.scale), is_log(self.y.scale)) {
            (true, true) => draw!(x.log_scale(), y.clone().log_scale()),
            (true, false) => draw!(x.log_scale(), y.clone()),
            (false, true) => draw!(x, y.clone().log_scale()),
            (false, false) => draw!(x, y.clone()),
        }
        root.present()
    }
}

/// The width of the legend, which grows with the longest name.
fn legend_width(lines: &[Line]) -> i32 {
    let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    LEGEND_LINE + 3 * LEGEND_GAP + (longest as f64 * LETTER_WIDTH * f64::from(FONT_SIZE)).ceil() as i32
}

/// Names the lines of a chart that has several.
fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, lines: &[Line]) -> Drawn {
    for (number, line) in lines.iter().enumerate().filter(|_| lines.len() > 1) {
        let y = 24 + LEGEND_STEP * number as i32;
        let colour = COLOURS[number % COLOURS.len()].stroke_width(2);
        area.draw(&PathElement::new(vec![(0, y), (LEGEND_LINE, y)], colour))?;
        let at = (LEGEND_LINE + LEGEND_GAP, y - FONT_SIZE / 2);
        area.draw(&Text::new(line.name.clone(), at, (FONT, FONT_SIZE).into_font()))?;
    }
    Ok(())
}

/// The range of an axis, with a margin: linear axes begin at 0.
fn range(values: impl Iterator<Item = f64>, scale: Scale) -> Option<Range<f64>> {
    let (min, max) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), v| (min.min(v), max.max(v)));
    if min > max {
        return None;
    }
    Some(match scale {
        Scale::Linear => min.min(0.0)..if max > 0.0 { max * 1.05 } else { 1.0 },
        Scale::Logarithmic => min / 1.3..max * 1.3,
        Scale::PowersOfTwo => min - 0.5..max + 0.5,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Scale, y: Scale, points: Vec<(f64, f64)>) -> Chart {
        let lines = vec![Line::new("a < b", points.clone()), Line::new("c", points)];
        Chart::new(Axis::new("N", x), Axis::new("ms", y), lines)
    }

    #[test]
    fn every_scale_is_drawn_with_all_points() {
        for x in [Scale::Linear, Scale::Logarithmic, Scale::PowersOfTwo] {
            for y in [Scale::Linear, Scale::Logarithmic] {
                let svg = chart(x, y, vec![(1.0, 2.0), (10.0, 20.0), (20.0, 5.0)]).svg().unwrap();
                assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
                assert!(svg.contains("a &lt; b") && svg.contains("</svg>"));
            }
        }
    }

    #[test]
    fn the_legend_stands_beside_the_lines() {
        let all = chart(Scale::Linear, Scale::Linear, vec![(1.0, 2.0), (10.0, 20.0)]);
        let end = SIZE.0 as i32 - legend_width(&all.lines);
        let svg = all.svg().unwrap();
        let of = |element: &str, name: &str| -> Vec<i32> {
            let starts = svg.split(element).skip(1);
            starts
                .map(|rest| rest.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
                .collect()
        };
        assert!(of("<circle", "cx=\"").iter().all(|x| *x < end), "{svg}");
        assert_eq!(of("<text", "x=\"").iter().filter(|x| **x >= end).count(), 2, "{svg}");
    }

    #[test]
    fn titles_areas_and_whiskers_are_drawn() {
        let whiskers =
            Line { marks: Marks::Whiskers(vec![1.0, 0.5]), ..Line::new("w", vec![(1.0, 4.0), (2.0, 5.0)]) };
        let steps = Line::steps("s", 0.0, &[3.0, 2.0, 1.0], Marks::Area);
        assert_eq!(steps.points, [(0.0, 3.0), (1.0, 3.0), (1.0, 2.0), (2.0, 2.0), (2.0, 1.0), (3.0, 1.0)]);
        let axes = || Axis::new("N", Scale::Linear);
        let plain = Chart::new(axes(), axes(), vec![whiskers, steps]);
        let titled = Chart { title: vec!["in <a>\n".into(), "under it".into()], ..plain.clone() };
        let (plain, titled) = (plain.svg().unwrap(), titled.svg().unwrap());
        assert!(titled.contains("in &lt;a&gt;?") && titled.contains("under it"), "{titled}");
        assert_eq!(titled.matches("<text").count(), plain.matches("<text").count() + 2);
        assert_eq!((titled.matches("<circle").count(), titled.matches("<polygon").count()), (2, 1));
        assert!(
            titled.matches("stroke-width=\"1\" points=").count() >= 2,
            "a whisker for each point: {titled}"
        );
    }

    #[test]
    fn impossible_points_are_left_out() {
        let points = vec![(0.0, 1.0), (10.0, 0.0), (10.0, 5.0), (f64::NAN, 1.0)];
        let svg = chart(Scale::Logarithmic, Scale::Logarithmic, points).svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(chart(Scale::Linear, Scale::Logarithmic, vec![(1.0, 0.0)]).svg(), None);
        assert_eq!(chart(Scale::Linear, Scale::Linear, vec![]).svg(), None);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 12.0, 1500.0, 1e6, 2.5e8, 1e-3].map(short_number);
        assert_eq!(texts, ["0", "0.25", "12", "1500", "1e6", "2.5e8", "1e-3"]);
    }
}
