//! Compresses and expands blocks of run files. Which codec a block gets is for others to decide ([`ChooseCodec`]).
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

use crate::PAGE_BYTES;

/// Chooses the codec of each block of run files, and learns what came of it.
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
        let since = processor_time();
        let compressed = WORKSPACE.with_borrow_mut(|space| {
            let compressed = space.compress(codec, &block[..len])?;
            (pages(compressed.len()) < pages(len)).then(|| {
                block[..compressed.len()].copy_from_slice(compressed);
                compressed.len()
            })
        });
        let seconds = processor_time().saturating_sub(since).as_secs_f64();
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
        let since = processor_time();
        let compressed = space.compress(codec, sample)?.to_vec();
        let compressing = processor_time().saturating_sub(since);
        let mut expanded = compressed;
        let stored = expanded.len();
        expanded.resize(stored.max(sample.len()), 0);
        let since = processor_time();
        let expands = space.expand(codec, &mut expanded, stored, sample.len());
        let expanding = processor_time().saturating_sub(since);
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

/// Processor time of this thread: other programs that compute do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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

/// Expands the first `stored` bytes of `buf` to `raw` bytes in `buf`; false if they do not expand to that length.
pub(super) fn expand(codec: Codec, buf: &mut [u8], stored: usize, raw: usize) -> bool {
    WORKSPACE.with_borrow_mut(|space| space.expand(codec, buf, stored, raw))
}
