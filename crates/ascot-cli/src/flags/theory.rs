//! The flags of the commands that measure or compute instead of moving data: probe, plan and simulate.

use clap::builder::OsStringValueParser;
use clap::{Arg, Command};

use super::tools::tool;
use super::{choice, dir_operand, file_option, monitor, operand, option, repeated, switch};

/// `ascot plan`.
pub fn plan() -> Command {
    tool("plan")
        .about("Predict a job's passes and time; move nothing")
        .long_about(
            "Compute the best way to move data between many files on a volume whose speeds and switch cost \
             are given: for one bowtie of n inputs and m outputs, the schedule, its group sizes, its \
             division of memory, and the resulting run length and rate; for a merge, a split, a change from \
             n sorted files to m, or a sort, the passes and the number of files in each; for a sort on a cluster, its \
             phases and its cost.",
        )
        .override_usage("ascot plan bowtie|merge|split|reshape|sort|cluster [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot plan bowtie --inputs 3 --outputs 100 --memory 16GiB\n\
             \x20 ascot plan merge --inputs 8000 --input 64TB --volume array.toml\n\
             \x20 ascot plan reshape --inputs 512 --outputs 64 --input 2TB --memory 2GiB\n\
             \x20 ascot plan sort --input 8TB --format lines --volume array.toml\n\
             \x20 ascot plan cluster --input 100TB --cheapest --within 20min",
        )
        .arg(
            operand(
                "what",
                "WHAT",
                "bowtie, merge, split, reshape, sort, cluster",
                "What to plan: a single bowtie, or the passes of a merge (n to 1), a split (1 to m), a \
                 change of n files into m, a sort, or a sort on a cluster.",
            )
            .value_parser(["bowtie", "merge", "split", "reshape", "sort", "cluster"]),
        )
        .arg(inputs())
        .arg(outputs())
        .arg(option("input", "SIZE", "bytes read: 8TB, 500GiB", "Bytes of all inputs together."))
        .arg(memory())
        .arg(alpha())
        .args(growth())
        .arg(choice(
            "by",
            "HOW",
            ["range", "hash", "value"],
            "of a reshape: range, hash or value",
            "For a reshape: how the file of a record is chosen, as in ascot reshape; range if not given.",
        ))
        .arg(volume())
        .arg(option(
            "most-streams",
            "N",
            "maximum of files at once (default: by memory)",
            "Maximum number of files to read and write at once (of a sort: to merge). If not given, two \
             blocks of 64 KiB for each file (of a sort: its own blocks) must fit in memory.",
        ))
        .args(of_a_sort())
        .args(of_a_cluster())
        .arg(json())
}

/// Flags for the bytes that a user's own function leaves.
fn growth() -> [Arg; 2] {
    [
        option(
            "growth",
            "SHARES",
            "bytes that passes leave: 0.8, or 1:0.3,50:0.8",
            "For a function of your own: the bytes that its passes leave. 0.8: every pass writes 0.8 of the bytes \
             that it reads; 0.5,0.9: the first pass writes a half, all others 0.9. 1:0.3,50:0.8: one file has 0.3 \
             of the bytes of all inputs, 50 files have 0.8; of a split, shares of the bytes of its one input. For a \
             reshape, shares by number of files, before the splits.",
        ),
        option(
            "growth-out",
            "SHARES",
            "of a reshape: the same for its splits",
            "For a reshape by a function of your own: shares by number of files, as for a split. 10:1.2: 10 files \
             have 1.2 times the bytes of one.",
        ),
    ]
}

