//! The salt of random orders (`-R`): bytes of `--random-source`, or of the system's generator.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use ascot_record::keys::{KeyOptions, Salt};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::values;

/// Gives `options` a salt if a key is in random order.
pub fn set_salt(matches: &ArgMatches, options: &mut KeyOptions) -> Result<()> {
    let source = source(matches)?;
    if options.needs_salt() {
        let merging = values::flag(matches, "merge");
        if merging && source.is_none() {
            return Err(Failure::usage(
                "a merge of files in random order needs the salt that they were sorted with",
                "give the same --random-source FILE to the sort -R of each file and to the merge",
            ));
        }
        options.salt = match source {
            Some(path) => read(path)?,
            None => from_system()?,
        };
    }
    Ok(())
}

fn from_system() -> Result<Salt> {
    let mut salt = Salt::default();
    let asked = rustix::rand::getrandom(&mut salt.0, rustix::rand::GetRandomFlags::empty());
    match asked {
        Ok(Salt::BYTES) => Ok(salt),
        // If the system call fails, the generator may still exist as a file.
        _ => read(PathBuf::from("/dev/urandom")),
    }
}

/// The file of `--random-source`; several different ones are a mistake, as in the sort command.
fn source(matches: &ArgMatches) -> Result<Option<PathBuf>> {
    let mut sources = values::all(matches, "random-source");
    let Some(first) = sources.next() else { return Ok(None) };
    match sources.find(|source| *source != first) {
        None => Ok(Some(PathBuf::from(first))),
        Some(other) => Err(Failure::usage(
            format!("multiple random sources specified: {} and {}", first.display(), other.display()),
            "keep one --random-source",
        )),
    }
}

fn read(path: PathBuf) -> Result<Salt> {
    let mut salt = Salt::default();
    let done = File::open(&path).and_then(|mut file| file.read_exact(&mut salt.0));
    match done {
        Ok(()) => Ok(salt),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Failure::usage(
            format!("{}: end of file: --random-source needs {} bytes", path.display(), Salt::BYTES),
            "name a file that is long enough, such as /dev/urandom, or leave --random-source out",
        )),
        Err(error) => Err(Failure::file(&path, "cannot read the random source")(error)),
    }
}
