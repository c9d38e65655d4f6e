//! Writes a trace: events as they come, the tables at the end.
//!
//! The file takes its name when it is complete and durable; a recording that fails leaves what was there before.

use std::path::Path;

use ascot_io::crc32c;

use super::columns::{self, MAX_EVENTS};
use super::section::{self, Contents, Footer, MAX_SECTION_BYTES, MAX_TABLE_BYTES, Section};
use super::turns::{self, TurnsSection};
use super::varint;
use crate::blocks::BLOCK_BYTES;
use crate::buckets::{TracedBowtie, Turn};
use crate::error::{Result, TraceError};
use crate::event::{Event, Recording, TracedFile, TracedProcess};
use crate::output::Output;
use crate::ranges::RangeSet;

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
    bowties: Vec<TracedBowtie>,
    turns: TurnsSection,
    turn_count: u64,
    sections: Vec<Section>,
    event_count: u64,
    table_bytes: u64,
}

impl TraceWriter {
    /// Starts a trace that will be `path`.
    pub fn create(path: &Path) -> Result<TraceWriter> {
        Self::to_output(Output::create(path, "trace")?, MAX_EVENTS)
    }

    /// Starts a trace with at most this number of events in a section: fewer take less memory.
    pub fn to_output(output: Output, events_per_section: usize) -> Result<TraceWriter> {
        Self::of_version(output, events_per_section, section::NEWEST_VERSION)
    }

    /// Starts a trace of a version; an older one leaves out what it has no place for.
    pub(super) fn of_version(
        mut output: Output,
        events_per_section: usize,
        version: u32,
    ) -> Result<TraceWriter> {
        let events_per_section = events_per_section.clamp(1, MAX_EVENTS);
        output.append(&section::header(version))?;
        Ok(TraceWriter {
            output,
            version,
            events: Vec::with_capacity(events_per_section),
            events_per_section,
            bowties: Vec::new(),
            turns: TurnsSection::default(),
            turn_count: 0,
            sections: Vec::new(),
            event_count: 0,
            table_bytes: 0,
        })
    }

    /// Adds a bowtie. Returns its number.
    pub fn add_bowtie(&mut self, bowtie: TracedBowtie) -> u32 {
        self.bowties.push(bowtie);
        self.bowties.len() as u32 - 1
    }

    /// Adds the buckets of a bowtie. Bowties of more than 16,384 streams are left out: a section could not hold a turn.
    pub fn push_turn(&mut self, turn: &Turn) -> Result<()> {
        let streams = self.bowties.get(turn.bowtie as usize).map(TracedBowtie::streams);
        if streams != Some(turn.bytes.len()) || turn.bytes.len() > turns::MAX_STREAMS {
            return Ok(());
        }
        self.turns.add(turn);
        if self.turns.raw.len() >= turns::SECTION_BYTES { self.end_turns() } else { Ok(()) }
    }

    fn end_turns(&mut self) -> Result<()> {
        let TurnsSection { raw, turns, first_ns, last_ns, .. } = std::mem::take(&mut self.turns);
        self.turn_count += u64::from(turns);
        self.section(Contents::Turns, turns as usize, &raw, first_ns, last_ns)
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) -> Result<()> {
        self.events.push(*event);
        if self.events.len() >= self.events_per_section { self.end_events() } else { Ok(()) }
    }

    /// The number of events added.
    pub fn event_count(&self) -> u64 {
        self.event_count + self.events.len() as u64
    }

    fn end_events(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        let times = events.iter().map(|event| event.time_ns);
        let first_ns = times.clone().min().unwrap_or_default();
        let last_ns = times.max().unwrap_or_default();
        let raw = columns::encode(&events, first_ns);
        self.event_count += events.len() as u64;
        self.section(Contents::Events, events.len(), &raw, first_ns, last_ns)?;
        self.events = events;
        self.events.clear();
        Ok(())
    }

