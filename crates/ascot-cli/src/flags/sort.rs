//! The flags of `ascot sort`: those of the sort command, with the same meaning, and Ascot's own.

use clap::builder::{OsStringValueParser, Resettable};
use clap::{Arg, ArgAction, Command};

use super::theory::volume;
use super::{
    JOB, ORDERING, OUTPUT, RECORDS, RESOURCES, choice, dir_option, file_option, files, help_flag, option,
    repeated, switch, version_flag,
};

const EXAMPLES: &str = "Examples:
  ascot sort access.log -k4,4 -t' ' --memory 1GiB -o sorted.log
  ascot sort events.csv --csv --header --key tenant,-ts -o out.csv
  ascot sort big.rec --format fixed:100 --key 0..10 --temp /fast -o out.rec
All flags in full: man ascot-sort (ascot man sort | man -l -)";

/// `ascot sort`.
pub fn command() -> Command {
    Command::new("sort")
        .about("Sort or merge files of any size within a fixed memory")
        .long_about(
            "Sort the records of all FILEs, together, and write the result to standard output \
             or to the file of -o. With no FILE, or where FILE is -, standard input is \
             read.\n\nRecords are lines unless --format, --csv or a column name says otherwise. \
             Lines are ordered by the value of their bytes, whatever the locale, as the sort \
             command orders them under LC_ALL=C; its flags have its meaning here, and may stand \
             after file names.",
        )
        .override_usage("ascot sort [OPTION]... [FILE]...\nascot sort --resume DIR")
        .before_help("Lines go by their bytes (LC_ALL=C); the sort command's flags mean the same here.")
        .after_help(EXAMPLES)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .infer_long_args(true)
        .next_help_heading(ORDERING)
        .args(ordering())
        .next_help_heading(RECORDS)
        .args(records())
        .args(layouts())
        .next_help_heading(JOB)
        .args(checks())
        .args(job())
        .args(super::views::making())
        .next_help_heading(RESOURCES)
        .args(memory_and_disks())
        .args(resources())
        .next_help_heading(OUTPUT)
        .args(output())
        // The screen is full; `ascot reshape --help` shows it.
        .mut_arg("parts", |flag| flag.hide_short_help(true))
        .arg(help_flag(None).hide_short_help(true))
        .arg(version_flag().hide_short_help(true))
        .version(env!("CARGO_PKG_VERSION"))
        .arg(
            files(
                "what to sort; - is standard input",
                "Files to sort, together, in this order where order among equals counts; - is \
             standard input.",
            )
            .hide_short_help(true)
            .help_heading(None::<&str>),
        )
}

/// Name, letter, and the two texts of each order.
const ORDERS: &[(&str, char, &str, &str)] = &[
    ("ignore-leading-blanks", 'b', "skip leading blanks", "Ignore leading blanks when finding sort keys."),
    ("dictionary-order", 'd', "dictionary order", "Consider only blanks and alphanumeric bytes."),
    ("ignore-case", 'f', "fold case", "Fold lower case (a to z) to upper case."),
    (
        "general-numeric-sort",
        'g',
        "numbers, also 1e-3",
        "Compare by general numerical value, as floating point: 1e-3, 0x1f, inf, nan. \
             Slower than -n.",
    ),
    (
        "human-numeric-sort",
        'h',
        "sizes: 2K 1G",
        "Compare human-readable numbers: sign, then suffix (none, K, M, G, ...), then \
             value.",
    ),
    ("ignore-nonprinting", 'i', "printable bytes only", "Consider only printable bytes (0x20 to 0x7e)."),
    ("month-sort", 'M', "JAN < ... < DEC", "Compare by month name: unknown < JAN < ... < DEC."),
    (
        "numeric-sort",
        'n',
        "numbers",
        "Compare by numerical value: optional blanks, minus sign, digits, decimal point, \
             digits.",
    ),
    (
        "random-sort",
        'R',
        "random, equals together",
        "Random order: keys go by a salted hash, so lines of equal keys stay together. Another order each \
             time, or that of --random-source.",
    ),
    (
        "version-sort",
        'V',
        "versions: 1.9 < 1.10",
        "Compare numbers within text by value, as in names of versions.",
    ),
    (
        "reverse",
        'r',
        "largest first",
        "Reverse the result of comparisons. With numbers, CSV columns and byte ranges too.",
    ),
];

