//! A segment: some tables of one epoch, their filters region by region, and the head that locates their blocks. A
//! segment of an auxiliary table has regions only.
//!
//! ```text
//!   | region 0 | region 1 | ... | region R-1 | head |
//!   |f0 f1 f2..|   ^ the filters of all tables for one share of the hashes: one read
//!
//!   head   0  ASCOTSEG   8 version   12 kind   16 log   24 epoch   32 tables T   36 regions R
//!          40 blocks B   48 records  56 regions' place          64 attribute: 0 or 1
//!          65 R regions:  length: 4, crc: 4
//!             T tables:   place in the data log: 8, blocks: 4, records: LEB128, greatest key
//!             B blocks:   bytes: 4, crc: 4, flags: 1, [first key], [least: 8, greatest: 8]
//!   region    T filters' lengths: 4 each, the filters       (tables)
//!             an auxiliary table                            (auxiliary)
//! ```
//!
//! Blocks of a table are consecutive in the data log, each from a multiple of 4096. A *unit* is a block that starts
//! with a record, and the blocks after it that continue a long record. `first key` of a unit is the shortest string
//! above all keys before the unit and not above its first key; it is the whole key if the unit before ends with the
//! same key (flag 2).

use crate::format::VERSION;
use crate::format::bytes::{Cursor, put_sized, put_varint};

const MAGIC: &[u8; 8] = b"ASCOTSEG";
/// The block starts with a record.
pub const STARTS: u8 = 1;
/// The unit before ends with the key that starts this one.
pub const JOINED: u8 = 2;
/// Maximum bytes of a table's greatest key that heads keep.
pub const GREATEST_MAX: usize = 255;

/// The contents of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Filters of tables.
    Tables = 1,
    /// Auxiliary tables.
    Auxiliary = 2,
}

/// The properties of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The contents of regions.
    pub kind: Kind,
    /// The log's number, an input of all checksums.
    pub log: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Records in its tables, or entries of the auxiliary table.
    pub records: u64,
    /// Offset of its first region in the index log.
    pub regions_at: u64,
    /// Whether blocks have the minimum and maximum of an attribute.
    pub attribute: bool,
}

/// A region in the index log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first byte.
    pub at: u64,
    /// Its bytes.
    pub bytes: u32,
    /// CRC-32C of log number, offset and bytes.
    pub crc: u32,
}

/// A table of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its first byte in the data log.
    pub at: u64,
    /// Its blocks, as indexes in the segment.
    pub blocks: std::ops::Range<usize>,
    /// Its records.
    pub records: u64,
    /// Its greatest key; `None` if it is too long to keep.
    pub greatest: Option<Vec<u8>>,
}

/// A block of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Its first byte in the data log.
    pub at: u64,
    /// Its bytes, without the zeros after it.
    pub bytes: u32,
    /// Its checksum, as in run files: of log number, offset and bytes.
    pub crc: u32,
    /// [`STARTS`], [`JOINED`].
    pub flags: u8,
    /// Range of the fence key of its unit in the head.
    key: (u32, u32),
    /// Minimum and maximum of the attribute.
    pub bounds: Option<(f64, f64)>,
}

impl Block {
    /// Whether it starts with a record.
    pub fn starts(&self) -> bool {
        self.flags & STARTS != 0
    }

    /// Bytes from its start to the next block's.
    pub fn padded(&self) -> u64 {
        u64::from(self.bytes).next_multiple_of(4096)
    }
}

/// A parsed head.
#[derive(Clone, Debug)]
pub struct SegmentHead {
    /// The facts of the segment.
    pub facts: SegmentFacts,
    /// Its regions.
    pub regions: Vec<Region>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its blocks, table by table.
    pub blocks: Vec<Block>,
    bytes: Vec<u8>,
}

/// Bytes of a region's entry in the head.
const REGION_BYTES: usize = 8;
/// Minimum bytes of a table's and a block's entry.
const TABLE_MIN_BYTES: usize = 14;
const BLOCK_MIN_BYTES: usize = 9;

/// A head under construction, kept as bytes so that its memory is known.
#[derive(Debug, Default)]
pub struct HeadMaker {
    /// Regions: length and checksum.
    pub regions: Vec<(u32, u32)>,
    tables: Vec<u8>,
    table_count: u32,
    blocks: Vec<u8>,
    block_count: u64,
    /// Records of all tables.
    pub records: u64,
}

