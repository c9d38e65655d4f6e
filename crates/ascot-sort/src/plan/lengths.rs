//! The lengths of records at the head of an input, and how well records of such lengths fill blocks.

use ascot_io::PAGE_BYTES;

use crate::records::{InputHead, Records};

/// Lengths of records, estimated from the first ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    /// Mean, bytes, if it is known.
    pub(crate) mean_bytes: Option<f64>,
    /// The length of each of the first records, bytes.
    pub(super) first: Vec<usize>,
    /// Bytes of the header of the output.
    pub(super) header_bytes: u64,
}

impl Lengths {
    /// Lengths if only the mean is known.
    pub(crate) fn from_mean(mean_bytes: Option<f64>, header: Option<&[u8]>) -> Lengths {
        Lengths { mean_bytes, first: Vec::new(), header_bytes: header.map_or(0, <[u8]>::len) as u64 }
    }

    /// Lengths of the records at the head of the input.
    pub(crate) fn from_head<R: Records>(records: &R, head: &InputHead) -> Lengths {
        let whole = records.cut(&head.records, usize::MAX);
        let mean_bytes = (whole.records > 0).then(|| whole.bytes as f64 / whole.records as f64);
        let mut first = Vec::new();
        let mut at = 0;
        // Short records leave almost nothing of a block empty.
        let varies = records.record_bytes().is_none();
        while at < whole.bytes && varies && mean_bytes.is_some_and(|mean| mean > LONG_RECORD_BYTES) {
            let len = records.cut(&head.records[at..whole.bytes], 1).bytes;
            if len == 0 {
                break;
            }
            first.push(len);
            at += len;
        }
        Lengths { first, ..Lengths::from_mean(mean_bytes, head.header.as_deref()) }
    }

    /// Mean length of the records that lie at a given offset, bytes: long ones are the more likely ones.
    pub(super) fn mean_cut_bytes(&self) -> usize {
        let bytes: usize = self.first.iter().sum();
        let squares: f64 = self.first.iter().map(|&len| len as f64 * len as f64).sum();
        (squares / bytes.max(1) as f64) as usize
    }

    /// Bytes of blocks per byte of records, if blocks of `block` bytes hold whole records and are padded to pages. It
    /// is found by filling blocks with the first records again and again.
    pub(super) fn packing(&self, block: usize) -> f64 {
        let mut taken = 0;
        let mut records = 0;
        let mut filled = 0;
        let mut blocks = 0;
        for &len in self.first.iter().cycle() {
            if filled + len > block {
                taken += padded(filled);
                records += filled;
                blocks += 1;
                filled = 0;
            }
            if blocks >= PACKED_BLOCKS {
                break;
            }
            if len > block {
                taken += padded_apart(len, block);
                records += len;
                blocks += len.div_ceil(block);
            } else {
                filled += len.max(1);
            }
        }
        taken as f64 / records.max(1) as f64
    }
}

pub(super) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Bytes of the blocks of a record longer than a block, which hold nothing else.
pub(super) fn padded_apart(len: usize, block: usize) -> usize {
    len / block * block + padded(len % block)
}

/// Mean length, bytes, above which the length of each record matters: shorter ones leave little of a block empty.
const LONG_RECORD_BYTES: f64 = 512.0;
/// Blocks that are filled to estimate how well records fill blocks.
const PACKED_BLOCKS: usize = 64;
