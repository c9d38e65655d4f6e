//! Run files: checksummed blocks, written forward, with an index at the end.
//!
//! ```text
//!   0            4096 x a       4096 x b             index       end - 64
//!   | block 0 |0| block 1     | block 2 |0| ...    | entries    | footer |
//!              ^ zeros up to the next multiple of 4096
//! ```
//!
//! A block's checksum is kept in the index, apart from the data, and starts from the run's id and
//! the block's number: a block that is intact but in the wrong place, or of another run, is found
//! as surely as a damaged one. The format is described byte for byte in `docs/formats/run.md`.

mod codec;
mod index;
mod reader;
mod writer;

pub use codec::Compression;
pub use index::{BlockEntry, Codec, RunIndex, read_index};
pub use reader::RunReader;
pub use writer::RunWriter;

/// A number that tells one run from every other of a job; part of each block's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunId(pub u64);

/// CRC-32C of `parts`, one after another.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // 32 bits by the algorithm.
    digest.finalize() as u32
}

/// The checksum of a block's stored bytes: as if run id and block number stood before them.
pub fn block_crc(id: RunId, number: u64, stored: &[u8]) -> u32 {
    crc32c(&[&id.0.to_le_bytes(), &number.to_le_bytes(), stored])
}
