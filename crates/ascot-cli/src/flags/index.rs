//! The flags of `ascot index` and its subcommands.

use clap::{Arg, Command};

use super::tools::tool;
use super::{
    JOB, OUTPUT, RECORDS, RESOURCES, choice, dir_operand, dir_option, file_option, files, monitor, operand,
    option, switch, trace,
};

/// `ascot index`.
pub fn index() -> Command {
    tool("index")
        .about("Index records by key while they are written, and find them again")
        .long_about(
            "Make, read and check indexed directories. Records are appended in epochs, sorted and indexed in \
             one pass; a query finds the values of a key in a few reads.",
        )
        .override_usage("ascot index COMMAND [ARGUMENT]...")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .after_help(
            "Examples:\n\
             \x20 ascot index build dumps/*.bin --format fixed:56 --key 0..8 -o run.dir\n\
             \x20 ascot index get run.dir 0x0000000000012345\n\
             \x20 ascot index range run.dir 0x00..0x01 --json",
        )
        .subcommands([build(), get(), range(), info(), verify(), rollback(), plan()])
}

fn build() -> Command {
    tool("build")
        .about("Index files of records by a range of their bytes")
        .long_about(
            "Read files of records once and write the new directory DIR, in which queries find records by \
             key. An epoch can be read as soon as it is complete. Complete epochs stay even if the command \
             fails or is killed.",
        )
        .override_usage("ascot index build FILE... --format FORMAT --key A..B -o DIR [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot index build dumps/*.bin --format fixed:56 --key 0..8 --epoch-per-file \\\n\
             \x20     -o run.dir\n\
             \x20 ascot index build more.bin --format fixed:56 --key 0..8 --append -o run.dir\n\
             \x20 ascot index build a.rec --format fixed:64 --key 0..8 --partition-by range \\\n\
             \x20     --attribute energy=48:f64 -o run.dir",
        )
        .arg(
            files(
                "files to read; - is standard input",
                "Files of records, in this order; - is standard input.",
            )
            .required(true),
        )
        .next_help_heading(RECORDS)
        .args(of_records())
        .next_help_heading(JOB)
        .args(of_directory())
        .next_help_heading(RESOURCES)
        .arg(memory())
        .next_help_heading(OUTPUT)
        .arg(
            dir_option("output", "the directory", "The directory to make or to continue (--open).")
                .short('o')
                .required(true),
        )
        .arg(trace())
        .arg(monitor())
        .arg(quiet())
}

/// Flags about the records of the files.
fn of_records() -> Vec<Arg> {
    vec![
        option(
            "format",
            "FORMAT",
            "fixed:BYTES, lines, prefixed:u32-le and the like",
            "The layout of the files: fixed:BYTES, lines, lines:nul, prefixed:u8, :u16, :u32, :u64, with -le \
             or -be.",
        )
        .required(true),
        option(
            "key",
            "A..B",
            "bytes A to B of a record, B excluded",
            "The bytes of a record that form its key, counted from 0, without B; all others form its value.",
        )
        .required(true),
        option(
            "attribute",
            "SPEC",
            "NAME=OFFSET:TYPE, a number in values for --where",
            "A number at byte OFFSET of every value: f64, f32, i64, u64, i32 or u32, little-endian. Each \
             block stores its minimum and maximum, so that range --where can skip blocks.",
        ),
    ]
}

