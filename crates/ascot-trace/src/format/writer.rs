//! Writes a trace: events as they come, the tables at the end.
//!
//! The file takes its name when it is complete and durable; a recording that fails leaves what was there before.

use std::path::Path;

use ascot_io::crc32c;

use super::columns::{self, MAX_EVENTS};
use super::section::{self, Contents, Footer, MAX_SECTION_BYTES, MAX_TABLE_BYTES, Section};
use super::varint;
use crate::error::TraceError;
use crate::event::{Event, Recording, TracedFile, TracedProcess};
use crate::output::Output;

/// A table's section ends at this length; one entry more fits below [`MAX_SECTION_BYTES`].
const TABLE_SECTION_BYTES: usize = 512 << 10;
/// Bytes of one name: longer ones are cut, which the system's limit of paths excludes.
const MAX_NAME_BYTES: usize = 64 << 10;
/// The level at which Zstandard compresses faster than traces arrive.
const LEVEL: i32 = 3;

/// A trace that is being written.
pub struct TraceWriter {
    output: Output,
    version: u32,
    events: Vec<Event>,
    events_per_section: usize,
    sections: Vec<Section>,
    event_count: u64,
    table_bytes: u64,
}

impl TraceWriter {
    /// Starts a trace that will be `path`.
    pub fn create(path: &Path) -> Result<TraceWriter, TraceError> {
        Self::with_sections(path, MAX_EVENTS)
    }

    /// Starts a trace for a recording that may have [`Recording::block`].
    pub fn create_for(path: &Path, recording: &Recording) -> Result<TraceWriter, TraceError> {
        let version = if recording.block.is_some() { section::VERSION_BLOCK } else { section::VERSION };
        Self::with_version(path, MAX_EVENTS, version)
    }

    /// Starts a trace that will be `path`, with at most this number of events in a section: fewer take less memory.
    pub fn with_sections(path: &Path, events_per_section: usize) -> Result<TraceWriter, TraceError> {
        Self::with_version(path, events_per_section, section::VERSION)
    }

    fn with_version(path: &Path, events_per_section: usize, version: u32) -> Result<TraceWriter, TraceError> {
        let events_per_section = events_per_section.clamp(1, MAX_EVENTS);
        let mut output = Output::create(path, "trace")?;
        output.append(&section::header(version))?;
        Ok(TraceWriter {
            output,
            version,
            events: Vec::with_capacity(events_per_section),
            events_per_section,
            sections: Vec::new(),
            event_count: 0,
            table_bytes: 0,
        })
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.events.push(*event);
        if self.events.len() >= self.events_per_section { self.end_events() } else { Ok(()) }
    }

    /// The number of events added.
    pub fn event_count(&self) -> u64 {
        self.event_count + self.events.len() as u64
    }

    fn end_events(&mut self) -> Result<(), TraceError> {
        let events = std::mem::take(&mut self.events);
        let times = events.iter().map(|event| event.time_ns);
        let first_ns = times.clone().min().unwrap_or_default();
        let last_ns = times.max().unwrap_or_default();
        let raw = columns::encode(&events, first_ns);
        self.event_count += events.len() as u64;
        self.section(Contents::Events, events.len(), &raw, (first_ns, last_ns))?;
        self.events = events;
        self.events.clear();
        Ok(())
    }

    fn section(
        &mut self,
        contents: Contents,
        entries: usize,
        raw: &[u8],
        times: (u64, u64),
    ) -> Result<(), TraceError> {
        let too_many = || TraceError::TooManyNames { limit: MAX_TABLE_BYTES };
        let stored = zstd::bulk::compress(raw, LEVEL).map_err(|_| too_many())?;
        if contents != Contents::Events {
            self.table_bytes += raw.len() as u64;
        }
        let fits = raw.len().max(stored.len()) <= MAX_SECTION_BYTES as usize;
        if !fits || self.table_bytes > MAX_TABLE_BYTES {
            return Err(too_many());
        }
        self.sections.push(Section {
            contents,
            entries: entries as u32,
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            crc: crc32c(&[&stored]),
            offset: self.output.bytes(),
            first_ns: times.0,
            last_ns: times.1,
        });
        Ok(self.output.append(&stored)?)
    }

    /// Adds the tables, and gives the file its name. Returns its length. A trace that was not started for a recording
    /// with [`Recording::block`] has no place for it.
    pub fn finish(
        mut self,
        files: &[TracedFile],
        processes: &[TracedProcess],
        recording: &Recording,
    ) -> Result<u64, TraceError> {
        if !self.events.is_empty() {
            self.end_events()?;
        }
        self.table(Contents::Files, files, |to, file| {
            put_name(to, &file.path);
            varint::put(to, file.peak_bytes);
            to.push(u8::from(file.deleted));
        })?;
        self.table(Contents::Processes, processes, |to, process| {
            varint::put(to, u64::from(process.pid));
            put_name(to, &process.program);
        })?;
        self.table(Contents::Recording, std::slice::from_ref(recording), |to, recording| {
            put_name(to, &recording.command);
            put_name(to, &recording.source);
            varint::put(to, recording.start_ns);
            varint::put(to, recording.unseen_requests);
            varint::put(to, recording.guessed_appends);
            varint::put(to, recording.skipped_lines);
        })?;
        let block = recording.block.filter(|_| self.version >= section::VERSION_BLOCK);
        self.table(Contents::Block, block.as_slice(), |to, block| {
            block.numbers().into_iter().for_each(|number| varint::put(to, number));
        })?;
        self.end(files.len() as u32, processes.len() as u32)
    }

    fn table<T>(
        &mut self,
        contents: Contents,
        entries: &[T],
        put: impl Fn(&mut Vec<u8>, &T),
    ) -> Result<(), TraceError> {
        let mut raw = Vec::new();
        let mut count = 0;
        for entry in entries {
            put(&mut raw, entry);
            count += 1;
            if raw.len() >= TABLE_SECTION_BYTES {
                self.section(contents, count, &raw, (0, 0))?;
                raw.clear();
                count = 0;
            }
        }
        if raw.is_empty() { Ok(()) } else { self.section(contents, count, &raw, (0, 0)) }
    }

    fn end(mut self, files: u32, processes: u32) -> Result<u64, TraceError> {
        let index: Vec<u8> = self.sections.iter().flat_map(|section| section.to_bytes()).collect();
        let footer = Footer {
            version: self.version,
            sections: self.sections.len() as u32,
            index: self.output.bytes(),
            events: self.event_count,
            files,
            processes,
            index_crc: crc32c(&[&index]),
        };
        self.output.append(&index)?;
        self.output.append(&footer.to_bytes())?;
        Ok(self.output.commit()?)
    }
}

fn put_name(to: &mut Vec<u8>, name: &[u8]) {
    varint::put_bytes(to, &name[..name.len().min(MAX_NAME_BYTES)]);
}
