//! The flags of `ascot sort`: those of the sort command, with the same meaning, and Ascot's own.

use clap::builder::{OsStringValueParser, Resettable};
use clap::{Arg, ArgAction, Command};

use super::theory::volume;
use super::{
    JOB, ORDERING, OUTPUT, RECORDS, RESOURCES, choice, dir_option, file_option, files, help_flag, monitor,
    option, repeated, switch, trace, version_flag,
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
            "Sort the records of all FILEs together and write the result to standard output, or to the file \
             of -o. Without FILE, or if FILE is -, read standard input.\n\nRecords are lines unless \
             --format, --csv or a column name in --key selects another format. Lines are ordered by their \
             bytes in every locale, as the sort command orders them under LC_ALL=C. The flags of the sort \
             command have the same meaning and may follow file names.",
        )
        .override_usage("ascot sort [OPTION]... [FILE]...\nascot sort --resume DIR")
        .before_help("Lines are ordered by their bytes (LC_ALL=C). The sort command's flags work.")
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
        .args(cluster())
        .next_help_heading(OUTPUT)
        .args(output())
        // The screen is full; `ascot reshape --help` shows it.
        .mut_arg("parts", |flag| flag.hide_short_help(true))
        .mut_arg("progress", |flag| flag.hide_short_help(true))
        .arg(help_flag(None).hide_short_help(true))
        .arg(version_flag().hide_short_help(true))
        .version(env!("CARGO_PKG_VERSION"))
        .arg(
            files(
                "files to sort; - is standard input",
                "Files to sort, all together; - is standard input. If equal records keep their order, it is \
                 that of the arguments.",
            )
            .hide_short_help(true)
            .help_heading(None::<&str>),
        )
}

/// Name, letter, and the two texts of each order.
const ORDERS: &[(&str, char, &str, &str)] = &[
    ("ignore-leading-blanks", 'b', "skip leading blanks", "Ignore blanks at the start of a key."),
    ("dictionary-order", 'd', "dictionary order", "Compare only blanks, letters and digits."),
    ("ignore-case", 'f', "fold case", "Compare lower-case letters (a to z) as upper-case."),
    (
        "general-numeric-sort",
        'g',
        "numbers, also 1e-3",
        "Compare floating-point numbers: 1e-3, 0x1f, inf, nan. Slower than -n.",
    ),
    (
        "human-numeric-sort",
        'h',
        "sizes: 2K 1G",
        "Compare sizes such as 2K and 1G: by sign, then by suffix (none, K, M, G, ...), then by number.",
    ),
    ("ignore-nonprinting", 'i', "printable bytes only", "Compare only printable bytes (0x20 to 0x7e)."),
    ("month-sort", 'M', "JAN < ... < DEC", "Compare names of months: unknown < JAN < ... < DEC."),
    (
        "numeric-sort",
        'n',
        "numbers",
        "Compare numbers: optional blanks, minus sign, digits, decimal point, digits.",
    ),
    (
        "random-sort",
        'R',
        "random, equals together",
        "Order by a salted hash of the keys: random, but lines with equal keys stay together. Each run gives \
         another order, unless --random-source sets the salt.",
    ),
    (
        "version-sort",
        'V',
        "versions: 1.9 < 1.10",
        "Compare numbers within text by value, as in version names.",
    ),
    (
        "reverse",
        'r',
        "largest first",
        "Reverse the order, also that of binary numbers, CSV columns and byte ranges.",
    ),
];

