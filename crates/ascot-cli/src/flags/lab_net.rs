//! The flags of `ascot lab net`.

use clap::{Arg, Command};

use super::tools::tool;
use super::{file_option, monitor, option, switch};

/// `ascot lab net`.
pub fn net() -> Command {
    tool("net")
        .about("Send all to all between peers, without disks")
        .long_about(
            "Every peer sends the same number of bytes to every other over TCP, as the shuffle of a sort \
             does, without disks. All peers get the same list, in the same order, and share a token, \
             which is never on the command line: it is in a file, or in the variable ASCOT_LAB_TOKEN. The \
             first peer of the list collects the result, and every peer shows it: the rate of each peer, \
             the mean, the deviation, the slowest peer, and the rates that the model predicts for more \
             peers. --local N runs N peers on this machine.",
        )
        .override_usage(
            "ascot lab net --listen ADDR --peers A,B,... --token-file FILE [OPTION]...\n\
             ascot lab net --local N [OPTION]...",
        )
        .after_help(
            "Examples:\n\
             \x20 ascot lab net --local 4 --connections 1,2,4\n\
             \x20 ascot lab net --listen node1:7400 --peers node1:7400,node2:7400 --token-file t",
        )
        .args(of_peers())
        .args(of_rounds())
        .arg(monitor())
        .arg(file_option(
            "report",
            "write the result to FILE as JSON",
            "Write the whole result to FILE as JSON, with the rates of every peer.",
        ))
        .arg(switch("json", "print JSON", "Print the result as JSON, for programs."))
}

/// Flags of the peers.
fn of_peers() -> [Arg; 4] {
    [
        option(
            "listen",
            "ADDR",
            "where this peer listens: node1:7400",
            "The address and port at which this peer listens, and no other; one of the list.",
        ),
        option(
            "peers",
            "LIST",
            "all peers, this one too: node1:7400,node2:7400",
            "The addresses of all peers, this one too, separated by commas: the same list in the same \
             order everywhere. The first one collects the result.",
        ),
        option(
            "name",
            "ADDR",
            "this peer's entry in the list (default: --listen)",
            "This peer's entry in the list, if it listens at an address that others do not use, such as \
             0.0.0.0:7400.",
        ),
        file_option(
            "token-file",
            "the secret of all peers (default: ASCOT_LAB_TOKEN)",
            "File with the secret that all peers share, at least 16 bytes; if not given, the variable \
             ASCOT_LAB_TOKEN holds it.",
        ),
    ]
}

/// Flags of the rounds.
fn of_rounds() -> [Arg; 7] {
    [
        option(
            "local",
            "N",
            "N peers on this machine",
            "Run this many peers on this machine, over its loopback, from 2 to 16; with a random token.",
        ),
        option(
            "bytes",
            "SIZE",
            "bytes from each peer to each other (default 1GiB)",
            "Bytes from each peer to each other in a round; 1GiB if not given.",
        ),
        option(
            "connections",
            "LIST",
            "connections for each pair, 1 to 4 (default 1)",
            "Connections from each peer to each other, from 1 to 4; a list such as 1,2,4 makes a round \
             for each. 1 if not given.",
        ),
        switch(
            "sweep",
            "also with 2, 4, 8, ... of the peers",
            "Also measure with 2, 4, 8, ... of the peers, and fit the model's cost of a peer to these \
             rates.",
        ),
        option(
            "block",
            "SIZE",
            "bytes handed to a connection at once (256KiB)",
            "Bytes that a peer hands to a connection at once; 256KiB if not given.",
        ),
        option(
            "memory",
            "SIZE",
            "the most memory for buffers (default: as needed)",
            "The most memory for the buffers of a peer: a block for each of its incoming connections, and \
             one more. As much as they need if not given.",
        ),
        option(
            "wait",
            "SECONDS",
            "how long to wait for missing peers (default 60)",
            "Seconds to wait for missing peers; then the error names them. 60 if not given.",
        ),
    ]
}