impl HeadMaker {
    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.tables.capacity() + self.blocks.capacity() + self.regions.capacity() * REGION_BYTES
    }

    /// Number of tables so far.
    pub fn tables(&self) -> u32 {
        self.table_count
    }

    /// Adds a table after its blocks were added.
    pub fn table(&mut self, at: u64, blocks: u32, records: u64, greatest: &[u8]) {
        self.tables.extend_from_slice(&at.to_le_bytes());
        self.tables.extend_from_slice(&blocks.to_le_bytes());
        put_varint(&mut self.tables, records);
        if greatest.len() > GREATEST_MAX {
            self.tables.push(0);
        } else {
            self.tables.push(1);
            put_sized(&mut self.tables, greatest);
        }
        self.table_count += 1;
        self.records += records;
    }

    /// Adds a block; `key` if it starts with a record.
    pub fn block(
        &mut self,
        bytes: u32,
        crc: u32,
        key: Option<&[u8]>,
        joined: bool,
        bounds: Option<(f64, f64)>,
    ) {
        self.blocks.extend_from_slice(&bytes.to_le_bytes());
        self.blocks.extend_from_slice(&crc.to_le_bytes());
        self.blocks.push(if key.is_some() { STARTS } else { 0 } | if joined { JOINED } else { 0 });
        if let Some(key) = key {
            put_sized(&mut self.blocks, key);
        }
        if let Some((min, max)) = bounds {
            self.blocks.extend_from_slice(&min.to_le_bytes());
            self.blocks.extend_from_slice(&max.to_le_bytes());
        }
        self.block_count += 1;
    }

    /// The first parts of the head's bytes.
    pub fn parts(&self, facts: &SegmentFacts) -> [Vec<u8>; 2] {
        let mut head = Vec::with_capacity(65 + self.regions.len() * REGION_BYTES);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(facts.kind as u32).to_le_bytes());
        head.extend_from_slice(&facts.log.to_le_bytes());
        head.extend_from_slice(&facts.epoch.to_le_bytes());
        head.extend_from_slice(&self.table_count.to_le_bytes());
        // Regions are a few thousand at most.
        head.extend_from_slice(&(self.regions.len() as u32).to_le_bytes());
        head.extend_from_slice(&self.block_count.to_le_bytes());
        head.extend_from_slice(&facts.records.to_le_bytes());
        head.extend_from_slice(&facts.regions_at.to_le_bytes());
        head.push(u8::from(facts.attribute));
        for (bytes, crc) in &self.regions {
            head.extend_from_slice(&bytes.to_le_bytes());
            head.extend_from_slice(&crc.to_le_bytes());
        }
        [head, self.tables.clone()]
    }

    /// The last part of the head's bytes.
    pub fn blocks(&self) -> &[u8] {
        &self.blocks
    }
}

impl SegmentHead {
    /// Parses a head whose checksum was verified; the error is the fault found.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, &'static str> {
        const SHORT: &str = "a segment's head ends too early";
        let mut cursor = Cursor::new(&bytes);
        if cursor.take(8).ok_or(SHORT)? != MAGIC {
            return Err("there is no segment's head");
        }
        if cursor.u32().ok_or(SHORT)? != VERSION {
            return Err("the version of a segment's head is not known");
        }
        let kind = match cursor.u32().ok_or(SHORT)? {
            1 => Kind::Tables,
            2 => Kind::Auxiliary,
            _ => return Err("the kind of a segment is not known"),
        };
        let log = cursor.u64().ok_or(SHORT)?;
        let epoch = cursor.u64().ok_or(SHORT)?;
        let tables = cursor.u32().ok_or(SHORT)? as usize;
        let regions = cursor.u32().ok_or(SHORT)? as usize;
        let blocks = usize::try_from(cursor.u64().ok_or(SHORT)?).map_err(|_| SHORT)?;
        let records = cursor.u64().ok_or(SHORT)?;
        let regions_at = cursor.u64().ok_or(SHORT)?;
        let attribute = cursor.u8().ok_or(SHORT)? == 1;
        let facts = SegmentFacts { kind, log, epoch, records, regions_at, attribute };
        let left = cursor.left();
        let fits = |count: usize, bytes: usize| count.checked_mul(bytes).filter(|&all| all <= left);
        if fits(regions, REGION_BYTES).is_none()
            || fits(tables, TABLE_MIN_BYTES).is_none()
            || fits(blocks, BLOCK_MIN_BYTES).is_none()
        {
            return Err(SHORT);
        }
        let regions = parse_regions(&mut cursor, regions, regions_at).ok_or(SHORT)?;
        let tables = parse_tables(&mut cursor, tables, blocks)
            .ok_or("the tables of a segment contradict each other")?;
        let blocks = parse_blocks(&mut cursor, &tables, attribute)
            .ok_or("the blocks of a segment contradict each other")?;
        if cursor.left() > 0 {
            return Err("a segment's head goes on behind its end");
        }
        Ok(Self { facts, regions, tables, blocks, bytes })
    }

    /// The fence key of a block's unit: all keys of the unit are at or above it, all keys before are below.
    pub fn first_key(&self, block: &Block) -> &[u8] {
        let (at, len) = block.key;
        &self.bytes[at as usize..(at + len) as usize]
    }

    /// Blocks of the units of `table` that may hold keys from `from` to `end`, both inclusive.
    pub fn blocks_for(&self, table: &Table, from: &[u8], end: Option<&[u8]>) -> std::ops::Range<usize> {
        let blocks = &self.blocks[table.blocks.clone()];
        let start_of = |index: usize| blocks[..=index].iter().rposition(Block::starts).unwrap_or(0);
        let below = |key: &[u8]| blocks.partition_point(|block| self.first_key(block) <= key);
        let mut first = below(from).checked_sub(1).map_or(0, start_of);
        while first > 0 && blocks[first].flags & JOINED != 0 && self.first_key(&blocks[first]) == from {
            first = start_of(first - 1);
        }
        let end = end.map_or(blocks.len(), below).max(first);
        table.blocks.start + first..table.blocks.start + end
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        let tables: usize = self.tables.iter().map(|table| table.greatest.as_ref().map_or(0, Vec::len)).sum();
        self.bytes.len()
            + self.regions.len() * size_of::<Region>()
            + self.tables.len() * size_of::<Table>()
            + tables
            + self.blocks.len() * size_of::<Block>()
    }
}

