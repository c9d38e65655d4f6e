//! The two structures of auxiliary tables beside each other: bits a key, time to build, ranks named in vain.
//!
//! Usage: `auxiliary [KEYS] [REGION_KEYS]`; a million keys in regions of 8192 if not given. A row for each number of
//! ranks and of fingerprint bits; ranks in vain are those named for keys that are there, beyond the right one, and
//! those named for keys that are not.

use std::time::Instant;

use ascot_index::AuxiliaryKind;
use ascot_index::auxiliary::{Shape, build, entry, ranks};
use ascot_index::hash::mix;

fn main() {
    let number =
        |at: usize, usual: u64| std::env::args().nth(at).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let (keys, region) = (number(1, 1 << 20), number(2, 8192).max(1));
    println!(
        "| ranks | structure | fingerprint | bits a key | build, ns a key | in vain, present | in vain, absent |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for rank_bits in [1u8, 12, 17, 24] {
        for (kind, name, fingerprints) in
            [(AuxiliaryKind::Cuckoo, "cuckoo", [4, 6, 8]), (AuxiliaryKind::Static, "static", [1, 4, 5])]
        {
            for fingerprint_bits in fingerprints {
                let shape = Shape { kind, fingerprint_bits, rank_bits };
                let row = measure(shape, keys, region);
                println!("| {} | {name} | {fingerprint_bits} | {row}", 1u64 << rank_bits);
            }
        }
    }
}

fn measure(shape: Shape, keys: u64, region: u64) -> String {
    let most = 1u64 << shape.rank_bits;
    let (mut bytes, mut seconds, mut present, mut absent) = (0, 0.0, 0, 0);
    for first in (0..keys).step_by(region as usize) {
        let own = first..(first + region).min(keys);
        let mut entries: Vec<u64> =
            own.clone().map(|key| entry(mix(key), (mix(!key) % most) as u32)).collect();
        entries.sort_unstable();
        let since = Instant::now();
        let built = build(shape, &entries);
        seconds += since.elapsed().as_secs_f64();
        bytes += built.len();
        let named = |key: u64| ranks(&built, mix(key)).map_or(0, |found| found.len() as u64);
        present += own.clone().map(named).sum::<u64>() - (own.end - own.start);
        absent += own.map(|key| named(key + keys)).sum::<u64>();
    }
    let each = |sum: f64| sum / keys as f64;
    format!(
        "{:.2} | {:.0} | {:.4} | {:.4} |",
        each(bytes as f64 * 8.0),
        each(seconds * 1e9),
        each(present as f64),
        each(absent as f64)
    )
}
