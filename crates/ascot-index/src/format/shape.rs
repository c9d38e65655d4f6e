//! The numbers of partitions and writers by epoch: a job that continues a directory may have more or fewer.
//!
//! ```text
//!   epochs     0 ...... 2 | 3 ...... 8 | 9 ..........
//!   shape      earlier[0] | earlier[1] | the layout's
//!              epochs: 3    epochs: 9
//! ```
//!
//! Invariants: `epochs` of `earlier` ascend and do not exceed the complete epochs; a log takes part only in epochs
//! whose shape includes it; every shape includes partition 0 and writer 0.

use serde::{Deserialize, Serialize};

use crate::format::layout::{Layout, Scheme};
use crate::format::names::Log;

/// Partitions and writers of some epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Partitions of the keys.
    pub partitions: u32,
    /// Number of writing processes.
    pub writers: u32,
}

impl Shape {
    /// Whether a log takes part in epochs of this shape.
    pub(super) fn has(self, scheme: Scheme, log: Log) -> bool {
        match log {
            Log::Writer(number) => scheme != Scheme::Records && number < self.writers,
            Log::Partition(number) | Log::Auxiliary(number) => {
                log == Log::of_partition(scheme, number) && number < self.partitions
            }
        }
    }
}

/// The shape of epochs before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Number of complete epochs at the change.
    pub epochs: u64,
    /// Partitions and writers until then.
    #[serde(flatten)]
    pub shape: Shape,
}

impl Layout {
    /// The shape of later epochs.
    pub fn shape(&self) -> Shape {
        Shape { partitions: self.partitions, writers: self.writers }
    }

    pub(super) fn set_shape(&mut self, shape: Shape) {
        self.partitions = shape.partitions;
        self.writers = shape.writers;
    }
}
