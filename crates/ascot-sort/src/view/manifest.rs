//! `view.json`: the runs of a view, and the layout and order of its records (docs/formats/view.md). It has two
//! lines, like a job's manifest.
//!
//! The index and the keys of every run are in one file of the view, so that it is opened with few requests. The index
//! of a sorted file that a view refers to has the length and the checksum of each of its blocks.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Disk, During, IoError, RunId, RunIndex};
use ascot_record::checksum::RecordSum;
use ascot_record::hex::from_hex;
use serde::{Deserialize, Serialize};

use crate::api::{Result, SortError, SortRequest};
use crate::records::InputHead;
use crate::runs::{
    IndexPlace, KeptIndex, KeysOfRun, Run, VIEW_INDEX, VIEW_MANIFEST, check_line, write_whole,
};

/// Version of the manifest; another version is not opened.
pub const VIEW_VERSION: u32 = 4;

/// Version 3 kept the keys of each run in a file beside it. Version 2 had no spellings of null and no date formats; all
/// else is the same.
const OLDEST_VERSION: u32 = 2;

/// The manifest of a view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewManifest {
    /// Version of this format.
    pub version: u32,
    /// The request that made the view; it defines the order of the records.
    pub request: SortRequest,
    /// Name of the file that the view represents, as a mount shows it.
    pub name: String,
    /// Header before the records, in hexadecimal.
    pub header: Option<String>,
    /// InputHead of the first input, in hexadecimal, if the types of columns depend on it.
    pub head: String,
    /// Records in all runs.
    pub sum: RecordSum,
    /// The runs, in the order of the input.
    pub members: Vec<Member>,
}

/// A run of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its file, in the view or elsewhere.
    pub path: PathBuf,
    /// Its number, part of its checksums.
    pub number: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Length of the longest record, bytes.
    pub longest: u64,
    /// Size of a buffer for the largest block, bytes.
    pub block_bytes: usize,
    /// Length of the file, bytes.
    pub size: u64,
    /// CRC-32 of its index, which holds the checksum of each block.
    pub index_crc: u32,
    /// CRC-32 of the file of its keys.
    pub keys_crc: u32,
    /// Where its index and its keys are; none: at the end of its run and in files of their own, as in version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexInView>,
    /// The user's sorted file that contains its records; none: a run file.
    #[serde(default)]
    pub file: Option<SortedFile>,
}

/// The place of an index and keys in a file of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexInView {
    /// The file, in the view or elsewhere.
    pub path: PathBuf,
    /// The place in it.
    #[serde(flatten)]
    pub place: IndexPlace,
}

impl IndexInView {
    /// The place of an index and keys in the file of a view that is being made.
    pub fn new(kept: &KeptIndex) -> Self {
        IndexInView { path: VIEW_INDEX.into(), place: kept.place }
    }
}

/// A sorted file that is part of a view and stays in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortedFile {
    /// In version 3, the path, without extension, of the files that the view keeps for it: `.blocks`, whose checksum is
    /// the member's `index_crc`, and `.keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<PathBuf>,
    /// Time of its last change, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Its inode number.
    pub inode: u64,
}

/// The facts that identify an unchanged file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its size, bytes.
    pub size: u64,
    /// Time of its last change, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Its inode number.
    pub inode: u64,
}

/// The identity of the file at `path`.
pub fn identity_of(path: &Path) -> Result<Identity, IoError> {
    let stat = fs::metadata(path).during(Action::Inspect, path)?;
    let modified_ns = i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec());
    Ok(Identity { size: stat.len(), modified_ns, inode: stat.ino() })
}

impl Member {
    /// The member for a complete run, whose index and keys are in the file of the view.
    pub fn from_run(run: &Run) -> Result<Member> {
        let KeysOfRun::Kept(kept) = &run.keys else {
            return Err(SortError::Internal("a view keeps no keys of a run"));
        };
        let name = run.path.file_name().map(PathBuf::from).unwrap_or_default();
        Ok(Member {
            path: name,
            number: run.number,
            bytes: run.bytes,
            records: run.records,
            longest: run.longest,
            block_bytes: run.block_bytes,
            size: identity_of(&run.path)?.size,
            index_crc: kept.index_crc,
            keys_crc: kept.keys_crc,
            index: Some(IndexInView::new(kept)),
            file: None,
        })
    }

