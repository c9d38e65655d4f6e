//! A writer keeps within its memory: the bytes that it allocates, counted at the allocator, and its resident memory,
//! regions of the pool included, counted by the system. Each case is a process of its own and has a maximum of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod counting;

use std::process::Command;

use ascot_index::hash::mix;
use ascot_index::{DirectoryWriter, Layout, Named, Scheme};
use ascot_io::Disk;

/// What no plan counts: streams, threads of the device and their stacks, names, code that had not run yet.
const CONSTANT_BYTES: usize = 1 << 20;
/// The case of a child: scheme, partitions, bytes of a value or `any`, memory, directory.
const CASE: &str = "ASCOT_MEMORY_CASE";

/// A number of bytes that the system tells of this process.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', '\t', ' ', 'k', 'B']).parse::<usize>().unwrap() << 10
}

/// Writes two epochs, and tells the most bytes of the heap, of the pool, and of the process beyond what it had before.
#[test]
fn a_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let words: Vec<&str> = case.splitn(5, ' ').collect();
    let scheme = Scheme::named(words[0]).unwrap();
    let (value_bytes, memory) = (words[2].parse::<u32>().ok(), words[3].parse::<usize>().unwrap());
    let mut layout = Layout::new(scheme, words[1].parse().unwrap(), 1);
    (layout.key_bytes, layout.value_bytes) = (Some(8), value_bytes);
    let records = if value_bytes == Some(4000) { 10_000 } else { 400_000 };
    let before = status("VmRSS");
    let (pool, heap) = counting::peak_of(|| {
        let path = std::path::Path::new(words[4]);
        let mut writer = DirectoryWriter::create(&Disk::default(), path, layout, memory).unwrap();
        for _ in 0..2 {
            for number in 0..records {
                let value = vec![7; value_bytes.map_or(number as usize % 64, |bytes| bytes as usize)];
                writer.append_record(&mix(number).to_be_bytes(), &value).unwrap();
            }
            writer.end_epoch().unwrap();
        }
        let pool = writer.pool().peak();
        writer.close().unwrap();
        pool
    });
    println!("\npeaks {heap} {pool} {}", status("VmHWM") - before);
}

#[test]
fn the_cap_holds_for_every_scheme_and_size_of_record() {
    for scheme in ["records", "pointers", "ranks"] {
        for (partitions, memory) in [(1, 8 << 20), (4, 12 << 20)] {
            for value in ["2", "40", "4000", "any"] {
                let scratch = tempfile::tempdir().unwrap();
                let path = scratch.path().join("run.dir");
                let case = format!("{scheme} {partitions} {value} {memory} {}", path.display());
                let done = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "a_case", "--nocapture"])
                    .env(CASE, &case)
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&done.stdout);
                let line = text.lines().find_map(|line| line.strip_prefix("peaks ")).expect(&text);
                let peaks: Vec<usize> = line.split(' ').map(|number| number.parse().unwrap()).collect();
                let [heap, pool, resident] = peaks[..] else { panic!("{line}") };
                assert!(pool <= memory && heap <= memory + CONSTANT_BYTES, "{case}: {line}");
                assert!(resident <= memory + CONSTANT_BYTES, "{case}: {line}");
                // It says something only where memory is used; few records of long values fill no tables.
                assert!(resident >= memory / 2 || value == "4000", "{case}: {line}");
            }
        }
    }
}
