//! The positions in the order of the sort at which partitions begin, and the partition of a record.
//!
//! ```text
//!   order of the sort   a  a  b  k1 k1 k1 k1 k1 k1 k1  m  z        ("k" is a frequent key)
//!   bounds                    │        │        │      │
//!   partitions             0  │    1   │   2    │  3   │  4
//!                             b   (k, 700)  (k, 2100)  m           position in the inputs, bytes
//! ```
//!
//! A sort position is a key and a byte position in the inputs; where the sort orders records of equal keys further, by
//! their bytes, also the record. So a frequent key has as many partitions as its share of the records asks for, and the
//! partitions are still ranges of one total order: that in which a sort on one machine writes the records.
//!
//! ```text
//!   bytes    magic, version 1, number of positions, CRC-32C of the positions
//!   each     position in the inputs (8), length of the key (4), length of the record plus one or 0 for none (4),
//!            key, record
//! ```

use std::cmp::Ordering;

use ascot_io::crc32c;
use ascot_record::order::prefix;

use super::Shuffle;
use super::entries::Entries;
use crate::api::{Result, SortError};
use crate::records::{Records, with_records};

/// Maximum number of partitions.
pub const PARTITIONS_MAX: usize = 1 << 16;

/// Longer keys and records of a sample are cut: a sort position need not be that of a record.
const POSITION_BYTES_MAX: usize = 4 << 10;

const MAGIC: &[u8; 8] = b"ASCOTBND";
const VERSION: u32 = 1;

/// A position in the order of all records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortPosition {
    /// A normalised key.
    pub key: Vec<u8>,
    /// The record, if records of equal keys are ordered by their bytes; none: before all records of this key.
    pub record: Option<Vec<u8>>,
    /// Bytes of the inputs before the record.
    pub position: u64,
}

impl SortPosition {
    /// The position of a record.
    pub(super) fn new<R: Records>(records: &R, record: &[u8], key: &[u8], position: u64) -> SortPosition {
        let ordered_further = !records.keys_decide();
        if key.len() > POSITION_BYTES_MAX || (ordered_further && record.len() > POSITION_BYTES_MAX) {
            let key = key[..key.len().min(POSITION_BYTES_MAX)].to_vec();
            return SortPosition { key, record: None, position: 0 };
        }
        let record = ordered_further.then(|| record.to_vec());
        SortPosition { key: key.to_vec(), record, position }
    }

    /// Its order relative to a record.
    fn order<R: Records>(&self, records: &R, record: &[u8], key: &[u8], position: u64) -> Ordering {
        let by_key = self.key.as_slice().cmp(key);
        let by_key = if records.descending() { by_key.reverse() } else { by_key };
        by_key.then_with(|| {
            if records.keys_decide() {
                return self.position.cmp(&position);
            }
            let Some(own) = &self.record else { return Ordering::Less };
            if records.disorder(Some(own), record, false).is_some() {
                Ordering::Greater
            } else if records.disorder(Some(record), own, false).is_some() {
                Ordering::Less
            } else {
                self.position.cmp(&position)
            }
        })
    }
}

