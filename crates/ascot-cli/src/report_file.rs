//! The file of `--report`. Before the job, a check ensures that it can be written, so that hours of work do not fail
//! at an unusable name. When the output is durable, the report is written under a temporary name beside its
//! own; it gets its name after the output gets its name. If the report cannot be written, the job ends before that.
//!
//! By its name, FILE.html, it is a page; else it is JSON.
//!
//! It must not be a file that the job reads or writes, under any name: the input or the report would be lost.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ascot_io::{AtomicOutput, Backend, Disk, DiskOptions, IoError, Unpoisoned, directory_of};
use ascot_model::report::Report;
use ascot_sort::SortError;
use ascot_sort::request::{FileRange, Input, Output, SortRequest};
use ascot_trace::job::JobTrace;
use ascot_trace::page::ReportPage;
use ascot_trace::{TraceError, TraceReader};
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::values;

/// Bytes that one system call moves.
const CALL_BYTES: usize = 1 << 20;

/// A report to write.
pub struct ReportFile {
    path: PathBuf,
    destination: Destination,
}

enum Destination {
    /// By a new file, which takes its name.
    Replace,
    /// In place: a device or pipe, or a file in a directory where no other file can be created.
    InPlace(File),
    /// By this file, which is complete except for its name.
    Written(AtomicOutput),
    /// The report is done.
    Done,
}

