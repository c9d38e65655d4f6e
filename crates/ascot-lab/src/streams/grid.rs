//! The cells that Heinrich et al. measured: their tables 2 to 6, their figures 4 to 29 and their appendix, without the
//! cells that they skipped, and a grid of the same form that takes two minutes.

use std::ops::RangeInclusive;

use ascot_io::Direction;

use super::cell::{Backend, Cache, Cell};

/// Both directions, in the order of Heinrich et al.
pub const DIRECTIONS: [Direction; 2] = [Direction::Write, Direction::Read];
/// Both states of the cache.
pub const CACHES: [Cache; 2] = [Cache::Warm, Cache::Cold];

/// Larger direct blocks, several of them in flight, need more memory than the paper's machine had.
const MAX_DIRECT_EXPONENT: u8 = 25;

/// The values of a grid.
#[derive(Debug, Clone)]
pub struct Grid {
    /// N of streams that are interleaved.
    pub elements: Vec<u64>,
    /// Larger N, for few streams.
    pub large_elements: Vec<u64>,
    /// k.
    pub streams: Vec<u32>,
    /// k of buffered streams of large N; plain streams of large N are measured alone.
    pub large_streams: Vec<u32>,
    /// Exponents of B for all N of `elements`.
    pub exponents: Vec<u8>,
    /// Loops; the first is left out.
    pub loops: u32,
}

impl Grid {
    /// The whole study of Heinrich et al. (section 3.2.3 and the appendix).
    pub fn published() -> Self {
        let exponents = (0..=20).chain([25, 30]).collect();
        Self {
            elements: vec![1000, 10_000, 100_000, 1_000_000, 10_000_000],
            large_elements: vec![100_000_000, 250_000_000],
            streams: vec![1, 2, 3, 4, 5, 10, 20, 30],
            large_streams: vec![1, 2],
            exponents,
            loops: 6,
        }
    }

    /// The same tables and figures from smaller files.
    pub fn quick() -> Self {
        Self {
            elements: vec![1000, 3000, 10_000],
            large_elements: vec![100_000, 1_000_000],
            streams: vec![1, 2, 3, 4, 5, 10, 20, 30],
            large_streams: vec![1, 2],
            exponents: vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 18, 20, 25],
            loops: 3,
        }
    }

    /// All cells of this grid, in the order in which they are measured: for each state of the cache and each N, files
    /// are written and then read.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let all: Vec<u64> = self.elements.iter().chain(&self.large_elements).copied().collect();
        for elements in all {
            for direction in DIRECTIONS {
                for cache in CACHES {
                    for backend in Backend::ALL {
                        self.add(&mut cells, direction, backend, elements, cache);
                    }
                }
            }
        }
        cells
    }

    fn add(
        &self,
        cells: &mut Vec<Cell>,
        direction: Direction,
        backend: Backend,
        elements: u64,
        cache: Cache,
    ) {
        let large = self.large_elements.contains(&elements);
        let streams: &[u32] = match backend {
            Backend::Plain if large => &[1],
            Backend::Buffered if large => &self.large_streams,
            Backend::Plain | Backend::Buffered => &self.streams,
            _ => &[1],
        };
        let smallest = backend.min_exponent();
        let exponents: Vec<u8> = match backend {
            Backend::Plain | Backend::Buffered => vec![0],
            _ => {
                let largest = if backend == Backend::Direct { MAX_DIRECT_EXPONENT } else { u8::MAX };
                let fits = |exponent: &u8| (smallest..=largest).contains(exponent);
                self.exponents.iter().copied().filter(fits).collect()
            }
        };
        for &streams in streams {
            for &exponent in &exponents {
                let cell = Cell { direction, backend, exponent, streams, elements, cache, loops: self.loops };
                if !(large && skipped_when_large(&cell)) {
                    cells.push(cell);
                }
            }
        }
    }
}

/// Exponents of sized and mapped streams that Heinrich et al. measured for large N; the appendix has dashes for the
/// others.
fn skipped_when_large(cell: &Cell) -> bool {
    const SIZED: RangeInclusive<u8> = 8..=20;
    let small: u8 = match cell.backend {
        Backend::Sized => 1,
        Backend::Mapped => 5,
        _ => return false,
    };
    !(cell.exponent == small || SIZED.contains(&cell.exponent) || cell.exponent == 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_are_those_of_the_appendix() {
        let cells = Grid::published().cells();
        let count = |backend, elements| {
            let of = |cell: &&Cell| {
                let Cell { direction, cache, .. } = **cell;
                (direction, cache) == (Direction::Write, Cache::Warm)
                    && cell.backend == backend
                    && cell.elements == elements
            };
            cells.iter().filter(of).count()
        };
        // Rows of the tables "write simple" and "write buffer": eight k, and one or two for large N.
        assert_eq!([count(Backend::Plain, 10_000_000), count(Backend::Plain, 100_000_000)], [8, 1]);
        assert_eq!([count(Backend::Buffered, 1000), count(Backend::Buffered, 250_000_000)], [8, 2]);
        // "Buffer B write": 23 exponents; for large N 2^1, 2^8 to 2^20 and 2^30.
        assert_eq!([count(Backend::Sized, 1000), count(Backend::Sized, 250_000_000)], [23, 15]);
        // "Mapping write": no windows below four bytes; for large N 2^5, 2^8 to 2^20 and 2^30.
        assert_eq!([count(Backend::Mapped, 10_000_000), count(Backend::Mapped, 100_000_000)], [21, 15]);
        assert_eq!(cells.len() % 4, 0, "both directions and both states of the cache have the same cells");
    }

    #[test]
    fn no_cell_is_measured_twice() {
        for grid in [Grid::published(), Grid::quick()] {
            let mut cells = grid.cells();
            let count = cells.len();
            cells.sort();
            cells.dedup();
            assert_eq!(cells.len(), count);
        }
    }
}
