//! A block as run files store it: its codec and its checksum. The caller chooses the codec of a block
//! ([`ChooseCodec`]).
//!
//! A block is stored compressed only if that saves pages; otherwise it is stored as it is, and reading it costs no
//! expanding.
//!
//! Invariant: a thread has one set of buffers, however many run files it writes and reads: about a block, and the state
//! of the codec.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ascot_model::codec::{Codec, StoredBlock};
use ascot_model::compression::{CodecFigures, Sample};

use crate::{PAGE_BYTES, processor_time};

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

/// Chooses the codec of each block of run files, from the results of earlier ones.
pub trait ChooseCodec: Send + Sync {
    /// The codec for `block`.
    fn choose(&self, block: &[u8]) -> Codec;
    /// Learns how a block was stored.
    fn note(&self, stored: StoredBlock);
}

/// The choice of codecs of a job; clones share it.
#[derive(Clone)]
pub struct SpillCodec(Arc<dyn ChooseCodec>);

impl SpillCodec {
    /// A choice that is made block by block.
    pub fn new(choice: Arc<dyn ChooseCodec>) -> Self {
        Self(choice)
    }

    /// Compresses the first `len` bytes of `block` in place if that saves pages.
    pub(super) fn compress(&self, block: &mut [u8], len: usize) -> Compressed {
        let codec = self.0.choose(&block[..len]);
        if codec == Codec::None {
            self.0.note(StoredBlock { codec, bytes: len as u64, stored_bytes: len as u64, seconds: 0.0 });
            return Compressed { codec, bytes: len };
        }
        let since = processor_time::of_thread();
        let compressed = WORKSPACE.with_borrow_mut(|space| {
            let compressed = space.compress(codec, &block[..len])?;
            (pages(compressed.len()) < pages(len)).then(|| {
                block[..compressed.len()].copy_from_slice(compressed);
                compressed.len()
            })
        });
        let seconds = processor_time::of_thread().saturating_sub(since).as_secs_f64();
        let bytes = compressed.unwrap_or(len);
        self.0.note(StoredBlock { codec, bytes: len as u64, stored_bytes: bytes as u64, seconds });
        Compressed { codec: if compressed.is_some() { codec } else { Codec::None }, bytes }
    }
}

/// A block as it is stored.
pub(super) struct Compressed {
    /// None: as it is.
    pub(super) codec: Codec,
    /// Bytes to store.
    pub(super) bytes: usize,
}

/// The same codec for all blocks.
impl ChooseCodec for Codec {
    fn choose(&self, _: &[u8]) -> Codec {
        *self
    }

    fn note(&self, _: StoredBlock) {}
}

impl From<Codec> for SpillCodec {
    fn from(codec: Codec) -> Self {
        Self(Arc::new(codec))
    }
}

/// Bytes of a block that are compressed as a sample.
const SAMPLE_BYTES: usize = 128 << 10;

/// Compresses and expands the beginning of `block` with `codec`, to measure it; none if the library fails.
pub fn sample_codec(codec: Codec, block: &[u8]) -> Option<Sample> {
    let sample = &block[..block.len().min(SAMPLE_BYTES)];
    WORKSPACE.with_borrow_mut(|space| {
        let since = processor_time::of_thread();
        let compressed = space.compress(codec, sample)?.to_vec();
        let compressing = processor_time::of_thread().saturating_sub(since);
        let mut expanded = compressed;
        let stored = expanded.len();
        expanded.resize(stored.max(sample.len()), 0);
        let since = processor_time::of_thread();
        let expands = space.expand(codec, &mut expanded, stored, sample.len());
        let expanding = processor_time::of_thread().saturating_sub(since);
        let rate = |time: Duration| sample.len() as f64 / time.as_secs_f64().max(1e-9);
        let ratio = (stored as f64 / sample.len().max(1) as f64).min(1.0);
        let figures = CodecFigures {
            ratio,
            compress_bytes_per_s: rate(compressing),
            expand_bytes_per_s: rate(expanding),
        };
        expands.then_some(Sample { codec, figures })
    })
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

/// The level of Zstandard that still keeps up with disks.
const ZSTD_LEVEL: i32 = 1;

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// The buffers of the codecs.
#[derive(Default)]
struct Workspace {
    scratch: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Workspace {
    /// The compressed block; none if the library fails: the block is then stored as it is.
    fn compress(&mut self, codec: Codec, block: &[u8]) -> Option<&[u8]> {
        let len = match codec {
            Codec::None => return None,
            Codec::Lz4 => {
                self.scratch.resize(lz4_flex::block::get_maximum_output_size(block.len()), 0);
                lz4_flex::block::compress_into(block, &mut self.scratch).ok()?
            }
            Codec::Zstd => {
                let compressor = match &mut self.compressor {
                    Some(compressor) => compressor,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                self.scratch.resize(zstd::zstd_safe::compress_bound(block.len()), 0);
                compressor.compress_to_buffer(block, &mut self.scratch[..]).ok()?
            }
        };
        Some(&self.scratch[..len])
    }

    fn expand(&mut self, codec: Codec, buf: &mut [u8], stored: usize, raw: usize) -> bool {
        self.scratch.resize(raw, 0);
        let expanded = match codec {
            Codec::None => None,
            Codec::Lz4 => lz4_flex::block::decompress_into(&buf[..stored], &mut self.scratch).ok(),
            Codec::Zstd => self.expand_zstd(&buf[..stored]),
        };
        if expanded != Some(raw) {
            return false;
        }
        buf[..raw].copy_from_slice(&self.scratch);
        true
    }

    fn expand_zstd(&mut self, stored: &[u8]) -> Option<usize> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().ok()?),
        };
        decompressor.decompress_to_buffer(stored, &mut self.scratch[..]).ok()
    }
}

