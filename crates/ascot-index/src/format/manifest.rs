//! `MANIFEST`: what a directory is, and how many epochs of it are complete. Two lines: JSON, and its checksum.
//!
//! ```text
//!   {"version":1,"id":...,"layout":{...},"epochs":7,"boundaries":[],"closed":false}
//!   {"crc32":"0a1b2c3d"}
//! ```
//!
//! Invariant: it is replaced whole, after everything it names is durable. So an epoch counts when a manifest names it, and
//! whatever logs hold behind that is the tail of a writer that was stopped.

use std::path::Path;

use ascot_io::{AtomicOutput, Buf, Disk, IoError};
use serde::{Deserialize, Serialize};

use crate::error::{IndexError, Result};
use crate::format::boundaries::{self, BOUNDARIES_MOST};
use crate::format::names::MANIFEST;
use crate::format::pointer::{POINTER_BYTES, WRITERS_MOST};
use crate::format::record::{KEY_MOST, RecordForm};
use crate::format::shape::Earlier;
use crate::hash::{key_hash, share};

/// What travels to a key's partition, and what stays at its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Key and value travel.
    Records,
    /// Key and a pointer travel; the value stays in the writer's log.
    Pointers,
    /// The key travels, for an auxiliary table that names writers, not exactly; the record stays in the writer's tables.
    Ranks,
}

/// What tells the partition of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// Its hash.
    #[default]
    Hash,
    /// Its place among boundaries, which every epoch has its own of.
    Range,
}

/// The structure of an auxiliary table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuxiliaryKind {
    /// Partial-key cuckoo hashing.
    Cuckoo,
    /// A static function.
    Static,
}

/// How the number of an attribute stands in a value; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberKind {
    /// Floating point, 8 bytes.
    F64,
    /// Floating point, 4 bytes.
    F32,
    /// Signed integer, 8 bytes.
    I64,
    /// Unsigned integer, 8 bytes.
    U64,
    /// Signed integer, 4 bytes.
    I32,
    /// Unsigned integer, 4 bytes.
    U32,
}

impl Scheme {
    /// All, as they are called.
    pub const NAMED: [(&str, Self); 3] =
        [("records", Self::Records), ("pointers", Self::Pointers), ("ranks", Self::Ranks)];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }
}

impl PartitionBy {
    /// All, as they are called.
    pub const NAMED: [(&str, Self); 2] = [("hash", Self::Hash), ("range", Self::Range)];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, by)| *by == self).map_or("", |(name, _)| name)
    }
}

impl AuxiliaryKind {
    /// All, as they are called.
    pub const NAMED: [(&str, Self); 2] = [("cuckoo", Self::Cuckoo), ("static", Self::Static)];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl NumberKind {
    /// All, as they are called.
    pub const NAMED: [(&str, Self); 6] = [
        ("f64", Self::F64),
        ("f32", Self::F32),
        ("i64", Self::I64),
        ("u64", Self::U64),
        ("i32", Self::I32),
        ("u32", Self::U32),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(text, _)| *text == name).map(|(_, kind)| *kind)
    }

    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            NumberKind::F64 | NumberKind::I64 | NumberKind::U64 => 8,
            NumberKind::F32 | NumberKind::I32 | NumberKind::U32 => 4,
        }
    }
}

/// A number in every value, of which each block's least and greatest are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// What it is called.
    pub name: String,
    /// The byte of the value where it starts.
    pub offset: u32,
    /// What it is.
    pub kind: NumberKind,
}

impl Attribute {
    /// The number in `value`; none where the value is too short. Integers beyond 2^53 are rounded.
    pub fn of(&self, value: &[u8]) -> Option<f64> {
        let from = value.get(self.offset as usize..)?;
        let eight = from.first_chunk::<8>().copied();
        let four = from.first_chunk::<4>().copied();
        Some(match self.kind {
            NumberKind::F64 => f64::from_le_bytes(eight?),
            NumberKind::F32 => f64::from(f32::from_le_bytes(four?)),
            NumberKind::I64 => i64::from_le_bytes(eight?) as f64,
            NumberKind::U64 => u64::from_le_bytes(eight?) as f64,
            NumberKind::I32 => f64::from(i32::from_le_bytes(four?)),
            NumberKind::U32 => f64::from(u32::from_le_bytes(four?)),
        })
    }
}