pub(super) fn ordering() -> Vec<Arg> {
    let mut flags: Vec<Arg> =
        ORDERS.iter().map(|(name, letter, help, long)| switch(name, help, long).short(*letter)).collect();
    flags.push(
        repeated(
            "sort-word",
            "WORD",
            "these by name",
            "Order by WORD: general-numeric (-g), human-numeric (-h), month (-M), numeric (-n), \
             random (-R), version (-V).",
        )
        .long("sort"),
    );
    flags.push(
        file_option(
            "random-source",
            "the salt of -R: the same bytes, the same order",
            "Take the 16 bytes that salt -R from the start of FILE: the same bytes give the same \
                 order, that of the sort command. Without it the system's generator gives them.",
        )
        .action(ArgAction::Append)
        .hide_short_help(true),
    );
    flags
}

pub(super) fn records() -> Vec<Arg> {
    vec![
        repeated(
            "key",
            "SPEC",
            "lines: 2,2nr  CSV: tenant,-ts  fixed length: 0..10",
            "What to order by; may be repeated. Lines: F[.C][OPTS][,F[.C][OPTS]], field and byte \
                 from 1, OPTS of bdfgiMhnRrV, as in the sort command. CSV: columns by name (the header \
                 is implied) or number (#1 is the first), separated by commas; -NAME or NAME:desc for \
                 descending; NAME:text, :number, :number(,) with a decimal comma, :date, \
                 :date(%d.%m.%Y), :auto for what it holds, :nulls-first, :nulls-last for where empty \
                 fields go. Fixed-length and length-prefixed records: byte ranges from 0, end excluded, \
                 as in 0..10,12..16; :desc after a range for descending. Without a key the whole record \
                 counts.",
        )
        .short('k')
        .value_parser(OsStringValueParser::new()),
        repeated(
            "separator",
            "C",
            "between fields or columns (default: blanks; comma)",
            "Byte between fields of a line, instead of the empty string between a non-blank and \
             a blank, or between columns of CSV, instead of a comma. '\\0' is NUL; the words \
             tab, comma, semicolon, space and the form '\\t' are understood too. Also \
             --field-separator.",
        )
        .short('t')
        .visible_alias("field-separator")
        .value_parser(OsStringValueParser::new()),
    ]
}

pub(super) fn layouts() -> Vec<Arg> {
    vec![
        switch(
            "zero-terminated",
            "lines end in NUL, not newline",
            "Lines end in a NUL byte instead of a newline, coming and going.",
        )
        .short('z'),
        option(
            "format",
            "LAYOUT",
            "lines csv (or --csv) tsv fixed:100 u64-le prefixed:u32",
            "What a record is. lines: the default. csv, tsv: rows with quoting; a quoted line \
             break belongs to its row. fixed:N: N bytes each. u32, u64, i32, i64, f32, f64, \
             each with -le or -be, or neither for this machine's byte order: binary numbers, \
             sorted by value, floats in total order. prefixed:u8, u16, u32, u64 (with -be for \
             big-endian): a length, then so many bytes. Without it files are lines, whatever \
             they are called; only where --key names a column are files all called .csv (or all \
             .tsv) rows with a header.",
        ),
        switch("csv", "short for --format csv", "Short for --format csv.").hide_short_help(true),
        switch(
            "header",
            "the first line or row is a header and stays first",
            "The first line or row of each input is a header: that of the first input starts \
             the output, the others are dropped. Implied where --key names a column of CSV.",
        ),
        repeated(
            "null",
            "TEXT",
            "CSV: fields of TEXT are null, as empty ones are",
            "Fields of CSV that are TEXT, quoted or not, count as null, as empty ones do: they come \
                 last, or first with :nulls-first. May be repeated, as in --null NULL --null '\\N'.",
        )
        .hide_short_help(true)
        .value_parser(OsStringValueParser::new()),
        switch(
            "strict",
            "CSV: values not of their column's type are an error",
            "A value of a CSV key that is neither null nor of its column's type is an error, named \
                 with its file and row, before anything is written. So is a column without a type that \
                 would be taken for text although most of its first values are numbers or dates. Without \
                 it such values come last, and are counted at the end.",
        )
        .hide_short_help(true),
        option(
            "quote",
            "C",
            "quote of CSV (default \")",
            "The byte that quotes CSV fields; a double quote if not given.",
        )
        .hide_short_help(true)
        .value_parser(OsStringValueParser::new()),
    ]
}

