//! The flags of `ascot index` and its subcommands.

use clap::{Arg, Command};

use super::tools::tool;
use super::{
    JOB, OUTPUT, RECORDS, RESOURCES, choice, dir_operand, dir_option, file_option, files, operand, option,
    switch,
};

/// `ascot index`.
pub fn index() -> Command {
    tool("index")
        .about("Index records by key while they are written, and find them again")
        .long_about(
            "Make, read and check indexed directories: records appended in epochs, sorted and \
                 indexed in one pass, of which a key's values are found in a few reads.",
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
            "Read files of records once and write the new directory DIR, in which records are found \
                 by key. An epoch is complete, and can be read, as soon as it is written; whatever \
                 happens to the command, complete epochs stay.",
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
                "what to read; - is standard input",
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
            dir_option("output", "the directory", "The directory to make, or to go on in (--open).")
                .short('o')
                .required(true),
        )
        .arg(quiet())
}

/// Flags about the records of the files.
fn of_records() -> Vec<Arg> {
    vec![
        option(
            "format",
            "FORMAT",
            "fixed:BYTES, lines, prefixed:u32-le and the like",
            "What the files are made of: fixed:BYTES, lines, lines:nul, prefixed:u8, :u16, :u32, \
                     :u64, with -le or -be.",
        )
        .required(true),
        option(
            "key",
            "A..B",
            "bytes A to B of a record, B left out",
            "The bytes of a record that are its key, counted from 0, B left out; all others are its \
                     value.",
        )
        .required(true),
        option(
            "attribute",
            "SPEC",
            "NAME=OFFSET:TYPE, a number in values for --where",
            "A number that stands in every value from byte OFFSET of it on: f64, f32, i64, u64, i32 \
                     or u32, little-endian. Its least and greatest are kept for each block, so that range \
                     --where skips blocks.",
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
            "What is kept with keys: whole records; pointers to values, which are in the order of \
                 arrival; or the numbers of writers, whose own tables have the records. For one writer \
                 records are best; the others are for many processes that write together.",
        ),
        option(
            "partitions",
            "P",
            "parts that keys are dealt out to (default 1)",
            "Parts that keys are dealt out to; 1 if not given.",
        ),
        choice(
            "partition-by",
            "WAY",
            ["hash", "range"],
            "hash (default), or range of keys",
            "What tells the part of a key: its hash, or its place among boundaries that are sampled \
                 and balanced again for every epoch, so that a range of keys is in few parts.",
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
            "create (default), append, or auto: whichever fits",
            "create: make the directory, or take one that is empty or whose first epoch was never \
                 complete. append: go on after the last complete epoch of one that is there, whoever \
                 wrote it; what is asked of it has to be so there, but for the number of partitions. \
                 auto: append if there is one, create if not.",
        ),
        switch("append", "go on in a directory that is there", "The same as --open append.")
            .conflicts_with("open"),
        option(
            "rollback",
            "N",
            "first drop epochs from N on; the next is epoch N",
            "With --append or --open auto: epochs 0 to N-1 stay, later ones are dropped, and the \
                 next is epoch N. For what starts again from before its epoch N, and would otherwise \
                 write epochs a second time.",
        ),
    ]
}

fn get() -> Command {
    tool("get")
        .about("Print all values of a key, with their epochs")
        .long_about(
            "Find the values that were appended to a key, in all epochs or one. Exit status 1: none \
                 was; 2: that is not known, or not of all keys, because a file is missing or damaged. \
                 Keys are written as 0x and hexadecimal digits, as le:NUMBER or be:NUMBER (an integer as \
                 long as keys are, lowest or highest byte first), or as the text that they are. Values \
                 may be longer than the memory: they are printed part by part, after all of each has \
                 been checked.",
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
                "The key: 0x and hexadecimal digits, le:NUMBER, be:NUMBER, or the text that it is.",
            )
            .required(false)
            .required_unless_present("keys-file")
            .conflicts_with("keys-file")
            .allow_hyphen_values(true),
        )
        .arg(epoch())
        .arg(file_option(
            "keys-file",
            "many keys, one a line, read in file order",
            "Keys, one a line, which are looked for together: reads go through the files in order. - \
                     is standard input.",
        ))
        .arg(raw())
        .arg(json())
        .arg(stats())
        .arg(memory())
}

