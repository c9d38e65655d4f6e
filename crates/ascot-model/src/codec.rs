//! The codecs of spills, and the choice that a user has among them.

use serde::{Deserialize, Serialize};

/// The compression of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// None: the block is stored as it is.
    #[default]
    None,
    /// LZ4 block format.
    Lz4,
    /// One Zstandard frame, at its fastest usual level.
    Zstd,
}

impl Codec {
    /// All, in the order of their numbers.
    pub const ALL: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];

    /// The codecs that compress.
    pub const COMPRESSING: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// Whether a job compresses its spills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
    /// The codec that saves time, or none, block by block.
    #[default]
    Auto,
}

impl Compression {
    /// The codec that the user chose; none: the job chooses.
    pub fn fixed(self) -> Option<Codec> {
        match self {
            Compression::None => Some(Codec::None),
            Compression::Lz4 => Some(Codec::Lz4),
            Compression::Zstd => Some(Codec::Zstd),
            Compression::Auto => None,
        }
    }
}

/// A block that has been stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredBlock {
    /// The codec that was tried.
    pub codec: Codec,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes stored: as many, if it did not shrink.
    pub stored_bytes: u64,
    /// Seconds of a processor.
    pub seconds: f64,
}
