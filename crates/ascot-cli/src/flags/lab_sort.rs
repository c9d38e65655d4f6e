//! The flags of `ascot lab sort`.

use clap::{Arg, Command};

use super::lab_streams::{cache, plot};
use super::tools::tool;
use super::{JOB, RESOURCES, file_option, option, switch};

/// Flags that a file of parameters replaces.
const REPLACED: [&str; 11] = [
    "n",
    "memory",
    "fan-in",
    "stream-read",
    "stream-write",
    "b",
    "b-read",
    "b-write",
    "loops",
    "seed",
    "descending",
];

/// `ascot lab sort`, with the flags that the studies share.
pub fn sort(shared: Vec<Arg>) -> Command {
    tool("sort")
        .about("Time merge sorts by N, M, d and streams")
        .long_about(
            "Sort N 32-bit integers with runs of M integers, of which d are merged at a time, through streams as ascot \
             lab streams measures them. Runs are sorted and merged by the kernels of ascot sort. Each result is shown \
             beside the I/Os that formulas predict, a sort of all integers in memory, and the sort that the planner \
             chooses with the same memory. Each output is checked. Finished measurements are kept in sorts.csv, where \
             the same command continues.",
        )
        .override_usage("ascot lab sort --out DIR [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot lab sort --n 1e4,1e6 --memory 1e3..1e6 --fan-in 10,25,30 -o out/\n\
             \x20 ascot lab sort --stream-read sized --stream-write buffered --b 12..20 -o out/\n\
             \x20 ascot lab sort --params parameters.csv -o out/",
        )
        .next_help_heading(JOB)
        .args(grid())
        .arg(
            option(
                "memory-limit",
                "SIZE",
                "memory of a sort (default: half of the free)",
                "Memory that one sort of the study may take; a measurement that needs more is refused before anything \
                 is written, and a sort in memory that needs more is left out. Half of the memory that is free if not \
                 given.",
            )
            .help_heading(RESOURCES),
        )
        .args(shared.into_iter().filter(|flag| flag.get_id() != "memory"))
        .arg(plot())
}

fn grid() -> Vec<Arg> {
    let mut flags = vec![
        file_option(
            "params",
            "read the parameters from FILE",
            "Read the parameters from FILE: rows of read stream, write stream, values of d, values of M, range of \
             exponents of B, loops, input file, output file, and true for ascending or false for descending order, \
             separated by semicolons: Mapping;Mapping;10;1000;16,16;5;in.dat;out.dat;true. The types of streams are \
             Simple (plain), Buffer (buffered), BufferB (sized), Mapping (mapped) and direct, in any case. An output \
             is a new file in the directory of the results; without a name none is kept.",
        )
        .conflicts_with_all(REPLACED),
    ];
    flags.extend(sizes());
    flags.push(cache());
    flags.extend(streams());
    flags
}

fn sizes() -> [Arg; 6] {
    [
        option(
            "n",
            "N,...",
            "integers to sort: 1e4,1e6 (default)",
            "Integers to sort: a list, in which 1e3..1e6 stands for the powers of ten; 1e4,1e6 if not given.",
        ),
        option(
            "memory",
            "M,...",
            "integers of a run (default 1e3..1e6)",
            "Integers in memory while runs are formed: a list, in which 1e3..1e6 stands for the powers of ten; \
             1e3..1e6 if not given. The memory of the streams comes on top.",
        ),
        option(
            "fan-in",
            "D,...",
            "streams merged at once (default 10,25,30)",
            "Streams merged at once, at least 2: a list; 10,25,30 if not given.",
        ),
        option(
            "loops",
            "L",
            "loops of each measurement (default 5)",
            "Loops of each measurement; one more, which comes first, is left out. 5 if not given.",
        ),
        option(
            "seed",
            "S",
            "seed of the integers (default 1)",
            "Seed of the pseudo-random integers, which have the full range of 32 bits; 1 if not given.",
        ),
        switch(
            "descending",
            "largest integers first",
            "Sort in descending order instead of ascending order.",
        ),
    ]
}

fn streams() -> [Arg; 5] {
    [
        option(
            "stream-read",
            "KIND",
            "streams that are read (default mapped)",
            "The streams that are read: plain, buffered, sized, mapped or direct; mapped if not given.",
        ),
        option(
            "stream-write",
            "KIND",
            "streams that are written (default mapped)",
            "The streams that are written: plain, buffered, sized, mapped or direct; mapped if not given.",
        ),
        option(
            "b",
            "RANGE",
            "exponents of B: 16 (default), 12..20",
            "Range of exponents of B, of which both ends belong to it: 12..20 means blocks of 4 KiB to 1 MiB; 16 if \
             not given. Streams that are read and streams that are written have the same B.",
        ),
        option(
            "b-read",
            "RANGE",
            "exponents of B of streams that are read",
            "Range of exponents of B of the streams that are read. Each is combined with each of --b-write.",
        )
        .conflicts_with("b"),
        option(
            "b-write",
            "RANGE",
            "exponents of B of streams that are written",
            "Range of exponents of B of the streams that are written. Each is combined with each of --b-read.",
        )
        .conflicts_with("b"),
    ]
}