pub(super) fn ordering() -> Vec<Arg> {
    let mut flags: Vec<Arg> =
        ORDERS.iter().map(|(name, letter, help, long)| switch(name, help, long).short(*letter)).collect();
    flags.push(
        repeated(
            "sort-word",
            "WORD",
            "order by name",
            "Order by WORD: general-numeric (-g), human-numeric (-h), month (-M), numeric (-n), random (-R), \
             version (-V).",
        )
        .long("sort"),
    );
    flags.push(
        file_option(
            "random-source",
            "the salt of -R: the same file gives the same order",
            "Take the salt of -R from the first 16 bytes of FILE: the same bytes give the same order, also \
             in the sort command. Without this flag the system's random generator gives the salt.",
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
            "The key to order by; may be repeated. Lines: F[.C][OPTS][,F[.C][OPTS]] as in the sort command, \
             where F is a field and C a byte, both counted from 1, and OPTS are letters of bdfgiMhnRrV. CSV: \
             columns, separated by commas, by name (which implies --header) or by number (#1 is the first). \
             -NAME or NAME:desc is descending; NAME:text, :number, :number(,) with a decimal comma, :date, \
             :date(%d.%m.%Y) or :auto (the default: the type that fits the values) is its type; :nulls-first \
             and :nulls-last place empty fields. Fixed-length and length-prefixed records: ranges of bytes \
             counted from 0, end excluded, as in 0..10,12..16; :desc after a range makes it descending. \
             Without a key the whole record is the key.",
        )
        .short('k')
        .value_parser(OsStringValueParser::new()),
        repeated(
            "separator",
            "C",
            "byte between fields (default: blanks; CSV: comma)",
            "The byte between fields of a line or between columns of CSV. Without it a field of a line \
             begins with the blanks before it, and columns are separated by commas. C is a byte, '\\0' for \
             NUL, '\\t' for a tab, or one of the words tab, comma, semicolon and space. Also \
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
            "Lines end in a NUL byte instead of a newline, in the inputs and the output.",
        )
        .short('z'),
        option(
            "format",
            "LAYOUT",
            "lines csv (or --csv) tsv fixed:100 u64-le prefixed:u32",
            "The format of records. lines: lines of text, the default. csv, tsv: rows with quoting; a quoted \
             field may contain line breaks. fixed:N: N bytes each. u32, u64, i32, i64, f32, f64: binary \
             numbers, sorted by value, floats in total order; the suffix -le or -be gives the byte order, \
             which is this machine's by default. prefixed:u8, u16, u32, u64 (with -be for big-endian): a \
             length, then as many bytes. keyed:u32 and the like: a length, then as many bytes, which begin with \
             the length of the key and the key. Without --format files are read as lines, whatever their names. One \
             exception: if --key names a column and the names of all files end in .csv (or all in .tsv), \
             records are rows with a header.",
        ),
        switch("csv", "short for --format csv", "Short for --format csv.").hide_short_help(true),
        switch(
            "header",
            "the first line or row is a header and stays first",
            "The first line or row of each input is a header. The header of the first input starts the \
             output; the others are dropped. Implied if --key names a column of CSV.",
        ),
        repeated(
            "null",
            "TEXT",
            "CSV: fields equal to TEXT are null, as empty ones are",
            "CSV fields equal to TEXT, quoted or not, are null, as empty fields are: they sort last, or \
             first with :nulls-first. May be repeated, as in --null NULL --null '\\N'.",
        )
        .hide_short_help(true)
        .value_parser(OsStringValueParser::new()),
        switch(
            "strict",
            "CSV: a value not of its column's type is an error",
            "A value of a CSV key that is neither null nor of its column's type is an error, which names its \
             file and row before anything is written. A column without a given type is an error if it would \
             be sorted as text although most of its first values are numbers or dates. Without --strict such \
             values sort last, and a message at the end counts them.",
        )
        .hide_short_help(true),
        option(
            "quote",
            "C",
            "quote of CSV (default \")",
            "The byte that quotes CSV fields; a double quote by default.",
        )
        .hide_short_help(true)
        .value_parser(OsStringValueParser::new()),
    ]
}