fn parse_regions(cursor: &mut Cursor<'_>, count: usize, mut at: u64) -> Option<Vec<Region>> {
    let mut regions = Vec::with_capacity(count);
    for _ in 0..count {
        let region = Region { at, bytes: cursor.u32()?, crc: cursor.u32()? };
        at = at.checked_add(u64::from(region.bytes))?;
        regions.push(region);
    }
    Some(regions)
}

fn parse_tables(cursor: &mut Cursor<'_>, count: usize, blocks: usize) -> Option<Vec<Table>> {
    let mut tables = Vec::with_capacity(count);
    let mut first = 0usize;
    for _ in 0..count {
        let at = cursor.u64()?;
        let own = cursor.u32()? as usize;
        let records = cursor.varint()?;
        let greatest = match cursor.u8()? {
            0 => None,
            _ => Some(cursor.sized()?.to_vec()),
        };
        let end = first.checked_add(own).filter(|&end| end <= blocks && own > 0)?;
        tables.push(Table { at, blocks: first..end, records, greatest });
        first = end;
    }
    (first == blocks).then_some(tables)
}

fn parse_blocks(cursor: &mut Cursor<'_>, tables: &[Table], attribute: bool) -> Option<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::with_capacity(tables.last().map_or(0, |table| table.blocks.end));
    for table in tables {
        let mut at = table.at;
        for index in table.blocks.clone() {
            let bytes = cursor.u32()?;
            let crc = cursor.u32()?;
            let flags = cursor.u8()?;
            let key = match flags & STARTS {
                // The first block of a table starts a unit: there is no block before that it could continue.
                0 if index == table.blocks.start => return None,
                0 => blocks.last()?.key,
                _ => {
                    let key = cursor.sized()?;
                    (u32::try_from(cursor.at() - key.len()).ok()?, key.len() as u32)
                }
            };
            let bounds = if attribute { Some((cursor.f64()?, cursor.f64()?)) } else { None };
            if bytes == 0 || !at.is_multiple_of(4096) {
                return None;
            }
            let block = Block { at, bytes, crc, flags, key, bounds };
            at = at.checked_add(block.padded())?;
            blocks.push(block);
        }
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made() -> (Vec<u8>, SegmentFacts) {
        let mut maker = HeadMaker { regions: vec![(10, 1), (20, 2)], ..HeadMaker::default() };
        for (key, joined) in [
            (Some(&b"a"[..]), false),
            (Some(b"f"), false),
            (None, false),
            (Some(b"k"), false),
            (Some(b"k"), true),
        ] {
            maker.block(5000, 9, key, joined, Some((0.5, 1.5)));
        }
        maker.table(4096, 5, 100, b"zz");
        maker.block(1, 9, Some(b""), false, Some((0.5, 1.5)));
        maker.table(1 << 20, 1, 1, &[7; 300]);
        let facts = SegmentFacts {
            kind: Kind::Tables,
            log: 5,
            epoch: 3,
            records: 101,
            regions_at: 64,
            attribute: true,
        };
        let [head, tables] = maker.parts(&facts);
        ([&head[..], &tables, maker.blocks()].concat(), facts)
    }

    #[test]
    fn it_comes_back() {
        let (bytes, facts) = made();
        let head = SegmentHead::parse(bytes).unwrap();
        assert_eq!((head.facts, head.regions[1]), (facts, Region { at: 74, bytes: 20, crc: 2 }));
        assert_eq!(
            (head.tables[0].greatest.as_deref(), head.tables[1].greatest.as_deref()),
            (Some(&b"zz"[..]), None)
        );
        assert_eq!((head.blocks[1].at, head.blocks[5].at), (4096 + 8192, 1 << 20));
        let of = |from: &[u8], end: &[u8]| head.blocks_for(&head.tables[0], from, Some(end));
        assert_eq!((of(b"b", b"b"), of(b"g", b"g"), of(b"f", b"f")), (0..1, 1..3, 1..3));
        assert_eq!(
            (of(b"k", b"k"), of(b"l", b"m"), of(b"b", b"g"), of(b"A", b"B")),
            (3..5, 4..5, 0..3, 0..0)
        );
        assert_eq!(head.blocks_for(&head.tables[1], b"x", None), 5..6);
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_another_head(at in 0usize..400, byte: u8, cut in 0usize..400) {
            let (mut bytes, _) = made();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = SegmentHead::parse(bytes.clone());
            bytes.truncate(cut % bytes.len());
            prop_assert!(SegmentHead::parse(bytes).is_err());
        }
    }
}