/// What a directory is; the same from its first epoch to its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// What travels.
    pub scheme: Scheme,
    /// Partitions of the keys.
    pub partitions: u32,
    /// Processes that write.
    pub writers: u32,
    /// Bytes of every key; none where they differ.
    pub key_bytes: Option<u32>,
    /// Bytes of every value; none where they differ.
    pub value_bytes: Option<u32>,
    /// Seed of the keys' hash, XXH3-64.
    pub seed: u64,
    /// What tells a key's partition.
    pub partition_by: PartitionBy,
    /// The number in values of which blocks know the least and the greatest.
    pub attribute: Option<Attribute>,
    /// Bytes of a data block, at most, unless a record is longer.
    pub block_bytes: u32,
    /// The structure of auxiliary tables.
    pub auxiliary: AuxiliaryKind,
    /// Bits of a fingerprint in them.
    pub fingerprint_bits: u8,
    /// How files were taken apart into keys and values, where records came from files: what is appended comes the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Layout {
    /// Bytes of a data block where nothing else is said.
    pub const USUAL_BLOCK_BYTES: u32 = 32 << 10;
    /// Bits of a fingerprint where nothing else is said.
    pub const USUAL_FINGERPRINT_BITS: u8 = 8;

    /// A layout with the usual details.
    pub fn new(scheme: Scheme, partitions: u32, writers: u32) -> Self {
        Self {
            scheme,
            partitions,
            writers,
            key_bytes: None,
            value_bytes: None,
            seed: 0,
            partition_by: PartitionBy::Hash,
            attribute: None,
            block_bytes: Self::USUAL_BLOCK_BYTES,
            auxiliary: AuxiliaryKind::Cuckoo,
            fingerprint_bits: Self::USUAL_FINGERPRINT_BITS,
            source: None,
        }
    }

    /// Why this layout cannot be, if it cannot.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(IndexError::Request(what.into()));
        if self.partitions == 0 || self.writers == 0 {
            return wrong("a directory has one partition and one writer at least");
        }
        if self.partitions > WRITERS_MOST || self.writers > WRITERS_MOST {
            return wrong("a directory has at most 16777216 partitions and as many writers");
        }
        if self.key_bytes.is_some_and(|bytes| bytes as usize > KEY_MOST) {
            return wrong("keys have at most 1 MiB");
        }
        if self.form().key == Some(0) && self.form().value == Some(0) {
            // Of those any number would be in no bytes.
            return wrong("a record has one byte at least: keys and values cannot both have none");
        }
        if !self.block_bytes.is_multiple_of(4096) || self.block_bytes == 0 || self.block_bytes > 1 << 24 {
            return wrong("a block's size is a multiple of 4096 bytes, and at most 16 MiB");
        }
        if !(1..=16).contains(&self.fingerprint_bits) {
            return wrong("a fingerprint has 1 to 16 bits");
        }
        if let (Some(attribute), Some(bytes)) = (&self.attribute, self.value_bytes)
            && u64::from(attribute.offset) + attribute.kind.bytes() > u64::from(bytes)
        {
            return Err(IndexError::Request(format!(
                "the attribute {} lies behind the end of values of {bytes} bytes (it begins at byte {} of the value)",
                attribute.name, attribute.offset
            )));
        }
        if self.attribute.is_some() && self.scheme == Scheme::Pointers {
            return wrong("an attribute needs values beside their keys: take the scheme records or ranks");
        }
        Ok(())
    }

    /// How records stand in the directory's tables.
    pub fn form(&self) -> RecordForm {
        let value = match self.scheme {
            Scheme::Pointers => Some(POINTER_BYTES as u32),
            Scheme::Records | Scheme::Ranks => self.value_bytes,
        };
        RecordForm { key: self.key_bytes, value }
    }

    /// Refuses keys and values of other lengths than the directory's.
    pub fn check_record(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_key(key)?;
        match self.value_bytes {
            Some(bytes) if bytes as usize != value.len() => {
                Err(IndexError::Length { what: "value", got: value.len(), expected: bytes as usize })
            }
            _ if value.len() as u64 > u64::from(u32::MAX) => {
                Err(IndexError::TooLong { what: "value", got: value.len() as u64, most: u64::from(u32::MAX) })
            }
            _ => Ok(()),
        }
    }

    /// Refuses keys of another length than the directory's.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        match self.key_bytes {
            Some(bytes) if bytes as usize != key.len() => {
                Err(IndexError::Length { what: "key", got: key.len(), expected: bytes as usize })
            }
            _ if key.len() > KEY_MOST => {
                Err(IndexError::TooLong { what: "key", got: key.len() as u64, most: KEY_MOST as u64 })
            }
            _ => Ok(()),
        }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        key_hash(self.seed, key)
    }

    /// The partition of a key in an epoch to come: by its hash, or by the boundaries of the epoch.
    pub fn partition_of(&self, key: &[u8], boundaries: &[Vec<u8>]) -> u32 {
        self.partition_among(self.partitions, key, boundaries)
    }

    /// The partition of a key among so many.
    pub fn partition_among(&self, partitions: u32, key: &[u8], boundaries: &[Vec<u8>]) -> u32 {
        match self.partition_by {
            PartitionBy::Hash => share(self.hash(key), partitions),
            PartitionBy::Range => {
                // Fewer than the partitions.
                let before = boundaries.partition_point(|boundary| boundary.as_slice() <= key) as u32;
                before.min(partitions.saturating_sub(1))
            }
        }
    }
}

