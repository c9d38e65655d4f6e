//! `ascot lab`: the studies of `ascot-lab`, one function each.

mod disk;
mod net;
mod shown;

use clap::ArgMatches;

use crate::failure::Failure;

/// `ascot lab`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("disk", matches)) => disk::run(matches),
        Some(("net", matches)) => net::run(matches),
        Some((name, _)) => {
            Err(Failure::usage(format!("there is no study {name}"), "ascot lab --help lists them"))
        }
        None => Ok(0),
    }
}
