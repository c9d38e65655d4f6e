//! The end of the inputs of a distribution, held in memory while the parts are sorted.
//!
//! ```text
//!   inputs      |== split into parts, on disk ==|== the rest: sorted chunks in memory ==|
//!
//!   part i      records on disk ─▶ sorted chunks ─╮
//!   the rest    its records with keys of part i ──┴▶ merge ─▶ output
//! ```
//!
//! The rest is read after all splits, when their blocks are free. The manifest says where it begins, so a resumed job
//! reads it again. If memory does not hold it then, the job continues the parts that are left on disk with it.
//!
//! Invariant: the rest follows the records of all parts in the order of the inputs, so it comes last among equal
//! records.

use crate::api::{Result, SortError};
use crate::job::Job;
use crate::merge::CutRules;
use crate::output::OutputWriter;
use crate::read::RecordReader;
use crate::records::{Merged, Records, Segment, Splitters};
use crate::report::PassFacts;
use crate::runs::{Gather, HeldInput, OpenPart, Run, encode_index, sort_run_buffers};

/// The rest may exceed its planned bytes by this inverse part of them.
const CUT_SHARE: u64 = 32;

/// Sorted chunks in memory, of which the records of finished parts are taken.
#[derive(Default)]
pub(super) struct HeldRest {
    sources: Vec<Vec<Segment>>,
}

/// What the last pass reads beside the parts, and what it writes.
pub(super) struct LastPass<R> {
    pub(super) rest: HeldRest,
    pub(super) output: OutputWriter<R>,
    pub(super) sums: Merged,
}

impl HeldRest {
    /// Takes the records up to the end of a part.
    pub(super) fn take_up_to<R: Records>(
        &mut self,
        records: &R,
        splitters: &Splitters,
        part: usize,
    ) -> Vec<Vec<Segment>> {
        let Some((key, side)) = splitters.end_of(part) else { return std::mem::take(&mut self.sources) };
        let mut taken = Vec::with_capacity(self.sources.len());
        for source in &mut self.sources {
            let mut before = Vec::new();
            for segment in source.iter_mut() {
                let at = records.position_of_key(segment, key, side).clamp(segment.lo, segment.hi);
                if at > segment.lo {
                    before.push(Segment { hi: at, ..segment.clone() });
                    segment.lo = at;
                }
            }
            source.retain(|segment| !segment.is_empty());
            taken.extend((!before.is_empty()).then_some(before));
        }
        self.sources.retain(|source| !source.is_empty());
        taken
    }
}

