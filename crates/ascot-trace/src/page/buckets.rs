//! The buckets of bowties on a page: a table of all bowties, and of some of them the occupancy at chosen turns beside
//! the staircase that theory predicts.
//!
//! Invariants: a page has at most [`MAX_BOWTIES`] bowties with at most [`MAX_CELLS`] occupancies each, whatever the
//! length of the trace. It says so: the turns of a longer bowtie are every k-th one. The page computes no staircase; it
//! gets the sizes.

use std::collections::HashMap;
use std::fmt::Write as _;

use ascot_model::bucket_steps::Steps;
use ascot_model::units::{self, in_html as escaped};
use serde::Serialize;

use super::html;
use crate::bucket_census::BowtieCensus;
use crate::buckets::{TracedBowtie, Turn};
use crate::error::Result;
use crate::format::TraceReader;

/// Bowties that are drawn: those with most turns.
const MAX_BOWTIES: usize = 12;
/// Occupancies of a bowtie on a page, at most.
const MAX_CELLS: u64 = 1 << 17;

/// A bowtie as the script draws it.
#[derive(Serialize)]
pub struct Drawn {
    /// Its number in the table, from 1.
    number: usize,
    name: String,
    inputs: u32,
    outputs: u32,
    /// The number of turns that the job made; every `every`-th of them is on the page.
    turns_made: u64,
    every: u64,
    turns: Vec<DrawnTurn>,
    /// The sizes of staircases in bytes, descending.
    staircases: Vec<Vec<u64>>,
    #[serde(skip)]
    known: HashMap<(u32, u64, u64), usize>,
}

/// The buckets at a turn.
#[derive(Serialize)]
struct DrawnTurn {
    time_ns: u64,
    next: Option<u32>,
    /// The staircases of inputs and outputs: numbers in the list.
    staircases: [Option<usize>; 2],
    /// The distances from them, if the side is full.
    distances: [Option<f64>; 2],
    bytes: Vec<u64>,
}

impl Drawn {
    fn new(number: usize, bowtie: &TracedBowtie, turns_made: u64) -> Drawn {
        let most = (MAX_CELLS / (bowtie.streams() as u64).max(1)).max(1);
        Drawn {
            number,
            name: bowtie.text(),
            inputs: bowtie.inputs,
            outputs: bowtie.outputs,
            turns_made,
            every: turns_made.div_ceil(most).max(1),
            turns: Vec::new(),
            staircases: Vec::new(),
            known: HashMap::new(),
        }
    }

    fn add(&mut self, turn: Turn, bowtie: &TracedBowtie) {
        let distances = turn.sides(bowtie).map(|side| side.distance());
        let staircases = [turn.input_steps, turn.output_steps].map(|steps| steps.map(|it| self.number(it)));
        let Turn { time_ns, next, bytes, .. } = turn;
        self.turns.push(DrawnTurn { time_ns, next, staircases, distances, bytes });
    }

    /// The number of a staircase in the list.
    fn number(&mut self, steps: Steps) -> usize {
        let group = steps.group.unwrap_or_default();
        let key = (steps.streams, group.to_bits(), steps.memory.to_bits());
        let next = self.staircases.len();
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            self.staircases.push(steps.sizes().into_iter().map(|size| size.round() as u64).collect());
        }
        number
    }
}

/// The bowties to draw, and their turns.
pub fn drawn(trace: &TraceReader, census: &[BowtieCensus]) -> Result<Vec<Drawn>> {
    let mut numbers: Vec<usize> = (0..census.len()).filter(|&at| census[at].turns > 0).collect();
    numbers.sort_by_key(|&at| std::cmp::Reverse(census[at].turns));
    numbers.truncate(MAX_BOWTIES);
    numbers.sort_unstable();
    let mut drawn: HashMap<u32, (Drawn, u64)> = HashMap::new();
    for &at in &numbers {
        if let Some(bowtie) = trace.bowties().get(at) {
            drawn.insert(at as u32, (Drawn::new(at + 1, bowtie, census[at].turns), 0));
        }
    }
    for turn in trace.turns() {
        let turn = turn?;
        let Some(bowtie) = trace.bowties().get(turn.bowtie as usize) else { continue };
        let Some((one, seen)) = drawn.get_mut(&turn.bowtie) else { continue };
        if *seen % one.every == 0 {
            one.add(turn, bowtie);
        }
        *seen += 1;
    }
    Ok(numbers.iter().filter_map(|at| drawn.remove(&(*at as u32))).map(|(one, _)| one).collect())
}

