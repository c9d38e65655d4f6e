//! The flags of the commands other than `ascot sort`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command};

use super::{dir_operand, dir_option, file_option, files, help_flag, operand, option, repeated, switch};

/// The settings that all commands except `ascot sort` share.
pub fn tool(name: &'static str) -> Command {
    Command::new(name)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .infer_long_args(true)
        .arg(help_flag(Some('h')))
}

/// `ascot gen`.
pub fn generate() -> Command {
    tool("gen")
        .about("Make the sort benchmark's records")
        .long_about(
            "Write COUNT records of the sort benchmark: 100 bytes each, the first 10 of them \
             the key; byte for byte what the benchmark's own generator writes for the same \
             record numbers.",
        )
        .override_usage("ascot gen COUNT [OPTION]... [-o FILE]")
        .after_help(
            "Examples:\n\
             \x20 ascot gen 80M -o big.rec\n\
             \x20 ascot gen 1M --start 1M --ascii -o second.txt\n\
             \x20 ascot gen 10M --skew | ascot sort --format fixed:100 --key 0..10 -o skewed.rec",
        )
        .arg(operand(
            "count",
            "COUNT",
            "how many: 1000, 1k, 100M (powers of 1000)",
            "How many records: 1000, 1_000, 1k, 100M, 1G (powers of 1000).",
        ))
        .arg(option(
            "start",
            "N",
            "number of the first record (default 0)",
            "Number of the first record, 0 if not given; records can be made in pieces.",
        ))
        .arg(switch(
            "ascii",
            "printable records, one a line",
            "Printable records of 100 bytes, each a line that ends in CR LF.",
        ))
        .arg(switch("skew", "skewed keys", "The benchmark's skewed keys: many records share few keys."))
        .arg(threads())
        .arg(file_output("write to FILE instead of standard output"))
}

/// `ascot check`.
pub fn check() -> Command {
    tool("check")
        .about("Check order, count records and duplicates, print the checksum")
        .long_about(
            "Read FILEs, in order, as one sorted sequence: check that each key is at least the \
             one before, count records and duplicate keys, and add up the benchmark's checksum, \
             which does not depend on order. Exit status 1 if something is out of order.",
        )
        .override_usage("ascot check [OPTION]... [FILE]...")
        .after_help(
            "Examples:\n\
             \x20 ascot check sorted.rec\n\
             \x20 ascot check part1.rec part2.rec part3.rec\n\
             \x20 ascot check ids.sorted --format u64-le",
        )
        .arg(files(
            "what to check; - is standard input",
            "Files to check, in this order, as one sequence; - or none is standard input.",
        ))
        .arg(option(
            "format",
            "LAYOUT",
            "what a record is (default fixed:100)",
            "What a record is, as in ascot sort; if not given lines, or rows where the key names a \
                     column, for files called .csv or .tsv, lines for .txt and .log, and fixed:100, the \
                     benchmark's, for all others.",
        ))
        .arg(
            repeated(
                "key",
                "SPEC",
                "what orders it (default 0..10)",
                "What orders the records, as in ascot sort; if neither format nor key is given whole \
                     lines of files called as text, and 0..10, the benchmark's, of others.",
            )
            .short('k')
            .value_parser(OsStringValueParser::new()),
        )
        .arg(threads())
        .arg(switch("quiet", "only the exit status tells", "Print nothing; only the exit status tells."))
}