    /// The file and the range in which its index and its keys are; none: they are in files of their own.
    pub fn in_index(&self) -> Option<(&Path, Range<u64>)> {
        let IndexInView { path, place } = self.index.as_ref()?;
        let len = place.index_bytes.saturating_add(place.keys_bytes);
        Some((path, place.offset..place.offset.saturating_add(len)))
    }

    /// Bytes of its index in that range.
    pub fn index_len(&self) -> usize {
        self.index.as_ref().map_or(0, |index| index.place.index_bytes as usize)
    }

    /// Path, without extension, of the files that belong to it.
    fn beside(&self, view: &Path) -> PathBuf {
        view.join(self.file.as_ref().and_then(|file| file.beside.as_ref()).unwrap_or(&self.path))
    }

    /// The kind of its file in messages.
    fn noun(&self) -> &'static str {
        if self.file.is_some() { "this file, part of" } else { "this run of" }
    }

    /// Finds its file, of the view in the directory `view`.
    pub fn find(&self, view: &Path) -> Result<Identity> {
        let path = view.join(&self.path);
        match identity_of(&path) {
            Err(IoError::Os { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let view = view.display();
                let why = format!(
                    "{} the view {view} is missing\n  if it is on another machine, read the view there, or copy it \
                     here together with the files beside it; if it is lost, make the view again",
                    self.noun()
                );
                Err(SortError::view(path, ErrorKind::NotFound, why))
            }
            found => Ok(found?),
        }
    }

    /// Opens the run and verifies that it is unchanged; `index` is its index.
    pub fn open(&self, view: &Path, index: &RunIndex) -> Result<Run> {
        let path = view.join(&self.path);
        let altered = |kind: ErrorKind, why: String| SortError::View {
            path: path.clone(),
            kind,
            why: format!(
                "{} the view {} {why}\n  make the view again: it would show wrong records",
                self.noun(),
                view.display()
            ),
        };
        let Identity { size, modified_ns, inode } = self.find(view)?;
        if size != self.size {
            let why = format!("has {size} bytes and had {}: it was truncated or altered", self.size);
            return Err(altered(ErrorKind::InvalidData, why));
        }
        if self.file.as_ref().is_some_and(|it| it.modified_ns != modified_ns || it.inode != inode) {
            return Err(altered(
                ErrorKind::InvalidData,
                "has changed since, or another file has its name: its modification time differs".into(),
            ));
        }
        Ok(Run {
            path,
            number: self.number,
            bytes: self.bytes,
            records: self.records,
            longest: self.longest,
            block_bytes: self.block_bytes.max(index.buffer_bytes()),
            raw: self.file.is_some(),
            ..Run::default()
        })
    }

    /// Path of the file with its keys.
    pub fn keys_path(&self, view: &Path) -> PathBuf {
        match &self.index {
            Some(index) => view.join(&index.path),
            None => self.beside(view).with_extension("keys"),
        }
    }

    /// The same member for a view elsewhere, which refers to the files in `view`.
    pub fn absolute(mut self, view: &Path) -> Member {
        self.path = view.join(&self.path);
        if let Some(beside) = self.file.as_mut().and_then(|file| file.beside.as_mut()) {
            *beside = view.join(&*beside);
        }
        if let Some(index) = &mut self.index {
            index.path = view.join(&index.path);
        }
        self
    }
}

/// Error for a manifest that cannot be read.
fn no_manifest(dir: &Path, path: &Path, error: std::io::Error) -> SortError {
    const MAKE: &str = "ascot sort FILE... --view DIR makes a view";
    let (kind, why) = match fs::metadata(dir) {
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            (ErrorKind::NotFound, format!("there is no such view\n  {MAKE}"))
        }
        Ok(stat) if stat.is_file() => {
            let why = format!(
                "not a view but a file: a view is a directory\n  {MAKE}; a view of a sorted file, without a \
                 copy: ascot merge FILE... --view DIR"
            );
            (ErrorKind::NotADirectory, why)
        }
        Ok(_) if error.kind() == ErrorKind::NotFound => {
            (ErrorKind::NotFound, format!("not a view: there is no view.json in it\n  {MAKE}"))
        }
        _ => return IoError::from_os(Action::Read, path, 0, error).into(),
    };
    SortError::View { path: dir.to_path_buf(), kind, why }
}

