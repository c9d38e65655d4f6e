//! Compressing and decompressing blocks, and deciding whether it pays.
//!
//! A block is stored compressed only where that saves pages; otherwise it is stored as it is, so
//! that data that does not compress costs no time to read. Scratch is one block, allocated once.

use std::io;
use std::time::{Duration, Instant};

use super::index::Codec;
use crate::PAGE_BYTES;

/// Whether run files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard at its fastest level.
    Zstd,
    /// LZ4 where measuring shows that it saves more device time than it takes.
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
/// Memory a Zstandard context may take at that level.
pub(super) const ZSTD_CONTEXT_BYTES: usize = 2 << 20;
/// Memory of LZ4's table.
pub(super) const LZ4_TABLE_BYTES: usize = 16 << 10;

/// Compresses blocks of one run.
pub(super) struct Compressor {
    codec: Codec,
    scratch: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    judge: Option<Judge>,
}

impl Compressor {
    /// `None` where nothing is to be compressed.
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

    /// Memory compressing blocks of `len` takes.
    pub(super) fn memory(codec: Codec, len: usize) -> usize {
        match codec {
            Codec::None => 0,
            Codec::Lz4 => LZ4_TABLE_BYTES + lz4_flex::block::get_maximum_output_size(len),
            Codec::Zstd => ZSTD_CONTEXT_BYTES + zstd::zstd_safe::compress_bound(len),
        }
    }

    /// The compressed block, where that saves pages and is worth it. `write_rate` is what the
    /// device takes now, in bytes a second.
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

    /// Compresses into the scratch; `None` where the block does not get smaller.
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

/// Decides, every so many blocks, whether compressing pays.
///
/// It pays where the device time saved, written once and read once, exceeds the time taken to
/// compress and (about half as long) to decompress.
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
        // Without a measured rate yet, a middling disk's.
        let rate = write_rate.unwrap_or(500e6);
        self.pays = 2.0 * saved_bytes as f64 / rate > 1.5 * took.as_secs_f64();
    }
}

/// Decompresses blocks of one run.
pub(super) struct Decompressor {
    codec: Codec,
    scratch: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// `None` where nothing is compressed.
    pub(super) fn new(codec: Codec) -> io::Result<Option<Self>> {
        let zstd = match codec {
            Codec::None => return Ok(None),
            Codec::Lz4 => None,
            Codec::Zstd => Some(zstd::bulk::Decompressor::new()?),
        };
        Ok(Some(Self { codec, scratch: Vec::new(), zstd }))
    }

    /// Memory decompressing blocks of up to `raw` bytes takes.
    pub(super) fn memory(codec: Codec, raw: usize) -> usize {
        match codec {
            Codec::None => 0,
            Codec::Lz4 => raw,
            Codec::Zstd => ZSTD_CONTEXT_BYTES + raw,
        }
    }

    /// Replaces the first `stored` bytes of `buf` by the `raw` bytes they stand for; false where
    /// they do not stand for that many.
    pub(super) fn expand(&mut self, buf: &mut [u8], stored: usize, raw: usize) -> bool {
        self.scratch.resize(raw, 0);
        let expanded = match (&mut self.zstd, self.codec) {
            (Some(zstd), _) => zstd.decompress_to_buffer(&buf[..stored], &mut self.scratch[..]).ok(),
            _ => lz4_flex::block::decompress_into(&buf[..stored], &mut self.scratch).ok(),
        };
        if expanded != Some(raw) {
            return false;
        }
        buf[..raw].copy_from_slice(&self.scratch);
        true
    }
}