/// The manifest of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub version: u32,
    /// A number that tells this directory from others; part of all its checksums.
    pub id: u64,
    /// What it is; partitions and writers are those of the last epochs.
    pub layout: Layout,
    /// Partitions and writers of the epochs before those, where they were others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// Complete epochs.
    pub epochs: u64,
    /// Of each epoch the boundaries of partitions, in hexadecimal, ascending; empty where partitions are by hash.
    #[serde(deserialize_with = "boundaries::read")]
    pub boundaries: Vec<Vec<String>>,
    /// The writer closed it.
    pub closed: bool,
    /// Another random number each time epochs are dropped; 0 where none ever were. Epochs of the same number are the same
    /// as long as this is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub history: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form in which serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// All that is looked at before the version is known to be ours.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Version of a manifest whose epochs all have the same partitions and writers.
const VERSION: u32 = 1;
/// Version of one whose epochs do not.
const VERSION_OF_SHAPES: u32 = 2;

/// Longest manifest, bytes: boundaries of many epochs. Whoever reads it, within whatever memory, has it as a whole.
const MANIFEST_MOST: u64 = 16 << 20;

impl Manifest {
    /// A directory without epochs yet.
    pub fn new(layout: Layout, id: u64) -> Self {
        let (earlier, boundaries) = (Vec::new(), Vec::new());
        Self { version: VERSION, id, layout, earlier, epochs: 0, boundaries, closed: false, history: 0 }
    }