fn range() -> Command {
    tool("range")
        .about("Print the records of a range of keys, in their order")
        .long_about(
            "Print the records whose keys are at least A and below B, by key and epoch; without A \
                 from the least, without B to the greatest. Keys are written as for ascot index get. \
                 Blocks outside the range are not read.",
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
                "keys from A to B, which is left out",
                "The range: the least key, two dots, and the key before which to end; either may be left \
                 out.",
            )
            .allow_hyphen_values(true),
        )
        .arg(epoch())
        .arg(option(
            "where",
            "CONDITION",
            "NAME>X, NAME>=X, NAME<X or NAME<=X",
            "Only records whose attribute compares like this, such as energy>1e9. Blocks that cannot \
                     have one are not read.",
        ))
        .arg(switch(
            "unordered",
            "as they stand in the files: less memory",
            "In the order in which records stand in the files, which takes no memory for merging.",
        ))
        .arg(raw())
        .arg(json())
        .arg(stats())
        .arg(memory())
}

fn info() -> Command {
    tool("info")
        .about("Say what an indexed directory is and holds")
        .long_about(
            "Print what an indexed directory is, how many epochs of it are complete and what they \
             hold, from its indexes alone.",
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
            "Look at every checksum, the order of keys, all counts, whether records are found where \
                 a query looks for them, and whether padding is zero: no byte of the directory can \
                 change without being found. Exit status 1: something is wrong, and is named by file and \
                 byte.",
        )
        .override_usage("ascot index verify DIR [OPTION]...")
        .arg(dir())
        .arg(json())
        .arg(memory())
}

fn rollback() -> Command {
    tool("rollback")
        .about("Drop the last epochs of an indexed directory")
        .long_about(
            "Keep epochs 0 to N-1 of an indexed directory and drop all later ones, so that the next \
                 is epoch N. It may be interrupted at any time: the manifest is replaced first, then \
                 files are cut off. Readers that are open have to be opened again.",
        )
        .override_usage("ascot index rollback DIR --to-epoch N [OPTION]...")
        .after_help("Examples:\n  ascot index rollback run.dir --to-epoch 7")
        .arg(dir())
        .arg(
            option(
                "to-epoch",
                "N",
                "the epoch that is written next",
                "The epoch that is written next: those before it stay.",
            )
            .required(true),
        )
        .arg(json())
        .arg(quiet())
}

fn plan() -> Command {
    tool("plan")
        .about("Compute memory, connections and messages of many writers")
        .long_about(
            "Compute what each of many processes needs to send records to those that own their keys: \
                 directly, or in three hops through ranks that stand for other nodes.",
        )
        .override_usage("ascot index plan --ranks R --ranks-per-node K [OPTION]...")
        .after_help("Examples:\n  ascot index plan --ranks 131072 --ranks-per-node 32")
        .arg(option("ranks", "R", "processes that write", "Processes that write.").required(true))
        .arg(option("ranks-per-node", "K", "of them on each node", "Processes on each node.").required(true))
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
            "Bytes that travel from each rank in an epoch; 256 MiB if not given.",
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
        "bytes as they are, and nothing else",
        "Write the bytes of records as they are, one after another: of get the values, of range \
         keys and values.",
    )
    .conflicts_with("json")
}

fn json() -> Arg {
    switch("json", "as JSON, one object a line", "Print JSON, bytes in hexadecimal.")
}

fn stats() -> Arg {
    switch(
        "stats",
        "tell on standard error what was read",
        "Tell on standard error how many reads of what kind it took, and of how many bytes; how \
             many files were opened; and how many other calls asked for a file's size or time.",
    )
}

fn quiet() -> Arg {
    switch("quiet", "only errors", "Say nothing but errors.").short('q')
}

fn memory() -> Arg {
    option(
        "memory",
        "SIZE",
        "most memory (default 256MiB to build, 64MiB to read)",
        "Most memory, a small constant (32 MiB) aside. Default: ASCOT_MEMORY, or 256 MiB to \
             build and 64 MiB to read.",
    )
}