/// Flags for the plan of a sort on a cluster.
fn of_a_cluster() -> [Arg; 7] {
    [
        option(
            "nodes",
            "N",
            "of a cluster: its nodes",
            "For a cluster: the number of nodes that do the work; with --cheapest the most nodes that are tried, 1000 \
             if not given.",
        ),
        repeated(
            "node-type",
            "TYPE",
            "of a cluster: a file, or gce-n1-standard-32",
            "For a cluster: the speeds, space and price of a node, as docs/formats/node-type.md describes the file, or \
             a published type: gce-n1-standard-32 or ec2-i2.8xlarge. --cheapest takes several, and these two if none \
             is given.",
        )
        .value_parser(OsStringValueParser::new()),
        switch(
            "cheapest",
            "find the cheapest cluster",
            "For a cluster: find the number of nodes and the type whose job costs least.",
        ),
        option(
            "within",
            "TIME",
            "with --cheapest: a deadline, 20min",
            "For --cheapest: only clusters that end within TIME: 20min, 900s, 2h.",
        ),
        choice(
            "network",
            "HOW",
            ["measured", "linear", "infinite"],
            "of a cluster: measured, linear, infinite",
            "For a cluster: the network between more nodes than were measured. measured: its rate falls as measured; \
             linear: every node keeps the best measured rate; infinite: it is never the bottleneck.",
        ),
        option(
            "connections",
            "N",
            "of a cluster: connections for each pair",
            "For a cluster: connections for each pair of nodes; 1 if not given.",
        ),
        switch(
            "uniform",
            "of a cluster: no sample of keys",
            "For a cluster: the keys are uniform, so that no sample of them is needed.",
        ),
    ]
}

/// Flags about records, for the plan of a sort.
fn of_a_sort() -> [Arg; 3] {
    [
        option(
            "record-bytes",
            "N",
            "of a sort: length of a record (default 100)",
            "For a sort: the mean length of a record in bytes; 100 if not given. Without --format, up to 8 \
             bytes are numbers, more are records of that length.",
        ),
        option(
            "format",
            "LAYOUT",
            "of a sort: lines, fixed:100, u64-le",
            "For a sort: the layout of a record, as in ascot sort.",
        ),
        repeated(
            "key",
            "SPEC",
            "of a sort: the key of a record",
            "For a sort: the key of a record, as in ascot sort.",
        )
        .short('k')
        .value_parser(OsStringValueParser::new()),
    ]
}

/// `ascot probe`.
pub fn probe() -> Command {
    tool("probe")
        .about("Measure a volume and the processors into a profile")
        .long_about(
            "Measure the volume of DIR, bypassing the page cache: reading, writing, both at once, and the \
             cost of a switch among 2, 4, 8, ... files that are read or written in turn. Also measure how \
             fast all threads together sort and merge in memory. Every figure is measured several times and \
             shown with its spread. The files have no names and disappear when the command ends for any \
             reason. The profile is stored with the state of the user, below XDG_STATE_HOME or \
             ~/.local/state, and all jobs on that volume use it from then on. -o writes it to a file for \
             --volume, too.",
        )
        .override_usage(
            "ascot probe DIR [OPTION]...\nascot probe --list [--json]\nascot probe --forget DIR|DEVICE|all",
        )
        .after_help(
            "Examples:\n\
             \x20 ascot probe /data -o data.toml --plot data.svg\n\
             \x20 ascot probe /data --seconds 10 --bytes 512MiB\n\
             \x20 ascot probe --list\n\
             \x20 ascot plan merge --inputs 8000 --input 64TB --volume data.toml",
        )
        .arg(
            dir_operand(
                "directory",
                "DIR",
                "a directory on the volume",
                "A directory on the volume to measure, in which you may create files.",
            )
            .required(false)
            .required_unless_present_any(["list", "forget"]),
        )
        .arg(
            file_option(
                "output",
                "write the profile to FILE",
                "Write the profile to FILE, as --volume reads it.",
            )
            .short('o'),
        )
        .arg(file_option(
            "plot",
            "draw the switch costs to FILE (SVG)",
            "Draw the cost of a switch by number of files, as an SVG chart, to FILE.",
        ))
        .arg(option(
            "bytes",
            "SIZE",
            "maximum space to use (default 4GiB)",
            "Maximum bytes to use on the volume; 4GiB if not given, and never more than half of the free \
             space. With more bytes, a cache of the device affects the figures less.",
        ))
        .arg(option(
            "seconds",
            "N",
            "approximate measuring time (default 40)",
            "Approximate duration of the measurement in seconds; 40 if not given. A shorter one has a larger \
             spread. The processors are measured for at least some 5 seconds.",
        ))
        .arg(monitor())
        .args(stored_profiles())
        .arg(json())
}

