//! A batch: records of one chunk for the partitions of one destination, as it travels between nodes.
//!
//! ```text
//!   0   magic "ASCB", version 1                        4 + 4
//!   8   job                                            16
//!   24  chunk, destination, number, 1 if it is the last of the chunk for the destination    4 each
//!   40  number of pieces                               4
//!   44  CRC-32C of the bytes before, and of the table  4
//!   48  for each piece: partition, CRC-32C of its bytes, number of bytes                     4 + 4 + 8
//!       the bytes of the pieces, one after another
//! ```
//!
//! A piece is consecutive bytes of a partition; records may span the pieces of two batches.

use std::ops::Range;

use ascot_io::crc32c;

use super::entries::Entries;

const MAGIC: &[u8; 4] = b"ASCB";
const VERSION: u32 = 1;

/// Bytes before the table of pieces.
const HEADER_BYTES: usize = 48;
/// Bytes of an entry of the table.
const PIECE_BYTES: usize = 16;
/// Offset of the checksum of header and table.
const SUM_AT: usize = 44;

/// Maximum number of batches of a chunk for one destination: with many nodes, batches are small beside chunks, and all
/// records of a chunk may be for one destination.
pub const BATCHES_MAX: u32 = 4096;

/// Maximum number of partitions of a job, which mappers count by 16 bits.
const PARTITIONS_MAX: usize = 1 << 16;

/// The identity of a job.
pub type JobId = [u8; 16];

/// What makes a batch unique in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNumber {
    /// The chunk.
    pub chunk: u32,
    /// The destination.
    pub destination: u32,
    /// Its number among the batches of both, from 0; less than [`BATCHES_MAX`].
    pub number: u32,
    /// Whether it is the last of them.
    pub last: bool,
}

/// A piece of a partition in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPiece {
    /// The partition.
    pub partition: u32,
    /// The place of its bytes in the batch.
    pub range: Range<usize>,
    /// CRC-32C of its bytes.
    pub sum: u32,
}

/// A batch that was received.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The job.
    pub job: JobId,
    /// Its number.
    pub number: BatchNumber,
    /// Its pieces.
    pub pieces: Vec<BatchPiece>,
    /// All of its bytes.
    pub bytes: &'a [u8],
}

/// Length of a batch with pieces of these lengths.
pub fn batch_bytes(pieces: &[(u32, usize)]) -> usize {
    HEADER_BYTES + pieces.len() * PIECE_BYTES + pieces.iter().map(|(_, bytes)| bytes).sum::<usize>()
}

/// Maximum length of a batch if batches should have `batch_bytes`: those of a chunk may be almost twice as long, and a
/// batch has at most a piece for each partition.
pub fn longest_batch(batch_bytes: usize) -> usize {
    2 * batch_bytes + HEADER_BYTES + PIECE_BYTES * PARTITIONS_MAX
}

/// Header and table of a batch whose pieces have these partitions, lengths and checksums.
pub fn batch_head(job: JobId, number: BatchNumber, pieces: &[(u32, usize, u32)]) -> Vec<u8> {
    let BatchNumber { chunk, destination, number, last } = number;
    let mut head = Vec::with_capacity(HEADER_BYTES + pieces.len() * PIECE_BYTES);
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend(job);
    for field in [chunk, destination, number, u32::from(last), pieces.len() as u32, 0] {
        head.extend(field.to_le_bytes());
    }
    for &(partition, bytes, sum) in pieces {
        head.extend(partition.to_le_bytes());
        head.extend(sum.to_le_bytes());
        head.extend((bytes as u64).to_le_bytes());
    }
    let sum = crc32c(&[&head[..SUM_AT], &head[HEADER_BYTES..]]);
    head[SUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Writes a batch to `out`, which has [`batch_bytes`] bytes. `copy` writes the bytes of each piece to its place.
pub fn write_batch(
    job: JobId,
    number: BatchNumber,
    pieces: &[(u32, usize)],
    out: &mut [u8],
    mut copy: impl FnMut(usize, &mut [u8]),
) {
    let (head, mut rest) = out.split_at_mut(HEADER_BYTES + pieces.len() * PIECE_BYTES);
    let mut table = Vec::with_capacity(pieces.len());
    for (at, &(partition, bytes)) in pieces.iter().enumerate() {
        let (own, after) = rest.split_at_mut(bytes);
        copy(at, own);
        table.push((partition, bytes, crc32c(&[own])));
        rest = after;
    }
    head.copy_from_slice(&batch_head(job, number, &table));
}

impl<'a> Batch<'a> {
    /// Reads a batch and checks all of its checksums.
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, &'static str> {
        let (number, job, count) = header(bytes).ok_or("a batch has no valid header")?;
        let table_end = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(PIECE_BYTES)?.checked_add(HEADER_BYTES))
            .filter(|&end| end <= bytes.len())
            .ok_or("a batch is cut short")?;
        let sum = Entries(&bytes[SUM_AT..]).u32();
        if sum != Some(crc32c(&[&bytes[..SUM_AT], &bytes[HEADER_BYTES..table_end]])) {
            return Err("the header of a batch is damaged");
        }
        let mut table = Entries(&bytes[HEADER_BYTES..table_end]);
        let mut pieces = Vec::with_capacity(count as usize);
        let mut at = table_end;
        while let (Some(partition), Some(sum), Some(len)) = (table.u32(), table.u32(), table.u64()) {
            let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len));
            let end = end.filter(|&end| end <= bytes.len()).ok_or("a batch is cut short")?;
            if crc32c(&[&bytes[at..end]]) != sum {
                return Err("the records of a batch are damaged");
            }
            pieces.push(BatchPiece { partition, range: at..end, sum });
            at = end;
        }
        if at != bytes.len() || number.number >= BATCHES_MAX {
            return Err("a batch has bytes or a number that it should not have");
        }
        Ok(Batch { job, number, pieces, bytes })
    }
}

fn header(bytes: &[u8]) -> Option<(BatchNumber, JobId, u32)> {
    let mut fields = Entries(bytes.get(..HEADER_BYTES)?);
    if fields.take(MAGIC.len())? != MAGIC || fields.u32()? != VERSION {
        return None;
    }
    let job = fields.take(16)?.try_into().ok()?;
    let chunk = fields.u32()?;
    let destination = fields.u32()?;
    let number = fields.u32()?;
    let last = fields.u32()? != 0;
    Some((BatchNumber { chunk, destination, number, last }, job, fields.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        let number = BatchNumber { chunk: 3, destination: 2, number: 1, last: true };
        let pieces = [(7, 5), (9, 0), (11, 3)];
        let mut bytes = vec![0; batch_bytes(&pieces)];
        write_batch([8; 16], number, &pieces, &mut bytes, |at, out| out.fill(b'a' + at as u8));
        bytes
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let bytes = example();
        let batch = Batch::parse(&bytes).expect("whole");
        assert_eq!(batch.job, [8; 16]);
        assert_eq!(batch.number, BatchNumber { chunk: 3, destination: 2, number: 1, last: true });
        let pieces: Vec<_> =
            batch.pieces.iter().map(|piece| (piece.partition, &bytes[piece.range.clone()])).collect();
        assert_eq!(pieces, [(7, &b"aaaaa"[..]), (9, b""), (11, b"ccc")]);
    }

    #[test]
    fn any_damage_is_found_and_none_is_a_panic() {
        let bytes = example();
        for end in 0..bytes.len() {
            assert!(Batch::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert!(Batch::parse(&other).is_err(), "byte {at}");
        }
        assert!(Batch::parse(&[bytes, vec![0]].concat()).is_err());
    }
}
