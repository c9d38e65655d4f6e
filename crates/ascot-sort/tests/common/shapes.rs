//! Shapes of inputs: how keys are spread, and in which order they come.

use super::kinds::Kind;
use super::{Data, Random};

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Random,
    AllEqual,
    TwoKeys,
    /// Few keys have most of the records.
    Zipf,
    Presorted,
    Reversed,
    /// Presorted, one record in a hundred somewhere else.
    Displaced,
    /// Ten sorted files, one behind the other.
    TenSorted,
    /// As the benchmark's skewed records: most keys share long prefixes.
    Skewed,
}

/// All of them.
pub const SHAPES: [Shape; 9] = [
    Shape::Random,
    Shape::AllEqual,
    Shape::TwoKeys,
    Shape::Zipf,
    Shape::Presorted,
    Shape::Reversed,
    Shape::Displaced,
    Shape::TenSorted,
    Shape::Skewed,
];

impl Shape {
    fn key(self, random: &mut Random) -> u64 {
        match self {
            Shape::AllEqual => 0x4142_4344_4546_4748,
            Shape::TwoKeys => random.of(&[0x4142_4344_4546_4748, 0xc142_4344_0000_0001]),
            Shape::Zipf => {
                let rank = 1000f64.powf(random.below(1 << 20) as f64 / f64::from(1 << 20)) as u64;
                Random::new(rank).next()
            }
            Shape::Skewed => {
                let shared = random.below(9);
                let low = random.next().checked_shr(8 * shared as u32).unwrap_or(0);
                low | 0x2020_2020_2020_2020u64 & !(u64::MAX.checked_shr(8 * shared as u32).unwrap_or(0))
            }
            _ => random.next(),
        }
    }
}

/// About `bytes` of records.
pub fn data(kind: &Kind, shape: Shape, bytes: usize, seed: u64) -> Data {
    let mut random = Random::new(seed);
    let mut data = Data::default();
    let mut record = Vec::new();
    while data.bytes.len() < bytes {
        record.clear();
        let (key, serial) = (shape.key(&mut random), random.next());
        (kind.make)(key, serial, &mut record);
        data.push(&record);
    }
    let mut records = data.records();
    match shape {
        Shape::Presorted => sort(kind, &mut records),
        Shape::Reversed => {
            sort(kind, &mut records);
            records.reverse();
        }
        Shape::Displaced => {
            sort(kind, &mut records);
            for _ in 0..records.len() / 100 {
                let (a, b) = (random.below(records.len() as u64), random.below(records.len() as u64));
                records.swap(a as usize, b as usize);
            }
        }
        Shape::TenSorted => {
            let tenth = records.len().div_ceil(10).max(1);
            records.chunks_mut(tenth).for_each(|chunk| sort(kind, chunk));
        }
        _ => return data,
    }
    Data::of(&records)
}

/// Into the order of the kind, ties as its sort breaks them.
pub fn sort(kind: &Kind, records: &mut [&[u8]]) {
    records.sort_by(|a, b| {
        let tie = || if kind.last_resort { (kind.tie_break)(a, b) } else { std::cmp::Ordering::Equal };
        (kind.order)(a, b).then_with(tie)
    });
}
