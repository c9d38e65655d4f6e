//! What a process has to work with: memory and its control group, threads, descriptors, the turn on a device.

pub mod control_group;
pub mod limits;
pub mod pieces;
pub mod turns;
pub(crate) use limits::{compute_threads, descriptors, device_of, peak_memory_bytes};
pub(crate) use pieces::{Lease, Long, PIECES_READ, PiecePool, Starving};
pub(crate) use turns::{Seat, Side, Turns};

pub(crate) use control_group::{GroupMemory, LoweredCap, lowered};
