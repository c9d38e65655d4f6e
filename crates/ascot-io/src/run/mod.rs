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

mod index;
mod reader;
mod stored_block;
mod writer;

pub use index::{BlockEntry, RunIndex, read_index, u32_at, u64_at};
pub use reader::{RunFile, RunReader};
pub use stored_block::{
    ChooseCodec, Crc32c, RunId, SpillCodec, block_checksum, codec_bytes, crc32c, sample_codec,
};
pub use writer::RunWriter;
