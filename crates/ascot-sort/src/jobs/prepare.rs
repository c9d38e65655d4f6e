//! From a request to its plan: inputs are opened, the head of the first is read, and memory is divided.

use std::path::Path;

use ascot_io::ahead_bytes;
use ascot_model::disk_use::{DiskNeed, beside_view};
use ascot_model::plan::Plan;
use ascot_record::layout::Layout;

use crate::api::error::SortError;
use crate::api::request::{Method, Output, SortRequest, SplitBy};
use crate::plan::budget::Budget;
use crate::plan::planner::{GUESSED_RECORD_BYTES, Lengths, budget_of, make_plan, plan_split};
use crate::plan::volumes::check_apart;
use crate::read::inputs::Inputs;
use crate::read::open::look_at;
use crate::records::{AnyRecords, Head, Records, with_records};
use crate::view::block_size::kept_bytes;
use crate::view::make;

/// What becomes of the inputs.
#[derive(Clone, Copy)]
pub(super) enum Goal<'a> {
    /// They are sorted or merged into the output.
    Sort,
    /// They are divided among the files of the output.
    Split(SplitBy),
    /// Their sorted runs become a view of this name.
    View(&'a Path),
}

impl Goal<'_> {
    pub(super) fn is_view(self) -> bool {
        matches!(self, Goal::View(_))
    }
}

/// A request whose inputs are open.
pub(super) struct Prepared {
    pub(super) inputs: Inputs,
    pub(super) head: Head,
    pub(super) budget: Budget,
}

/// Opens the head of `inputs`, and divides the memory of `request`.
pub(super) fn prepare(request: &SortRequest, inputs: Inputs) -> Result<Prepared, SortError> {
    let (inputs, head) = look_at(request, inputs)?;
    let budget = budget_of(request, inputs.record_bytes())?;
    Ok(Prepared { inputs, head, budget })
}

/// The request by which the runs of the view `view` are formed, and its inputs.
pub(super) fn prepare_view(request: &SortRequest, view: &Path) -> Result<(SortRequest, Prepared), SortError> {
    make::check(request, view)?;
    let request = SortRequest {
        // Runs are written beside the view, and nowhere else.
        temp_dirs: vec![make::parent_of(view)],
        method: Method::Merge,
        output: Output::Stdout,
        ..request.clone()
    };
    check_apart(&request, true)?;
    let mut prepared = prepare(&request, Inputs::open(&request.inputs)?)?;
    prepared.use_view_blocks(&request)?;
    Ok((request, prepared))
}

impl Prepared {
    /// Divides memory into blocks that suit the runs of a view.
    pub(super) fn use_view_blocks(&mut self, request: &SortRequest) -> Result<(), SortError> {
        let records = AnyRecords::new(request, &self.head)?;
        let mean = with_records!(records, records => self.mean_bytes(&*records));
        let kept = kept_bytes(request, mean);
        self.budget = make::budget_of(self.budget, mean, kept, self.inputs.record_bytes());
        Ok(())
    }

    /// The plan of a job that is not resumed and makes no view.
    pub(super) fn plan<R: Records>(
        &self,
        request: &SortRequest,
        goal: Goal<'_>,
        records: &R,
    ) -> Result<Plan, SortError> {
        let Prepared { inputs, head, budget } = self;
        let lengths = Lengths::of_head(records, head);
        match (goal, &request.output) {
            (Goal::Split(by), Output::Parts(parts)) => {
                plan_split(request, inputs, budget, &lengths, records, by, parts.count)
            }
            _ => make_plan(request, inputs, budget, &lengths, records),
        }
    }

    /// Turns the plan of a merge into that of a view, which ends when its runs are formed.
    pub(super) fn end_with_runs<R: Records>(&self, plan: &mut Plan, request: &SortRequest, records: &R) {
        plan.forced = false;
        plan.others = Vec::new();
        let bytes = plan.input_bytes.unwrap_or(0);
        let chosen = &mut plan.chosen;
        chosen.passes.truncate(1);
        chosen.factors = Vec::new();
        chosen.merge_factor = None;
        let runs = match chosen.disk.spills_bytes {
            // Records sorted in memory become one run.
            0 => bytes + ahead_bytes(bytes),
            spills => spills,
        };
        let kept = kept_bytes(request, self.mean_bytes(records)).ceil() as u64;
        // The manifest holds the sample by which columns get their types, in hexadecimal.
        let typed = matches!(request.layout, Layout::Csv { .. });
        let sample = if typed { 2 * self.head.records.len() as u64 } else { 0 };
        // Space is laid out up to the limit in whole pages.
        let all = (runs + beside_view(bytes, chosen.pieces.max(1), self.budget.block as u64, kept) + sample)
            .next_multiple_of(ascot_io::PAGE_BYTES as u64);
        chosen.peak_disk_bytes = all;
        chosen.disk =
            DiskNeed { peak_bytes: all, spills_bytes: all, least_bytes: all, ..DiskNeed::default() };
        chosen.summary = "form sorted runs, to be merged when they are read".into();
    }

    /// Mean length of a record, bytes.
    fn mean_bytes<R: Records>(&self, records: &R) -> f64 {
        let fixed = records.record_bytes().map(|bytes| bytes as f64);
        fixed.or(Lengths::of_head(records, &self.head).mean_bytes).unwrap_or(GUESSED_RECORD_BYTES)
    }
}
