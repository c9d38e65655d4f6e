//! The shape of a bowtie: how many streams it has on the device, and how much of its bytes it reads.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The numbers of streams, and the share of reading in the bytes that move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Input streams on the device, n; 0: the data come from elsewhere.
    pub inputs: u32,
    /// Output streams on the device, m; 0: the data go elsewhere.
    pub outputs: u32,
    /// Bytes read as a share of all bytes read and written.
    pub alpha: f64,
}

/// The share if bytes read equal bytes written.
pub const HALF: f64 = 0.5;

/// Numbers that describe no bowtie.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum BadShape {
    /// Neither inputs nor outputs.
    #[error("a bowtie needs streams\n  give it inputs or outputs: --inputs 1 or --outputs 1")]
    NoStreams,
    /// A share outside of 0 to 1, or one that leaves no bytes for the inputs or the outputs.
    #[error(
        "--alpha {0}: with inputs and outputs both shares must be positive\n  give a number between 0 and 1, \
         excluding both"
    )]
    Alpha(f64),
}

impl Shape {
    /// A bowtie that reads the share `alpha` of its bytes; without inputs it reads nothing, without outputs it writes
    /// nothing, whatever `alpha` is.
    ///
    /// # Errors
    /// [`BadShape`] where there are no streams, or where inputs or outputs have no bytes.
    pub fn checked(inputs: u32, outputs: u32, alpha: f64) -> Result<Self, BadShape> {
        match (inputs, outputs) {
            (0, 0) => Err(BadShape::NoStreams),
            (1.., 1..) if !(alpha > 0.0 && alpha < 1.0) => Err(BadShape::Alpha(alpha)),
            (inputs, outputs) => Ok(Shape::moving(inputs, outputs, alpha, 1.0 - alpha)),
        }
    }

    /// A shape in which `read_bytes` become `written_bytes`.
    pub fn moving(inputs: u32, outputs: u32, read_bytes: f64, written_bytes: f64) -> Self {
        let alpha = match (inputs, outputs) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => read_bytes / (read_bytes + written_bytes),
        };
        Shape { inputs, outputs, alpha }
    }

    /// Streams on the device, n + m.
    pub fn streams(&self) -> u32 {
        self.inputs + self.outputs
    }

    /// The reader-writer symmetric shape (section IV.C): inputs become outputs.
    pub fn mirrored(&self) -> Self {
        Shape { inputs: self.outputs, outputs: self.inputs, alpha: 1.0 - self.alpha }
    }
}
