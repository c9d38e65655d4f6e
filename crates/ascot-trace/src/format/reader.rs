//! Reads a trace that may be damaged: every length is checked before anything is allocated by it, every section has
//! a checksum, and memory holds the tables and one section.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, IoError, crc32c};

use super::columns::{self, Limits};
use super::section::{self, Contents, ENTRY_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, MAGIC, Section};
use super::turns;
use super::varint;
use crate::blocks::BLOCK_BYTES;
use crate::buckets::{TracedBowtie, Turn};
use crate::error::{Result, TraceError};
use crate::event::{BlockCounts, Event, Recording, TracedFile, TracedProcess};
use crate::pipe;
use crate::ranges::RangeSet;

/// An open trace.
#[derive(Debug)]
pub struct TraceReader {
    path: PathBuf,
    file: File,
    sections: Vec<Section>,
    files: Vec<TracedFile>,
    processes: Vec<TracedProcess>,
    recording: Recording,
    bowties: Vec<TracedBowtie>,
    turn_sections: Vec<Section>,
    turns: u64,
    events: u64,
    bytes: u64,
}

impl TraceReader {
    /// Opens a trace, and reads its tables. A trace that comes through a pipe is copied to a temporary file first.
    pub fn open(path: &Path) -> Result<TraceReader> {
        let failed = |source| IoError::from_os(Action::Open, path, 0, source);
        let file = File::open(path).map_err(failed)?;
        let copy = pipe::copied(&file, path)?;
        Self::of_file(path, copy.unwrap_or(file))
    }

    /// Reads the tables of a trace in a file that is open; `path` names it in errors.
    pub fn of_file(path: &Path, file: File) -> Result<TraceReader> {
        let failed = |source| IoError::from_os(Action::Open, path, 0, source);
        let metadata = file.metadata().map_err(failed)?;
        let bytes = metadata.len();
        let not_a_trace = || TraceError::NotATrace { path: path.to_owned() };
        if metadata.is_dir() {
            return Err(TraceError::TraceIsDirectory { path: path.to_owned() });
        }
        if !metadata.is_file() || bytes < HEADER_BYTES + FOOTER_BYTES {
            return Err(not_a_trace());
        }
        let source = Source { path, file: &file };
        let header = source.bytes(0, HEADER_BYTES as usize)?;
        if header[..8] != MAGIC {
            return Err(not_a_trace());
        }
        let version = ascot_io::u32_at(&header, 8);
        if !(section::OLDEST_VERSION..=section::NEWEST_VERSION).contains(&version) {
            return Err(TraceError::Version {
                path: path.to_owned(),
                found: version,
                known: section::NEWEST_VERSION,
            });
        }
        let (sections, footer) = source.index(bytes, version)?;
        let mut tables = Tables::default();
        for section in sections.iter().filter(|section| section.contents.is_table()) {
            let raw = source.section(section)?;
            tables
                .add(section, version, &raw)
                .ok_or_else(|| source.damaged(section.offset, "a table does not have its form"))?;
        }
        let Tables { files, processes, recording, block, bowties } = tables;
        let recording = Recording { block, ..recording };
        let of = |contents: Contents| {
            sections.iter().filter(|section| section.contents == contents).copied().collect::<Vec<Section>>()
        };
        Ok(TraceReader {
            path: path.to_owned(),
            sections: of(Contents::Events),
            file,
            files,
            processes,
            recording,
            bowties,
            turn_sections: of(Contents::Turns),
            turns: footer.turns,
            events: footer.events,
            bytes,
        })
    }

    /// The files, at their index.
    pub fn files(&self) -> &[TracedFile] {
        &self.files
    }

    /// The processes, at their index.
    pub fn processes(&self) -> &[TracedProcess] {
        &self.processes
    }

    /// How the trace was made.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The bowties, at their index; none in a trace of another program.
    pub fn bowties(&self) -> &[TracedBowtie] {
        &self.bowties
    }

    /// The number of turns of all bowties.
    pub fn turn_count(&self) -> u64 {
        self.turns
    }

