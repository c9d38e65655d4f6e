//! The flags of the commands other than `ascot sort`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command};

use super::{
    dir_operand, dir_option, file_option, files, help_flag, monitor, operand, option, repeated, switch,
};

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
            "Write COUNT records of the sort benchmark: 100 bytes each, the first 10 of them the key; the \
             bytes are those of the benchmark's own generator for the same record numbers.",
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
            "number of records: 1000, 1k, 100M (powers of 1000)",
            "Number of records: 1000, 1_000, 1k, 100M, 1G (powers of 1000).",
        ))
        .arg(option(
            "start",
            "N",
            "number of the first record (default 0)",
            "Number of the first record, 0 if not given. It allows making a file in parts.",
        ))
        .arg(switch(
            "ascii",
            "printable records, one per line",
            "Printable records of 100 bytes, each a line that ends in CR LF.",
        ))
        .arg(switch("skew", "skewed keys", "The benchmark's skewed keys: many records share few keys."))
        .arg(threads())
        .arg(file_output("write to FILE instead of standard output"))
        .arg(monitor())
}

/// `ascot check`.
pub fn check() -> Command {
    tool("check")
        .about("Check order, count records and duplicates, print the checksum")
        .long_about(
            "Read FILEs, in order, as one sorted sequence: check that no key is smaller than the one before, \
             count records and duplicate keys, and add up the benchmark's checksum, which does not depend on \
             order. A FILE that is a directory stands for the files and views in it, in the order of their names, \
             as a sort on a cluster writes them. Views are merged as they are read. Exit status 1 if a record is \
             out of order.",
        )
        .override_usage("ascot check [OPTION]... [FILE]...")
        .after_help(
            "Examples:\n\
             \x20 ascot check sorted.rec\n\
             \x20 ascot check part1.rec part2.rec part3.rec\n\
             \x20 ascot check out/\n\
             \x20 ascot check ids.sorted --format u64-le",
        )
        .arg(files(
            "files, views, directories to check; - is standard input",
            "Files and views to check, in this order, as one sequence; - or none is standard input. A directory \
             stands for its files and views in the order of their names, numbers by value; names that begin with . \
             or _ are left out.",
        ))
        .arg(option(
            "format",
            "LAYOUT",
            "the format of records (default fixed:100)",
            "The layout of a record, as in ascot sort. If not given: for .csv and .tsv files lines, or rows \
             if the key names a column; lines for .txt and .log; otherwise fixed:100, the layout of the \
             benchmark; for a view, its own layout and key.",
        ))
        .arg(
            repeated(
                "key",
                "SPEC",
                "the key of records (default 0..10)",
                "The key of the records, as in ascot sort. If neither format nor key is given: the whole \
                 line for text files; otherwise 0..10, the key of the benchmark; for a view, its own.",
            )
            .short('k')
            .value_parser(OsStringValueParser::new()),
        )
        .arg(switch(
            "header",
            "the first line or row of each file is a header",
            "The first line or row of each file is a header, as it is if a key names a column. It does not count. A \
             view knows whether it has one.",
        ))
        .arg(threads())
        .arg(monitor())
        .arg(switch(
            "quiet",
            "print nothing; only set the exit status",
            "Print nothing; only the exit status reports the result.",
        ))
}

