//! Keeps idle processors awake while strace records.
//!
//! At every call that is recorded, the program waits for strace, and strace for the program. If the processor of the
//! one that is woken sleeps, it must first wake up itself, which takes up to fifty microseconds on a virtual machine:
//! longer than all that strace does. The kernel has a request for this, PM QoS: as long as `/dev/cpu_dma_latency` is
//! open and holds 0, idle processors wait in a loop. The request ends with the process, however that ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

const REQUEST: &str = "/dev/cpu_dma_latency";

/// Processors stay awake until this is dropped.
pub(crate) struct Awake {
    _request: File,
}

/// Keeps all processors awake; `None` without the right to (root, in most systems), or on a kernel without the request.
pub(crate) fn keep_awake() -> Option<Awake> {
    let mut request = OpenOptions::new().write(true).open(Path::new(REQUEST)).ok()?;
    // The latency that is allowed, in microseconds.
    request.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(Awake { _request: request })
}