/// `--list` and `--forget` of `ascot probe`.
fn stored_profiles() -> [Arg; 2] {
    [
        switch(
            "list",
            "show the stored profiles",
            "Show the stored profiles: the device, where it was mounted, its rates, the cost of a switch among \
             8 files, and the day of the measurement. With --json, with all their figures.",
        )
        .conflicts_with_all(["directory", "output", "plot", "bytes", "seconds", "forget"]),
        option(
            "forget",
            "WHAT",
            "remove a stored profile: DIR, DEVICE or all",
            "Remove the stored profile of the volume of a directory, of a device as --list shows it, or of \
             all.",
        )
        .value_parser(OsStringValueParser::new())
        .conflicts_with_all(["directory", "output", "plot", "bytes", "seconds", "json"]),
    ]
}

/// `ascot simulate`.
pub fn simulate() -> Command {
    tool("simulate")
        .about("Simulate a schedule on numbers: run lengths and occupancies")
        .long_about(
            "Simulate a bowtie whose streams are counters, with the schedules that drive real streams, and \
             compare the result with the formulas: the length of runs, the number of switches, the \
             occupancies of streams.",
        )
        .override_usage("ascot simulate [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot simulate --inputs 64 --outputs 1 --plot a4.svg\n\
             \x20 ascot simulate --outputs 100 --inputs 3 --schedule a6r --skew noise:0.5\n\
             \x20 ascot simulate --inputs 64 --outputs 1 --skew zipf:1.0 --json",
        )
        .arg(inputs())
        .arg(outputs())
        .arg(memory())
        .arg(option(
            "block",
            "SIZE",
            "bytes of a block (default: memory / 16384)",
            "Bytes moved at a time; a 16384th of the memory if not given, but at least 4 KiB.",
        ))
        .arg(alpha())
        .arg(choice(
            "schedule",
            "NAME",
            ["best", "a1", "a2", "a3", "a4", "a5", "a6r", "a6w", "equal"],
            "the algorithm (default: the best)",
            "The algorithm by its published name; the one with the longest runs if not given. equal: an \
             equal part of memory for each stream, the usual practice, for comparison.",
        ))
        .arg(option(
            "group",
            "C",
            "streams filled or written together",
            "Number of inputs filled, or outputs written, together; the best number if not given.",
        ))
        .arg(plot_of_stairs())
        .arg(skew())
        .arg(option(
            "total",
            "SIZE",
            "bytes moved (default: 40 times the memory)",
            "Total bytes moved; 40 times the memory if not given.",
        ))
        .arg(option("seed", "N", "seed of the random numbers", "Seed of the random numbers; 1 if not given."))
        .arg(json())
}

fn skew() -> Arg {
    option(
        "skew",
        "HOW",
        "equal, zipf:1, fast:10, noise:0.5, bursts:1000, ends",
        "How fast streams are consumed and filled: equal; zipf:S, the k-th as 1/k^S; fast:N, the first N \
         times as fast as the others; noise:X, each up to X faster or slower, drawn for every block; \
         bursts:B, one stream after the other for B blocks; ends, the streams end one after the other.",
    )
}

fn inputs() -> Arg {
    option(
        "inputs",
        "N",
        "files read at once (default 1)",
        "Number of input files; 0: data come from memory.",
    )
}

fn outputs() -> Arg {
    option(
        "outputs",
        "N",
        "files written at once (default 1)",
        "Number of output files; 0: data go to memory.",
    )
}

fn memory() -> Arg {
    option("memory", "SIZE", "buffers (default 1GiB)", "Bytes of memory for buffers; 1GiB if not given.")
}

fn alpha() -> Arg {
    option(
        "alpha",
        "SHARE",
        "share of bytes that is read (default 0.5)",
        "Bytes read as a share of all bytes read and written; 0.5 (as many written as read) if not given.",
    )
}

/// `--volume`.
pub fn volume() -> Arg {
    file_option(
        "volume",
        "the volume's profile (default: that of this directory)",
        "File with the volume's speeds in bytes/s and its switch cost in seconds, as docs/formats/volume.md \
         describes it, or one of rotational, flash, network, fuse, memory and virtual. If not given: \
         ASCOT_VOLUME, or the stored profile of the volume of the current directory, or one for its kind.",
    )
}

fn json() -> Arg {
    switch("json", "print JSON", "Print the result as JSON, for programs.")
}

fn plot_of_stairs() -> Arg {
    file_option(
        "plot",
        "draw what streams hold to FILE (SVG)",
        "Draw what each stream holds when memory is full, as seen and by theory, as an SVG chart to FILE.",
    )
}
