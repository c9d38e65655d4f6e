//! The resources of a process: memory and its control group, threads, descriptors, turns on a device.

pub mod chunk_pool;
pub mod control_group;
pub mod limits;
pub mod turns;

pub(crate) use chunk_pool::{CHUNKS_READ, ChunkPool, HELD_FREE_CHUNKS, Lease, Long, Starving};
pub(crate) use control_group::{GroupMemory, LoweredCap, lowered};
pub(crate) use limits::{compute_threads, descriptors, device_of, peak_memory_bytes};
pub(crate) use turns::{DeviceAccess, Role, Turns};
