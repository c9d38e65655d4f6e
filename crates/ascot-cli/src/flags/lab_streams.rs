//! The flags of the studies of streams: `ascot lab streams` and `ascot lab all`.

use clap::{Arg, Command};

use super::tools::tool;
use super::{JOB, OUTPUT, RESOURCES, choice, dir_option, file_option, monitor, option, switch};

/// `ascot lab streams`.
pub fn streams() -> Command {
    tool("streams")
        .about("Time element streams by back-end, N, k and B")
        .long_about(
            "Read and write files of 32-bit integers, k of them interleaved element by element, through streams that \
             make a system call for each element (plain), move blocks of 8 KiB (buffered) or of B bytes (sized), map \
             windows of B bytes (mapped), or move blocks of B bytes past the page cache (direct). Each measurement \
             runs several loops, of which the first is left out. Finished measurements are kept in streams.csv, \
             where the same command continues.",
        )
        .override_usage("ascot lab streams --out DIR [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot lab streams --stream sized,mapped --n 1e6 --b 0..20 -o out/\n\
             \x20 ascot lab streams --params params.csv --cache cold --out results/",
        )
        .next_help_heading(JOB)
        .arg(file_option(
            "params",
            "read the parameters from FILE",
            "Read the parameters from FILE: rows of stream type, values of N, values of k, range of exponents of B, \
             and loops, separated by semicolons: BufferB;1000,10000;1;0,20;6. The types are Simple (plain), Buffer \
             (buffered), BufferB (sized), Mapping (mapped) and direct, in any case.",
        )
        .conflicts_with_all(["stream", "n", "k", "b", "loops"]))
        .arg(option(
            "stream",
            "KINDS",
            "plain, buffered, sized, mapped, direct",
            "The kinds of streams, separated by commas: plain, buffered, sized, mapped, direct; all if not given.",
        ))
        .args(of_cells())
        .arg(choice(
            "direction",
            "HOW",
            ["read", "write", "both"],
            "read, write or both (default)",
            "Whether streams are read, written, or both; both if not given.",
        ))
        .arg(cache())
        .args(shared())
        .arg(plot())
}

/// `ascot lab all`.
pub fn all() -> Command {
    tool("all")
        .about("Run the whole study of streams and merge sorts")
        .long_about(
            "Measure all cells of the study of streams and merge sorts in secondary memory, and write a page with its \
             tables and figures: index.html. The whole study takes many hours, which are predicted first; it \
             continues where it was interrupted. --quick measures smaller files in two minutes.",
        )
        .override_usage("ascot lab all --out DIR [--quick] [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot lab all --out results/ --quick\n\
             \x20 ascot lab all --out results/ --work /data",
        )
        .next_help_heading(JOB)
        .arg(switch(
            "quick",
            "smaller files: two minutes",
            "Measure smaller files and fewer loops, which takes about two minutes and fills every table and figure.",
        ))
        .args(shared())
        .arg(plot())
}

/// The flags for N, k, B and the number of loops.
fn of_cells() -> Vec<Arg> {
    vec![
        option(
            "n",
            "N,...",
            "integers of each stream: 1e4,1e6 or 1e3..1e6",
            "Integers of each stream: a list, in which 1e3..1e6 stands for the powers of ten; 1e3..1e6 if not given.",
        ),
        option(
            "k",
            "K,...",
            "streams open at once: 1,2,30 (default 1)",
            "Numbers of streams that are open at once and interleaved; 1 if not given.",
        ),
        option(
            "b",
            "RANGE",
            "exponents of B: 0..20 (default 12..20)",
            "Range of exponents of B, of which both ends belong to it: 0..20 means blocks of 1 byte to 1 MiB; 12..20 \
             if not given. Windows have at least 2^2 bytes and direct blocks 2^12: for them the range begins there.",
        ),
        option(
            "loops",
            "L",
            "loops of each measurement (default 6)",
            "Loops of each measurement, of which the first is left out; 6 if not given.",
        ),
    ]
}

/// `--cache`.
pub fn cache() -> Arg {
    choice(
        "cache",
        "STATE",
        ["cold", "warm", "both"],
        "cold, warm or both (default)",
        "The page cache: warm means that files are read from it, and that writing ends when the file is closed; \
         cold means that files are read from the device, and that writing ends when the data is on it. Both if not \
         given.",
    )
}

/// `--plot`.
pub fn plot() -> Arg {
    switch(
        "plot",
        "write charts into DIR/charts",
        "Write the charts as SVG files into the directory charts of the results, too.",
    )
}

/// The flags that the studies share.
pub fn shared() -> Vec<Arg> {
    vec![
        option(
            "memory",
            "SIZE",
            "memory for the streams of a measurement",
            "Memory that the streams of one measurement, or one merge sort, may take; half of the memory that is free \
             if not given.",
        )
        .alias("memory-limit")
        .help_heading(RESOURCES),
        dir_option(
            "work",
            "directory of the files to measure",
            "The directory, on the volume to measure, in which files are made; the directory of the results if not \
             given.",
        )
        .help_heading(RESOURCES),
        dir_option(
            "out",
            "directory of the results",
            "The directory of the results, made if it does not exist.",
        )
        .short('o')
        .required(true)
        .help_heading(OUTPUT),
        monitor().help_heading(RESOURCES),
        switch("quiet", "show no progress", "Show no progress and no prediction.").short('q').help_heading(OUTPUT),
    ]
}
