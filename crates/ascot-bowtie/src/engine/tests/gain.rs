//! The engine with a published schedule against the engine with equal parts of memory.

use ascot_model::run_length::Baseline;

use super::*;
use crate::schedule::EqualParts;
use crate::simulate::simulate_by;

/// Over a whole job that moves 40 times the memory, the engine gains over equal parts of memory, through the same
/// engine, what the simulator and the formulas promise.
#[test]
fn jobs_gain_over_equal_parts_what_the_theory_promises() {
    for (n, m, alpha, algorithm) in [
        (0, 32, 0.0, Algorithm::A1),
        (1, 32, 0.5, Algorithm::A2),
        (32, 0, 1.0, Algorithm::A3),
        (19, 1, 0.5, Algorithm::A4),
        (16, 16, 0.5, Algorithm::A6r),
        (4, 16, 0.3, Algorithm::A6r),
        (16, 4, 0.5, Algorithm::A6w),
    ] {
        let blocks_of_memory = 1024;
        let setup = Setup {
            total_blocks: 40 * u64::from(blocks_of_memory),
            ..setup(n, m, alpha, algorithm, blocks_of_memory)
        };
        let shape = setup.scheme.shape;
        let split = EqualParts::split(&shape, setup.memory_blocks);
        let equal = || EqualParts::new(n, split.read);
        let runs = |by_scheme: bool| {
            let disk = disk();
            let mut bowtie = if by_scheme {
                bowtie_of(&setup, &disk)
            } else {
                let Streams { inputs, outputs } = streams_of(&setup, &disk);
                let pool = blocks(setup.memory_blocks);
                let schedule = Box::new(equal());
                Bowtie::with_schedule(inputs, outputs, pool, alpha, split, schedule).expect("there is memory")
            };
            run(&mut bowtie, &mut Simulated { function: RateModel::new(&setup) }, || Ok(()))
                .expect("it runs");
            disk.ledger().totals().runs as f64
        };
        let gain = runs(false) / runs(true);
        let simulated = simulate_by(&setup, split, &mut equal(), false).expect("no deadlock").runs as f64
            / simulate(&setup, false).expect("no deadlock").runs as f64;
        let memory = f64::from(blocks_of_memory);
        let formulas = setup.scheme.run_length(memory) / Baseline::EqualParts.run_length(&shape, memory);
        assert!(gain >= 0.9 * simulated, "{n} x {m}: {gain:.2} times fewer, {simulated:.2} simulated");
        assert!(gain >= 0.85 * formulas, "{n} x {m}: {gain:.2} times fewer, {formulas:.2} by the formulas");
    }
}
