//! `ascot lab`; the flags of each study are in a file of their own.

use clap::Command;

use super::tools::tool;
use super::{lab_disk, lab_net, lab_sort, lab_streams};

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
        .after_help(
            "Examples:\n\
             \x20 ascot lab all --out results/ --quick\n\
             \x20 ascot lab streams --stream sized,mapped --n 1e6 --b 0..20 -o out/",
        )
        .subcommands([
            lab_streams::all(),
            lab_streams::streams(),
            lab_sort::sort(lab_streams::shared()),
            lab_disk::disk(),
            lab_net::net(),
        ])
}
