//! Facts from the system about this process and its files: descriptors, processors, memory used, the device of a path.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZero;
use std::path::Path;

/// Peak resident memory of this process, bytes, as counted by the kernel.
pub fn peak_memory_bytes() -> u64 {
    // In one read: the kernel generates the text anew for each read.
    let mut status = [0; 4096];
    let len = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status)).unwrap_or(0);
    let status = String::from_utf8_lossy(&status[..len]);
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Number of descriptors this process may still open, less a reserve for those that are always open.
pub fn descriptors() -> usize {
    ascot_io::descriptor_limit().min(1 << 20).saturating_sub(32).max(4)
}

/// The number of the device that holds the bytes of `path`; none if the path cannot be inspected.
pub fn device_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|stat| ascot_io::device_of(&stat))
}

/// The number of compute threads: `asked`, at least one; or one per core.
pub(crate) fn compute_threads(asked: Option<usize>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), |asked| asked.max(1))
}