/// Flags about the directory.
fn of_directory() -> Vec<Arg> {
    vec![
        choice(
            "scheme",
            "SCHEME",
            ["records", "pointers", "ranks"],
            "records (default), pointers or ranks",
            "What a table stores with each key: the whole record; a pointer to the value, in the order of \
             arrival; or the number of the writer whose own table has the record. For one writer records is \
             best; the others are for many processes that write together.",
        ),
        option(
            "partitions",
            "P",
            "number of parts for the keys (default 1)",
            "Number of parts that divide the keys; 1 if not given.",
        ),
        choice(
            "partition-by",
            "HOW",
            ["hash", "range"],
            "hash (default), or range of keys",
            "How the part of a key is found: by its hash, or by boundaries that are sampled and balanced for \
             every epoch, so that a range of keys is in few parts.",
        ),
        switch(
            "epoch-per-file",
            "every file is an epoch of its own",
            "Every file is an epoch of its own; otherwise all are one.",
        ),
        choice(
            "open",
            "MODE",
            ["create", "append", "auto"],
            "create (default), append, or auto to choose",
            "create: make the directory, or use one that is empty or whose first epoch was never complete. \
             append: continue an existing directory after its last complete epoch. Format, key and all other \
             options must match the directory, except the number of partitions. auto: append if the \
             directory exists, otherwise create.",
        ),
        switch("append", "continue an existing directory", "The same as --open append.")
            .conflicts_with("open"),
        option(
            "rollback",
            "N",
            "first drop epochs from N on; the next is epoch N",
            "With --append or --open auto: epochs 0 to N-1 stay, later ones are dropped, and the next is \
             epoch N. For a program that restarts from a checkpoint before its epoch N and would otherwise \
             write epochs a second time.",
        ),
    ]
}

fn get() -> Command {
    tool("get")
        .about("Print all values of a key, with their epochs")
        .long_about(
            "Find the values that were appended to a key, in all epochs or one. Exit status 1: the key has \
             no value; 2: a file is missing or damaged, so that values may be missing. Keys are written as \
             0x and hexadecimal digits, as le:NUMBER or be:NUMBER (an integer of the length of a key, lowest \
             or highest byte first), or as text. Values may be longer than the memory: a value is checked as \
             a whole and then printed part by part.",
        )
        .override_usage(
            "ascot index get DIR KEY [OPTION]...\nascot index get DIR --keys-file FILE [OPTION]...",
        )
        .before_help("KEY: 0x and hexadecimal digits, le:NUMBER, be:NUMBER, or text.")
        .after_help(
            "Examples:\n\
             \x20 ascot index get run.dir 0x0000000000012345\n\
             \x20 ascot index get run.dir be:74565 --epoch 7 --raw > value\n\
             \x20 ascot index get run.dir --keys-file wanted.txt --json",
        )
        .arg(dir())
        .arg(
            operand(
                "key",
                "KEY",
                "the key",
                "The key: 0x and hexadecimal digits, le:NUMBER, be:NUMBER, or text.",
            )
            .required(false)
            .required_unless_present("keys-file")
            .conflicts_with("keys-file")
            .allow_hyphen_values(true),
        )
        .arg(epoch())
        .arg(file_option(
            "keys-file",
            "many keys, one per line, read in file order",
            "File of keys, one per line. They are looked up together, with reads in file order. - is \
             standard input.",
        ))
        .arg(raw())
        .arg(json())
        .arg(stats())
        .arg(trace())
        .arg(memory())
}

fn range() -> Command {
    tool("range")
        .about("Print the records of a range of keys, in their order")
        .long_about(
            "Print the records whose keys are at least A and below B, by key and epoch; without A from the \
             smallest key, without B to the largest. Keys are written as for ascot index get. Blocks outside \
             the range are not read.",
        )
        .override_usage("ascot index range DIR A..B [OPTION]...")
        .before_help("A and B: 0x and hexadecimal digits, le:NUMBER, be:NUMBER, or text.")
        .after_help(
            "Examples:\n\
             \x20 ascot index range run.dir 0x00..0x01\n\
             \x20 ascot index range run.dir .. --where 'energy>1e9' --epoch 9\n\
             \x20 ascot index range run.dir .. --unordered --raw > all.rec",
        )
        .arg(dir())
        .arg(
            operand(
                "range",
                "A..B",
                "keys from A to B, B excluded",
                "The range: the smallest key, two dots, and the key before which it ends; either may be \
                 omitted.",
            )
            .allow_hyphen_values(true),
        )
        .arg(epoch())
        .arg(option(
            "where",
            "CONDITION",
            "NAME>X, NAME>=X, NAME<X or NAME<=X",
            "Only records whose attribute meets the condition, such as energy>1e9. Blocks without such \
             records are not read.",
        ))
        .arg(switch(
            "unordered",
            "in file order: less memory",
            "Print records in the order of the files, which takes no memory for merging.",
        ))
        .arg(raw())
        .arg(json())
        .arg(stats())
        .arg(memory())
}

