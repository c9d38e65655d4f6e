//! How close the schedules come to their formulas: one line for each of a grid of shapes.
//!
//! ```text
//!   every_shape [SIZES [SHARES [ALGORITHMS [BLOCKS [MEMORIES]]]]]
//!   every_shape 1,2,3,5,8,13 0.2,0.5,0.8 best
//! ```
//!
//! SIZES: numbers of files on either side, 0 included. SHARES: shares of reading in the bytes that move. ALGORITHMS:
//! `best`, the best one for each shape, `all` that fit it, or `chosen`, the one that is chosen by simulation. BLOCKS:
//! blocks of memory for each file. MEMORIES: memories of data that are measured, after the four of the beginning; nine,
//! or 400 runs if these are more.
//!
//! A line holds the shape, the scheme, and the mean run at equal rates as a share of the formula (of the best scheme,
//! if another one is chosen); the mean run as a share of that if rates vary by half at every block; and the mean run as
//! a share of the paper's formula for groups of any real size, at the best algorithm.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ascot_bowtie::simulate::{Setup, Skew, best_scheme, simulate};
use ascot_model::run_length::{Algorithm, Scheme, Shape};

/// Number of runs of which the mean is taken.
const RUNS: f64 = 400.0;
/// Default blocks to a file.
const BLOCKS: u32 = 300;
/// The most blocks of all files by default.
const MAX_BLOCKS: u32 = 8192;

fn memory_blocks(shape: Shape, blocks: Option<u32>) -> u32 {
    let streams = shape.streams();
    let usual = (BLOCKS * streams).min(MAX_BLOCKS.max(64 * streams));
    blocks.map_or(usual, |blocks| blocks.saturating_mul(streams))
}

fn setup(scheme: Scheme, skew: &Skew, memory_blocks: u32, memories: Option<u64>) -> Setup {
    let run = scheme.run_length(f64::from(memory_blocks));
    let memory = u64::from(memory_blocks);
    let usual = 5 * memory + (8 * memory).max((RUNS * run) as u64);
    Setup {
        scheme,
        memory_blocks,
        total_blocks: memories.map_or(usual, |memories| (4 + memories) * memory),
        input_skew: skew.clone(),
        output_skew: skew.clone(),
        seed: 1,
    }
}

fn line(by_formula: &Scheme, blocks: Option<u32>, memories: Option<u64>, is_chosen: bool) -> String {
    let shape = by_formula.shape;
    let memory_blocks = memory_blocks(shape, blocks);
    let scheme = if is_chosen { best_scheme(shape, memory_blocks) } else { *by_formula };
    let formula = by_formula.run_length(f64::from(memory_blocks));
    let run = |skew: Skew| {
        let setup = setup(scheme, &skew, memory_blocks, memories);
        let held = |outcome: &ascot_bowtie::simulate::Outcome| outcome.peak_blocks <= setup.memory_blocks;
        match simulate(&setup, false) {
            Ok(outcome) if held(&outcome) => outcome.run_length() / formula,
            _ => 0.0,
        }
    };
    let even = run(Skew::Equal);
    let noisy = run(Skew::Noise(0.5));
    let real = Algorithm::ALL.into_iter().filter_map(|algorithm| Scheme::best_real(shape, algorithm));
    let real = real.map(|scheme| scheme.run_length(1.0)).fold(0.0, f64::max);
    format!(
        "{} {} {} {} {:.3} {:.3} {even:.4} {:.4} {:.4}",
        shape.inputs,
        shape.outputs,
        shape.alpha,
        scheme.algorithm.name(),
        scheme.read_group,
        scheme.write_group,
        noisy / even,
        even * by_formula.run_length(1.0) / real
    )
}

fn schemes(sizes: &[u32], shares: &[f64], all: bool) -> Vec<Scheme> {
    let mut schemes = Vec::new();
    for (&inputs, &outputs) in sizes.iter().flat_map(|n| sizes.iter().map(move |m| (n, m))) {
        if inputs + outputs < 2 {
            continue;
        }
        let one_sided = inputs == 0 || outputs == 0;
        for &share in &shares[..if one_sided { 1 } else { shares.len() }] {
            let shape = Shape::moving(inputs, outputs, share, 1.0 - share);
            match all {
                true => {
                    schemes.extend(Algorithm::ALL.into_iter().filter_map(|one| Scheme::best_of(shape, one)))
                }
                false => schemes.push(Scheme::best(shape)),
            }
        }
    }
    schemes.sort_by_key(|scheme| std::cmp::Reverse(scheme.shape.streams()));
    schemes
}

fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|number| number.parse().ok()).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument =
        |at: usize, usual: &'static str| arguments.get(at).map_or(usual, String::as_str).to_owned();
    let sizes = numbers::<u32>(&argument(0, "0,1,2,3,4,5,7,8,11,13,16,23,32"));
    let shares = numbers::<f64>(&argument(1, "0.2,0.5,0.8"));
    let (Some(sizes), Some(shares)) = (sizes, shares) else {
        eprintln!(
            "every_shape [SIZES [SHARES [best|all|chosen [BLOCKS [MEMORIES]]]]]: numbers with commas between"
        );
        return ExitCode::from(2);
    };
    let blocks = arguments.get(3).and_then(|text| text.parse().ok());
    let memories = arguments.get(4).and_then(|text| text.parse().ok());
    let algorithms = argument(2, "best");
    let schemes = schemes(&sizes, &shares, algorithms == "all");
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(scheme) = schemes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let line = line(scheme, blocks, memories, algorithms == "chosen");
                    let _one_at_a_time = lines.lock();
                    println!("{line}");
                }
            });
        }
    });
    ExitCode::SUCCESS
}