impl ReportFile {
    /// Ensures that the file, if one is requested, can be written by the job of `request`, and that neither the report
    /// nor the trace replaces one of its files.
    pub fn prepare(matches: &ArgMatches, request: Option<&SortRequest>) -> Result<Option<ReportFile>> {
        let list = matches.try_get_one::<OsString>("files0-from").ok().flatten();
        for flag in ["report", "trace"] {
            if let (Some(request), Some(path)) = (request, values::path(matches, flag)) {
                refuse_files_of_job(flag, &path, request, list.map(Path::new))?;
            }
        }
        if values::flag(matches, "explain") {
            refuse_to_explain(matches)?;
        }
        let Some(path) = values::path(matches, "report") else { return Ok(None) };
        if let Some(trace) = values::path(matches, "trace")
            && let Some(identity) = FileIdentity::from_path(&trace)
            && FileIdentity::from_path(&path) == Some(identity)
        {
            return Err(Failure::usage(
                format!("--report {} is the file of --trace", path.display()),
                "give each a file of its own; nothing was read or written",
            ));
        }
        let destination = destination_of(&path).map_err(failed(&path))?;
        Ok(Some(ReportFile { path, destination }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a page.
    pub fn is_page(&self) -> bool {
        is_page(&self.path)
    }

    /// The directory of the file.
    pub fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    /// Writes the page of a report; a regular file then lacks only its name.
    pub fn write_page(&mut self, report: &Report, trace: &TraceReader) -> io::Result<()> {
        let write = |page: ReportPage| page.write(report, trace).map_err(source_of_trace);
        self.fill(
            |path| ReportPage::create(path).map_err(source_of_trace).and_then(write),
            |file| write(ReportPage::to_file(file.try_clone()?)).map(|_| ()),
        )
    }

    /// Writes the report; a regular file then lacks only its name.
    pub fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        self.write_bytes(&text)
    }

    /// Writes `bytes`; a regular file then lacks only its name.
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fill(
            |path| AtomicOutput::with_bytes(path, "report", bytes).map(Some).map_err(source_of),
            |file| file.write_all(bytes),
        )
    }

    /// Writes by `replace`, which returns a file that lacks its name if it made one, or by `in_place`; only once.
    fn fill(
        &mut self,
        replace: impl FnOnce(&Path) -> io::Result<Option<AtomicOutput>>,
        in_place: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        self.destination = match &mut self.destination {
            Destination::Replace => replace(&self.path)?.map_or(Destination::Done, Destination::Written),
            Destination::InPlace(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                in_place(file)?;
                Destination::Done
            }
            Destination::Written(_) | Destination::Done => return Ok(()),
        };
        Ok(())
    }

    /// Gives the written report its name.
    pub fn commit(self) -> Result<()> {
        let Destination::Written(output) = self.destination else { return Ok(()) };
        output.commit().map(|_| ()).map_err(source_of).map_err(failed(&self.path))
    }

    /// Writes the report and gives it its name.
    pub fn write_at_once(mut self, value: &impl Serialize) -> Result<()> {
        self.write(value).map_err(failed(&self.path))?;
        self.commit()
    }

    /// Writes a page that another process made, and gives it its name.
    pub fn write_page_at_once(mut self, page: &str) -> Result<()> {
        self.write_bytes(page.as_bytes()).map_err(failed(&self.path))?;
        self.commit()
    }
}

/// Writes the report of a job to the file, if one is requested, when the job's output lacks only its name. `trace`:
/// that of a page.
pub fn complete(
    file: &Mutex<Option<ReportFile>>,
    report: &Report,
    trace: Option<&JobTrace>,
) -> Result<(), SortError> {
    let mut file = file.lock().unpoisoned();
    let Some(file) = file.as_mut() else { return Ok(()) };
    let written = match trace {
        None => file.write(report),
        Some(trace) => {
            let read = trace.read(&std::env::args_os().collect::<Vec<_>>()).map_err(source_of_trace);
            read.and_then(|trace| file.write_page(report, &trace))
        }
    };
    written.map_err(|source| SortError::Report { path: file.path().to_path_buf(), source })
}

/// Whether a report of this name is a page.
fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

/// Refuses what a job alone has: a plan moves no bytes.
fn refuse_to_explain(matches: &ArgMatches) -> Result<()> {
    if values::is_given(matches, "trace") {
        return Err(Failure::usage(
            "options '--explain' and '--trace' are incompatible",
            "--explain makes no requests to files: drop one of them",
        ));
    }
    match values::path(matches, "report").filter(|path| is_page(path)) {
        Some(path) => Err(Failure::usage(
            format!("--report {} with --explain: a plan has no page", path.display()),
            "name a file of JSON, such as plan.json, or drop --explain",
        )),
        None => Ok(()),
    }
}

/// Decides how the file can be written. The attempt leaves nothing behind.
fn destination_of(path: &Path) -> io::Result<Destination> {
    let stat = fs::metadata(path).ok();
    let in_place = || File::options().write(true).open(path).map(Destination::InPlace);
    if stat.as_ref().is_some_and(|stat| !stat.is_file()) {
        return in_place();
    }
    match AtomicOutput::create(&disk(), path, "report") {
        Ok(_) => Ok(Destination::Replace),
        Err(error) if stat.is_some() => in_place().map_err(|_| source_of(error)),
        Err(error) => Err(source_of(error)),
    }
}

/// Writes a file of the command's own: completely or not at all.
pub fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    AtomicOutput::with_bytes(path, "report", text)
        .and_then(AtomicOutput::commit)
        .map(|_| ())
        .map_err(source_of)
}

/// A disk that starts no threads.
fn disk() -> Disk {
    Disk::new(DiskOptions { backend: Backend::Sized(CALL_BYTES), ..DiskOptions::default() })
}

/// The system's error, without the temporary name.
fn source_of(error: IoError) -> io::Error {
    match error {
        IoError::Os { source, .. }
        | IoError::NoDirectory { source, .. }
        | IoError::DiskFull { source, .. }
        | IoError::BrokenPipe { source, .. }
        | IoError::TooManyOpen { source, .. } => io::Error::new(source.kind(), source),
        other => io::Error::other(other.to_string()),
    }
}

