//! Replaying a trace: the requests of all its files on one volume, real or virtual.
//!
//! ```text
//!   on_disk       a real directory: direct requests to the volume file, repeated, timed
//!   on_virtual    the virtual disk of any profile, with its cache
//!   volume_file   one preallocated file that stands for a volume; its extents
//!   moves         requests as whole blocks of the volume
//!   layout        the place of every block on the volume
//!   space         what is free on it
//! ```
//!
//! The method follows Stella and Loguinov, section VI.D: one contiguous file stands for the volume, every traced file
//! is contiguous on it as far as that takes no more space than the live data, and no cache of the system takes part.

mod layout;
mod moves;
mod on_disk;
mod on_virtual;
mod space;
#[cfg(test)]
mod tests;
mod volume_file;

pub use layout::{Layout, VolumeUse};
pub use moves::Rounding;
pub use on_disk::{DiskReplay, DiskReplayRequest, Pace, replay_on_disk};
pub use on_virtual::{VirtualReplay, replay_on_virtual};
