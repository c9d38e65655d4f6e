//! `ascot lab`: the studies of `ascot-lab`, one file each.

mod directories;
mod disk;
mod net;
mod pages;
mod screen;
mod shown;
mod sorts;
mod streams;

use clap::ArgMatches;

use crate::failure::{Failure, Result};

/// Runs one of the studies.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    match matches.subcommand() {
        Some(("all", matches)) => streams::all(matches),
        Some(("streams", matches)) => streams::run(matches),
        Some(("sort", matches)) => sorts::run(matches),
        Some(("disk", matches)) => disk::run(matches),
        Some(("net", matches)) => net::run(matches),
        _ => Err(Failure::usage("no study given", "ascot lab --help lists them")),
    }
}
