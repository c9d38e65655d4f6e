//! A view of views: the runs of several, by reference. Nothing is copied; where one of them is altered or
//! removed later, opening the view of views finds and names it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, IoError};
use ascot_record::checksum::RecordSum;

use crate::error::SortError;
use crate::job::{RunOptions, job_disk};
use crate::store::{JobDir, LOCK};
use crate::view::make::parent_of;
use crate::view::manifest::ViewManifest;

/// The manifest of a view of `views`, whose records come in their order where they are equal.
pub fn join_views(views: &[PathBuf], name: &Path) -> Result<ViewManifest, SortError> {
    let mut joined: Option<ViewManifest> = None;
    for dir in views {
        let mut one = ViewManifest::load(dir)?;
        let real = fs::canonicalize(dir).map_err(|error| IoError::from_os(Action::Inspect, dir, 0, error))?;
        one.members.iter_mut().for_each(|member| member.path = real.join(&member.path));
        let Some(first) = &mut joined else {
            one.name = name.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            joined = Some(one);
            continue;
        };
        if order_of(first) != order_of(&one) {
            let why = "its records are ordered otherwise than those of the first view, or have another header\n  views can be merged that were made with the same format, keys and options";
            return Err(SortError::View { path: dir.clone(), why: why.into() });
        }
        let mut sum: RecordSum = first.sum;
        sum.combine(&one.sum);
        first.sum = sum;
        first.members.extend(one.members);
    }
    joined
        .ok_or_else(|| SortError::Request("no views to merge\n  name some: ascot merge a.view b.view".into()))
}

/// What must be the same of views that are merged.
fn order_of(view: &ViewManifest) -> Option<String> {
    let request = &view.request;
    let text = serde_json::to_string(&(&request.layout, &request.keys, request.stable, &view.header));
    text.ok()
}

/// Leaves `manifest` as the new view `view`, whole or not at all.
pub fn make_joined(manifest: &ViewManifest, view: &Path) -> Result<(), SortError> {
    let disk = job_disk(&RunOptions::default());
    let parent = parent_of(view);
    let mut job = JobDir::create(&disk, std::slice::from_ref(&parent), None)?;
    let dir = job.path().to_path_buf();
    manifest.store(&disk, &dir)?;
    let failed = |error| IoError::from_os(Action::Create, view, 0, error);
    let mode = fs::metadata(&parent).map_err(failed)?.permissions().mode() & 0o755;
    fs::set_permissions(&dir, fs::Permissions::from_mode(mode | 0o700)).map_err(failed)?;
    disk.sync_dir(&dir)?;
    disk.rename(&dir, view)?;
    job.keep();
    let _ = fs::remove_file(view.join(LOCK));
    Ok(disk.sync_dir(&parent)?)
}
