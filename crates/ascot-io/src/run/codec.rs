//! Compresses and decompresses blocks, and decides whether that pays.
//!
//! A block is stored compressed only if that saves pages; otherwise it is stored as it is, and reading it costs no
//! decompression. The scratch memory is one block, allocated once.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::index::Codec;
use crate::PAGE_BYTES;
use crate::error::{Action, IoError};

/// Whether run files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard at its fastest level.
    Zstd,
    /// LZ4 if measuring shows that it saves more device time than it takes.
    Auto,
}

impl Compression {
    pub(super) fn codec(self) -> Codec {
        match self {
            Self::None => Codec::None,
            Self::Lz4 | Self::Auto => Codec::Lz4,
            Self::Zstd => Codec::Zstd,
        }
    }
}

/// The level of Zstandard that still keeps up with disks.
const ZSTD_LEVEL: i32 = 1;

/// Compresses blocks of one run.
pub(super) struct Compressor {
    codec: Codec,
    scratch: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    judge: Option<Judge>,
}

impl Compressor {
    /// `None` if nothing is to be compressed.
    pub(super) fn new(compression: Compression) -> io::Result<Option<Self>> {
        let codec = compression.codec();
        let zstd = match codec {
            Codec::None => return Ok(None),
            Codec::Lz4 => None,
            Codec::Zstd => Some(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
        };
        let judge = (compression == Compression::Auto).then(Judge::default);
        Ok(Some(Self { codec, scratch: Vec::new(), zstd, judge }))
    }

    /// The compressed block, if it saves pages and is worth it. `write_rate` is the device's current rate in bytes
    /// per second.
    pub(super) fn compress(
        &mut self,
        block: &[u8],
        write_rate: impl FnOnce() -> Option<f64>,
    ) -> Option<&[u8]> {
        if self.judge.as_mut().is_some_and(|judge| !judge.tries()) {
            return None;
        }
        let start = Instant::now();
        let len = self.run(block);
        let took = start.elapsed();
        let len = len.filter(|len| pages(*len) < pages(block.len()));
        if let Some(judge) = &mut self.judge {
            let saved = len.map_or(0, |len| block.len() - len);
            judge.note(saved, took, write_rate());
        }
        len.map(|len| &self.scratch[..len])
    }

    /// Compresses into the scratch buffer; `None` if the block does not get smaller.
    fn run(&mut self, block: &[u8]) -> Option<usize> {
        match (&mut self.zstd, self.codec) {
            (Some(zstd), _) => {
                self.scratch.resize(zstd::zstd_safe::compress_bound(block.len()), 0);
                zstd.compress_to_buffer(block, &mut self.scratch[..]).ok()
            }
            _ => {
                self.scratch.resize(lz4_flex::block::get_maximum_output_size(block.len()), 0);
                lz4_flex::block::compress_into(block, &mut self.scratch).ok()
            }
        }
    }
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

/// Decides at regular intervals of blocks whether compressing pays.
///
/// It pays if the device time saved, written once and read once, exceeds the time taken to compress and (about half
/// as long) to decompress.
#[derive(Default)]
struct Judge {
    pays: bool,
    until_next: u32,
}

/// Blocks between two judgements.
const TERM_BLOCKS: u32 = 32;

impl Judge {
    /// Whether to compress this block, to use it or to judge by it.
    fn tries(&mut self) -> bool {
        self.pays || self.until_next == 0 || {
            self.until_next -= 1;
            false
        }
    }

    fn note(&mut self, saved_bytes: usize, took: Duration, write_rate: Option<f64>) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        self.until_next = TERM_BLOCKS;
        // Until a rate is measured, that of an average disk.
        let rate = write_rate.unwrap_or(500e6);
        self.pays = 2.0 * saved_bytes as f64 / rate > 1.5 * took.as_secs_f64();
    }
}

/// Decompresses blocks of one run.
pub struct BlockDecoder {
    codec: Codec,
    scratch: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl BlockDecoder {
    /// A decoder for the run at `path`.
    pub fn new(path: &Path, codec: Codec) -> Result<Self, IoError> {
        let failed = |error| IoError::from_os(Action::Open, path, 0, error);
        let zstd = match codec {
            Codec::None | Codec::Lz4 => None,
            Codec::Zstd => Some(zstd::bulk::Decompressor::new().map_err(failed)?),
        };
        Ok(Self { codec, scratch: Vec::new(), zstd })
    }

    /// Decompresses the first `stored` bytes of `buf` to `raw` bytes in `buf`; false if they do not decompress to
    /// that length.
    pub(super) fn expand(&mut self, buf: &mut [u8], stored: usize, raw: usize) -> bool {
        self.scratch.resize(raw, 0);
        let expanded = match (&mut self.zstd, self.codec) {
            (_, Codec::None) => None,
            (Some(zstd), _) => zstd.decompress_to_buffer(&buf[..stored], &mut self.scratch[..]).ok(),
            (None, _) => lz4_flex::block::decompress_into(&buf[..stored], &mut self.scratch).ok(),
        };
        if expanded != Some(raw) {
            return false;
        }
        buf[..raw].copy_from_slice(&self.scratch);
        true
    }
}
