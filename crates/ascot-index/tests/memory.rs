//! Memory is the cap: whatever a writer allocates while it works, counted at the allocator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod counting;

use ascot_index::hash::mix;
use ascot_index::{DirectoryWriter, Layout, Scheme};
use ascot_io::Disk;

/// What no plan counts: streams, threads of the device, names.
const CONSTANT_BYTES: usize = 1 << 20;

fn peak_of(layout: &Layout, memory: usize, records: u64, value: impl Fn(u64) -> Vec<u8>) -> (usize, usize) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run.dir");
    let (pool, heap) = counting::peak_of(|| {
        let mut writer = DirectoryWriter::create(&Disk::default(), &path, layout.clone(), memory).unwrap();
        for _ in 0..2 {
            for number in 0..records {
                writer.append_record(&mix(number).to_be_bytes(), &value(number)).unwrap();
            }
            writer.end_epoch().unwrap();
        }
        let pool = writer.pool().peak();
        writer.close().unwrap();
        pool
    });
    (heap, pool)
}

#[test]
fn the_cap_holds_for_every_scheme_and_size_of_record() {
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for (partitions, memory) in [(1, 8 << 20), (4, 12 << 20)] {
            for fixed in [Some(2), Some(40), Some(4000), None] {
                let mut layout = Layout::new(scheme, partitions, 1);
                layout.key_bytes = Some(8);
                layout.value_bytes = fixed;
                let records = if fixed == Some(4000) { 10_000 } else { 400_000 };
                let value = |number: u64| vec![7; fixed.map_or(number as usize % 64, |bytes| bytes as usize)];
                let (heap, pool) = peak_of(&layout, memory, records, value);
                assert!(pool <= memory, "{pool}");
                assert!(heap <= memory + CONSTANT_BYTES, "{heap} of {memory}: {layout:?}");
            }
        }
    }
}