fn checks() -> Vec<Arg> {
    vec![
        switch(
            "merge",
            "merge files that are sorted already",
            "Merge files that are sorted already; do not sort. A record out of order is an error. \
                 With -R the files and the merge need the same --random-source.",
        )
        .short('m'),
        switch(
            "check-diagnose",
            "check only: exit 1 at the first disorder (-C: silent)",
            "Check whether the one input is sorted; do not sort. The first record out of order \
             is named on standard error, and the exit status is 1. With -u, equal keys are \
             disorder too.",
        )
        .short('c')
        .long(Resettable::Reset),
        switch(
            "check-quiet",
            "check silently",
            "Check as -c does, but print nothing: exit status 0 means that the input is sorted, 1 \
                 that it is not.",
        )
        .short('C')
        .long(Resettable::Reset)
        .hide_short_help(true),
        option(
            "check",
            "WORD",
            "the same by name",
            "The same as -c (WORD is diagnose-first, or left out) or as -C (WORD is quiet or silent).",
        )
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("diagnose-first")
        .hide_short_help(true),
    ]
}

pub(super) fn job() -> Vec<Arg> {
    vec![
        switch(
            "unique",
            "only the first of records with equal keys",
            "Write only the first of records with equal keys. With -c, check for strict order.",
        )
        .short('u'),
        switch(
            "stable",
            "equal keys keep their order (default for records)",
            "Records with equal keys keep their order. Without it lines with equal keys are \
             ordered by all their bytes, as the sort command does.",
        )
        .short('s'),
        option(
            "top",
            "N",
            "only the first N records of the result",
            "Write only the first N records of the result (1k, 1M are powers of 1000). Needs no \
             spills if they fit in memory.",
        ),
        switch(
            "explain",
            "print the plan with its predicted time, and stop",
            "Print the plan, its passes and bytes, the most disk it takes and its predicted time, \
                 and the plans it was preferred to; sort nothing. With --report FILE the plan is also \
                 written there as JSON. Exit status 2 where spills and output certainly do not fit on \
                 their volumes.",
        ),
        dir_option(
            "resume",
            "continue the killed job whose spills are in DIR",
            "Continue the killed job whose directory is DIR (ascot clean --dry-run lists them). All \
                 else is taken from that job; only --memory, which replaces what it began with, \
                 --keep-on-interrupt, --report, --progress, --quiet and --verbose go with it. Refused if \
                 an input has changed since. Whatever ends it early, an error or a signal, it can be \
                 continued again.",
        ),
        switch(
            "keep-on-interrupt",
            "stopped by a signal, leave what --resume needs",
            "If SIGINT (Ctrl-C), SIGTERM or SIGHUP stops the job, leave its spills and its \
                 unfinished output instead of removing them, and say how to continue it: for machines \
                 that are taken away at short notice. A job that cannot be continued is removed as \
                 always: one that reads a pipe, writes to standard output or several parts, or has \
                 spilled nothing yet. Past its first pass a job is then kept after an error, too, and a \
                 resumed job always is. The same with ASCOT_KEEP_ON_INTERRUPT=1.",
        )
        .hide_short_help(true),
        file_option(
            "files0-from",
            "read NUL-ended names of inputs from file F",
            "Read the names of inputs from file F, each ended by a NUL byte, as find -print0 \
             writes them; - is standard input. No FILE may be given besides.",
        )
        .value_name("F")
        .hide_short_help(true),
    ]
}

pub(super) fn memory_and_disks() -> Vec<Arg> {
    vec![
        option(
            "memory",
            "SIZE",
            "hard cap: 1GiB, 10% (or -S); default: half of the free",
            "Most memory to use: a hard cap for the whole process, a small constant (32 MiB) \
             aside. K, M, G and KiB, MiB, GiB are powers of 1024, KB, MB, GB powers of 1000, % \
             a share of what the machine or the control group has. Default: ASCOT_MEMORY, or \
             half of what the machine and the control groups have available, at most 64 GiB. \
             In a control group the cap is lowered, with a notice, until the whole process \
             fits below the limit. \
             -S is the same as in the sort command.",
        ),
        repeated(
            "buffer-size",
            "SIZE",
            "as --memory; a bare number counts KiB",
            "As --memory, with the sort command's rules: a bare number counts KiB, b is bytes, a \
                 bare unit is one of it (K is 1K), of several the largest counts, and less than the \
                 least that works, as 0 or 32b, is raised to it; more than there is counts as all there \
                 is.",
        )
        .short('S')
        .hide_short_help(true),
        dir_option(
            "temp",
            "spill to DIR (default: beside the output); repeatable",
            "Directory for spills; repeated, all are used, the fastest most. Default: the \
             directories of ASCOT_TMPDIR, or that of TMPDIR, or that of the output; /tmp where \
             the output is standard output. Where /tmp is a tmpfs, spills there are memory: \
             name a directory on a disk. Each job makes a directory ascot-ID of its own there \
             and removes it at its end. Also --temporary-directory.",
        )
        .action(ArgAction::Append)
        .short('T')
        .visible_alias("temporary-directory"),
    ]
}