fn checks() -> Vec<Arg> {
    vec![
        switch(
            "merge",
            "merge files that are already sorted",
            "Merge files that are already sorted; do not sort. A record out of order is an error. With -R \
             the sort of each file and the merge need the same --random-source.",
        )
        .short('m'),
        switch(
            "check-diagnose",
            "check only: exit 1 at the first disorder (-C: silent)",
            "Check whether the one input is sorted; do not sort. If it is not, name the first record out of \
             order on standard error and exit with status 1. With -u, equal keys are disorder too.",
        )
        .short('c')
        .long(Resettable::Reset),
        switch(
            "check-quiet",
            "check silently",
            "Check as -c does, but print nothing: exit status 0 if the input is sorted, 1 if it is not.",
        )
        .short('C')
        .long(Resettable::Reset)
        .hide_short_help(true),
        option(
            "check",
            "WORD",
            "-c or -C by name",
            "The same as -c (WORD is diagnose-first or left out) or as -C (WORD is quiet or silent).",
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
            "Write only the first of records with equal keys. With -c, equal keys are disorder.",
        )
        .short('u'),
        switch(
            "stable",
            "keep the order of equal keys (default except lines)",
            "Records with equal keys keep their order. Without it lines with equal keys are ordered by all \
             their bytes, as the sort command does.",
        )
        .short('s'),
        option(
            "top",
            "N",
            "only the first N records of the result",
            "Write only the first N records of the result (k, M and G are powers of 1000). If they fit in \
             memory, nothing is spilled.",
        ),
        switch(
            "explain",
            "print the plan with its predicted time, and stop",
            "Print the plan (its passes, bytes, peak disk use and predicted time) and the plans rejected for \
             it; sort nothing. --report FILE writes the plan as JSON too. Exit status 2 if spills and output \
             certainly do not fit on their volumes.",
        ),
        dir_option(
            "resume",
            "continue the killed job whose spills are in DIR",
            "Continue the killed job whose directory is DIR (ascot clean --dry-run lists such jobs). The job \
             keeps its inputs and flags; only --memory (which replaces its first value), \
             --keep-on-interrupt, --report, --trace, --monitor, --progress, --quiet and --verbose may be given. \
             Refused if an input has changed since. A resumed job that an error or a signal ends early can be resumed \
             again.",
        ),
        switch(
            "keep-on-interrupt",
            "after a signal keep the files that --resume needs",
            "If SIGINT (Ctrl-C), SIGTERM or SIGHUP stops the job, keep its spills and its unfinished output \
             instead of removing them, and print how to continue. For machines that may be taken away at \
             short notice. A job that cannot be resumed is still removed: one that reads a pipe, writes to \
             standard output, or has spilled nothing yet. After its first pass a job is \
             kept after an error too; a resumed job is always kept. ASCOT_KEEP_ON_INTERRUPT=1 means the \
             same.",
        )
        .hide_short_help(true),
        file_option(
            "files0-from",
            "read NUL-ended names of inputs from file F",
            "Read the names of inputs from file F, each ended by a NUL byte, as find -print0 writes them; - \
             is standard input. FILE arguments are not allowed with it.",
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
            "Maximum memory: a hard cap for the whole process, plus a small constant (32 MiB). K, M, G and \
             KiB, MiB, GiB are powers of 1024; KB, MB, GB are powers of 1000; % is a share of the memory of \
             the machine or the control group. Default: ASCOT_MEMORY, or half of the memory that the machine \
             and the control groups have available, at most 64 GiB. In a control group Ascot lowers the cap, \
             with a notice, until the whole process fits below the limit. -S means the same, with the units \
             of the sort command.",
        ),
        repeated(
            "buffer-size",
            "SIZE",
            "as --memory; a bare number counts KiB",
            "As --memory, with the rules of the sort command: a bare number counts KiB, b means bytes, and a \
             unit without a number means one (K is 1K). If -S is given several times, the largest value \
             applies. A value below the minimum, such as 0 or 32b, is raised to it; a value above the \
             machine's memory is lowered to it.",
        )
        .short('S')
        .hide_short_help(true),
        dir_option(
            "temp",
            "spill to DIR (default: beside the output); repeatable",
            "Directory for spills. If repeated, all are used, and faster ones get more. Default: the \
             directories of ASCOT_TMPDIR, or that of TMPDIR, or that of the output, or /tmp if the output is \
             standard output. If /tmp is a tmpfs, spills there use memory: name a directory on a disk. Each \
             job makes its own directory ascot-ID there and removes it at its end. Also \
             --temporary-directory.",
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
            "METHOD",
            ["auto", "merge", "distribute"],
            "auto, merge or distribute",
            "The method for data that does not fit in memory: merge (form sorted runs, then merge them), \
             distribute (split by sampled keys into parts that fit, then sort each) or auto, the one with \
             the shorter predicted time.",
        ),
        choice(
            "compress",
            "HOW",
            ["auto", "none", "lz4", "zstd"],
            "compress spills: auto, none, lz4 or zstd",
            "Compress spills: none, lz4, zstd, or auto (the default). Auto takes the codec, or none, with which \
             the passes left take the least time: by a sample of the sorted records, the rates of the volume \
             and the work of the processors. It reviews its choice while it writes.",
        ),
        option(
            "threads",
            "N",
            "computing threads (default: one for each core)",
            "Number of computing threads; by default one for each core. Also --parallel.",
        )
        .visible_alias("parallel"),
        volume()
            .help("the volume's profile (default: the stored one)")
            .long_help(
                "File with the profile of the volume of spills and output, as ascot probe -o writes it, or \
                 one of rotational, flash, network, fuse, memory and virtual. The plan, its predicted time \
                 and the length of runs follow it. If not given: ASCOT_VOLUME, or the profiles that ascot \
                 probe stored for the volumes of inputs, spills and output, or one for the kind of each \
                 volume. With a measured profile, requests have the size and number that were fastest.",
            ),
        file_option(
            "volume-in",
            "the profile of another volume that inputs are on",
            "File with the profile of the volume of the inputs, or a kind as for --volume, if that is not \
             the volume of spills and output. Reading inputs and writing then do not slow each other, and the plan \
             counts the slower of the two.",
        )
        .hide_short_help(true),
        option(
            "batch-size",
            "N",
            "merge at most N files at once",
            "Merge at most N files at once (at least 2). By default memory and the limit of open files \
             determine the number.",
        )
        .hide_short_help(true),
        option(
            "compress-program",
            "PROG",
            "accepted: turns on --compress",
            "Accepted for compatibility with the sort command. Ascot does not run PROG: it compresses spills \
             itself, with lz4 if PROG is lz4, otherwise with zstd.",
        )
        .hide_short_help(true),
        switch("debug", "accepted", "Accepted for compatibility with the sort command; has no effect.")
            .hide_short_help(true),
    ]
}