    /// The buckets at the turns with a time of `from_ns` to `to_ns`, both included, in the order of the file.
    pub fn turns_between(&self, from_ns: u64, to_ns: u64) -> Entries<'_, Turn> {
        let sections = self.turn_sections.iter();
        self.entries(sections, from_ns..=to_ns, |turn| turn.time_ns, Self::load_turns)
    }

    /// The buckets at all turns.
    pub fn turns(&self) -> Entries<'_, Turn> {
        self.turns_between(0, u64::MAX)
    }

    /// The number of events.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// The length of the trace file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of the last event.
    pub fn last_ns(&self) -> u64 {
        self.sections.iter().map(|section| section.last_ns).max().unwrap_or_default()
    }

    /// The events in order.
    pub fn events(&self) -> Entries<'_, Event> {
        self.events_between(0, u64::MAX)
    }

    /// The events with a time of `from_ns` to `to_ns`, both included; sections outside are not read.
    pub fn events_between(&self, from_ns: u64, to_ns: u64) -> Entries<'_, Event> {
        let sections = self.sections.iter();
        self.entries(sections, from_ns..=to_ns, |event| event.time_ns, Self::load_events)
    }

    fn load_events(&self, section: &Section) -> Result<Vec<Event>> {
        let limits = Limits { files: self.files.len() as u32, processes: self.processes.len() as u32 };
        self.load(section, |raw| columns::decode(raw, section.entries as usize, section.first_ns, limits))
    }

    fn load_turns(&self, section: &Section) -> Result<Vec<Turn>> {
        self.load(section, |raw| {
            turns::decode(raw, section.entries as usize, section.first_ns, &self.bowties)
        })
    }

    fn load<T>(
        &self,
        section: &Section,
        decode: impl FnOnce(&[u8]) -> Result<Vec<T>, &'static str>,
    ) -> Result<Vec<T>> {
        let source = Source { path: &self.path, file: &self.file };
        decode(&source.section(section)?).map_err(|what| source.damaged(section.offset, what))
    }

    fn entries<'a, T>(
        &'a self,
        sections: std::slice::Iter<'a, Section>,
        times: RangeInclusive<u64>,
        time_of: fn(&T) -> u64,
        load: fn(&TraceReader, &Section) -> Result<Vec<T>>,
    ) -> Entries<'a, T> {
        Entries { sections, times, time_of, trace: self, load, loaded: Vec::new().into_iter() }
    }
}

/// The entries of a trace whose times are in a range, one section in memory.
pub struct Entries<'a, T> {
    sections: std::slice::Iter<'a, Section>,
    times: RangeInclusive<u64>,
    time_of: fn(&T) -> u64,
    trace: &'a TraceReader,
    load: fn(&TraceReader, &Section) -> Result<Vec<T>>,
    loaded: std::vec::IntoIter<T>,
}

impl<T> Iterator for Entries<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.loaded.find(|entry| self.times.contains(&(self.time_of)(entry))) {
                return Some(Ok(entry));
            }
            let section = self.sections.next()?;
            if section.last_ns < *self.times.start() || section.first_ns > *self.times.end() {
                continue;
            }
            match (self.load)(self.trace, section) {
                Ok(entries) => self.loaded = entries.into_iter(),
                Err(error) => {
                    self.sections = [].iter();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The file with its name.
struct Source<'a> {
    path: &'a Path,
    file: &'a File,
}

impl Source<'_> {
    fn damaged(&self, offset: u64, what: &'static str) -> TraceError {
        TraceError::Damaged { path: self.path.to_owned(), offset, what }
    }

    fn bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(offset, "the file became shorter while it was read"))
            }
            Err(source) => Err(IoError::from_os(Action::Read, self.path, offset, source).into()),
        }
    }

    /// The sections and the footer of a file of `bytes`, whose header has `version`.
    fn index(&self, bytes: u64, version: u32) -> Result<(Vec<Section>, Footer)> {
        let at = bytes - FOOTER_BYTES;
        let footer = self.bytes(at, FOOTER_BYTES as usize)?;
        if footer[..8] != MAGIC {
            return Err(self.damaged(at, "the footer is missing: the file is cut off"));
        }
        let footer = Footer::from_bytes(&footer).map_err(|what| self.damaged(at, what))?;
        let index_bytes = u64::from(footer.sections) * ENTRY_BYTES;
        if footer.version != version || footer.index.checked_add(index_bytes) != Some(at) {
            return Err(self.damaged(at, "the index does not end at the footer"));
        }
        let index = self.bytes(footer.index, index_bytes as usize)?;
        if crc32c(&[&index]) != footer.index_crc {
            return Err(self.damaged(footer.index, "the index does not match its checksum"));
        }
        let sections: Option<Vec<Section>> =
            index.chunks_exact(ENTRY_BYTES as usize).map(Section::from_bytes).collect();
        let sections =
            sections.ok_or_else(|| self.damaged(footer.index, "a section has unknown contents"))?;
        section::check(&sections, &footer).map_err(|what| self.damaged(footer.index, what))?;
        Ok((sections, footer))
    }

    /// The decompressed bytes of a section whose lengths were checked.
    fn section(&self, section: &Section) -> Result<Vec<u8>> {
        let stored = self.bytes(section.offset, section.stored as usize)?;
        if crc32c(&[&stored]) != section.crc {
            return Err(self.damaged(section.offset, "a section does not match its checksum"));
        }
        match zstd::bulk::decompress(&stored, section.raw as usize) {
            Ok(raw) if raw.len() == section.raw as usize => Ok(raw),
            _ => Err(self.damaged(section.offset, "a section cannot be decompressed")),
        }
    }
}

