//! `ascot lab`: the studies of `ascot-lab`, one file each.

mod screen;
mod sorts;
mod streams;

use clap::ArgMatches;

use crate::failure::Failure;

/// Runs one of the studies.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("streams", matches)) => streams::run(matches),
        Some(("sort", matches)) => sorts::run(matches),
        Some(("all", matches)) => streams::all(matches),
        _ => Err(Failure::usage("no study given", "ascot lab --help lists them")),
    }
}
