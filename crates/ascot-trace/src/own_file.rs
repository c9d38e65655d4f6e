//! A recording replaces no file of the program that it records.
//!
//! A trace takes its name after the program has ended. So its name must be none that the program reads or writes: that
//! is refused before the program starts if its command line or a descriptor that it inherits shows it, else afterwards.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::directory_of;

use crate::error::{Result, TraceError};
use crate::event::TracedFile;
use crate::output::is_standard_output;

/// Refuses a trace that is a file of the program's command line, or one that it inherits. Of the words of the command,
/// those after a `=`, and after the letter of a flag, may be names, too.
pub fn refuse_named(command: &[OsString], trace: &Path) -> Result<()> {
    if is_standard_output(trace) {
        return Ok(());
    }
    let arguments = command.iter().skip(1).map(|word| word.as_bytes());
    let named = arguments.flat_map(names_in).find(|name| is_same(Path::new(OsStr::from_bytes(name)), trace));
    if let Some(named) = named {
        return Err(TraceError::OfProgram {
            path: trace.to_owned(),
            what: format!("the argument {}", String::from_utf8_lossy(named)),
        });
    }
    let streams = [(0, "standard input"), (1, "standard output"), (2, "standard error")];
    let trace_is = |number: u32| is_same(Path::new(&format!("/proc/self/fd/{number}")), trace);
    match streams.into_iter().find(|(number, _)| trace_is(*number)) {
        Some((_, name)) => Err(TraceError::OfProgram { path: trace.to_owned(), what: format!("the {name}") }),
        None => Ok(()),
    }
}

/// The regular file of a name, if there is one: its device, its number, and the time of its last change.
#[derive(PartialEq, Eq)]
pub struct Identity(Option<(u64, u64, i64, i64)>);

/// What has the name of the trace. A file that gets this name during a recording has another identity.
pub fn identity(trace: &Path) -> Identity {
    let found = fs::metadata(trace).ok().filter(Metadata::is_file);
    Identity(found.map(|it| (it.dev(), it.ino(), it.mtime(), it.mtime_nsec())))
}

/// Refuses a trace that has the name of a file that the program opened, or that got this name (`mv`, `ln`) since
/// `before` the program started.
pub fn refuse_opened(files: &[TracedFile], trace: &Path, before: &Identity) -> Result<()> {
    let Some(name) = real(trace).filter(|_| !is_standard_output(trace)) else { return Ok(()) };
    let now = identity(trace);
    let other = now.0.is_some() && now != *before;
    let opened = files.iter().any(|file| !file.deleted && file.path == name.as_os_str().as_bytes());
    match other || (opened && fs::symlink_metadata(trace).is_ok()) {
        true => Err(TraceError::OpenedByProgram { path: trace.to_owned() }),
        false => Ok(()),
    }
}

/// The names that a word of a command line may be or have: `FILE`, `of=FILE`, `--output=FILE`, `-oFILE`.
fn names_in(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let value = memchr::memchr(b'=', word).map(|at| &word[at + 1..]);
    let of_flag = word.strip_prefix(b"-").and_then(|flag| flag.get(1..));
    [Some(word), value, of_flag].into_iter().flatten().filter(|name| !name.is_empty())
}

/// Whether two paths are those of one file, or would be.
fn is_same(one: &Path, other: &Path) -> bool {
    let number = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => number(&one) == number(&other),
        (Err(_), Err(_)) => real(one).is_some_and(|one| Some(one) == real(other)),
        _ => false,
    }
}

/// The path of a file that may not exist: its directory does.
fn real(path: &Path) -> Option<PathBuf> {
    Some(directory_of(path).canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_every_form() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        fs::write(&there, "x").unwrap();
        std::os::unix::fs::symlink(&there, dir.path().join("link")).unwrap();
        for trace in [&there, &dir.path().join("new")] {
            let name = trace.display();
            for word in
                [format!("{name}"), format!("of={name}"), format!("--output={name}"), format!("-o{name}")]
            {
                let command = [OsString::from("program"), word.into()];
                let refused = refuse_named(&command, trace).unwrap_err();
                assert!(matches!(refused, TraceError::OfProgram { .. }), "{refused}");
            }
        }
        let refused = |words: [&Path; 2], trace: &Path| {
            refuse_named(&words.map(|word| word.as_os_str().to_owned()), trace).is_err()
        };
        assert!(refused([Path::new("x"), &dir.path().join("link")], &there));
        assert!(!refused([&there, Path::new("new")], &there), "the program itself is not opened for writing");
        assert!(!refused([Path::new("x"), &there], &dir.path().join("new")));
    }

    #[test]
    fn a_file_that_the_program_opened_keeps_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("run.trace");
        let path = trace.canonicalize().unwrap_or(dir.path().canonicalize().unwrap().join("run.trace"));
        let opened = TracedFile { path: path.into_os_string().into_encoded_bytes(), ..TracedFile::default() };
        let none = identity(&trace);
        assert!(refuse_opened(std::slice::from_ref(&opened), &trace, &none).is_ok(), "it is gone");
        fs::write(&trace, "mine").unwrap();
        let there = identity(&trace);
        assert!(refuse_opened(std::slice::from_ref(&opened), &trace, &there).is_err());
        assert!(refuse_opened(&[TracedFile { deleted: true, ..opened }], &trace, &there).is_ok());
        assert!(refuse_opened(&[], &trace, &none).is_err(), "it is new");
        fs::write(dir.path().join("other"), "mine").unwrap();
        fs::rename(dir.path().join("other"), &trace).unwrap();
        assert!(refuse_opened(&[], &trace, &there).is_err(), "it is another one");
    }
}