fn info() -> Command {
    tool("info")
        .about("Describe an indexed directory and its contents")
        .long_about(
            "Print the options of an indexed directory, the number of its complete epochs and their \
             contents, from its indexes alone.",
        )
        .override_usage("ascot index info DIR [OPTION]...")
        .arg(dir())
        .arg(json())
        .arg(memory())
}

fn verify() -> Command {
    tool("verify")
        .about("Read everything and check it")
        .long_about(
            "Check every checksum, the order of keys, all counts, that queries find every record, and that \
             padding is zero, so that a change of any byte is found. Exit status 1: a fault was found; the \
             message names its file and byte.",
        )
        .override_usage("ascot index verify DIR [OPTION]...")
        .arg(dir())
        .arg(json())
        .arg(monitor())
        .arg(memory())
}

fn rollback() -> Command {
    tool("rollback")
        .about("Drop the last epochs of an indexed directory")
        .long_about(
            "Keep epochs 0 to N-1 of an indexed directory and drop all later ones, so that the next is epoch \
             N. The command may be interrupted at any time: it replaces the manifest first and truncates \
             files afterwards. Open readers must be opened again.",
        )
        .override_usage("ascot index rollback DIR --to-epoch N [OPTION]...")
        .after_help("Examples:\n  ascot index rollback run.dir --to-epoch 7")
        .arg(dir())
        .arg(
            option("to-epoch", "N", "the epoch written next", "The epoch written next; earlier epochs stay.")
                .required(true),
        )
        .arg(json())
        .arg(quiet())
}

fn plan() -> Command {
    tool("plan")
        .about("Compute memory, connections and messages of many writers")
        .long_about(
            "Compute the memory, connections and messages that each of many processes needs to send records \
             to the owners of their keys: directly, or in three hops through ranks that represent other \
             nodes.",
        )
        .override_usage("ascot index plan --ranks R --ranks-per-node K [OPTION]...")
        .after_help("Examples:\n  ascot index plan --ranks 131072 --ranks-per-node 32")
        .arg(option("ranks", "R", "processes that write", "Processes that write.").required(true))
        .arg(
            option("ranks-per-node", "K", "processes on each node", "Processes on each node.").required(true),
        )
        .arg(option(
            "batch",
            "SIZE",
            "bytes sent at a time (default 32KiB)",
            "Bytes that are sent at a time; 32 KiB if not given.",
        ))
        .arg(option(
            "bytes",
            "SIZE",
            "bytes a rank appends in an epoch (256MiB)",
            "Bytes that each rank appends in an epoch; 256 MiB if not given.",
        ))
        .arg(json())
}

fn dir() -> Arg {
    dir_operand("dir", "DIR", "the indexed directory", "The indexed directory.")
}

fn epoch() -> Arg {
    option("epoch", "N", "one epoch only, counted from 0", "Only values of this epoch, counted from 0.")
}

fn raw() -> Arg {
    switch(
        "raw",
        "raw bytes without separators",
        "Write the raw bytes of records, one after another: get writes values, range writes keys and values.",
    )
    .conflicts_with("json")
}

fn json() -> Arg {
    switch("json", "as JSON, one object per line", "Print JSON, bytes in hexadecimal.")
}

fn stats() -> Arg {
    switch(
        "stats",
        "report reads on standard error",
        "Report on standard error the number and bytes of reads by kind, the number of files opened, and the \
         number of other calls for a file's size or time.",
    )
}

fn quiet() -> Arg {
    switch("quiet", "only errors", "Print only errors.").short('q')
}

fn memory() -> Arg {
    option(
        "memory",
        "SIZE",
        "maximum (default 256MiB to build, 64MiB to read)",
        "Maximum memory, plus a small constant (32 MiB). Default: ASCOT_MEMORY, or 256 MiB to build and 64 \
         MiB to read.",
    )
}
