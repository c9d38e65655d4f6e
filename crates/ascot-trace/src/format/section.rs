//! The sections of a trace file, their index and the footer: bytes from and to numbers, and nothing else.
//!
//! docs/formats/trace.md describes every byte. Invariants of a list of sections that [`check`] accepted: they follow
//! each other without gaps from the header to the index, no section exceeds [`MAX_SECTION_BYTES`] before or after
//! decompression, and the tables together do not exceed [`MAX_TABLE_BYTES`].

use ascot_io::{crc32c, u32_at, u64_at};

/// The first bytes of a trace, and of its footer.
pub const MAGIC: [u8; 8] = *b"ASCOTTRC";
/// The oldest version that this program reads.
pub const OLDEST_VERSION: u32 = 1;
/// The first version that may have bowties and their turns, or block requests.
pub const BOWTIES_VERSION: u32 = 2;
/// The first version that may have holes, and says whether its recording is complete.
pub const HOLES_VERSION: u32 = 3;
/// The newest version, which is written; the first one that has the blocks that files held when the trace began.
pub const NEWEST_VERSION: u32 = 4;
/// The magic number, the version, and zeros.
pub const HEADER_BYTES: u64 = 16;
/// The footer at the end of the file.
pub const FOOTER_BYTES: u64 = 64;
/// One section in the index.
pub const ENTRY_BYTES: u64 = 48;
/// Bytes of a section, compressed or not.
pub const MAX_SECTION_BYTES: u32 = 1 << 20;
/// Bytes of all tables together before compression.
pub const MAX_TABLE_BYTES: u64 = 256 << 20;

/// The contents of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Events, as columns.
    Events = 1,
    /// Files.
    Files = 2,
    /// Processes.
    Processes = 3,
    /// How the trace was made.
    Recording = 4,
    /// Bowties, since version 2.
    Bowties = 5,
    /// The buckets of bowties, turn by turn, since version 2.
    Turns = 6,
    /// What devices saw, since version 2.
    Block = 7,
}

impl Contents {
    const ALL: [Contents; 7] = {
        use Contents::*;
        [Events, Files, Processes, Recording, Bowties, Turns, Block]
    };

    /// Whether a reader holds all of it in memory.
    pub fn is_table(self) -> bool {
        !matches!(self, Contents::Events | Contents::Turns)
    }
}

/// A section in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its contents.
    pub contents: Contents,
    /// Events, files, processes, bowties or turns in it.
    pub entries: u32,
    /// Bytes in the file.
    pub stored: u32,
    /// Bytes after decompression.
    pub raw: u32,
    /// CRC-32C of the bytes in the file.
    pub crc: u32,
    /// Its first byte in the file.
    pub offset: u64,
    /// The earliest time of its events.
    pub first_ns: u64,
    /// The latest time of its events.
    pub last_ns: u64,
}

impl Section {
    /// Its entry in the index.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES as usize] {
        let mut bytes = [0; ENTRY_BYTES as usize];
        let numbers = [self.contents as u32, self.entries, self.stored, self.raw, self.crc, 0];
        for (to, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        for (to, number) in bytes.chunks_exact_mut(8).skip(3).zip([self.offset, self.first_ns, self.last_ns])
        {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads an entry of [`ENTRY_BYTES`]; none if its contents are unknown.
    pub fn from_bytes(bytes: &[u8]) -> Option<Section> {
        let number = u32_at(bytes, 0);
        Some(Section {
            contents: Contents::ALL.into_iter().find(|contents| *contents as u32 == number)?,
            entries: u32_at(bytes, 4),
            stored: u32_at(bytes, 8),
            raw: u32_at(bytes, 12),
            crc: u32_at(bytes, 16),
            offset: u64_at(bytes, 24),
            first_ns: u64_at(bytes, 32),
            last_ns: u64_at(bytes, 40),
        })
    }
}

/// The header of a version.
pub fn header(version: u32) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The numbers of the footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The version.
    pub version: u32,
    /// The number of sections.
    pub sections: u32,
    /// The first byte of the index.
    pub index: u64,
    /// The number of events.
    pub events: u64,
    /// The number of files.
    pub files: u32,
    /// The number of processes.
    pub processes: u32,
    /// CRC-32C of the index.
    pub index_crc: u32,
    /// The number of bowties.
    pub bowties: u32,
    /// The number of turns.
    pub turns: u64,
}

impl Footer {
    /// The bytes of the footer.
    pub fn to_bytes(self) -> [u8; FOOTER_BYTES as usize] {
        let mut bytes = [0; FOOTER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sections.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.events.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.files.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.processes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.index_crc.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.bowties.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.turns.to_le_bytes());
        let crc = crc32c(&[&bytes[..60]]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a footer of [`FOOTER_BYTES`]. An error is the contradiction; without the magic number it is not a footer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Footer, &'static str> {
        if u32_at(bytes, 60) != crc32c(&[&bytes[..60]]) {
            return Err("the footer does not match its checksum");
        }
        Ok(Footer {
            version: u32_at(bytes, 8),
            sections: u32_at(bytes, 12),
            index: u64_at(bytes, 16),
            events: u64_at(bytes, 24),
            files: u32_at(bytes, 32),
            processes: u32_at(bytes, 36),
            index_crc: u32_at(bytes, 40),
            bowties: u32_at(bytes, 44),
            turns: u64_at(bytes, 48),
        })
    }
}

/// Compares the sections with each other and with the footer.
pub fn check(sections: &[Section], footer: &Footer) -> Result<(), &'static str> {
    let mut offset = HEADER_BYTES;
    let mut tables = 0_u64;
    let mut counted = Footer { ..*footer };
    (counted.events, counted.files, counted.processes) = (0, 0, 0);
    (counted.bowties, counted.turns) = (0, 0);
    for section in sections {
        if section.offset != offset || section.stored > MAX_SECTION_BYTES || section.raw > MAX_SECTION_BYTES {
            return Err("a section lies elsewhere, or is longer than sections are");
        }
        offset += u64::from(section.stored);
        let sum = |count: u32| count.checked_add(section.entries).ok_or("a table has too many entries");
        match section.contents {
            Contents::Events => counted.events += u64::from(section.entries),
            Contents::Files => counted.files = sum(counted.files)?,
            Contents::Processes => counted.processes = sum(counted.processes)?,
            Contents::Bowties => counted.bowties = sum(counted.bowties)?,
            Contents::Turns => counted.turns += u64::from(section.entries),
            Contents::Recording | Contents::Block => {}
        }
        if section.contents.is_table() {
            tables += u64::from(section.raw);
        }
    }
    if tables > MAX_TABLE_BYTES {
        return Err("the tables are longer than tables are");
    }
    let is_new = |section: &Section| section.contents as u32 > Contents::Recording as u32;
    if footer.version < BOWTIES_VERSION && sections.iter().any(is_new) {
        return Err("a trace of this version has neither bowties nor block requests");
    }
    if offset == footer.index && counted == *footer {
        Ok(())
    } else {
        Err("the index does not match the footer")
    }
}
