//! The columns of a section of events.
//!
//! ```text
//!   u32 x 6: bytes of each column
//!   time     difference to the time of the event before; the first to that of the section
//!   process  number
//!   file     difference to the file of the event before
//!   kind     one byte: bits 0 to 2 the kind, bit 3 whether it jumped
//!   offset   difference to the end of the last request to this file in this section, 0 at first
//!   size     difference to the size of the last request to this file in this section, 0 at first
//! ```
//!
//! A sequential scan is thus a sequence of zeros. Sections do not depend on each other.

use std::collections::HashMap;

use super::varint;
use crate::event::{Event, Kind};

/// The number of columns.
const COLUMNS: usize = 6;
/// The lengths of the columns, bytes.
const LENGTHS_BYTES: usize = 4 * COLUMNS;
/// The bit of a kind that says that a request jumped.
const JUMPED: u8 = 8;
/// Events of a full section: their columns take less than [`super::section::MAX_SECTION_BYTES`].
pub const MAX_EVENTS: usize = 16_384;

/// The last request to a file.
#[derive(Clone, Copy, Default)]
struct Last {
    end: u64,
    size: u64,
}

/// The columns of events, which begin at `start_ns`.
pub fn encode(events: &[Event], start_ns: u64) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut files: HashMap<u32, Last> = HashMap::new();
    let mut time_ns = start_ns;
    let mut file = 0;
    let [times, processes, file_numbers, kinds, offsets, sizes] = &mut columns;
    for event in events {
        varint::put_difference(times, event.time_ns, time_ns);
        varint::put(processes, u64::from(event.process));
        varint::put_difference(file_numbers, u64::from(event.file), file);
        kinds.push(event.kind as u8 | if event.jumped { JUMPED } else { 0 });
        let last = files.entry(event.file).or_default();
        varint::put_difference(offsets, event.offset, last.end);
        varint::put_difference(sizes, event.size, last.size);
        remember(last, event);
        time_ns = event.time_ns;
        file = u64::from(event.file);
    }
    let mut bytes = Vec::with_capacity(LENGTHS_BYTES + columns.iter().map(Vec::len).sum::<usize>());
    for column in &columns {
        bytes.extend_from_slice(&(column.len() as u32).to_le_bytes());
    }
    columns.iter().for_each(|column| bytes.extend_from_slice(column));
    bytes
}

fn remember(last: &mut Last, event: &Event) {
    if matches!(event.kind, Kind::Read | Kind::Write) {
        *last = Last { end: event.end(), size: event.size };
    }
}

/// What the tables of a trace allow.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The number of files.
    pub files: u32,
    /// The number of processes.
    pub processes: u32,
}

/// The `count` events of a section; an error states the contradiction.
pub fn decode(bytes: &[u8], count: usize, start_ns: u64, limits: Limits) -> Result<Vec<Event>, &'static str> {
    if count > MAX_EVENTS {
        return Err("a section has too many events");
    }
    let mut columns = split(bytes).ok_or("the lengths of the columns do not fit the section")?;
    let mut events = Vec::with_capacity(count);
    let mut files: HashMap<u32, Last> = HashMap::new();
    let mut time_ns = start_ns;
    let mut file = 0;
    for _ in 0..count {
        let event = next(&mut columns, time_ns, file, &files).ok_or("a column ends too early")?;
        if event.file >= limits.files || event.process >= limits.processes {
            return Err("an event names a file or a process that is not in the tables");
        }
        if event.offset.checked_add(event.size).is_none() {
            return Err("a request ends beyond 64 bits");
        }
        remember(files.entry(event.file).or_default(), &event);
        time_ns = event.time_ns;
        file = event.file;
        events.push(event);
    }
    if columns.iter().all(|column| column.is_empty()) { Ok(events) } else { Err("a column is too long") }
}

fn split(bytes: &[u8]) -> Option<[&[u8]; COLUMNS]> {
    let (lengths, mut rest) = bytes.split_at_checked(LENGTHS_BYTES)?;
    let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
    for (column, length) in columns.iter_mut().zip(lengths.chunks_exact(4)) {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        (*column, rest) = rest.split_at_checked(length)?;
    }
    rest.is_empty().then_some(columns)
}

fn next(
    columns: &mut [&[u8]; COLUMNS],
    time_ns: u64,
    file: u32,
    files: &HashMap<u32, Last>,
) -> Option<Event> {
    let [times, processes, file_numbers, kinds, offsets, sizes] = columns;
    let time_ns = varint::take_difference(times, time_ns)?;
    let process = u32::try_from(varint::take(processes)?).ok()?;
    let file = u32::try_from(varint::take_difference(file_numbers, u64::from(file))?).ok()?;
    let (coded, rest) = kinds.split_first()?;
    *kinds = rest;
    let kind = *Kind::ALL.get(usize::from(coded & !JUMPED))?;
    let last = files.get(&file).copied().unwrap_or_default();
    let offset = varint::take_difference(offsets, last.end)?;
    let size = varint::take_difference(sizes, last.size)?;
    Some(Event { time_ns, process, file, kind, jumped: coded & JUMPED != 0, offset, size })
}
