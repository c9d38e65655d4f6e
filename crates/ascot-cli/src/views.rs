//! `ascot view` and `ascot mount`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ascot_index::Directory;
use ascot_index::format::names::MANIFEST;
use ascot_io::Disk;
use ascot_mount::{Mounted, Shown};
use ascot_sort::request::Output;
use ascot_sort::store::VIEW_MANIFEST;
use ascot_sort::view::make::check_name;
use ascot_sort::view::{OpenView, View, join_views, make_joined, write_part};
use ascot_sort::{Cancel, RunOptions, SortError};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::request::{count, memory, paths, threads};
use crate::signals::Stop;
use crate::size;

/// Memory of a view where nothing is said, bytes.
const USUAL_MEMORY_BYTES: u64 = 256 << 20;

/// How often a mount looks whether it is to end, and whether readers are idle.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// `ascot view`.
pub fn view(matches: &ArgMatches) -> Result<u8, Failure> {
    let dir = path(matches, "dir").unwrap_or_default();
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let view = open(matches, &dir)?;
    let range = range_of(matches, &*view)?;
    let file = path(matches, "materialize").or_else(|| path(matches, "output"));
    let output = file.map_or(Output::Stdout, Output::Path);
    let written = write_part(&*view, range, &output, &RunOptions::default(), &cancel);
    if matches!(written, Err(SortError::Cancelled)) {
        stop.end_if_asked();
    }
    written?;
    Ok(0)
}

fn open(matches: &ArgMatches, dir: &Path) -> Result<Arc<dyn View>, Failure> {
    let memory_bytes = Some(memory(matches)?.unwrap_or(USUAL_MEMORY_BYTES));
    let opening = OpenView { memory_bytes, threads: threads(matches)?, options: RunOptions::default() };
    Ok(opening.open(dir)?)
}

fn open_index(matches: &ArgMatches, dir: &Path) -> Result<Directory, Failure> {
    let bytes = memory(matches)?.unwrap_or(USUAL_MEMORY_BYTES);
    Ok(Directory::open(&Disk::default(), dir, usize::try_from(bytes).unwrap_or(usize::MAX))?)
}

fn path(matches: &ArgMatches, id: &str) -> Option<PathBuf> {
    matches.try_get_one::<OsString>(id).ok().flatten().map(PathBuf::from)
}

/// `ascot merge` of views: to a view of views, or to the output; nothing where other files are merged.
pub fn merge(matches: &ArgMatches) -> Result<Option<u8>, Failure> {
    let wanted = path(matches, "view");
    let files = paths(matches, "files");
    let views = files.iter().filter(|file| file.join(VIEW_MANIFEST).is_file()).count();
    if views == 0 && wanted.is_none() {
        return Ok(None);
    }
    if let Some(other) = files.iter().find(|file| !file.join(VIEW_MANIFEST).is_file()) {
        return Err(Failure::usage(
            format!("{} is no view, and views are merged with views only", other.display()),
            "make it one: ascot sort FILE --view DIR, with the format and keys of the others",
        ));
    }
    let name = wanted.clone().or_else(|| path_of_many(matches, "output")).unwrap_or_default();
    let joined = join_views(&files, &name)?;
    let memory_bytes = Some(memory(matches)?.unwrap_or(USUAL_MEMORY_BYTES));
    let opening = OpenView { memory_bytes, threads: threads(matches)?, options: RunOptions::default() };
    if let Some(dir) = wanted {
        check_name(&dir)?;
        // Opened once: what is wrong with the runs is found now.
        opening.open_manifest(joined.clone(), &dir)?;
        make_joined(&joined, &dir)?;
        return Ok(Some(0));
    }
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let view = opening.open_manifest(joined, &name)?;
    let output = if name.as_os_str().is_empty() { Output::Stdout } else { Output::Path(name) };
    let written = write_part(&*view, (0, view.bytes()), &output, &RunOptions::default(), &cancel);
    if matches!(written, Err(SortError::Cancelled)) {
        stop.end_if_asked();
    }
    written?;
    Ok(Some(0))
}

