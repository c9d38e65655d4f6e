//! A part of a trace: the events of a time range, with the files and processes that they name, and the buckets at the
//! turns in that range.
//!
//! Times start again at 0 with the beginning of the range. The blocks that files held when the trace began become those
//! that they hold when the range begins.

use std::path::Path;

use crate::blocks::{Extent, given_back};
use crate::buckets::Turn;
use crate::error::{Result, TraceError};
use crate::event::{Event, Recording, TracedFile};
use crate::format::{TraceReader, TraceWriter};

/// Writes the events from `from_ns` to before `to_ns` to another trace. A range without events is an error.
pub fn cut(trace: &TraceReader, from_ns: u64, to_ns: u64, output: &Path) -> Result<()> {
    let last_ns = to_ns.saturating_sub(1);
    let mut files = Numbers::new(trace.files().len());
    let mut processes = Numbers::new(trace.processes().len());
    let mut writer = TraceWriter::create(output)?;
    let mut extents: Vec<Extent> = trace.files().iter().map(Extent::of).collect();
    for event in trace.events_between(0, from_ns.saturating_sub(1)) {
        let event = event?;
        let Some(extent) = extents.get_mut(event.file as usize).filter(|_| event.time_ns < from_ns) else {
            continue;
        };
        if event.moves() {
            extent.touch(&event, |_, _| ());
        } else if let Some((low, high)) = given_back(&event) {
            extent.give_back(low, high, |_, _| ());
        }
    }
    let mut count = 0;
    for event in trace.events_between(from_ns, last_ns) {
        let event = event?;
        let file = files.of(event.file);
        let process = processes.of(event.process);
        writer.push(&Event { time_ns: event.time_ns - from_ns, file, process, ..event })?;
        count += 1;
    }
    count += cut_turns(trace, from_ns, last_ns, &mut writer)?;
    if count == 0 {
        return Err(TraceError::NothingToCut { length_ns: trace.last_ns() });
    }
    let start_ns = trace.recording().start_ns.saturating_add(from_ns);
    let mut recording = Recording { start_ns, ..trace.recording().clone() };
    if writer.event_count() < trace.event_count() {
        // The counts of the whole recording say nothing of a part.
        let Recording { command, source, incomplete, .. } = recording;
        recording = Recording { command, source, start_ns, incomplete, ..Recording::default() };
    }
    // The files hold what was there when the range begins.
    let now = trace.files().iter().cloned().zip(extents);
    let now: Vec<TracedFile> =
        now.map(|(file, extent)| TracedFile { held: extent.into_held(), ..file }).collect();
    let files = files.kept(&now);
    let processes = processes.kept(trace.processes());
    writer.finish(&files, &processes, &recording)?;
    Ok(())
}

/// Adds the turns in the range, and the bowties that they name. Returns the number of turns.
fn cut_turns(trace: &TraceReader, from_ns: u64, last_ns: u64, writer: &mut TraceWriter) -> Result<u64> {
    let mut count = 0;
    let mut bowties = Numbers::new(trace.bowties().len());
    for turn in trace.turns_between(from_ns, last_ns) {
        let turn = turn?;
        let known = bowties.old.len();
        let bowtie = bowties.of(turn.bowtie);
        if bowties.old.len() > known
            && let Some(of_trace) = trace.bowties().get(turn.bowtie as usize)
        {
            writer.add_bowtie(of_trace.clone());
        }
        writer.push_turn(&Turn { time_ns: turn.time_ns - from_ns, bowtie, ..turn })?;
        count += 1;
    }
    Ok(count)
}

/// New numbers of the entries that are used, in the order of their first use.
struct Numbers {
    new: Vec<Option<u32>>,
    old: Vec<u32>,
}

impl Numbers {
    fn new(entries: usize) -> Numbers {
        Numbers { new: vec![None; entries], old: Vec::new() }
    }

    fn of(&mut self, old: u32) -> u32 {
        let next = self.old.len() as u32;
        match self.new.get_mut(old as usize) {
            Some(new) => *new.get_or_insert_with(|| {
                self.old.push(old);
                next
            }),
            None => next,
        }
    }

    fn kept<T: Clone>(self, table: &[T]) -> Vec<T> {
        self.old.iter().filter_map(|old| table.get(*old as usize).cloned()).collect()
    }
}
