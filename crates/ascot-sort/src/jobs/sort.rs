//! Sorts, merges, splits, and makes views.

use std::path::Path;

use ascot_io::AtomicOutput;
use ascot_model::report::Report;

use crate::api::error::SortError;
use crate::api::observe::{Caller, Cancel, Observer};
use crate::api::request::{Output, SortRequest, SplitBy};
use crate::jobs::execute::Execution;
use crate::jobs::prepare::{Goal, Prepared, prepare, prepare_view};
use crate::methods::small::{self, SmallJob};
use crate::plan::volumes::{RunOptions, check_apart, disk_for, view_disk};
use crate::read::file_format::refuse_others;
use crate::read::header;
use crate::read::inputs::Inputs;
use crate::read::open::{csv_head, keys_need_head};
use crate::records::{AnyRecords, Head, with_records};

/// Sorts (or, with `merge_only`, merges).
pub fn sort(
    request: &SortRequest,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let caller = Caller { observer, cancel };
    let inputs = Inputs::open(&request.inputs)?;
    let Some(memory) = small::memory_of(request, &inputs) else {
        return sort_large(request, inputs, options, caller);
    };
    refuse_others(request, &inputs)?;
    let (inputs, head) =
        if keys_need_head(request) { csv_head(request, inputs)? } else { (inputs, Head::default()) };
    let notice = header::notice_of_unnamed(request, &inputs, &head)?;
    let records = AnyRecords::new(request, &head)?;
    let job = SmallJob { request, inputs, header: head.header, memory, options, caller };
    match with_records!(records, records => job.run(&*records))? {
        Some(report) => {
            notice.iter().for_each(|notice| observer.warning(notice));
            Ok(report)
        }
        // It turned out not to be small. Its inputs are files, which can be opened again.
        None => sort_large(request, Inputs::open(&request.inputs)?, options, caller),
    }
}

/// Sorts with threads, a pool and passes, even if there is little to sort.
pub(crate) fn sort_large(
    request: &SortRequest,
    inputs: Inputs,
    options: &RunOptions,
    caller: Caller<'_>,
) -> Result<Report, SortError> {
    check_directory(request)?;
    check_apart(request, true)?;
    let prepared = prepare(request, inputs)?;
    warn_of_unnamed(request, &prepared, caller.observer)?;
    let disk = disk_for(request, &prepared.budget, options);
    Execution { request, goal: Goal::Sort, prepared, disk, caller, killed: None }.execute()
}

/// Splits the inputs into the files of the output. `by`: what decides to which file a record goes. The keys of the
/// request are those by which records are split.
pub fn split(
    request: &SortRequest,
    by: SplitBy,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    check_directory(request)?;
    check_apart(request, false)?;
    let prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    warn_of_unnamed(request, &prepared, observer)?;
    let disk = disk_for(request, &prepared.budget, options);
    let caller = Caller { observer, cancel };
    Execution { request, goal: Goal::Split(by), prepared, disk, caller, killed: None }.execute()
}

/// Sorts the inputs into runs, which become the view `view`.
pub fn make_view(
    request: &SortRequest,
    view: &Path,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let (request, prepared) = prepare_view(request, view)?;
    warn_of_unnamed(&request, &prepared, observer)?;
    let disk = view_disk(options);
    let caller = Caller { observer, cancel };
    Execution { request: &request, goal: Goal::View(view), prepared, disk, caller, killed: None }.execute()
}

/// Refuses an output whose directory does not exist, before there is anything to write.
fn check_directory(request: &SortRequest) -> Result<(), SortError> {
    match &request.output {
        Output::Path(path) => AtomicOutput::check_directory(path)?,
        Output::Parts(parts) => AtomicOutput::check_directory(&parts.path(0))?,
        Output::Stdout => {}
    }
    Ok(())
}

/// Warns of a first row that looks like a header and is sorted as a record.
fn warn_of_unnamed(
    request: &SortRequest,
    prepared: &Prepared,
    observer: &dyn Observer,
) -> Result<(), SortError> {
    if let Some(notice) = header::notice_of_unnamed(request, &prepared.inputs, &prepared.head)? {
        observer.warning(&notice);
    }
    Ok(())
}