    /// Reads the manifest of `directory`.
    pub fn read(directory: &Path) -> Result<Self> {
        use std::io::ErrorKind;
        let path = directory.join(MANIFEST);
        let failed = |error| IndexError::from(IoError::from_os(ascot_io::Action::Read, &path, 0, error));
        let size = match std::fs::metadata(&path) {
            Ok(stat) => stat.len(),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                    && std::fs::metadata(directory).is_ok() =>
            {
                return Err(IndexError::NotIndexed { path: directory.to_path_buf() });
            }
            Err(error) => return Err(failed(error)),
        };
        if size > MANIFEST_MOST {
            return Err(IndexError::damaged(&path, 0, "a manifest is not as long"));
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        Self::parse(&path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let (json, check) = (&bytes[..line], bytes.get(line + 1..).unwrap_or_default());
        if check != check_line(json).as_bytes() {
            return Err(IndexError::damaged(path, 0, "its checksum is wrong"));
        }
        let bad = |_| IndexError::damaged(path, 0, "it is not the manifest of an indexed directory");
        let VersionOnly { version } = serde_json::from_slice(json).map_err(bad)?;
        if version > VERSION_OF_SHAPES {
            return Err(IndexError::Newer { path: path.to_path_buf(), version, known: VERSION_OF_SHAPES });
        }
        let manifest: Self = serde_json::from_slice(json).map_err(bad)?;
        manifest.layout.check().map_err(|_| IndexError::damaged(path, 0, "its layout cannot be"))?;
        let by_range = manifest.layout.partition_by == PartitionBy::Range;
        let bounded = manifest.boundaries.len() as u64 == if by_range { manifest.epochs } else { 0 };
        if !manifest.shapes_can_be() || (version == VERSION && !manifest.earlier.is_empty()) {
            return Err(IndexError::damaged(path, 0, "its numbers of partitions and writers cannot be"));
        }
        let few = |(epoch, keys): (u64, &Vec<String>)| {
            (keys.len() as u64) < u64::from(manifest.shape_at(epoch).partitions)
        };
        if !bounded
            || !(0..).zip(&manifest.boundaries).all(few)
            || manifest.boundaries.iter().flatten().any(|key| from_hex(key).is_none())
        {
            return Err(IndexError::damaged(path, 0, "its boundaries cannot be"));
        }
        Ok(manifest)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // A plain structure of numbers and strings has no reason to fail.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        let check = check_line(&bytes);
        bytes.push(b'\n');
        bytes.extend_from_slice(check.as_bytes());
        bytes
    }

    /// The version that it needs, so that whoever knows only the first reads what is not of a later one.
    fn version_now(&self) -> u32 {
        match self.version {
            later if later > VERSION_OF_SHAPES => later,
            _ if self.earlier.is_empty() => VERSION,
            _ => VERSION_OF_SHAPES,
        }
    }

    /// Replaces the manifest of `directory`.
    ///
    /// # Errors
    /// [`IndexError::Request`] where it would be longer than is read again; what the volume refuses.
    pub fn write(&self, disk: &Disk, directory: &Path) -> Result<()> {
        let bytes = Self { version: self.version_now(), ..self.clone() }.to_bytes();
        if bytes.len() as u64 > MANIFEST_MOST || boundaries::count(&self.boundaries) > BOUNDARIES_MOST {
            return Err(IndexError::Request(format!(
                "the boundaries of {} partitions of {} epochs are more than {} holds: begin another directory, of fewer partitions",
                self.layout.partitions,
                self.epochs,
                directory.join(MANIFEST).display()
            )));
        }
        let mut output = AtomicOutput::create(disk, &directory.join(MANIFEST), "manifest")?;
        let mut buf = Buf::heap(bytes.len());
        buf.copy_from_slice(&bytes);
        output.stream()?.begin(buf, bytes.len())?;
        output.commit()?;
        Ok(())
    }

    /// The boundaries of an epoch, as keys.
    pub fn boundaries_of(&self, epoch: u64) -> Vec<Vec<u8>> {
        let epoch = usize::try_from(epoch).unwrap_or(usize::MAX);
        self.boundaries
            .get(epoch)
            .map_or(Vec::new(), |keys| keys.iter().filter_map(|key| from_hex(key)).collect())
    }
}

fn check_line(line: &[u8]) -> String {
    format!("{{\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(line))
}

/// Bytes in hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal digits; none where they are not.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_tells_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let error = Manifest::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("is not an indexed directory"), "{error}");
        let mut manifest = Manifest::new(Layout::new(Scheme::Ranks, 3, 5), 77);
        manifest.write(&Disk::default(), directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), manifest);
        manifest.version = VERSION_OF_SHAPES + 1;
        manifest.write(&Disk::default(), directory.path()).unwrap();
        assert!(
            matches!(Manifest::read(directory.path()), Err(IndexError::Newer { version, .. }) if version == VERSION_OF_SHAPES + 1)
        );
        let path = directory.path().join(MANIFEST);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(Manifest::parse(&path, &bad).is_err());
            assert!(Manifest::parse(&path, &bytes[..at]).is_err());
        }
    }

    fn by_range(epochs: u64, boundaries: Vec<Vec<String>>) -> Manifest {
        let mut layout = Layout::new(Scheme::Records, 1 << 24, 1);
        layout.partition_by = PartitionBy::Range;
        Manifest { epochs, boundaries, ..Manifest::new(layout, 7) }
    }

    #[test]
    fn what_would_not_be_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(MANIFEST);
        let disk = Disk::default();
        let most = by_range(1, vec![vec![String::new(); BOUNDARIES_MOST - 1]]);
        most.write(&disk, directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), most);
        let texts = [vec![vec![String::new(); BOUNDARIES_MOST]], vec![vec!["00".repeat(1 << 10)]; 1 << 13]];
        let epochs = vec![Vec::new(); BOUNDARIES_MOST + 1];
        for boundaries in texts.into_iter().chain([epochs]) {
            let many = by_range(boundaries.len() as u64, boundaries);
            let error = many.write(&disk, directory.path()).unwrap_err().to_string();
            assert!(error.contains("begin another directory"), "{error}");
            assert_eq!(Manifest::read(directory.path()).unwrap(), most, "it is as it was");
            assert!(
                many.to_bytes().len() as u64 > MANIFEST_MOST
                    || Manifest::parse(&path, &many.to_bytes()).is_err()
            );
        }
        let mut few = by_range(1, vec![vec![String::new(); 3]]);
        few.layout.partitions = 3;
        assert!(Manifest::parse(&path, &few.to_bytes()).is_err());
    }

    #[test]
    fn ranges_are_between_boundaries() {
        let mut layout = Layout::new(Scheme::Records, 3, 1);
        layout.partition_by = PartitionBy::Range;
        let boundaries = [b"d".to_vec(), b"m".to_vec()];
        let parts = ["a", "d", "dd", "m", "z"].map(|key| layout.partition_of(key.as_bytes(), &boundaries));
        assert_eq!(parts, [0, 1, 1, 2, 2]);
        assert_eq!(layout.partition_of(b"x", &[]), 0);
    }

    #[test]
    fn numbers_of_values() {
        let value = [&1.5f64.to_le_bytes()[..], &(-3i32).to_le_bytes()].concat();
        let at = |offset, kind| Attribute { name: "x".into(), offset, kind }.of(&value);
        assert_eq!((at(0, NumberKind::F64), at(8, NumberKind::I32)), (Some(1.5), Some(-3.0)));
        assert_eq!((at(5, NumberKind::U64), at(90, NumberKind::F32)), (None, None));
        assert_eq!(from_hex(&to_hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!((from_hex("0"), from_hex("0g")), (None, None));
    }
}