pub(super) fn resources() -> Vec<Arg> {
    vec![
        choice(
            "method",
            "WAY",
            ["auto", "merge", "distribute"],
            "auto, merge or distribute",
            "How to sort what does not fit: merge (sorted runs, then merged), distribute (split \
             by sampled keys into parts that fit) or auto, the cheaper by predicted time.",
        ),
        choice(
            "compress",
            "HOW",
            ["none", "lz4", "zstd", "auto"],
            "compress spills: none, lz4, zstd or auto",
            "Compress spills: none (the default), lz4, zstd, or auto, which measures whether it \
             pays.",
        ),
        option(
            "threads",
            "N",
            "threads to compute with (default: one a core)",
            "Threads to compute with; one a core if not given. Also --parallel.",
        )
        .visible_alias("parallel"),
        volume()
            .long_help(
                "File with the profile of the volume that spills and output lie on, as ascot probe \
                     writes it: the plan and its predicted time rest on its speeds. If not given, what is \
                     assumed of a usual solid-state volume. Where it was measured, requests are of the size \
                     and number found fastest.",
            )
            .hide_short_help(true),
        file_option(
            "volume-in",
            "the profile of another volume that inputs are on",
            "File with the profile of the volume that the inputs lie on, where that is not the one \
                 of spills and output: reading them and writing then do not get in each other's way, and \
                 the plan counts the slower of the two.",
        )
        .hide_short_help(true),
        option(
            "batch-size",
            "N",
            "merge at most N files at once",
            "Merge at most N files at once (at least 2). Without it memory and the limit of \
             open files decide.",
        )
        .hide_short_help(true),
        option(
            "compress-program",
            "PROG",
            "accepted: turns on --compress",
            "Accepted for the sort command's sake: spills are compressed by Ascot itself, with \
             lz4 if PROG is lz4, with zstd otherwise.",
        )
        .hide_short_help(true),
        switch("debug", "accepted", "Accepted for the sort command's sake; marks nothing.")
            .hide_short_help(true),
    ]
}

pub(super) fn output() -> Vec<Arg> {
    vec![
        file_option(
            "output",
            "write to FILE, whole or not at all; may be an input",
            "Write the result to FILE instead of standard output. FILE appears when it is \
             complete and not before, so it may be one of the inputs.",
        )
        .action(ArgAction::Append)
        .short('o'),
        parts(),
        file_option(
            "report",
            "write plan, account and timings as JSON",
            "Write plan, account and timings to FILE as JSON, when the job is done.",
        ),
        choice(
            "progress",
            "HOW",
            ["auto", "none", "bar", "json"],
            "auto, none, bar or json, on standard error",
            "Progress on standard error. bar: one line, redrawn, and a summary at the end. \
             json: one object a line, the report last. none: nothing. auto: bar if standard \
             error is a terminal, the output is a file and the job takes over a second; none \
             otherwise.",
        ),
        switch(
            "quiet",
            "no progress, no notices; errors only",
            "No progress, no summary, no notices; only errors.",
        ),
        switch(
            "verbose",
            "summary at the end, wherever output goes",
            "Print the summary to standard error at the end of every job, however short, \
             terminal or not.",
        )
        .hide_short_help(true),
    ]
}

/// The number of files of a result.
fn parts() -> Arg {
    option(
        "parts",
        "N",
        "write N files; -o names them: 'part-{:05}'",
        "Write the result as N files. The name given by -o has a place for their number, from 0: {} or, with \
         five digits, {:05}. Where records are ordered, each file has a range of keys and about as many \
         bytes, and equal keys share a file. All files appear together at the end, or none. Inputs must be \
         files.",
    )
}
