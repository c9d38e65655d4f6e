//! The flags of `ascot lab disk`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use super::tools::tool;
use super::{file_option, monitor, option, path, switch};

/// `ascot lab disk`.
pub fn disk() -> Command {
    tool("disk")
        .about("Read volumes and write others as a sort does")
        .long_about(
            "Read one set of volumes and write another at the same time, bypassing the page cache, with \
             the requests of the phases of a sort: 4 MiB each, two reads in flight for each volume, four \
             writes in map-and-shuffle, two in sort-and-reduce. Both phases run with and without \
             allocating the outputs in advance; reading and writing also run alone. The result shows the \
             rate of each volume from the first buffer to the last, the mean, the deviation and the \
             slowest volume. Bytes, space and time are predicted first; the free space is checked before \
             anything is written. The files have no names and disappear when the command ends for any \
             reason.",
        )
        .override_usage("ascot lab disk --input DIR... --output DIR... [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot lab disk --input /disk1,/disk2 --output /disk3,/disk4\n\
             \x20 ascot lab disk --input /data --output /data --bytes 4GiB --report disk.json",
        )
        .arg(volumes(
            "input",
            "volumes to read: DIR,DIR (may be repeated)",
            "Directories on the volumes that are read, separated by commas; the flag may be repeated.",
        ))
        .arg(volumes(
            "output",
            "volumes to write: DIR,DIR (may be repeated)",
            "Directories on the volumes that are written, separated by commas; the flag may be repeated. \
             They may be the same as those that are read.",
        ))
        .arg(option(
            "bytes",
            "SIZE",
            "bytes of each input (default 1GiB)",
            "Bytes of each input; the outputs divide those of all inputs. 1GiB if not given.",
        ))
        .arg(option(
            "request",
            "SIZE",
            "bytes of a request (default 4MiB)",
            "Bytes of a request; 4MiB if not given.",
        ))
        .arg(option(
            "memory",
            "SIZE",
            "buffers (default: twice the requests in flight)",
            "Bytes of memory for the buffers, which readers hand over to writers; twice the requests in \
             flight if not given.",
        ))
        .arg(option(
            "rounds",
            "N",
            "rounds over all passes (default 3)",
            "Number of rounds over all passes; every figure is the median of its rounds. 3 if not given.",
        ))
        .arg(option(
            "seconds",
            "N",
            "shorten the inputs to take about N seconds",
            "Shorten the inputs so that all rounds take about this many seconds, as predicted.",
        ))
        .arg(monitor())
        .arg(file_option(
            "report",
            "write the result to FILE as JSON",
            "Write the whole result to FILE as JSON, with the rates of every volume.",
        ))
        .arg(switch("json", "print JSON", "Print the result as JSON, for programs."))
}

/// A repeatable flag with directories, separated by commas.
fn volumes(id: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    path(option(id, "DIR", help, long_help), ValueHint::DirPath)
        .value_parser(OsStringValueParser::new())
        .action(ArgAction::Append)
        .required(true)
}