/// Flags of a sort on a cluster.
fn cluster() -> [Arg; 6] {
    [
        option(
            "cluster",
            "ADDRESS",
            "sort on a cluster of Ray: auto, HOST:PORT, local:4",
            "Sort on the nodes of a cluster of Ray, for data larger than one machine. ADDRESS is HOST:PORT; auto, the \
             cluster that this machine belongs to; or local:N, a new one of N nodes on this machine, for tests. -o \
             names a directory, which must not exist or be empty; its files part-00000, ..., one after another, are \
             the result, and ascot check DIR checks them. Every node reads the inputs and writes the output under the \
             same names: they are on shared storage. Records are lines, CSV, of fixed length, or numbers; each file \
             of the result has the header. --memory is the cap of each node (half of its memory by default), --temp \
             names directories on each node, --threads is the most processes on a node that map and sort, and --parts \
             the number of files. The job keeps its state in the directory of the output with .job at the end: a job \
             that an error ended is continued with --resume and removed with ascot clean. With --resume, ADDRESS is \
             another cluster than the one that the job began with. Needs Python with pip install 'ascot[cluster]'; \
             the variable ASCOT_PYTHON names one that is not python3.",
        )
        .hide_short_help(true),
        switch(
            "uniform",
            "--cluster: keys are spread evenly; take no sample",
            "With --cluster: the first eight bytes of keys are spread evenly over all values, so that no sample is \
             taken.",
        )
        .hide_short_help(true),
        choice(
            "transport",
            "WAY",
            ["direct", "ray"],
            "--cluster: direct (default) or ray",
            "With --cluster: the way of records from node to node. direct, the default: connections from port to port. \
             ray: calls of Ray, where nodes may not open connections to each other. With --resume, the job goes on \
             that way.",
        )
        .hide_short_help(true),
        choice(
            "shuffle",
            "HOW",
            ["push", "pull", "auto"],
            "--cluster: push (default), pull or auto",
            "With --cluster: where records wait. push, the default: they are sent to the node of their part as they \
             are read, and sorted there. pull: they are sorted where they are read, and merged when they are fetched; \
             parts need no memory of their size. auto: the one that is predicted to take less time.",
        )
        .hide_short_help(true),
        repeated(
            "setting",
            "NAME=VALUE",
            "--cluster: how records are read, sent and written",
            "With --cluster: how records are read, sent and written, one setting at a time. spare_cores: processors of \
             a node that get no worker. batch: size of what is sent at once. ahead: the most batches for a node that \
             wait for an answer. connections: the most that a worker has open at a time. read_size: what a worker \
             reads at once. write_size: what is written before the disk gets it. write_depth: the most batches that a \
             node receives or writes at a time. A job that is resumed keeps them.",
        )
        .hide_short_help(true),
        choice(
            "parts-as",
            "FORM",
            ["files", "views"],
            "--cluster: files (default) or views",
            "With --cluster: the form of the result. files, the default. views: sorted runs, which are merged when \
             they are read (ascot view, ascot mount).",
        )
        .hide_short_help(true),
    ]
}

pub(super) fn output() -> Vec<Arg> {
    vec![
        file_option(
            "output",
            "write to FILE, whole or not at all; may be an input",
            "Write the result to FILE instead of standard output. FILE appears only when it is complete, so \
             it may be one of the inputs.",
        )
        .action(ArgAction::Append)
        .short('o'),
        parts(),
        file_option(
            "report",
            "write plan, account and timings as JSON or .html",
            "When the job is done, write its plan, account and timings to FILE as JSON; or, if its name ends in .html, \
             as a page, with all requests to files, the memory of each stream, and the use of resources. With \
             --cluster the page has the phases, the nodes over time and what was done again.",
        ),
        trace(),
        monitor().hide_short_help(true),
        choice(
            "progress",
            "HOW",
            ["auto", "none", "bar", "json"],
            "auto, none, bar or json, on standard error",
            "Progress on standard error. bar: one line, redrawn, and a summary at the end. json: one object \
             on each line, the report last. none: nothing. auto, the default: bar if standard error is a \
             terminal, the output is a file and the job takes more than a second; otherwise none.",
        ),
        switch(
            "quiet",
            "no progress, no notices; errors only",
            "Print no progress, summary or notices; only errors.",
        ),
        switch(
            "verbose",
            "always print the summary at the end",
            "Print the summary to standard error at the end of every job, even if the job is short or \
             standard error is not a terminal. With this flag it shows the stages of each pass: their rate, and \
             the time that their threads worked and waited.",
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
        "Write the result as N files. The name given by -o contains their number, which counts from 0, as {} \
         or, with five digits, as {:05}. If records are ordered, each file has a range of keys and about as \
         many bytes as the others, and equal keys are in one file. All files appear together at the end, or \
         none does. Inputs must be files.",
    )
}
