//! A directory as an input: its files are the parts of one sequence, in the order of their names.
//!
//! Numbers in names are ordered by value, so that `part-2` comes before `part-10`. Names that begin with a dot or an
//! underscore are those of files that are no parts, by the custom of Hadoop and Spark.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ascot_model::units::in_shell;
use ascot_sort::request::Input;
use ascot_sort::view::is_view;

use crate::failure::Failure;

/// The inputs, with the files of each directory in its place.
pub fn with_files_of_directories(inputs: Vec<Input>) -> Result<Vec<Input>, Failure> {
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

fn parts_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = Failure::file(dir, "cannot be searched");
    let mut found = Vec::new();
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(&failed)? {
        paths.push(entry.map_err(&failed)?.path());
    }
    // Views are named rather than what they refer to.
    paths.sort_by_key(|path| !is_view(path));
    for path in paths {
        let name = path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(b".") || name.as_bytes().starts_with(b"_") {
            continue;
        }
        if is_view(&path) {
            return Err(Failure::usage(
                format!(
                    "{} is a view: the parts of {} are merged when they are read",
                    path.display(),
                    dir.display()
                ),
                format!("check each part as it is read: ascot view {} | ascot check -", in_shell(&path)),
            ));
        }
        if path.is_dir() {
            return Err(Failure::usage(
                format!("{} is a directory in {}, not a part", path.display(), dir.display()),
                "name the files, in order",
            ));
        }
        found.push((order_of(name), path));
    }
    if found.is_empty() {
        return Err(Failure::usage(
            format!("{} has no files", dir.display()),
            "name the directory of an output",
        ));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
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