fn path_of_many(matches: &ArgMatches, id: &str) -> Option<PathBuf> {
    paths(matches, id).pop()
}

/// The bytes that are asked for.
fn range_of(matches: &ArgMatches, view: &dyn View) -> Result<(u64, u64), Failure> {
    let text = |id: &str| matches.get_one::<String>(id).map(String::as_str);
    let end = view.bytes();
    if let Some(text) = text("range") {
        let (from, to) = two_ends("--range", text)?;
        let offset =
            |text: &str| match size::memory_size(text).or_else(|_| size::buffer_size(&format!("{text}b"))) {
                Ok(amount) => Ok(amount.bytes_of(end)),
                Err(source) => Err(Failure::Size { flag: "--range", source }),
            };
        let plain = |text: &str| text.parse::<u64>().map_or_else(|_| offset(text), Ok);
        let from = from.map(plain).transpose()?.unwrap_or(0);
        return in_order("--range", (from, to.map(plain).transpose()?.unwrap_or(end)), end);
    }
    if let Some(text) = text("keys") {
        let (from, to) = two_ends("--keys", text)?;
        let place = |text: &str| view.key(text).and_then(|key| view.offset_of_key(&key));
        let from = from.map(place).transpose()?.unwrap_or(view.header_bytes());
        let to = to.map(place).transpose()?.unwrap_or(end);
        return in_order("--keys", (from, to), end);
    }
    if let Some(records) = count(matches, "head", "--head")? {
        return Ok((0, view.offset_of_record(records)?));
    }
    if let Some(records) = count(matches, "tail", "--tail")? {
        return Ok((view.offset_of_record(view.records().saturating_sub(records))?, end));
    }
    if let Some(record) = count(matches, "at-record", "--at-record")? {
        return Ok((view.offset_of_record(record)?, end));
    }
    Ok((0, end))
}

/// The ends of A..B, either of which may be missing.
fn two_ends<'t>(flag: &str, text: &'t str) -> Result<(Option<&'t str>, Option<&'t str>), Failure> {
    let Some((from, to)) = text.split_once("..") else {
        return Err(Failure::usage(
            format!("'{text}' is no range for {flag}"),
            format!("write: {flag} A..B"),
        ));
    };
    let given = |end: &'t str| (!end.is_empty()).then_some(end);
    Ok((given(from), given(to)))
}

fn in_order(flag: &str, (from, to): (u64, u64), end: u64) -> Result<(u64, u64), Failure> {
    if from > to {
        return Err(Failure::usage(
            format!("the range of {flag} ends before it begins"),
            "its first end comes first in the order of the view",
        ));
    }
    Ok((from.min(end), to.min(end)))
}

/// `ascot mount`.
pub fn mount(matches: &ArgMatches) -> Result<u8, Failure> {
    let dir = path(matches, "dir").unwrap_or_default();
    let at = path(matches, "mountpoint").unwrap_or_default();
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let is_index = dir.join(MANIFEST).is_file();
    let manifest = dir.join(if is_index { MANIFEST } else { VIEW_MANIFEST });
    let view = if is_index { None } else { Some(open(matches, &dir)?) };
    let failed = |source| Failure::File { path: manifest.clone(), doing: "cannot be read", source };
    let stat = fs::metadata(&manifest).map_err(failed)?;
    let shown = Shown {
        modified: stat.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        owner: (stat.uid(), stat.gid()),
        allow_other: matches.get_flag("allow-other"),
        log: Arc::new(|line| eprintln!("ascot: {line}")),
    };
    let mounted = match view {
        Some(view) => Mounted::new(view, &at, &shown)?,
        None => Mounted::keys(Arc::new(open_index(matches, &dir)?), &at, &shown)?,
    };
    while !mounted.has_ended() && cancel.check().is_ok() {
        std::thread::sleep(BETWEEN_LOOKS);
        mounted.tidy();
    }
    mounted.end()?;
    if cancel.check().is_err() {
        stop.end_if_asked();
    }
    Ok(0)
}