/// `ascot dash`.
pub fn dash() -> Command {
    tool("dash")
        .about("Serve a live page of jobs on clusters")
        .long_about(
            "Serve a page on the loopback that shows the jobs of this user on clusters (ascot.cluster): nodes, \
             phases, rates, bottlenecks and logs while they run, and the reports of past jobs. It reads files of \
             the jobs and needs no connection to their drivers. Without --control the page changes nothing; \
             every user of this machine can read it. It needs the Python package; ASCOT_PYTHON names a Python \
             that is not python3.",
        )
        .override_usage("ascot dash [--control] [--port N] [JOB]...")
        .after_help(
            "Examples:\n\
             \x20 ascot dash\n\
             \x20 ascot dash --control\n\
             \x20 ascot dash --port 8000 /shared/out.job",
        )
        .arg(
            dir_operand(
                "jobs",
                "JOB",
                "directories of jobs of other users or machines",
                "Directories of jobs that are not in the list of this user, such as those of another machine.",
            )
            .num_args(0..)
            .required(false),
        )
        .arg(switch(
            "control",
            "print a token to stop and start jobs with",
            "Print a token. With it, the page stops jobs, excludes nodes, resumes and starts jobs, and runs \
             DiskBench and NetBench on a cluster. Everyone with the token acts with the rights of this user.",
        ))
        .arg(option("port", "N", "the port (default 7817)", "The port, 7817 if not given; 0 is any free one."))
}

/// `ascot clean`.
pub fn clean() -> Command {
    tool("clean")
        .about("Remove the files that killed jobs left")
        .long_about(
            "Find the directories of killed jobs and remove them with their spills. Running jobs and files \
             that are not Ascot's stay. Without DIR, the command removes only jobs that cannot be resumed; \
             it lists the others, with the command that resumes each, and unfinished outputs, whose spills \
             may be in another directory. Without --temp, spills are beside the output unless the \
             environment names a directory: name that DIR.",
        )
        .override_usage("ascot clean [--dry-run] [--all] [DIR]...")
        .before_help(
            "With DIR, removes everything that killed jobs left there. Without DIR, keeps\n\
             the jobs that can be resumed, and lists each with the command that resumes it.",
        )
        .after_help(
            "Examples:\n  ascot clean --dry-run\n  ascot clean /fast\n  ascot clean /fast/ascot-0123456789ab",
        )
        .arg(
            dir_operand(
                "dirs",
                "DIR",
                "directory of spills (default: the usual ones)",
                "Directories given as --temp, directories of outputs, or job directories: everything that \
                 killed jobs left there is removed. Default: those of ASCOT_TMPDIR, TMPDIR or else /tmp, and \
                 the current directory; jobs there that can be resumed stay.",
            )
            .required(false)
            .num_args(0..),
        )
        .arg(
            switch(
                "dry-run",
                "list, remove nothing",
                "List the jobs and how to resume them; remove nothing.",
            )
            .short('n'),
        )
        .arg(
            switch(
                "all",
                "also remove jobs that can be resumed",
                "Without DIR, remove jobs that can be resumed and unfinished outputs as well. With DIR, \
                 everything is removed anyway.",
            )
            .short('a'),
        )
}

/// `ascot man`.
pub fn man() -> Command {
    tool("man")
        .about("Print or install the manual pages")
        .long_about(
            "Print a manual page in roff (ascot man sort | man -l -), or write all of them to a directory.",
        )
        .override_usage("ascot man [COMMAND]\nascot man --dir DIR")
        .after_help("Examples:\n  ascot man sort | man -l -\n  ascot man --dir ~/.local/share/man/man1")
        .arg(
            operand(
                "page",
                "COMMAND",
                "which page: sort, gen, ... (default: ascot itself)",
                "The command whose page is printed; ascot itself if not given.",
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
            "Print a script that completes ascot's commands and flags, for bash, elvish, fish, powershell or \
             zsh. In bash, fish and zsh it completes values, too: of --key the columns of the CSV file on \
             the line, of --format the layouts, of --memory usual sizes.",
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
        operand("command", "COMMAND", "the command", "The command to describe; ascot itself if not given.")
            .required(false),
    )
}

fn threads() -> Arg {
    option(
        "threads",
        "N",
        "computing threads (default: one for each core)",
        "Number of computing threads; one for each core if not given.",
    )
}

fn file_output(help: &'static str) -> Arg {
    file_option("output", help, "Write to FILE instead of standard output.").short('o').action(ArgAction::Set)
}
