//! The schedules against the theory.

use super::*;
use crate::schedule::EqualParts;
use ascot_model::run_length::{Algorithm, Baseline, Scheme, Shape};
use proptest::prelude::*;

fn setup(inputs: u32, outputs: u32, alpha: f64, algorithm: Algorithm, memory_blocks: u32) -> Setup {
    let shape = Shape { inputs, outputs, alpha };
    let scheme = Scheme::best_of(shape, algorithm).expect("it fits");
    Setup {
        scheme,
        memory_blocks,
        total_blocks: 40 * u64::from(memory_blocks),
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    }
}

fn share_of_formula(setup: &Setup) -> f64 {
    let outcome = simulate(setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
    assert!(outcome.peak_blocks <= setup.memory_blocks, "{setup:?}: {} blocks", outcome.peak_blocks);
    outcome.run_length() / setup.scheme.run_length(f64::from(setup.memory_blocks))
}

/// Every algorithm at equal rates is within two percent of the formula for its groups.
#[test]
fn the_formulas_hold() {
    for (n, m, alpha, algorithm) in [
        (0, 16, 0.0, Algorithm::A1),
        (0, 64, 0.0, Algorithm::A1),
        (1, 16, 0.5, Algorithm::A2),
        (1, 31, 0.5, Algorithm::A2),
        (1, 64, 0.2, Algorithm::A2),
        (16, 0, 1.0, Algorithm::A3),
        (64, 0, 1.0, Algorithm::A3),
        (16, 1, 0.5, Algorithm::A4),
        (31, 1, 0.5, Algorithm::A4),
        (64, 1, 0.8, Algorithm::A4),
        (64, 16, 0.5, Algorithm::A5),
        (3, 100, 0.5, Algorithm::A6r),
        (64, 64, 0.5, Algorithm::A6r),
        (8, 16, 0.2, Algorithm::A6r),
        (64, 16, 0.5, Algorithm::A6w),
    ] {
        let setup = setup(n, m, alpha, algorithm, 32768);
        let share = share_of_formula(&setup);
        assert!((0.98..1.02).contains(&share), "{n} x {m} at {alpha} by {algorithm:?}: {share:.3}");
    }
}

/// The formula also holds for groups that are not the best.
#[test]
fn the_formulas_hold_for_other_groups() {
    for group in [1.0, 5.0, 13.0, 22.0] {
        for algorithm in [Algorithm::A2, Algorithm::A4] {
            let (n, m) = if algorithm == Algorithm::A2 { (1, 64) } else { (64, 1) };
            let mut setup = setup(n, m, 0.5, algorithm, 32768);
            setup.scheme = Scheme::new(setup.scheme.shape, algorithm, group, group);
            let share = share_of_formula(&setup);
            assert!((0.95..1.05).contains(&share), "{algorithm:?} by {group}: {share:.3}");
        }
    }
}

/// Streams hold the occupancies of theorems 1, 3, 6 and 8.
#[test]
fn the_staircases_are_seen() {
    let outputs = |setup: &Setup| {
        let seen = simulate(setup, false).expect("no deadlock").output_staircase;
        (seen, setup.scheme.output_occupancies(f64::from(setup.memory_blocks)))
    };
    let inputs = |setup: &Setup| {
        let seen = simulate(setup, false).expect("no deadlock").input_staircase;
        (seen, setup.scheme.input_occupancies(f64::from(setup.memory_blocks)))
    };
    for (seen, expected) in
        [outputs(&setup(0, 16, 0.0, Algorithm::A1, 16384)), outputs(&setup(1, 16, 0.5, Algorithm::A2, 16384))]
    {
        let off =
            seen.iter().zip(&expected).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
        assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
    }
    let (seen, expected) = inputs(&setup(16, 0, 1.0, Algorithm::A3, 16384));
    let off = seen.iter().zip(&expected).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
    assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
    // Seen when a group has run out, before it is filled: all are a step lower.
    let (seen, expected) = inputs(&setup(16, 1, 0.5, Algorithm::A4, 16384));
    let lower = expected[4..].iter().copied().chain([0.0; 4]);
    let off = seen.iter().zip(lower).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
    assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
}

/// At all rates everything moves, memory holds, and runs stay long.
#[test]
fn uneven_rates_cost_little() {
    for (n, m, alpha, algorithm) in [
        (0, 64, 0.0, Algorithm::A1),
        (1, 64, 0.5, Algorithm::A2),
        (64, 0, 1.0, Algorithm::A3),
        (64, 1, 0.5, Algorithm::A4),
        (16, 64, 0.5, Algorithm::A5),
        (16, 64, 0.5, Algorithm::A6r),
        (64, 16, 0.5, Algorithm::A6w),
    ] {
        let base = setup(n, m, alpha, algorithm, 8192);
        let formula = base.scheme.run_length(8192.0);
        for (skew, least) in [
            (Skew::Noise(0.1), 0.9),
            (Skew::Noise(0.5), 0.85),
            (Skew::Zipf(1.0), 0.85),
            (Skew::OneFast(10.0), 0.85),
            (Skew::Bursts(1000.0), 0.25),
        ] {
            let setup = Setup { input_skew: skew.clone(), output_skew: skew.clone(), ..base.clone() };
            let outcome = simulate(&setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
            assert!(outcome.peak_blocks <= 8192, "{algorithm:?}, {skew:?}: {} blocks", outcome.peak_blocks);
            let share = outcome.run_length() / formula;
            assert!(share >= least, "{n} x {m} by {algorithm:?}, {skew:?}: {share:.3}");
            let whole = outcome.blocks as f64 / outcome.runs as f64 / formula;
            assert!(whole >= 0.8 * least, "{algorithm:?}, {skew:?}: {whole:.3}");
        }
        // Inputs that end early have no steady state: all of it, from the first block to the last.
        let ending = Setup { input_skew: Skew::Ends, ..base };
        let outcome = simulate(&ending, false).unwrap_or_else(|stuck| panic!("{ending:?}: {stuck:?}"));
        let whole = outcome.blocks as f64 / outcome.runs as f64 / formula;
        assert!(whole >= 0.72, "{algorithm:?}, ends: {whole:.3}");
    }
}

/// Equal parts reach their formula, and the staircases gain over them what the formulas promise.
#[test]
fn equal_parts_of_memory() {
    for (n, m, alpha) in
        [(0, 16, 0.0), (16, 0, 1.0), (1, 16, 0.5), (16, 1, 0.5), (1, 64, 0.2), (64, 1, 0.8), (8, 16, 0.5)]
    {
        let shape = Shape { inputs: n, outputs: m, alpha };
        let setup = setup(n, m, alpha, Scheme::best(shape).algorithm, 16384);
        let split = EqualParts::split(&shape, setup.memory_blocks);
        let mut schedule = EqualParts::new(n, split.read);
        let equal = simulate_by(&setup, split, &mut schedule, false).expect("no deadlock");
        let formula = Baseline::EqualParts.run_length(&shape, 16384.0);
        let share = equal.run_length() / formula;
        assert!((0.95..1.05).contains(&share), "{n} x {m}: {share:.3}");
        assert!(equal.peak_blocks <= setup.memory_blocks);
        let ours = simulate(&setup, false).expect("no deadlock").run_length() / equal.run_length();
        let promised = setup.scheme.run_length(16384.0) / formula;
        assert!(
            (ours / promised - 1.0).abs() < 0.05,
            "{n} x {m}: {ours:.2} times as long, {promised:.2} promised"
        );
    }
}

#[test]
fn a_block_or_two_a_stream_is_enough() {
    for (n, m, alpha, algorithm) in [
        (0, 9, 0.0, Algorithm::A1),
        (1, 9, 0.5, Algorithm::A2),
        (9, 0, 1.0, Algorithm::A3),
        (9, 1, 0.5, Algorithm::A4),
        (9, 9, 0.3, Algorithm::A5),
        (9, 9, 0.5, Algorithm::A6r),
        (9, 9, 0.7, Algorithm::A6w),
    ] {
        let least = if n > 0 { n + 1 } else { 0 } + 2 * m;
        for skew in [Skew::Equal, Skew::Noise(0.5), Skew::Zipf(2.0), Skew::Bursts(7.0), Skew::Ends] {
            for blocks in [least, least + 1, least + 7] {
                let base = setup(n, m, alpha, algorithm, blocks);
                let setup =
                    Setup { input_skew: skew.clone(), output_skew: skew.clone(), total_blocks: 3000, ..base };
                let outcome = simulate(&setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
                assert!(outcome.blocks >= 2900, "{setup:?}: {} blocks", outcome.blocks);
            }
        }
    }
}

#[test]
fn steps_add_up() {
    let setup = setup(8, 4, 0.5, Algorithm::A6w, 512);
    let outcome = simulate(&setup, true).expect("no deadlock");
    assert_eq!(outcome.steps.len() as u64, outcome.runs);
    let units: u64 = outcome.steps.iter().map(|step| step.1).sum();
    assert!(outcome.blocks * UNITS - units < 4 * UNITS, "only last blocks are not full");
    assert!(outcome.steps.windows(2).all(|pair| pair[0].0 != pair[1].0));
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    use Algorithm::*;
    proptest::sample::select(vec![A1, A2, A3, A4, A5, A6r, A6w])
}

fn any_skew() -> impl Strategy<Value = Skew> {
    prop_oneof![
        Just(Skew::Equal),
        (0.1..2.5).prop_map(Skew::Zipf),
        (1.0..50.0).prop_map(Skew::OneFast),
        (0.0..0.9).prop_map(Skew::Noise),
        (1.0..2000.0).prop_map(Skew::Bursts),
        Just(Skew::Ends),
    ]
}

/// A setup of a shape that the algorithm fits, with `blocks_to_a_stream` blocks for each stream.
fn any_setup(
    algorithm: Algorithm,
    (n, m): (u32, u32),
    alpha: f64,
    blocks_to_a_stream: u32,
    seed: u64,
) -> Setup {
    let (n, m, alpha) = match algorithm {
        Algorithm::A1 => (0, m, 0.0),
        Algorithm::A2 => (1, m, alpha),
        Algorithm::A3 => (n, 0, 1.0),
        Algorithm::A4 => (n, 1, alpha),
        _ => (n, m, alpha),
    };
    Setup { seed, ..setup(n, m, alpha, algorithm, blocks_to_a_stream * (n + m)) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For all shapes, memories and rates: everything moves, memory holds, and no stream waits while more than a memory
    /// of other streams' blocks moves.
    #[test]
    fn nothing_is_stuck_or_starved(
        algorithm in any_algorithm(),
        shape in (2..80_u32, 2..80_u32),
        alpha in 0.1..0.9,
        blocks in 3..40_u32,
        skews in (any_skew(), any_skew()),
        seed: u64,
    ) {
        let setup = any_setup(algorithm, shape, alpha, blocks, seed);
        let setup = Setup { input_skew: skews.0, output_skew: skews.1, ..setup };
        let outcome = simulate(&setup, false);
        prop_assert!(outcome.is_ok(), "{setup:?}: {outcome:?}");
        let outcome = outcome.unwrap_or_default();
        let memory = setup.memory_blocks;
        prop_assert!(outcome.peak_blocks <= memory, "{} of {memory} blocks", outcome.peak_blocks);
        prop_assert!(outcome.blocks * 100 >= setup.total_blocks * 99, "{} blocks", outcome.blocks);
        prop_assert!(
            outcome.longest_wait_blocks <= u64::from(memory),
            "{} blocks while waiting, of {memory}", outcome.longest_wait_blocks
        );
    }
}

/// The best schedule of a shape has runs about as long as the formula says, and at least 85 percent of that if rates
/// vary by up to `noise` at every block. A6w loses most: until groups of inputs have found their rounds, some inputs
/// are filled twice in one round.
fn reaches_its_formula(
    shape: (u32, u32),
    alpha: f64,
    blocks: u32,
    noise: f64,
    seed: u64,
) -> Result<(), TestCaseError> {
    let chosen = Scheme::best(Shape { inputs: shape.0, outputs: shape.1, alpha });
    let mut equal = any_setup(chosen.algorithm, shape, alpha, blocks, seed);
    // Many rounds, so that the last one does not matter.
    let run_blocks = equal.scheme.run_length(f64::from(equal.memory_blocks));
    equal.total_blocks = 8 * u64::from(equal.memory_blocks) + (300.0 * run_blocks.min(1e6)) as u64;
    equal.total_blocks = equal.total_blocks.max(20 * u64::from(equal.memory_blocks));
    let run = |setup: &Setup| simulate(setup, false).map(|outcome| outcome.run_length()).unwrap_or(0.0);
    let formula = equal.scheme.run_length(f64::from(equal.memory_blocks));
    let even = run(&equal);
    let least = if equal.scheme.algorithm == Algorithm::A6w { 0.90 } else { 0.94 };
    prop_assert!(even >= least * formula, "{:?}: {:.3}", equal.scheme, even / formula);
    let skew = Skew::Noise(noise);
    let noisy = run(&Setup { input_skew: skew.clone(), output_skew: skew, ..equal.clone() });
    prop_assert!(noisy >= 0.85 * even, "{:?}: {:.3}", equal.scheme, noisy / even);
    Ok(())
}

/// Cases found by a search: a group of inputs that memory did not hold led to ever larger groups.
#[test]
fn groups_that_memory_does_not_hold_stay_apart() -> Result<(), TestCaseError> {
    let setup = any_setup(Algorithm::A6w, (38, 42), 0.734, 202, 1);
    let share = share_of_formula(&setup);
    prop_assert!(share >= 0.93, "{share:.3}");
    reaches_its_formula((38, 42), 0.734, 202, 0.0, 1)?;
    reaches_its_formula((46, 58), 0.763, 215, 0.19, 1)?;
    reaches_its_formula((43, 57), 0.775, 276, 0.16, 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_shape_reaches_its_formula(
        shape in (1..60_u32, 1..60_u32),
        alpha in 0.2..0.8,
        blocks in 200..300_u32,
        noise in 0.0..0.5,
        seed: u64,
    ) {
        reaches_its_formula(shape, alpha, blocks, noise, seed)?;
    }
}

/// Merges of files of different lengths take hardly more switches than merges of as many bytes in files of one length:
/// the mean over many memories, because whole blocks alone make a tenth of difference. A schedule that gives every
/// group the same step takes up to 1.20 times as many. If lengths say nothing of rates, the shares are learned first.
#[test]
fn short_files_cost_few_switches() {
    for files in [8_u32, 16] {
        let mut one_long = vec![1.0; files as usize];
        one_long[0] = 8.0;
        let skews = [
            (Skew::Rates(vec![1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.25]), 1.03),
            (Skew::Rates(vec![0.25, 1.0, 1.0, 0.25, 1.0, 1.0, 1.0, 1.0]), 1.03),
            (Skew::Rates(one_long), 1.10),
            (Skew::Ends, 1.08),
        ];
        let memories = (50..70).map(|blocks| blocks * files);
        for (skew, most) in skews {
            let ratio = |memory_blocks| {
                let base = setup(files, 1, 0.5, Algorithm::A4, memory_blocks);
                let base = Setup { total_blocks: 8000, ..base };
                let runs = |input_skew| {
                    simulate(&Setup { input_skew, ..base.clone() }, false).expect("it ends").runs
                };
                runs(skew.clone()) as f64 / runs(Skew::Equal) as f64
            };
            let mean = memories.clone().map(ratio).sum::<f64>() / 20.0;
            assert!(mean <= most, "{files} files, {skew:?}: {mean:.3} times as many switches");
        }
    }
}