/// Threads of a job that use codecs at once: one writes spills and one reads them, or one does both.
const CODEC_THREADS: usize = 2;
/// Memory of a Zstandard context that compresses, beside what grows with the block, and per byte of a block.
const ZSTD_COMPRESSOR_BYTES: usize = 160 << 10;
const ZSTD_BYTES_PER_BYTE: usize = 4;
/// Bytes that Zstandard compresses at once: its context does not grow with longer blocks.
const ZSTD_BLOCK_BYTES: usize = 128 << 10;
/// Memory of a Zstandard context that expands.
const ZSTD_EXPANDER_BYTES: usize = 112 << 10;
/// Memory of the table with which lz4 compresses.
const LZ4_TABLE_BYTES: usize = 32 << 10;

/// Memory that a job takes to compress and expand blocks of up to `block` bytes with `codec`.
pub fn codec_bytes(codec: Codec, block: usize) -> usize {
    match codec {
        Codec::None => 0,
        Codec::Lz4 => CODEC_THREADS * lz4_flex::block::get_maximum_output_size(block) + LZ4_TABLE_BYTES,
        Codec::Zstd => {
            let buffers = CODEC_THREADS * (zstd::zstd_safe::compress_bound(block) + ZSTD_EXPANDER_BYTES);
            let compressor = ZSTD_COMPRESSOR_BYTES + ZSTD_BYTES_PER_BYTE * block.min(ZSTD_BLOCK_BYTES);
            buffers + compressor
        }
    }
}

/// Expands the first `stored` bytes of `buf` to `raw` bytes in `buf`; false if they do not expand to that length.
pub(super) fn expand(codec: Codec, buf: &mut [u8], stored: usize, raw: usize) -> bool {
    WORKSPACE.with_borrow_mut(|space| space.expand(codec, buf, stored, raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_take_the_memory_that_is_counted() {
        for block in [32 << 10, 128 << 10, 512 << 10, 1 << 20] {
            let text: Vec<u8> =
                (0u64..).flat_map(|at| format!("{} ", at * at % 7919).into_bytes()).take(block).collect();
            let mut space = Workspace::default();
            let compressed = space.compress(Codec::Zstd, &text).expect("it compresses").to_vec();
            let of_compressor = space.compressor.as_mut().expect("it is made").context_mut().sizeof();
            let counted = ZSTD_COMPRESSOR_BYTES + ZSTD_BYTES_PER_BYTE * block.min(ZSTD_BLOCK_BYTES);
            assert!(
                of_compressor <= counted && counted < 2 * of_compressor,
                "{block} {of_compressor} {counted}"
            );
            let mut context = zstd::zstd_safe::DCtx::create();
            let mut out = vec![0; block];
            assert_eq!(context.decompress(&mut out[..], &compressed).ok(), Some(block));
            let expander = context.sizeof();
            assert!(expander <= ZSTD_EXPANDER_BYTES && ZSTD_EXPANDER_BYTES < 2 * expander, "{expander}");
            let of_buffers = CODEC_THREADS * space.scratch.capacity();
            let all = of_compressor + CODEC_THREADS * expander + of_buffers;
            assert!(all <= codec_bytes(Codec::Zstd, block), "{block} {all}");
        }
    }
}
