//! Support for tests, benches and examples. Other crates use it only as a development dependency; no shipped program
//! contains it.
//!
//! * [`faults`]: operations on files that fail or lie.
//! * [`in_process`]: ranks as threads of one process, in free order or one at a time.
//! * [`limited`]: links between nodes with a bandwidth and a latency, in real or in virtual time.
//! * [`virtual_disk`]: files in memory, and the time a device would have taken for them.
//! * [`virtual_peers`]: two nodes of a machine of any size, with real routers at their ranks.

pub mod faults;
pub mod in_process;
pub mod limited;
pub mod virtual_disk;
pub mod virtual_peers;