    fn section(
        &mut self,
        contents: Contents,
        entries: usize,
        raw: &[u8],
        first_ns: u64,
        last_ns: u64,
    ) -> Result<()> {
        let too_many = || TraceError::TooManyNames { limit: MAX_TABLE_BYTES };
        let stored = zstd::bulk::compress(raw, LEVEL).map_err(|_| too_many())?;
        if contents.is_table() {
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
            first_ns,
            last_ns,
        });
        Ok(self.output.append(&stored)?)
    }

    /// Adds the tables, and gives the file its name. Returns its length.
    pub fn finish(
        mut self,
        files: &[TracedFile],
        processes: &[TracedProcess],
        recording: &Recording,
    ) -> Result<u64> {
        if !self.events.is_empty() {
            self.end_events()?;
        }
        if self.turns.turns > 0 {
            self.end_turns()?;
        }
        let version = self.version;
        let bowties = std::mem::take(&mut self.bowties);
        self.table(Contents::Bowties, &bowties, |to, bowtie| {
            put_name(to, &bowtie.name);
            varint::put(to, u64::from(bowtie.inputs));
            varint::put(to, u64::from(bowtie.outputs));
            varint::put(to, bowtie.block_bytes);
        })?;
        self.table(Contents::Files, files, |to, file| {
            put_name(to, &file.path);
            varint::put(to, file.peak_bytes);
            put_held(to, file, version);
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
            if version >= section::HOLES_VERSION {
                to.push(u8::from(recording.incomplete));
            }
        })?;
        let block = recording.block.filter(|_| self.version >= section::BOWTIES_VERSION);
        self.table(Contents::Block, block.as_slice(), |to, block| {
            block.numbers().into_iter().for_each(|number| varint::put(to, number));
        })?;
        self.end(files.len() as u32, processes.len() as u32, bowties.len() as u32)
    }

    fn table<T>(&mut self, contents: Contents, entries: &[T], put: impl Fn(&mut Vec<u8>, &T)) -> Result<()> {
        let mut raw = Vec::new();
        let mut count = 0;
        for entry in entries {
            put(&mut raw, entry);
            count += 1;
            if raw.len() >= TABLE_SECTION_BYTES {
                self.section(contents, count, &raw, 0, 0)?;
                raw.clear();
                count = 0;
            }
        }
        if raw.is_empty() { Ok(()) } else { self.section(contents, count, &raw, 0, 0) }
    }

    fn end(mut self, files: u32, processes: u32, bowties: u32) -> Result<u64> {
        let index: Vec<u8> = self.sections.iter().flat_map(|section| section.to_bytes()).collect();
        let footer = Footer {
            version: self.version,
            sections: self.sections.len() as u32,
            index: self.output.bytes(),
            events: self.event_count,
            files,
            processes,
            index_crc: crc32c(&[&index]),
            bowties,
            turns: self.turn_count,
        };
        self.output.append(&index)?;
        self.output.append(&footer.to_bytes())?;
        Ok(self.output.commit()?)
    }
}

/// The flags of a file, and the ranges of blocks that it held.
fn put_held(to: &mut Vec<u8>, file: &TracedFile, version: u32) {
    let has_ranges = version >= section::NEWEST_VERSION;
    let is_told =
        |held: &&RangeSet| version >= section::HOLES_VERSION && (has_ranges || held.ranges().len() == 0);
    let held = file.held.as_ref().filter(is_told);
    to.push(u8::from(file.deleted) | (u8::from(held.is_some()) << 1));
    let Some(held) = held.filter(|_| has_ranges) else { return };
    varint::put(to, held.ranges().len() as u64);
    let mut end = 0;
    for (low, high) in held.ranges() {
        varint::put(to, (low - end) / BLOCK_BYTES);
        varint::put(to, (high - low) / BLOCK_BYTES);
        end = high;
    }
}

fn put_name(to: &mut Vec<u8>, name: &[u8]) {
    varint::put_bytes(to, &name[..name.len().min(MAX_NAME_BYTES)]);
}
