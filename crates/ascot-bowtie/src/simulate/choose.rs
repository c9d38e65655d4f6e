//! The scheme of an interconnect, chosen by simulation.
//!
//! The formulas of A5 and A6 assume that buckets are filled and emptied exactly. Whole blocks and whole groups cost
//! some of that, and they cost the algorithms differently: with many streams on both sides A6, whose two sides must
//! keep step, loses up to a tenth, and A5 next to nothing. So the best schemes by the formulas are simulated, and the
//! one with the longest runs is chosen.

use ascot_model::run_length::{Algorithm, Scheme, Shape};

use super::{Setup, Skew, simulate};
use crate::constants::{
    BEGINNING_MEMORIES, COMPARED_MEMORIES, COMPARED_RUNS, MAX_COMPARED_BLOCKS, MIN_BLOCKS_PER_STREAM,
};

/// The best scheme for a bowtie whose memory has `memory_blocks` blocks.
#[must_use]
pub fn best_scheme(shape: Shape, memory_blocks: u32) -> Scheme {
    let best = Scheme::best(shape);
    let is_interconnect = shape.inputs > 1 && shape.outputs > 1 && shape.alpha > 0.0 && shape.alpha < 1.0;
    if !is_interconnect || memory_blocks / shape.streams() < MIN_BLOCKS_PER_STREAM {
        return best;
    }
    let blocks = memory_blocks.min(MAX_COMPARED_BLOCKS);
    let schemes = Algorithm::ALL.into_iter().filter_map(|algorithm| Scheme::best_of(shape, algorithm));
    let simulated = schemes.flat_map(neighbours).filter_map(|scheme| {
        let run = run_blocks(scheme, blocks)?;
        Some((scheme, run))
    });
    let longer = |best: (Scheme, f64), next: (Scheme, f64)| if next.1 > best.1 { next } else { best };
    simulated.reduce(longer).map_or(best, |(scheme, _)| scheme)
}

/// A scheme and those whose groups have one stream more or less; of A5, whose two sides need not keep step, also the
/// one whose groups are twice as large, which lose less to whole blocks.
fn neighbours(scheme: Scheme) -> impl Iterator<Item = Scheme> {
    let Scheme { shape, algorithm, read_group, write_group } = scheme;
    let sizes = |grouped: bool, size: f64, streams: u32| {
        let more = if grouped { [0.0, 1.0, -1.0].as_slice() } else { [0.0].as_slice() };
        let possible = 1.0..=f64::from(streams);
        more.iter().map(move |more| size + more).filter(move |size| possible.contains(size))
    };
    let twice = Scheme::new(shape, algorithm, 2.0 * read_group, 2.0 * write_group);
    let fits = 2.0 * read_group <= f64::from(shape.inputs) && 2.0 * write_group <= f64::from(shape.outputs);
    let twice = (algorithm == Algorithm::A5 && fits).then_some(twice);
    let reads = sizes(algorithm.reads_in_groups(), read_group, shape.inputs);
    let near = reads.flat_map(move |read| {
        let writes = sizes(algorithm.writes_in_groups(), write_group, shape.outputs);
        writes.map(move |write| Scheme::new(shape, algorithm, read, write))
    });
    near.chain(twice)
}

/// The mean run of a scheme in its steady state, blocks; none if it cannot go on with so little memory.
fn run_blocks(scheme: Scheme, memory_blocks: u32) -> Option<f64> {
    let memory = f64::from(memory_blocks);
    let begun = f64::from(BEGINNING_MEMORIES) * memory;
    let compared = (COMPARED_MEMORIES * memory).max(COMPARED_RUNS * scheme.run_length(memory));
    let setup = Setup {
        scheme,
        memory_blocks,
        total_blocks: (begun + compared) as u64,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    simulate(&setup, false).ok().map(|outcome| outcome.run_length())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean run soon after the beginning, blocks: what `every_shape` measures.
    fn early_run_blocks(scheme: Scheme, memory_blocks: u32) -> f64 {
        let memory = f64::from(memory_blocks);
        let moved = (8.0 * memory).max(400.0 * scheme.run_length(memory));
        let setup = Setup {
            scheme,
            memory_blocks,
            total_blocks: (5.0 * memory + moved) as u64,
            input_skew: Skew::Equal,
            output_skew: Skew::Equal,
            seed: 1,
        };
        simulate(&setup, false).expect("enough memory").run_length()
    }

    /// Shapes that were found to be the hardest to keep in step, among those up to 64 x 64.
    #[test]
    fn any_shape_reaches_its_formula_with_130_blocks_a_stream() {
        let shapes = [
            (1, 63, 0.8),
            (8, 48, 0.8),
            (14, 64, 0.8),
            (16, 64, 0.8),
            (20, 56, 0.65),
            (22, 36, 0.8),
            (24, 2, 0.8),
            (24, 5, 0.2),
            (24, 32, 0.8),
            (26, 52, 0.65),
            (26, 60, 0.725),
            (28, 56, 0.65),
            (40, 48, 0.8),
            (44, 48, 0.8),
            (48, 24, 0.5),
            (48, 44, 0.725),
            (48, 48, 0.8),
            (48, 64, 0.8),
            (60, 64, 0.8),
            (64, 20, 0.2),
            (64, 64, 0.65),
        ];
        let reached = shapes.map(|(inputs, outputs, alpha)| {
            let shape = Shape { inputs, outputs, alpha };
            let memory_blocks = 130 * (inputs + outputs);
            let formula = Scheme::best(shape).run_length(f64::from(memory_blocks));
            let chosen = best_scheme(shape, memory_blocks);
            let later = run_blocks(chosen, memory_blocks).expect("enough memory");
            (chosen, early_run_blocks(chosen, memory_blocks).min(later) / formula)
        });
        let short: Vec<_> = reached.into_iter().filter(|(_, share)| *share < 0.95).collect();
        assert!(short.is_empty(), "{short:#?}");
    }

    #[test]
    fn other_bowties_have_the_scheme_of_the_formula() {
        for (inputs, outputs, alpha) in [(0, 9, 0.0), (1, 9, 0.5), (9, 0, 1.0), (9, 1, 0.3)] {
            let shape = Shape { inputs, outputs, alpha };
            assert_eq!(best_scheme(shape, 1000), Scheme::best(shape));
        }
    }
}
