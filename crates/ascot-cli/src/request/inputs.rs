//! The files to read.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ascot_sort::request::Input;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::{numbers, values};

/// The inputs named as arguments or in the file of `--files0-from`; standard input if none are named.
pub fn inputs(matches: &ArgMatches) -> Result<Vec<Input>> {
    let files: Vec<&OsString> = matches.get_many("files").into_iter().flatten().collect();
    if let Some(list) = matches.get_one::<OsString>("files0-from") {
        if let Some(extra) = files.first() {
            return Err(Failure::usage(
                format!("extra operand '{}'", extra.display()),
                "file operands cannot be combined with --files0-from: drop one or the other",
            ));
        }
        return listed(list);
    }
    if files.is_empty() {
        return Ok(vec![Input::Stdin]);
    }
    if files.iter().any(|file| file.is_empty()) {
        return Err(Failure::usage("an input has an empty name", "name a file, or - for standard input"));
    }
    if let Some(time) = interval_as_input(matches, &files) {
        return Err(Failure::usage(
            format!("there is no file {time}"),
            format!("a value of --monitor follows an equals sign: --monitor={time}"),
        ));
    }
    Ok(files.into_iter().map(|file| Input::from_argument(Path::new(file))).collect())
}

/// An input that is missing, if its name is a time and `--monitor` is given: the flag takes its value after an equals
/// sign only.
fn interval_as_input<'f>(matches: &ArgMatches, files: &[&'f OsString]) -> Option<&'f str> {
    if !values::is_given(matches, "monitor") {
        return None;
    }
    let mut times =
        files.iter().filter_map(|file| file.to_str()).filter(|text| numbers::duration(text).is_some());
    times.find(|text| !Path::new(text).exists())
}

fn listed(list: &OsStr) -> Result<Vec<Input>> {
    let bytes = read_list(list).map_err(Failure::file(list, "cannot read the list of files"))?;
    names_in(&bytes, list)
}

fn read_list(list: &OsStr) -> io::Result<Vec<u8>> {
    if list != "-" {
        return fs::read(list);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names end in NUL; the last NUL may be missing.
fn names_in(bytes: &[u8], list: &OsStr) -> Result<Vec<Input>> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(Failure::usage(
            format!("no input from '{}'", list.display()),
            "it must contain file names, each ended by a NUL byte (find -print0 writes them)",
        ));
    }
    let mut inputs = Vec::new();
    for (index, name) in bytes.split(|byte| *byte == 0).enumerate() {
        if name.is_empty() {
            return Err(Failure::usage(
                format!("{}:{}: invalid zero-length file name", list.display(), index + 1),
                "there are two NUL bytes in a row: remove one",
            ));
        }
        if name == b"-" && list == "-" {
            return Err(Failure::usage(
                "when reading file names from standard input, no file name of '-' allowed",
                "give the list in a file: --files0-from=LIST",
            ));
        }
        inputs.push(Input::from_argument(Path::new(OsStr::from_bytes(name))));
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_by_nul() {
        let names = |bytes: &[u8]| names_in(bytes, OsStr::new("list"));
        assert_eq!(names(b"a\0b\nc\0").unwrap(), [Input::Path("a".into()), Input::Path("b\nc".into())]);
        assert_eq!(names(b"a\0-").unwrap(), [Input::Path("a".into()), Input::Stdin]);
        assert!(names(b"").is_err());
        assert!(names(b"a\0\0b\0").unwrap_err().to_string().contains("list:2"));
        assert!(names_in(b"-\0", OsStr::new("-")).is_err());
    }
}