/// `ascot clean`.
pub fn clean() -> Command {
    tool("clean")
        .about("Remove what killed jobs left behind")
        .long_about(
            "Find directories of jobs that were killed, and remove them with the spills in \
             them. Jobs that are running and files that are not Ascot's are left alone. Where no \
             DIR is named, only what cannot be resumed is removed; what can is listed, with the \
             command that resumes it, and so are unfinished outputs, whose job may have its \
             spills elsewhere. Without --temp spills go beside the output, unless the \
             environment names a place: name that DIR.",
        )
        .override_usage("ascot clean [--dry-run] [--all] [DIR]...")
        .before_help(
            "With DIR all that killed jobs left there goes; with none, what can be resumed\n\
             stays and is listed, with how to resume it.",
        )
        .after_help(
            "Examples:\n  ascot clean --dry-run\n  ascot clean /fast\n  ascot clean /fast/ascot-0123456789ab",
        )
        .arg(
            dir_operand(
                "dirs",
                "DIR",
                "where spills went (default: the usual places)",
                "Directories that were given as --temp or hold outputs, or job directories \
             themselves: all that jobs left there is removed. Default: those of ASCOT_TMPDIR, \
             TMPDIR or else /tmp, and the current directory, where jobs that can be resumed stay.",
            )
            .required(false)
            .num_args(0..),
        )
        .arg(
            switch(
                "dry-run",
                "list, remove nothing",
                "List what there is and how to resume it; remove nothing.",
            )
            .short('n'),
        )
        .arg(
            switch(
                "all",
                "remove also what can be resumed",
                "Remove also what can be resumed, and unfinished outputs, where no DIR is named; \
             of a DIR that is named everything is removed anyway.",
            )
            .short('a'),
        )
}

/// `ascot man`.
pub fn man() -> Command {
    tool("man")
        .about("Print or install the manual pages")
        .long_about(
            "Print a manual page in roff (ascot man sort | man -l -), or write all of them to a \
             directory.",
        )
        .override_usage("ascot man [COMMAND]\nascot man --dir DIR")
        .after_help("Examples:\n  ascot man sort | man -l -\n  ascot man --dir ~/.local/share/man/man1")
        .arg(
            operand(
                "page",
                "COMMAND",
                "which page: sort, gen, ... (default: ascot itself)",
                "The command whose page to print; that of ascot itself if not given.",
            )
            .required(false),
        )
        .arg(dir_option(
            "dir",
            "write all pages to DIR",
            "Write all pages to DIR: ascot.1, ascot-sort.1 and so on.",
        ))
}

/// `ascot completions`.
pub fn completions() -> Command {
    tool("completions")
        .about("Print completions for a shell")
        .long_about(
            "Print a script that completes ascot's commands and flags, for bash, elvish, fish, \
             powershell or zsh. In bash, fish and zsh it completes values, too: of --key the columns of the \
             CSV file on the line, of --format the layouts, of --memory usual sizes.",
        )
        .override_usage("ascot completions SHELL")
        .after_help(
            "Examples:\n\
             \x20 ascot completions bash > ~/.local/share/bash-completion/completions/ascot\n\
             \x20 ascot completions fish > ~/.config/fish/completions/ascot.fish",
        )
        .arg(operand(
            "shell",
            "SHELL",
            "bash, elvish, fish, powershell or zsh",
            "The shell: bash, elvish, fish, powershell or zsh.",
        ))
        // The call that the scripts make: `completions values FLAG --word WORD -- WORDS`.
        .arg(asked("flag", "whose values are asked for"))
        .arg(asked("word", "how the value begins").long("word"))
        .arg(asked("words", "the line so far").last(true).num_args(0..))
}

/// An argument that only completion scripts pass.
fn asked(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).hide(true).allow_hyphen_values(true).help(help).long_help(format!("For scripts: {help}."))
}

/// `ascot help`.
pub fn help() -> Command {
    tool("help").about("Show the help of a command").override_usage("ascot help [COMMAND]").arg(
        operand(
            "command",
            "COMMAND",
            "which command",
            "The command to tell about; ascot itself if not given.",
        )
        .required(false),
    )
}

fn threads() -> Arg {
    option(
        "threads",
        "N",
        "threads to compute with (default: one a core)",
        "Threads to compute with; one a core if not given.",
    )
}

fn file_output(help: &'static str) -> Arg {
    file_option("output", help, "Write to FILE instead of standard output.").short('o').action(ArgAction::Set)
}
