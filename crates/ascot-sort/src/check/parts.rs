//! A directory as an input: its files and views are the parts of one sequence, in the order of their names.
//!
//! ```text
//!   out/part-00000   out/part-00001   ...     files or views, one sequence
//!   out/chunks/                               runs of the views, which are no parts
//! ```
//!
//! Numbers in names are ordered by value, so that `part-2` comes before `part-10`. Names that begin with a dot or an
//! underscore are those of files that are no parts, by the custom of Hadoop and Spark.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, During};

use crate::api::{Input, Result, SortError};
use crate::view::manifest::Member;
use crate::view::{ViewManifest, is_view};

/// The inputs, with the files and views of each directory in its place.
///
/// # Errors
/// A directory that cannot be read, has no parts, or has a directory that is no part.
pub fn with_files_of_directories(inputs: Vec<Input>) -> Result<Vec<Input>> {
    let mut files = Vec::new();
    for input in inputs {
        match &input {
            Input::Path(path) if path.is_dir() && !is_view(path) => {
                files.extend(parts_in(path)?.into_iter().map(Input::Path));
            }
            _ => files.push(input),
        }
    }
    Ok(files)
}

fn parts_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).during(Action::Read, dir)? {
        let path = entry.during(Action::Read, dir)?.path();
        let name = path.file_name().unwrap_or_default();
        if !name.as_bytes().starts_with(b".") && !name.as_bytes().starts_with(b"_") {
            found.push((order_of(name), path));
        }
    }
    found.sort();
    let (dirs, parts): (Vec<_>, Vec<_>) =
        found.into_iter().map(|(_, path)| path).partition(|path| path.is_dir() && !is_view(path));
    for below in dirs {
        if !is_of_views(&below, &parts)? {
            return Err(SortError::Request(format!(
                "{} is a directory in {}, not a part\n  name the files, in order",
                below.display(),
                dir.display()
            )));
        }
    }
    if parts.is_empty() {
        let why = format!("{} has no files\n  name the directory of an output", dir.display());
        return Err(SortError::Request(why));
    }
    Ok(parts)
}

/// Whether the directory `below` has runs of views among `parts`.
fn is_of_views(below: &Path, parts: &[PathBuf]) -> Result<bool> {
    let below = fs::canonicalize(below).during(Action::Inspect, below)?;
    for view in parts.iter().filter(|part| is_view(part)) {
        let dir_of = |member: &Member| view.join(&member.path).parent()?.canonicalize().ok();
        let is_below = |member| dir_of(member).is_some_and(|dir| dir.starts_with(&below));
        if ViewManifest::load(view)?.members.iter().any(is_below) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes by which names are ordered: each number is preceded by the number of its digits.
fn order_of(name: &OsStr) -> Vec<u8> {
    let mut key = Vec::new();
    let mut rest = name.as_bytes();
    while let Some(first) = rest.first() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            key.push(*first);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let (number, after) = rest.split_at(digits);
        let zeros = number.iter().take_while(|digit| **digit == b'0').count();
        let value = number.get(zeros..).unwrap_or_default();
        key.push(b'0');
        // A name has at most 255 bytes.
        key.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        key.extend_from_slice(value);
        rest = after;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_by_value() {
        let mut names = ["part-10", "part-9", "part-00011", "part-2.b", "part-2.a", "part-", "a"];
        names.sort_by_key(|name| order_of(OsStr::new(name)));
        assert_eq!(names, ["a", "part-", "part-2.a", "part-2.b", "part-9", "part-10", "part-00011"]);
    }

    #[test]
    fn a_directory_is_its_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["part-10", "part-2", "_SUCCESS", ".hidden"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let given = vec![Input::Stdin, Input::Path(dir.path().into())];
        let found = with_files_of_directories(given).unwrap();
        let part = |name| Input::Path(dir.path().join(name));
        assert_eq!(found, [Input::Stdin, part("part-2"), part("part-10")]);
        fs::create_dir(dir.path().join("below")).unwrap();
        let given = vec![Input::Path(dir.path().into())];
        assert!(with_files_of_directories(given).unwrap_err().to_string().contains("below is a directory"));
    }

    #[test]
    fn an_empty_directory_is_no_sequence() {
        let dir = tempfile::tempdir().unwrap();
        let given = vec![Input::Path(dir.path().into())];
        assert!(with_files_of_directories(given).unwrap_err().to_string().contains("has no files"));
    }
}
