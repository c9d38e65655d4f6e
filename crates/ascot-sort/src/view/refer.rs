//! A view of views and of sorted files, by reference: only indexes are copied. If one of them is altered or removed
//! later, opening the view reports it by name.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Action, Disk, During, directory_of};
use ascot_record::checksum::RecordSum;
use ascot_record::hex::to_hex;
use ascot_record::layout::Layout;

use crate::api::{Cancel, Input, Method, Observer, Output, Result, SortError, SortRequest};
use crate::plan::{RunOptions, job_disk};
use crate::read::open_inputs;
use crate::records::{AnyRecords, InputHead, Records, with_records};
use crate::report::Watch;
use crate::runs::{JobDir, VIEW_MANIFEST, ViewIndex};
use crate::view::kept::{Batch, IndexAndKeys};
use crate::view::make::{check_name, give_name};
use crate::view::manifest::{IndexInView, Member, SortedFile, VIEW_VERSION, ViewManifest};
use crate::view::sorted_file::{Taking, not_a_file};

/// Whether `dir` is a view.
pub fn is_view(dir: &Path) -> bool {
    dir.join(VIEW_MANIFEST).is_file()
}

/// The manifest of a view of `views`; equal records keep the order of the views.
pub fn join_views(views: &[PathBuf], name: &Path) -> Result<ViewManifest> {
    let mut joined: Option<ViewManifest> = None;
    for dir in views {
        let mut one = ViewManifest::load(dir)?;
        let real = fs::canonicalize(dir).during(Action::Inspect, dir)?;
        one.members = one.members.into_iter().map(|member| member.absolute(&real)).collect();
        let Some(first) = &mut joined else {
            one.name = name.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            joined = Some(one);
            continue;
        };
        if order_of(&first.request, &first.header) != order_of(&one.request, &one.header) {
            let why = "its order or header differs from that of the first view\n  only views made with the \
                       same format, keys and options can be merged";
            return Err(SortError::view(dir, ErrorKind::InvalidInput, why));
        }
        let mut sum: RecordSum = first.sum;
        sum.combine(&one.sum);
        first.sum = sum;
        first.members.extend(one.members);
    }
    joined
        .ok_or_else(|| SortError::Request("no views to merge\n  name some: ascot merge a.view b.view".into()))
}

/// The properties that must be the same in all views of a merge.
fn order_of(request: &SortRequest, header: &Option<String>) -> Option<String> {
    serde_json::to_string(&(&request.layout, &request.keys, request.stable, header)).ok()
}

/// Makes the new view `view` of `parts`, which are views and sorted files; equal records keep the order of the
/// parts. The files are sorted as `request` says, or, without one, as the first view is.
pub fn join_parts(
    parts: &[PathBuf],
    request: Option<&SortRequest>,
    view: &Path,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<ViewManifest> {
    check_name(view)?;
    let views: Vec<PathBuf> = parts.iter().filter(|part| is_view(part)).cloned().collect();
    let basis = if views.is_empty() { None } else { Some(join_views(&views, view)?) };
    let (request, head) = match (&basis, request) {
        (Some(basis), given) => {
            given.map_or(Ok(()), |given| same_order(basis, given))?;
            let bad = || SortError::view(view, ErrorKind::InvalidData, "a manifest has no valid header");
            (basis.request.clone(), basis.head().ok_or_else(bad)?)
        }
        (None, Some(given)) => (given.clone(), open_inputs(given)?.1),
        (None, None) => return Err(SortError::Internal("files of a view without an order")),
    };
    let disk = job_disk(&RunOptions::default());
    disk.stop_when(cancel.flag());
    let parent = directory_of(view).to_path_buf();
    let mut job = JobDir::create(&disk, std::slice::from_ref(&parent), None)?;
    let dir = job.path().to_path_buf();
    let sum = RecordSum::new();
    let mut index = ViewIndex::new(&disk, &dir);
    let joining = Joining {
        parts,
        request: &request,
        head: &head,
        disk: &disk,
        dir: &dir,
        observer,
        cancel,
        sum,
        index: &mut index,
    };
    let (members, sum) = with_records!(AnyRecords::new(&request, &head)?, records => joining.join(&records))?;
    index.finish()?;
    let typed = matches!(request.layout, Layout::Csv { .. });
    let manifest = ViewManifest {
        version: VIEW_VERSION,
        request: SortRequest {
            inputs: Vec::new(),
            output: Output::Stdout,
            method: Method::Merge,
            merge_only: false,
            ..request
        },
        name: view.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        header: head.header.as_deref().map(to_hex),
        head: if typed { to_hex(&head.records) } else { String::new() },
        sum,
        members,
    };
    manifest.store(&disk, &dir)?;
    give_name(&disk, &dir, view)?;
    job.keep();
    Ok(manifest)
}

/// Refuses a view whose records are not ordered as `given` says. The flags only show whether there is a header,
/// so its contents are not compared.
pub fn same_order(view: &ViewManifest, given: &SortRequest) -> Result<()> {
    let order = |request: &SortRequest| order_of(request, &request.header.then(String::new));
    if order(given) == order(&view.request) {
        return Ok(());
    }
    Err(SortError::Request(
        "the flags give another order than that of the views\n  leave out format and keys: the views \
         determine them"
            .into(),
    ))
}

struct Joining<'a> {
    parts: &'a [PathBuf],
    request: &'a SortRequest,
    head: &'a InputHead,
    disk: &'a Disk,
    dir: &'a Path,
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
    sum: RecordSum,
    index: &'a mut ViewIndex,
}