/// The section of a trace; empty without turns. `name`: the name of the trace as HTML.
pub fn section(number: usize, name: &str, census: &[BowtieCensus], drawn: &[Drawn]) -> String {
    if drawn.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = census.iter().enumerate().map(|(at, one)| row(at, one)).collect();
    let header =
        ["bowtie", "inputs", "outputs", "turns", "most in a bucket", "most in all", "from the staircase"];
    let mut options = String::new();
    for (at, one) in drawn.iter().enumerate() {
        let of = escaped(&one.name);
        let shown = match one.every {
            1 => units::plural(one.turns_made, "turn"),
            every => format!("every {every}th of {}", units::plural(one.turns_made, "turn")),
        };
        let _ = write!(
            options,
            "<option value=\"{at}\">{}. {of}: {} to {}, {shown}</option>",
            one.number,
            units::plural(u64::from(one.inputs), "input"),
            units::plural(u64::from(one.outputs), "output")
        );
    }
    format!(
        "<section class=\"buckets\" aria-label=\"Buckets of {name}\"><h2>Buckets</h2>\n\
         <p>Each stream of a bowtie has a bucket of the memory that all of them share. At a turn the job moves on to \
         another stream. The staircase is the size of the buckets in the steady state, which theory predicts for the \
         job's schedule when memory is full; the distance from it is the sum of all differences, as a share.</p>\n{}\
         <div class=\"choice\"><label for=\"bowtie-{number}\">Bowtie</label>\
         <select id=\"bowtie-{number}\">{options}</select>\n\
         <label for=\"turn-{number}\">Turn</label>\
         <input type=\"range\" id=\"turn-{number}\" min=\"0\" value=\"0\" step=\"1\">\
         </div><p id=\"buckets-state-{number}\" role=\"status\"></p>\n\
         <div class=\"bucket-charts\">\
         <figure><figcaption>Buckets at the turn, the fullest first: inputs <span class=\"box read\"></span>, outputs \
         <span class=\"box write\"></span>, staircase <span class=\"sample line\"></span></figcaption>\
         <canvas id=\"staircase-{number}\" role=\"img\" aria-label=\"Buckets of {name} at the chosen turn beside the \
         staircase; the table has the numbers\"></canvas></figure>\n\
         <figure><figcaption id=\"shades-{number}\"></figcaption>\
         <canvas id=\"shades-of-{number}\" role=\"img\" aria-label=\"Buckets of {name} over time; the table has the \
         least, the mean and the most of each stream\" aria-describedby=\"shades-{number}\"></canvas></figure></div>\n\
         <details><summary>Buckets of each stream as a table</summary>{}</details></section>\n",
        html::table(&format!("bowties-{number}"), "Bowties", &header, &rows),
        html::table(
            &format!("streams-{number}"),
            "Buckets of each stream",
            &["stream", "at the turn", "place", "staircase at this place", "least", "mean", "most"],
            &[]
        )
    )
}

fn row(at: usize, one: &BowtieCensus) -> Vec<String> {
    let distances = one.distances();
    vec![
        format!("{}. {}", at + 1, one.name),
        units::count(u64::from(one.inputs)),
        units::count(u64::from(one.outputs)),
        units::count(one.turns),
        units::bytes(one.largest_bucket_bytes),
        units::bytes(one.peak_bytes),
        if distances.is_empty() { "keeps none".to_owned() } else { distances },
    ]
}