/// The tables, as far as they were read.
#[derive(Default)]
struct Tables {
    files: Vec<TracedFile>,
    processes: Vec<TracedProcess>,
    recording: Recording,
    block: Option<BlockCounts>,
    bowties: Vec<TracedBowtie>,
}

impl Tables {
    /// Adds a section of a trace of a version; none if it does not have its form.
    fn add(&mut self, section: &Section, version: u32, raw: &[u8]) -> Option<()> {
        let mut rest = raw;
        for _ in 0..section.entries {
            match section.contents {
                Contents::Files => {
                    let path = varint::take_bytes(&mut rest)?.to_vec();
                    let peak_bytes = varint::take(&mut rest)?;
                    let (flags, after) = rest.split_first()?;
                    rest = after;
                    let held = match flags & 2 != 0 {
                        true if version >= section::NEWEST_VERSION => Some(take_ranges(&mut rest)?),
                        told => told.then(RangeSet::default),
                    };
                    self.files.push(TracedFile { path, peak_bytes, deleted: flags & 1 != 0, held });
                }
                Contents::Processes => {
                    let pid = u32::try_from(varint::take(&mut rest)?).ok()?;
                    let program = varint::take_bytes(&mut rest)?.to_vec();
                    self.processes.push(TracedProcess { pid, program });
                }
                Contents::Recording => {
                    self.recording = Recording {
                        command: varint::take_bytes(&mut rest)?.to_vec(),
                        source: varint::take_bytes(&mut rest)?.to_vec(),
                        start_ns: varint::take(&mut rest)?,
                        unseen_requests: varint::take(&mut rest)?,
                        guessed_appends: varint::take(&mut rest)?,
                        skipped_lines: varint::take(&mut rest)?,
                        incomplete: version >= section::HOLES_VERSION && {
                            let (incomplete, after) = rest.split_first()?;
                            rest = after;
                            *incomplete != 0
                        },
                        block: None,
                    };
                }
                Contents::Block => {
                    let mut numbers = [0; 11];
                    for number in &mut numbers {
                        *number = varint::take(&mut rest)?;
                    }
                    self.block = Some(BlockCounts::from_numbers(numbers));
                }
                Contents::Bowties => {
                    let name = varint::take_bytes(&mut rest)?.to_vec();
                    let inputs = u32::try_from(varint::take(&mut rest)?).ok()?;
                    let outputs = u32::try_from(varint::take(&mut rest)?).ok()?;
                    let block_bytes = varint::take(&mut rest)?;
                    self.bowties.push(TracedBowtie { name, inputs, outputs, block_bytes });
                }
                Contents::Events | Contents::Turns => return None,
            }
        }
        rest.is_empty().then_some(())
    }
}

/// The ranges of blocks that a file held, in their order and with gaps between them.
fn take_ranges(rest: &mut &[u8]) -> Option<RangeSet> {
    let count = varint::take(rest)?;
    let mut ranges = RangeSet::default();
    let mut end = 0_u64;
    for number in 0..count {
        let gap = varint::take(rest)?;
        let low = end.checked_add(gap.checked_mul(BLOCK_BYTES)?)?;
        let blocks = varint::take(rest)?;
        end = low.checked_add(blocks.checked_mul(BLOCK_BYTES)?)?;
        if blocks == 0 || (gap == 0 && number > 0) {
            return None;
        }
        ranges.insert(low, end, |_, _| ());
    }
    Some(ranges)
}