impl Joining<'_> {
    fn join<R: Records>(mut self, records: &Arc<R>) -> Result<(Vec<Member>, RecordSum)> {
        let files = || self.parts.iter().filter(|part| !is_view(part));
        let bytes = files().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum();
        let mut watch = Watch::new(self.observer, self.cancel, "check order", Some(bytes));
        let mut members: Vec<Member> = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            if is_view(part) {
                let one = join_views(std::slice::from_ref(part), part)?;
                self.sum.combine(&one.sum);
                self.copy_indexes(part, one.members, &mut members)?;
                continue;
            }
            // Distinct numbers for the files that the view keeps.
            let number = 2 * members.len() as u64 + 1;
            members.extend(self.file(records, part, number, &mut watch)?);
        }
        Ok((members, self.sum))
    }

    fn file<R: Records>(
        &mut self,
        records: &Arc<R>,
        path: &Path,
        number: u64,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Member>> {
        if path == Path::new("-") {
            return Err(not_a_file());
        }
        if path.is_dir() {
            let why = "neither a view nor a file: there is no view.json in it\n  ascot sort FILE... --view \
                       DIR makes a view";
            return Err(SortError::view(path, ErrorKind::NotFound, why));
        }
        let request = SortRequest { inputs: vec![Input::Path(path.to_path_buf())], ..self.request.clone() };
        let (inputs, head) = open_inputs(&request)?;
        let empty = inputs.record_bytes() == Some(0);
        if head.header != self.head.header && !empty {
            let why = "its header differs from that of the first part\n  only files with the same columns \
                       make one sorted file";
            return Err(SortError::view(path, ErrorKind::InvalidInput, why));
        }
        let cut = records.cut(&head.records, usize::MAX);
        let fixed = records.record_bytes().map(|bytes| bytes as f64);
        let mean = fixed.unwrap_or(cut.bytes as f64 / cut.records.max(1) as f64);
        let disk = self.disk;
        let dir = self.dir;
        let cancel = self.cancel;
        let taking = Taking { records, request: &request, disk, dir, cancel };
        taking.take(inputs, mean, number, watch, &mut self.sum, self.index)
    }

    /// Adds the members of a view with copies of their indexes and keys, so that all are read at once.
    fn copy_indexes(&mut self, view: &Path, of_view: Vec<Member>, members: &mut Vec<Member>) -> Result<()> {
        let mut rest = &of_view[..];
        while let Some(batch) = Batch::first_of(rest, self.disk, view)? {
            for member in batch.members {
                self.cancel.check()?;
                let IndexAndKeys { index_bytes, keys, .. } = batch.of(member, self.disk, view)?;
                let index = Some(IndexInView::new(&self.index.add(&index_bytes, &keys)?));
                let file = member.file.clone().map(|file| SortedFile { beside: None, ..file });
                members.push(Member { index, file, ..member.clone() });
            }
            rest = &rest[batch.members.len()..];
        }
        Ok(())
    }
}
