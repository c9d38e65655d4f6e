//! The flags of `ascot lab` and its subcommands.

use clap::Command;

use super::tools::tool;

/// `ascot lab`.
pub fn lab() -> Command {
    tool("lab")
        .about("Study streams, merge sorts, disks and networks by measurement")
        .long_about(
            "Measure streams, merge sorts, disks and networks, and show the results beside the models. Every study \
             predicts its time before it starts.",
        )
        .override_usage("ascot lab COMMAND [ARGUMENT]...")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(super::lab_disk::disk())
        .subcommand(super::lab_net::net())
}