/// The system's error of a page or of its trace.
pub fn source_of_trace(error: TraceError) -> io::Error {
    match error {
        TraceError::Io(error) => source_of(error),
        other => io::Error::other(other.to_string()),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    Failure::file(path, "cannot write the report")
}

/// Refuses a file of `flag` (`report` or `trace`) that the job reads or writes.
pub fn refuse_files_of_job(
    flag: &str,
    file: &Path,
    request: &SortRequest,
    list: Option<&Path>,
) -> Result<()> {
    let Some(identity) = FileIdentity::from_path(file) else { return Ok(()) };
    let is_input = |input: &&Input| match input {
        Input::Path(path) | Input::Range(FileRange { path, .. }) => {
            FileIdentity::from_path(path).as_ref() == Some(&identity)
        }
        Input::Stdin => FileIdentity::from_stream(io::stdin()).as_ref() == Some(&identity),
        Input::Program => false,
    };
    let is_output = match &request.output {
        Output::Path(path) => FileIdentity::from_path(path).as_ref() == Some(&identity),
        Output::Parts(parts) => {
            parts.paths().any(|path| FileIdentity::from_path(&path).as_ref() == Some(&identity))
        }
        Output::Stdout => FileIdentity::from_stream(io::stdout()).as_ref() == Some(&identity),
        Output::Program => false,
    };
    let what = match request.inputs.iter().find(is_input) {
        Some(Input::Path(path) | Input::Range(FileRange { path, .. })) => {
            format!("the input {}", path.display())
        }
        Some(Input::Stdin | Input::Program) => "the file on standard input".to_owned(),
        None if is_output => match &request.output {
            Output::Path(path) => format!("the output {}", path.display()),
            Output::Parts(parts) => format!("one of the parts {}", parts.pattern),
            Output::Stdout | Output::Program => "the file on standard output".to_owned(),
        },
        None if list.and_then(FileIdentity::from_path).as_ref() == Some(&identity) => {
            "the list of --files0-from".to_owned()
        }
        None => return Ok(()),
    };
    Err(Failure::usage(
        format!("--{flag} {} is {what}: the {flag} would replace it", file.display()),
        format!("give the {flag} a file of its own; nothing was read or written"),
    ))
}

/// The identity of a regular file, which decides whether two names refer to one file.
#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    /// Volume and number of a file.
    File(u64, u64),
    /// Volume and number of a directory, and the name of a file that does not exist yet.
    New(u64, u64, OsString),
}

impl FileIdentity {
    /// `None` if it is not a regular file, and none can be created.
    fn from_path(path: &Path) -> Option<FileIdentity> {
        const LINKS_FOLLOWED: usize = 40;
        let mut path = path.to_path_buf();
        for _ in 0..LINKS_FOLLOWED {
            if let Ok(stat) = fs::metadata(&path) {
                return FileIdentity::from_stat(&stat);
            }
            let directory = directory_of(&path).to_path_buf();
            match fs::read_link(&path) {
                Ok(link) => path = directory.join(link),
                Err(_) => {
                    let stat = fs::metadata(&directory).ok()?;
                    return Some(FileIdentity::New(stat.dev(), stat.ino(), path.file_name()?.to_owned()));
                }
            }
        }
        None
    }

    fn from_stream(stream: impl AsFd) -> Option<FileIdentity> {
        let descriptor = stream.as_fd().try_clone_to_owned().ok()?;
        FileIdentity::from_stat(&File::from(descriptor).metadata().ok()?)
    }

    fn from_stat(stat: &Metadata) -> Option<FileIdentity> {
        stat.is_file().then(|| FileIdentity::File(stat.dev(), stat.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_file_are_one_place() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        std::os::unix::fs::symlink("file", at("soft")).unwrap();
        std::os::unix::fs::symlink("none", at("dangling")).unwrap();
        let file = FileIdentity::from_path(&at("file"));
        assert!(matches!(file, Some(FileIdentity::File(..))));
        assert_eq!(FileIdentity::from_path(&at("hard")), file);
        assert_eq!(FileIdentity::from_path(&at("soft")), file);
        assert_eq!(
            FileIdentity::from_path(&at("../").join(root.path().file_name().unwrap()).join("file")),
            file
        );
        let none = FileIdentity::from_path(&at("none"));
        assert!(matches!(none, Some(FileIdentity::New(..))));
        assert_eq!(FileIdentity::from_path(&at("dangling")), none);
        assert_ne!(FileIdentity::from_path(&at("other")), none);
        assert_eq!(FileIdentity::from_path(Path::new("/dev/null")), None);
    }
}
