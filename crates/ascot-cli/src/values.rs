//! The values of parsed flags and operands. A flag that a command does not define has no value.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// Whether a switch is on.
pub fn flag(matches: &ArgMatches, id: &str) -> bool {
    matches.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or(false)
}

/// The value of a flag or operand, as text.
pub fn word<'m>(matches: &'m ArgMatches, id: &str) -> Option<&'m str> {
    matches.try_get_one::<String>(id).ok().flatten().map(String::as_str)
}

/// The value of a flag or operand, as a path.
pub fn path(matches: &ArgMatches, id: &str) -> Option<PathBuf> {
    matches.try_get_one::<OsString>(id).ok().flatten().map(PathBuf::from)
}

/// All values of a flag or operand that may be repeated.
pub fn all<'m>(matches: &'m ArgMatches, id: &str) -> impl Iterator<Item = &'m OsString> {
    matches.try_get_many::<OsString>(id).ok().flatten().into_iter().flatten()
}

/// All values of a flag or operand, as paths.
pub fn paths(matches: &ArgMatches, id: &str) -> Vec<PathBuf> {
    all(matches, id).map(PathBuf::from).collect()
}

/// Whether a flag is on the command line.
pub fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let known = matches.ids().any(|known| known.as_str() == id);
    known && matches.value_source(id) == Some(ValueSource::CommandLine)
}