impl ViewManifest {
    /// Writes the manifest into the directory `dir`, durably.
    pub fn store(&self, disk: &Disk, dir: &Path) -> Result<()> {
        let mut text =
            serde_json::to_vec(self).map_err(|_| SortError::Internal("a view has no JSON form"))?;
        let sum = check_line(&text);
        text.push(b'\n');
        text.extend_from_slice(sum.as_bytes());
        Ok(write_whole(disk, &dir.join(VIEW_MANIFEST), &text)?)
    }

    /// Reads the manifest of the view `dir`.
    pub fn load(dir: &Path) -> Result<ViewManifest> {
        let path = dir.join(VIEW_MANIFEST);
        let bad = |why: &str| SortError::view(&path, ErrorKind::InvalidData, why);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) => return Err(no_manifest(dir, &path, error)),
        };
        let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
        let line = &text[..end];
        let sum = text.get(end + 1..).unwrap_or_default();
        if sum != check_line(line).as_bytes() {
            return Err(bad("its checksum is wrong: it was altered or truncated\n  make the view again"));
        }
        let manifest: ViewManifest =
            serde_json::from_slice(line).map_err(|_| bad("it is not the manifest of a view"))?;
        if !(OLDEST_VERSION..=VIEW_VERSION).contains(&manifest.version) {
            return Err(bad("another version of ascot made it\n  make the view again"));
        }
        Ok(manifest)
    }

    /// The head of the first input, on which the order depends beside the request; none if it is not valid hexadecimal.
    pub fn head(&self) -> Option<InputHead> {
        let header = match &self.header {
            Some(header) => Some(from_hex(header)?),
            None => None,
        };
        Some(InputHead { input: self.name.clone(), header, records: from_hex(&self.head)? })
    }
}

/// First bytes of every file of blocks.
pub(crate) const MAGIC: [u8; 8] = *b"ASCOTBLK";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const ENTRY_BYTES: usize = 8;

/// The facts that a view's manifest keeps about a sorted file.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// The number of its run.
    pub(crate) number: u64,
    /// Bytes of its records.
    pub(crate) bytes: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
}

/// The index of a member that is a file, from `bytes`, the file of its blocks at `path`.
pub(crate) fn blocks_of(bytes: &[u8], member: Kept, path: &Path) -> Result<RunIndex> {
    let bad = |what| IoError::BadIndex { path: path.to_path_buf(), offset: 0, what };
    let parsed = Parsed::parse(bytes, member).map_err(bad)?;
    let index = RunIndex::from_ranges(RunId(member.number), parsed.start, parsed.entries());
    let ends_inside = parsed.start.checked_add(index.bytes).is_some_and(|end| end <= member.size);
    if index.bytes != member.bytes || !ends_inside {
        return Err(bad("its blocks are not those of the file").into());
    }
    Ok(index)
}

/// The fields of a file of blocks.
struct Parsed<'a> {
    start: u64,
    entries: &'a [u8],
}

impl<'a> Parsed<'a> {
    fn parse(bytes: &'a [u8], member: Kept) -> Result<Self, &'static str> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or("it is shorter than its checksum")?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err("its checksum is wrong");
        }
        let (header, entries) =
            body.split_first_chunk::<HEADER_BYTES>().ok_or("it is shorter than its header")?;
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(field)
        };
        if header[..8] != MAGIC || number(8) != u64::from(VERSION) {
            return Err("its version is unknown");
        }
        if number(16) != member.number {
            return Err("it belongs to another file");
        }
        if number(32).checked_mul(ENTRY_BYTES as u64) != Some(entries.len() as u64) {
            return Err("its length and its number of blocks do not agree");
        }
        Ok(Parsed { start: number(24), entries })
    }

    /// Length and checksum of each block.
    fn entries(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        self.entries.chunks_exact(ENTRY_BYTES).map(move |entry| (number(&entry[..4]), number(&entry[4..])))
    }
}