impl<R: Records> Job<'_, R> {
    /// Bytes of the inputs that are still to be split, so that memory holds the rest; none: all of them.
    pub(super) fn bytes_to_split(&self) -> Option<u64> {
        let left = self.inputs.bytes_after(self.manifest.read_end)?;
        (self.rest_bytes > 0).then(|| left.saturating_sub(self.rest_bytes))
    }

    /// Notes the end of the inputs that are split, if memory is to hold the rest.
    pub(super) fn begin_rest(&mut self) {
        if self.rest_bytes > 0 {
            self.manifest.held = Some(HeldInput {
                start: self.manifest.read_end,
                sum: self.manifest.sum_in,
                misfits: self.manifest.misfits.clone(),
            });
        }
    }

    /// Reads and sorts the rest of the inputs, whose records belong to the parts from `first` on. If it does not fit,
    /// splits it, too.
    pub(super) fn hold_rest(&mut self, splitters: &Splitters) -> Result<HeldRest> {
        // Without parts, all records are in the output.
        let held = self.manifest.held.clone().filter(|_| !self.manifest.runs.is_empty());
        let Some(held) = held else { return Ok(HeldRest::default()) };
        // A record that was cut at the end of the split belongs to the rest.
        let max_bytes = self.rest_bytes + self.rest_bytes / CUT_SHARE;
        let fits = self.inputs.bytes_after(held.start).is_some_and(|left| left <= max_bytes);
        if fits && let Some(mut rest) = self.read_rest(&held)? {
            let first = splitters.parts() - self.manifest.runs.len();
            if let Some(done) = first.checked_sub(1) {
                rest.take_up_to(&*self.records, splitters, done);
            }
            return Ok(rest);
        }
        self.split_rest(held)?;
        Ok(HeldRest::default())
    }

    /// Reads and sorts the rest of the inputs; none if it does not fit in memory beside the parts.
    fn read_rest(&mut self, held: &HeldInput) -> Result<Option<HeldRest>> {
        self.manifest.sum_in = held.sum;
        self.manifest.misfits = held.misfits.clone();
        let available = self.pool.available();
        let memory = self.sort_memory(0);
        let inputs = self.inputs.clone();
        let reader =
            RecordReader::new(&self.records, &self.disk, inputs, &memory.chunks, held.start, self.cancel)
                .in_turn(self.turns_of_forming());
        let records = self.records.clone();
        let cancel = self.cancel;
        let mut rest = HeldRest::default();
        let mut fits = true;
        let gather = Gather::AllThatFits;
        let read =
            sort_run_buffers(&records, reader, &memory, self.budget.threads, gather, cancel, &mut |buffer| {
                if !buffer.last {
                    fits = false;
                    return Err(SortError::Internal("the end of the input does not fit in memory"));
                }
                self.manifest.sum_in.combine(&buffer.sum);
                self.take_in(&buffer.misfits)?;
                rest.sources = buffer.sources;
                Ok(())
            });
        memory.chunks.close();
        drop(memory);
        if fits {
            read?;
            let inputs = self.inputs.iter().count() as u64;
            self.passes.done("sort rest", PassFacts { inputs, outputs: 0, buffers: None });
            self.held_memory = available.saturating_sub(self.pool.available());
            fits = self.can_sort(self.part_stream_bytes());
        }
        if fits {
            return Ok(Some(rest));
        }
        drop(rest);
        self.held_memory = 0;
        Ok(None)
    }

    /// Continues the parts that are left with the rest of the inputs. Records of the others are in the output.
    fn split_rest(&mut self, held: HeldInput) -> Result<()> {
        self.rest_bytes = 0;
        let open = |run: Run| -> Result<OpenPart> {
            let index = encode_index(&*run.index(&self.disk)?);
            Ok(OpenPart { run, index, skip: 0 })
        };
        let runs = std::mem::take(&mut self.manifest.runs);
        self.manifest.parts = runs.into_iter().map(open).collect::<Result<_, _>>()?;
        self.manifest.read_end = held.start;
        self.manifest.sum_in = held.sum;
        self.manifest.misfits = held.misfits;
        self.manifest.all_read = false;
        self.manifest.held = None;
        // Before a part is changed.
        self.store()?;
        self.distribute()
    }

    /// Merges records that memory held into the output. They follow those in its sums, and may have equal keys.
    pub(super) fn held_to_output(&mut self, held: Vec<Vec<Segment>>, pass: &mut LastPass<R>) -> Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        let limit = self.request.top.map(|top| top.saturating_sub(pass.sums.out.count));
        let cut = CutRules { previous: pass.sums.last_key.take(), limit, keeps_key: false };
        pass.sums.add(self.sources_to_output(held, cut, &mut pass.output)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Side;

    #[test]
    fn parts_end_at_their_splitters() {
        let keys: Vec<Vec<u8>> = ["b", "d", "d", "f"].iter().map(|key| key.as_bytes().to_vec()).collect();
        let splitters = Splitters::new(&keys, false);
        let ends: Vec<_> = (0..splitters.parts()).map(|part| splitters.end_of(part)).collect();
        let end = |key: &'static str, side| Some((key.as_bytes(), side));
        let expected = [
            end("b", Side::Lower),
            end("d", Side::Lower),
            end("d", Side::Upper),
            end("f", Side::Lower),
            None,
        ];
        assert_eq!(ends, expected);
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            let part = splitters.part_of(key.as_bytes());
            let before = |part: usize| match splitters.end_of(part) {
                Some((end, Side::Lower)) => key.as_bytes() < end,
                Some((end, Side::Upper)) => key.as_bytes() <= end,
                None => true,
            };
            assert!(before(part) && (part == 0 || !before(part - 1)), "{key}");
        }
    }
}
