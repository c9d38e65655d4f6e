//! The flags of `ascot view` and `ascot mount`, and those that make a view instead of an output.

use clap::{Arg, ArgGroup, Command};

use super::tools::tool;
use super::{JOB, OUTPUT, RESOURCES, dir_operand, dir_option, file_option, monitor, option, switch, trace};

/// The flags of `ascot sort` that make a view.
pub fn making() -> Vec<Arg> {
    vec![
        option(
            "reads",
            "N",
            "with --view auto: number of readings of the result",
            "Number of times that the result will be read as a whole, for --view auto; 1 if not given.",
        )
        .hide_short_help(true),
        dir_option(
            "view",
            "form runs only; write them to DIR as a view",
            "Stop after forming sorted runs and write them to the new directory DIR, a view: all data is \
             read once and written once, and merged when ascot view or ascot mount reads it. DIR appears \
             only when it is complete. With the word auto, write the view FILE.view or the FILE of -o, \
             whichever is predicted to take less time with --reads N, and report the choice.",
        )
        .hide_short_help(true),
    ]
}

/// The flag of `ascot merge` that makes a view of views.
pub fn joining() -> Arg {
    dir_option(
        "view",
        "write a view of FILEs, sorted files or views",
        "Write the merge of FILEs to the new directory DIR, as a view. FILEs are sorted files, views of the \
         same format and keys, or both. Nothing is copied: the view refers to FILEs, so they must not \
         change; files are read once, to check their order. If one of them is a view, format and keys need \
         not be given. Without this flag, views are merged to the output.",
    )
    .hide_short_help(true)
}

/// `ascot view`.
pub fn view() -> Command {
    tool("view")
        .about("Read a view: a sorted file that is merged as it is read")
        .long_about(
            "Merge the runs of the view in DIR, which ascot sort --view made, and write the result, or a \
             part of it, to standard output or to a file. Finding a part reads at most four blocks of each \
             run.",
        )
        .override_usage("ascot view DIR [OPTION]...")
        .before_help("One part at most: --range, --keys, --head, --tail or --at-record.")
        .after_help(
            "Examples:\n\
             \x20 ascot view big.view | consumer\n\
             \x20 ascot view big.view --range 40G..41G -o slice\n\
             \x20 ascot view big.view --keys 0x41..0x42\n\
             \x20 ascot view big.view --materialize sorted.rec",
        )
        .arg(dir())
        .next_help_heading(JOB)
        .args(parts())
        .group(ArgGroup::new("part").args(["range", "keys", "head", "tail", "at-record"]))
        .arg(switch(
            "explain",
            "print how it would be read, and stop",
            "Print how the view, or the part of it, would be read: bytes and runs, memory, the profile of the volume, \
             the order of the blocks, and the predicted time. No block is read, so that the ends of a part are \
             estimates. --report FILE writes it as JSON, too. Exit status 2 if the output does not fit on its volume.",
        ))
        .next_help_heading(RESOURCES)
        .arg(memory())
        .arg(threads())
        .arg(volume())
        .next_help_heading(OUTPUT)
        .arg(
            file_option(
                "output",
                "write to FILE, whole or not at all",
                "Write to FILE instead of standard output. FILE appears when it is complete.",
            )
            .short('o'),
        )
        .arg(
            file_option(
                "materialize",
                "write the whole sorted file",
                "Write the whole view to FILE, as a sort without --view does.",
            )
            .conflicts_with_all(["part", "output"]),
        )
        .arg(file_option(
            "report",
            "write an account of the read as JSON or .html",
            "When the output is complete, write an account of the read to FILE as JSON: bytes and runs of opening \
             and of reading the view, and the memory that its runs shared. If its name ends in .html, write a page.",
        ))
        .arg(trace())
        .arg(monitor())
}

fn volume() -> Arg {
    file_option(
        "volume",
        "the volume's profile (default: the stored one)",
        "File with the profile of the view's volume, as ascot probe -o writes it, or one of rotational, flash, \
         network, fuse, memory and virtual. The length of runs follows it. If not given: ASCOT_VOLUME, or the volume \
         that was given when the view was made, or the profile that ascot probe stored for the view's volume, or one \
         for its kind.",
    )
}

/// The flags that select a part of a view.
fn parts() -> Vec<Arg> {
    vec![
        option(
            "range",
            "A..B",
            "bytes A to B, B excluded: 40G..41G",
            "Only the bytes from offset A up to, but not including, offset B. K, M, G and KiB, MiB, GiB are \
             powers of 1024, KB, MB, GB powers of 1000. Without A from the start, without B to the end.",
        ),
        option(
            "keys",
            "A..B",
            "records with keys from A to B, B excluded",
            "Only the records whose keys are at least A and below B: numbers, text, or bytes as hexadecimal \
             digits after 0x. For numbers, lines ordered as a whole, and keys of one byte range. Without A \
             from the first, without B to the last.",
        ),
        option(
            "head",
            "N",
            "the first N records, and the header",
            "Only the first N records (1k, 1M are powers of 1000), after the header if there is one.",
        ),
        option("tail", "N", "the last N records", "Only the last N records."),
        option(
            "at-record",
            "N",
            "from record N on, counted from 0",
            "From record number N on, counted from 0, to the end.",
        ),
    ]
}

/// `ascot mount`.
pub fn mount() -> Command {
    tool("mount")
        .about("Show a view as a file, or an indexed directory as a file per key")
        .long_about(
            "Mount the indexed directory DIR on the directory MNT, with one file for each key: its name is \
             the key in hexadecimal, its content all values of the key. Opening a name is a query; listing \
             all names reads all keys. Or mount the view in DIR on the directory MNT, as an ordinary \
             read-only file of its full size that is merged as it is read, by any number of readers at any \
             offsets. This command starts a process that serves the mount until it is unmounted (umount MNT, \
             or fusermount3 -u MNT). A read of a damaged run fails, and a line on standard error names the \
             run, if standard error is a terminal or a file.",
        )
        .override_usage("ascot mount DIR MNT [OPTION]...")
        .before_help("Ends when the files are visible; another process serves them until umount MNT.")
        .after_help(
            "Examples:\n  ascot mount big.view /mnt/v && tail -c 100 /mnt/v/big.rec\n  umount /mnt/v\n  \
             ascot mount run.dir /mnt/r && xxd /mnt/r/0000000000012345",
        )
        .arg(dir())
        .arg(dir_operand(
            "mountpoint",
            "MNT",
            "directory to mount it on",
            "The directory on which the view is mounted; its own contents are hidden meanwhile.",
        ))
        .arg(memory())
        .arg(threads())
        .arg(
            switch(
                "foreground",
                "serve here, until stopped or unmounted",
                "Serve in this process, until unmounted or stopped by a signal.",
            )
            .short('f'),
        )
        .arg(switch(
            "allow-other",
            "other users may read it, too",
            "Let other users read the file, too. Unless you are root, this needs user_allow_other in \
             /etc/fuse.conf.",
        ))
}

fn dir() -> Arg {
    dir_operand(
        "dir",
        "DIR",
        "the view; mount also takes an indexed directory",
        "The directory of the view, or, to mount, an indexed directory.",
    )
}

fn memory() -> Arg {
    option(
        "memory",
        "SIZE",
        "maximum memory of all readers (default 256MiB)",
        "Maximum memory for the view and all its readers together, plus a small constant (32 MiB). Default: \
         ASCOT_MEMORY, or 256 MiB.",
    )
}

fn threads() -> Arg {
    option(
        "threads",
        "N",
        "merging threads (default: one for each core)",
        "Number of threads that merge for one reader; one for each core if not given.",
    )
}
