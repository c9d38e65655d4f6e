//! The file of `--report`: opened before the job, so that hours of work do not end at a name that
//! cannot be written; removed again if the job fails and it was not there before.
//!
//! It is none of the files that the job reads or writes, whatever name it is given by: that would cost
//! the input, or the report.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_sort::request::{Input, Output, SortRequest};
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Failure;

/// A report to be written.
pub struct ReportFile {
    path: PathBuf,
    file: File,
    is_new: bool,
    written: bool,
}

impl ReportFile {
    /// Opens the file, if there is to be one, for a job that does what `request` says.
    pub fn prepare(
        matches: &ArgMatches,
        request: Option<&SortRequest>,
    ) -> Result<Option<ReportFile>, Failure> {
        let Some(path) = matches.get_one::<OsString>("report").map(PathBuf::from) else { return Ok(None) };
        if let Some(request) = request {
            let list = matches.try_get_one::<OsString>("files0-from").ok().flatten();
            refuse_files_of_job(&path, request, list.map(Path::new))?;
        }
        let is_new = !path.exists();
        let opened = File::options().write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|source| failed(&path, source))?;
        Ok(Some(ReportFile { path, file, is_new, written: false }))
    }

    /// Writes it.
    pub fn write(mut self, value: &impl Serialize) -> Result<(), Failure> {
        let written = serde_json::to_vec_pretty(value).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(&text)
        });
        self.written = written.is_ok();
        written.map_err(|source| failed(&self.path, source))
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_new && !self.written {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, source: io::Error) -> Failure {
    Failure::File { path: path.to_path_buf(), doing: "cannot write the report", source }
}

fn refuse_files_of_job(report: &Path, request: &SortRequest, list: Option<&Path>) -> Result<(), Failure> {
    let Some(place) = Place::of(report) else { return Ok(()) };
    let is_input = |input: &&Input| match input {
        Input::Path(path) => Place::of(path).as_ref() == Some(&place),
        Input::Stdin => Place::of_stream(io::stdin()).as_ref() == Some(&place),
    };
    let is_output = match &request.output {
        Output::Path(path) => Place::of(path).as_ref() == Some(&place),
        Output::Parts(parts) => parts.paths().any(|path| Place::of(&path).as_ref() == Some(&place)),
        Output::Stdout => Place::of_stream(io::stdout()).as_ref() == Some(&place),
    };
    let what = match request.inputs.iter().find(is_input) {
        Some(Input::Path(path)) => format!("the input {}", path.display()),
        Some(Input::Stdin) => "the file on standard input".to_owned(),
        None if is_output => match &request.output {
            Output::Path(path) => format!("the output {}", path.display()),
            Output::Parts(parts) => format!("one of the parts {}", parts.pattern),
            Output::Stdout => "the file on standard output".to_owned(),
        },
        None if list.and_then(Place::of).as_ref() == Some(&place) => "the list of --files0-from".to_owned(),
        None => return Ok(()),
    };
    Err(Failure::usage(
        format!("--report {} is {what}: the report would take its place", report.display()),
        "give the report a file of its own; nothing was read or written",
    ))
}

/// What tells whether two names mean one regular file.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Volume and number of a file.
    File(u64, u64),
    /// Volume and number of a directory, and the name of a file that is not there yet.
    New(u64, u64, OsString),
}

impl Place {
    /// `None`: no regular file, or none that can be made.
    fn of(path: &Path) -> Option<Place> {
        const LINKS_FOLLOWED: usize = 40;
        let mut path = path.to_path_buf();
        for _ in 0..LINKS_FOLLOWED {
            if let Ok(stat) = fs::metadata(&path) {
                return Place::of_file(&stat);
            }
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
                _ => PathBuf::from("."),
            };
            match fs::read_link(&path) {
                Ok(link) => path = directory.join(link),
                Err(_) => {
                    let stat = fs::metadata(&directory).ok()?;
                    return Some(Place::New(stat.dev(), stat.ino(), path.file_name()?.to_owned()));
                }
            }
        }
        None
    }

    fn of_stream(stream: impl AsFd) -> Option<Place> {
        let descriptor = stream.as_fd().try_clone_to_owned().ok()?;
        Place::of_file(&File::from(descriptor).metadata().ok()?)
    }

    fn of_file(stat: &Metadata) -> Option<Place> {
        stat.is_file().then(|| Place::File(stat.dev(), stat.ino()))
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
        let file = Place::of(&at("file"));
        assert!(matches!(file, Some(Place::File(..))));
        assert_eq!(Place::of(&at("hard")), file);
        assert_eq!(Place::of(&at("soft")), file);
        assert_eq!(Place::of(&at("../").join(root.path().file_name().unwrap()).join("file")), file);
        let none = Place::of(&at("none"));
        assert!(matches!(none, Some(Place::New(..))));
        assert_eq!(Place::of(&at("dangling")), none);
        assert_ne!(Place::of(&at("other")), none);
        assert_eq!(Place::of(Path::new("/dev/null")), None);
    }
}
