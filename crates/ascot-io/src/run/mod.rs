//! Run files: checksummed blocks, written forward, with an index at the end.
//!
//! ```text
//!   0            4096 x a       4096 x b             index       end - 64
//!   | block 0 |0| block 1     | block 2 |0| ...    | entries    | footer |
//!              ^ zeros up to the next multiple of 4096
//! ```
//!
//! The checksum of a block is stored in the index, apart from the data, and covers the id of the run and the number of
//! the block as well. It therefore detects damaged blocks and intact blocks in the wrong place or of another run alike.
//! `docs/formats/run.md` describes the format byte by byte.

mod codec;
mod index;
mod reader;
mod writer;

pub use codec::{ChooseCodec, SpillCodec, sample_codec};
pub use index::{BlockEntry, RunIndex, read_index};
pub use reader::{RunFile, RunReader};
pub use writer::RunWriter;

/// A number unique to a run within a job; part of each block's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunId(pub u64);

/// CRC-32C of bytes that arrive in pieces.
pub struct Crc32c {
    digest: crc_fast::Digest,
}

impl Default for Crc32c {
    fn default() -> Self {
        Self { digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi) }
    }
}

impl Crc32c {
    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The checksum of all bytes added.
    pub fn finish(self) -> u32 {
        // 32 bits by the algorithm.
        self.digest.finalize() as u32
    }
}

/// CRC-32C of `parts`, one after another.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut sum = Crc32c::default();
    parts.iter().for_each(|part| sum.update(part));
    sum.finish()
}

/// CRC-32C of run id, block number and the stored bytes of block `number`.
pub fn block_checksum(id: RunId, number: u64, stored: &[u8]) -> u32 {
    crc32c(&[&id.0.to_le_bytes(), &number.to_le_bytes(), stored])
}