/// Writes sort positions.
pub fn encode(positions: &[SortPosition]) -> Vec<u8> {
    let mut entries = Vec::new();
    for SortPosition { key, record, position } in positions {
        entries.extend(position.to_le_bytes());
        entries.extend((key.len() as u32).to_le_bytes());
        entries.extend(record.as_ref().map_or(0, |record| record.len() as u32 + 1).to_le_bytes());
        entries.extend(key);
        entries.extend(record.iter().flatten());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((positions.len() as u32).to_le_bytes());
    bytes.extend(crc32c(&[&entries]).to_le_bytes());
    bytes.extend(entries);
    bytes
}

/// Reads sort positions.
///
/// # Errors
/// [`SortError::Request`] if these are not the bytes of sort positions, or are damaged.
pub fn decode(bytes: &[u8]) -> Result<Vec<SortPosition>> {
    let wrong =
        || SortError::Request("the bounds of the partitions are damaged\n  start the job again".into());
    let mut entries = Entries(bytes);
    let is_ours = entries.take(MAGIC.len()) == Some(MAGIC) && entries.u32() == Some(VERSION);
    let count = entries.u32().filter(|_| is_ours).ok_or_else(wrong)?;
    let sum = entries.u32();
    if sum != Some(crc32c(&[entries.0])) {
        return Err(wrong());
    }
    let mut positions = Vec::new();
    for _ in 0..count {
        positions.push(read_position(&mut entries).ok_or_else(wrong)?);
    }
    if entries.0.is_empty() { Ok(positions) } else { Err(wrong()) }
}

fn read_position(entries: &mut Entries<'_>) -> Option<SortPosition> {
    let position = entries.u64()?;
    let key_bytes = entries.u32()? as usize;
    let record_bytes = (entries.u32()? as usize).checked_sub(1);
    let key = entries.take(key_bytes)?.to_vec();
    let record = match record_bytes {
        Some(bytes) => Some(entries.take(bytes)?.to_vec()),
        None => None,
    };
    Some(SortPosition { key, record, position })
}

/// The positions at which all partitions but the first begin, ascending in the order of the sort.
#[derive(Clone, Debug)]
pub struct Bounds {
    positions: Vec<SortPosition>,
    /// The prefixes of their keys.
    prefixes: Vec<u64>,
}

impl Bounds {
    /// Bounds that `choose` or `uniform` returned.
    ///
    /// # Errors
    /// [`SortError::Request`] if the bytes are damaged or have too many positions.
    pub fn decode(bytes: &[u8]) -> Result<Bounds> {
        let positions = decode(bytes)?;
        if positions.len() >= PARTITIONS_MAX {
            return Err(SortError::Request(format!(
                "more than {PARTITIONS_MAX} partitions\n  ask for fewer"
            )));
        }
        let prefixes = positions.iter().map(|bound| prefix(&bound.key)).collect();
        Ok(Bounds { positions, prefixes })
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.positions.len() + 1
    }

    /// The partition of a record: the number of bounds that are not after it.
    pub(super) fn partition<R: Records>(
        &self,
        records: &R,
        record: &[u8],
        key: &[u8],
        position: u64,
    ) -> usize {
        let own = prefix(key);
        let descending = records.descending();
        let is_after = |at: usize| {
            let by_prefix = self.prefixes[at].cmp(&own);
            let by_prefix = if descending { by_prefix.reverse() } else { by_prefix };
            by_prefix.then_with(|| self.positions[at].order(records, record, key, position))
                == Ordering::Greater
        };
        let mut low = 0;
        let mut high = self.positions.len();
        while low < high {
            let middle = low.midpoint(high);
            if is_after(middle) { high = middle } else { low = middle + 1 }
        }
        low
    }
}

/// Bounds that divide the sampled `positions` into at most `partitions` equal shares; there are fewer if fewer of them
/// are different.
pub fn choose(shuffle: &Shuffle, mut positions: Vec<SortPosition>, partitions: usize) -> Vec<SortPosition> {
    with_records!(&shuffle.records, records => {
        positions.sort_by(|a, b| a.order(&**records, b.record.as_deref().unwrap_or_default(), &b.key, b.position));
    });
    let count = positions.len();
    let partitions = partitions.clamp(1, PARTITIONS_MAX);
    let mut chosen: Vec<SortPosition> =
        (1..partitions).filter_map(|at| positions.get(count * at / partitions).cloned()).collect();
    chosen.dedup();
    chosen
}

/// Bounds for keys whose first eight bytes are spread evenly over all values.
pub fn uniform(shuffle: &Shuffle, partitions: usize) -> Vec<SortPosition> {
    let partitions = partitions.clamp(1, PARTITIONS_MAX) as u128;
    let bound = |at: u128| {
        let key = (((at << 64) / partitions) as u64).to_be_bytes().to_vec();
        SortPosition { key, record: None, position: 0 }
    };
    let mut positions: Vec<SortPosition> = (1..partitions).map(bound).collect();
    if with_records!(&shuffle.records, records => records.descending()) {
        positions.reverse();
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Input, Keys, Output, SortRequest};
    use ascot_record::keys::{KeyDef, KeyOptions, parse_ranges};
    use ascot_record::layout::Layout;

    fn shuffle_of(layout: Layout, keys: Keys) -> Shuffle {
        let request = SortRequest::new(vec![Input::Program], Output::Stdout, layout, keys);
        Shuffle::new(&request).expect("records")
    }

    fn lines(key: &str) -> Shuffle {
        let keys = vec![KeyDef::parse(key).expect("a key")];
        let options = KeyOptions { keys, ..KeyOptions::default() };
        shuffle_of(Layout::Lines { delimiter: b'\n' }, Keys::Command(options))
    }

    /// The partition of each of `records`, which are one file.
    fn partitions(shuffle: &Shuffle, bounds: &Bounds, file: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        with_records!(&shuffle.records, records => {
            records.each_key(file, &mut |range, key| {
                let position = range.start as u64;
                found.push(bounds.partition(&**records, &file[range], key, position));
            });
        });
        found
    }

    fn sampled(shuffle: &Shuffle, file: &[u8], count: usize) -> Bounds {
        let mut positions = Vec::new();
        with_records!(&shuffle.records, records => {
            records.each_key(file, &mut |range, key| {
                positions.push(SortPosition::new(&**records, &file[range.clone()], key, range.start as u64));
            });
        });
        Bounds::decode(&encode(&choose(shuffle, positions, count))).expect("bounds")
    }

    #[test]
    fn a_frequent_key_is_divided_by_position() {
        let keys = Keys::Ranges(parse_ranges("0..1").expect("a key"));
        let shuffle = shuffle_of(Layout::Fixed { len: 2 }, keys);
        let file = b"k1k2a3k4k5k6z7k8".as_slice();
        let bounds = sampled(&shuffle, file, 4);
        assert_eq!(bounds.partitions(), 4);
        assert_eq!(partitions(&shuffle, &bounds, file), [0, 1, 0, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn equal_keys_of_lines_are_ordered_by_their_bytes_before_their_position() {
        let shuffle = lines("1,1");
        let file = b"k z\nk a\nk m\nk b\n".as_slice();
        let bounds = sampled(&shuffle, file, 4);
        assert_eq!(partitions(&shuffle, &bounds, file), [3, 0, 2, 1]);
    }

    #[test]
    fn descending_orders_have_descending_bounds() {
        let keys = Keys::Ranges(parse_ranges("0..1:desc").expect("a key"));
        let shuffle = shuffle_of(Layout::Fixed { len: 1 }, keys);
        let bounds = sampled(&shuffle, b"agtz", 4);
        assert_eq!(partitions(&shuffle, &bounds, b"agtzmB"), [3, 2, 1, 0, 1, 3]);
        let even = Bounds::decode(&encode(&uniform(&shuffle, 4))).expect("bounds");
        assert_eq!(partitions(&shuffle, &even, &[0, 70, 130, 200]), [3, 2, 1, 0]);
    }

    #[test]
    fn long_keys_are_cut() {
        let shuffle = lines("1,1");
        let file = [vec![b'a'; 10_000], vec![b'\n'], vec![b'b'; 10_000], vec![b'\n']].concat();
        let bounds = sampled(&shuffle, &file, 2);
        assert!(bounds.positions.iter().all(|bound| bound.key.len() <= POSITION_BYTES_MAX));
        assert_eq!(partitions(&shuffle, &bounds, &file), [0, 1]);
    }

    #[test]
    fn damaged_bounds_are_an_error_and_never_a_panic() {
        let positions =
            vec![SortPosition { key: b"key".to_vec(), record: Some(b"key\n".to_vec()), position: 7 }];
        let bytes = encode(&positions);
        assert_eq!(decode(&bytes).expect("whole"), positions);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(decode(&other).is_err(), "byte {at}");
        }
    }
}
