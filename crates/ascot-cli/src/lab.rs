//! `ascot lab`: the studies of `ascot-lab`, one function each.

use clap::ArgMatches;

use crate::failure::Failure;

/// `ascot lab`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some((name, _)) => Err(Failure::usage(format!("there is no study {name}"), "ascot lab --help lists them")),
        None => Ok(0),
    }
}
