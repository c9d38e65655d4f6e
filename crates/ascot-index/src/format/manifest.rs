//! `MANIFEST`: the layout of a directory and the number of complete epochs. Two lines: JSON, and its checksum.
//!
//! ```text
//!   {"version":1,"id":...,"layout":{...},"epochs":7,"boundaries":[],"closed":false}
//!   {"crc32":"0a1b2c3d"}
//! ```
//!
//! Invariant: it is replaced atomically after everything it names is durable. So an epoch is complete when a manifest
//! names it, and log data after that is the tail of a stopped writer.

use std::ops::Range;
use std::path::Path;

use ascot_io::{AtomicOutput, Buf, Disk, IoError};
use ascot_record::hex::from_hex;
use serde::{Deserialize, Serialize};

use crate::error::{IndexError, Result};
use crate::format::boundaries::{self, BOUNDARIES_MAX};
use crate::format::layout::{Layout, PartitionBy};
use crate::format::names::MANIFEST;
use crate::format::shape::{Earlier, Shape};

/// The manifest of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub version: u32,
    /// A number that identifies the directory; an input of all its checksums.
    pub id: u64,
    /// Its layout; partitions and writers are those of the last epochs.
    pub layout: Layout,
    /// Partitions and writers of earlier epochs with other shapes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// Complete epochs.
    pub epochs: u64,
    /// The partition boundaries of each epoch, in hexadecimal, ascending; empty if partitions are by hash.
    #[serde(deserialize_with = "boundaries::read")]
    pub boundaries: Vec<Vec<String>>,
    /// Whether the writer closed it.
    pub closed: bool,
    /// A new random number each time epochs are dropped; 0 if none ever were. While it is unchanged, an epoch of the
    /// same number has the same contents.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub history: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form in which serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The fields read before the version is known to be supported.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Version of a manifest whose epochs all have the same partitions and writers.
const VERSION: u32 = 1;
/// Version of a manifest whose epochs have different shapes.
const VERSION_OF_SHAPES: u32 = 2;

/// Maximum bytes of a manifest, which grows with boundaries and epochs. A reader holds it as a whole in addition to
/// its memory cap.
const MANIFEST_MAX: u64 = 16 << 20;

impl Manifest {
    /// A directory without epochs yet.
    pub fn new(layout: Layout, id: u64) -> Self {
        let earlier = Vec::new();
        let boundaries = Vec::new();
        Self { version: VERSION, id, layout, earlier, epochs: 0, boundaries, closed: false, history: 0 }
    }

    /// Reads the manifest of `directory`.
    pub fn read(directory: &Path) -> Result<Self> {
        use std::io::ErrorKind;
        let path = directory.join(MANIFEST);
        let failed = |error| IndexError::from(IoError::from_os(ascot_io::Action::Read, &path, 0, error));
        let size = match std::fs::metadata(&path) {
            Ok(stat) => stat.len(),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(IndexError::NotIndexed { path: directory.to_path_buf() });
            }
            Err(error) => return Err(failed(error)),
        };
        if size > MANIFEST_MAX {
            return Err(IndexError::damaged(&path, 0, "a manifest is not as long"));
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        Self::parse(&path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let json = &bytes[..line];
        let check = bytes.get(line + 1..).unwrap_or_default();
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
        // Serialization of numbers and strings cannot fail.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        let check = check_line(&bytes);
        bytes.push(b'\n');
        bytes.extend_from_slice(check.as_bytes());
        bytes
    }

    /// The lowest version that can express it, so that older programs can read it if possible.
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
    /// [`IndexError::Request`] if it exceeds the maximum length; errors of the volume.
    pub fn write(&self, disk: &Disk, directory: &Path) -> Result<()> {
        let bytes = Self { version: self.version_now(), ..self.clone() }.to_bytes();
        if bytes.len() as u64 > MANIFEST_MAX || boundaries::count(&self.boundaries) > BOUNDARIES_MAX {
            return Err(IndexError::Request(format!(
                "the boundaries of {} partitions of {} epochs are more than {} holds: begin another \
                 directory, of fewer partitions",
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

    /// The complete epochs, by shape.
    pub fn sections(&self) -> impl Iterator<Item = (Range<u64>, Shape)> + '_ {
        let last = (self.epochs, self.layout.shape());
        let ends = self.earlier.iter().map(|one| (one.epochs, one.shape)).chain([last]);
        let mut start = 0;
        ends.map(move |(end, shape)| (std::mem::replace(&mut start, end)..end, shape))
            .filter(|(epochs, _)| !epochs.is_empty())
    }

    /// The shape of an epoch; for incomplete epochs, the current one.
    pub fn shape_at(&self, epoch: u64) -> Shape {
        let place = self.earlier.partition_point(|one| one.epochs <= epoch);
        self.earlier.get(place).map_or(self.layout.shape(), |one| one.shape)
    }

    /// Whether the shapes are valid.
    pub(super) fn shapes_can_be(&self) -> bool {
        let ascend = self.earlier.is_sorted_by(|one, next| one.epochs < next.epochs);
        let complete = self.earlier.last().is_none_or(|last| last.epochs <= self.epochs);
        let some = self.earlier.first().is_none_or(|first| first.epochs > 0);
        let sound = |one: &Earlier| {
            let mut layout = self.layout.clone();
            layout.set_shape(one.shape);
            layout.check().is_ok()
        };
        ascend && complete && some && self.earlier.iter().all(sound)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::Scheme;

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
        let read = Manifest::read(directory.path());
        assert!(matches!(read, Err(IndexError::Newer { version, .. }) if version == VERSION_OF_SHAPES + 1));
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
        let most = by_range(1, vec![vec![String::new(); BOUNDARIES_MAX - 1]]);
        most.write(&disk, directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), most);
        let texts = [vec![vec![String::new(); BOUNDARIES_MAX]], vec![vec!["00".repeat(1 << 10)]; 1 << 13]];
        let epochs = vec![Vec::new(); BOUNDARIES_MAX + 1];
        for boundaries in texts.into_iter().chain([epochs]) {
            let many = by_range(boundaries.len() as u64, boundaries);
            let error = many.write(&disk, directory.path()).unwrap_err().to_string();
            assert!(error.contains("begin another directory"), "{error}");
            assert_eq!(Manifest::read(directory.path()).unwrap(), most, "it is as it was");
            assert!(
                many.to_bytes().len() as u64 > MANIFEST_MAX
                    || Manifest::parse(&path, &many.to_bytes()).is_err()
            );
        }
        let mut few = by_range(1, vec![vec![String::new(); 3]]);
        few.layout.partitions = 3;
        assert!(Manifest::parse(&path, &few.to_bytes()).is_err());
    }
}
