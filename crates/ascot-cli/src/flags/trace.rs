//! The flags of `ascot trace`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use super::tools::tool;
use super::{choice, dir_option, file_option, monitor, operand, option, path, switch};

/// `ascot trace`.
pub fn trace() -> Command {
    tool("trace")
        .about("Record what a program does to its files, and count it")
        .long_about(
            "Record the I/O of any program and its children in a trace: every request with its file, its offset and \
             its bytes. Show the runs and switches of a trace, draw them, compare them with those of other programs, \
             cut a phase out of a trace, replay it, or export it for other tools.",
        )
        .override_usage("ascot trace COMMAND [ARGUMENT]...")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .after_help(
            "Examples:\n\
             \x20 ascot trace record -o run.trace -- sort -S 1G big.txt -o out.txt\n\
             \x20 ascot trace show run.trace\n\
             \x20 ascot trace plot run.trace -o seeks.html",
        )
        .subcommands([record(), convert(), show(), plot(), compare(), cut(), replay(), export()])
}

fn record() -> Command {
    tool("record")
        .about("Run a program and record its I/O")
        .long_about(
            "Run a program under strace, with its children, and write a trace. The program has the input, the outputs \
             and the directory of this command; its exit status is that of this command, and if a signal ended it, \
             this command ends by that signal. The trace is written in all of these cases. It replaces no file that \
             the program names or opens; with -o -, the program writes its output to standard error. Only calls that \
             succeeded count, with the bytes that they moved. Pipes, sockets and terminals are left out; so are mapped \
             files and requests through io_uring, which strace does not see. With --block, the trace has the requests \
             that disks get instead, which the kernel reports to root.",
        )
        .override_usage(
            "ascot trace record -o TRACE [--keep-log] -- PROGRAM [ARGUMENT]...\n\
             ascot trace record --block -o TRACE -- PROGRAM [ARGUMENT]...",
        )
        .after_help(
            "Examples:\n\
             \x20 ascot trace record -o run.trace -- sort -S 1G big.txt -o out.txt\n\
             \x20 sudo ascot trace record --block -o run.trace -- sort -S 1G big.txt -o out.txt\n\
             \x20 ascot trace record -o run.trace -- sh -c 'gzip -k big.txt && rm big.txt'",
        )
        .arg(trace_output())
        .arg(switch(
            "keep-log",
            "keep the log of strace as TRACE.log",
            "Keep the log of strace beside the trace, as TRACE.log.",
        ).conflicts_with("block"))
        .arg(switch(
            "block",
            "record what disks see (needs root)",
            "Record the requests that disks get instead of calls: also those of mapped files, io_uring and libaio, \
             reads ahead, and the writing of dirty pages, which the kernel does for the program. They are attributed \
             to the files that the program opens. It needs root, and neither strace nor other tools.",
        ))
        .arg(option(
            "buffer",
            "SIZE",
            "kernel memory for each processor (default: 2MiB)",
            "Memory of the kernel for each processor, in which it keeps requests until they are read; 2MiB if not \
             given. If it is too small, the trace says how many events are lost.",
        ).requires("block"))
        .arg(
            operand(
                "command",
                "PROGRAM",
                "program to run, with its arguments",
                "Program to run, with its arguments.",
            )
            .value_parser(OsStringValueParser::new())
            .num_args(1..)
            .last(true),
        )
}

fn convert() -> Command {
    tool("convert")
        .about("Convert a log of strace that was made elsewhere")
        .long_about(
            "Convert a log of strace to a trace. The log must have been made with at least the flags -f -ttt -y, with \
             -o, and with all system calls, or those that ascot trace record --keep-log shows. Every name that can be \
             one of a file counts as one, and the lengths of files are those that the log shows.",
        )
        .override_usage("ascot trace convert LOG [--directory DIR] -o TRACE")
        .after_help(
            "Examples:\n\
             \x20 strace -f -ttt -y -s 0 -o run.log -- sort big.txt -o out.txt\n\
             \x20 ascot trace convert run.log -o run.trace",
        )
        .arg(path(operand("log", "LOG", "the log", "The log."), ValueHint::FilePath))
        .arg(dir_option(
            "directory",
            "where the program started (default: /)",
            "Directory in which the program started, for names that are relative to it; / if not given.",
        ))
        .arg(trace_output())
}

fn show() -> Command {
    tool("show")
        .about("Count the requests, runs and switches of a trace")
        .long_about(
            "Show the census of a trace: processes, files, events, bytes, and the runs and switches. A run is a \
             sequence of requests of which each begins where the one before ended, in the same file, whichever process \
             made them; each run begins with a switch. Attempts are calls that moved a position, and requests at an \
             offset elsewhere than the last one of their descriptor.",
        )
        .override_usage("ascot trace show TRACE [--files N] [--json]")
        .after_help("Examples:\n\x20 ascot trace show run.trace\n\x20 ascot trace show run.trace --json")
        .arg(trace_file())
        .arg(option(
            "files",
            "N",
            "files to list, those with most bytes first",
            "Number of files to list, those with most bytes first; 10 if not given. JSON has all of them.",
        ))
        .arg(switch("json", "print JSON", "Print the census as JSON, for programs."))
}

fn plot() -> Command {
    tool("plot")
        .about("Draw the requests of a trace on an HTML page")
        .long_about(
            "Draw the offset of every request against its number or its time on an HTML page that needs nothing else: \
             zoom and move it in a browser. The page also has the rates over time, the counts of ascot trace show, and \
             the runs of each file.",
        )
        .override_usage("ascot trace plot TRACE -o PAGE")
        .after_help("Examples:\n\x20 ascot trace plot run.trace -o seeks.html")
        .arg(trace_file())
        .arg(page_output().required(true))
}

fn compare() -> Command {
    tool("compare")
        .about("Compare traces: a table, and a page with all seek charts")
        .long_about(
            "Compare traces: bytes, events, files, switches attempted and taken, and the mean run, a column for each \
             trace. With a profile, also the time and the rate of a replay on the virtual disk; with the size of the \
             data, also the number of passes. The page has the seek charts of all traces side by side, with equal \
             scales or with those of each trace.",
        )
        .override_usage("ascot trace compare TRACE... [-o PAGE] [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot trace compare a.trace b.trace -o page.html\n\
             \x20 ascot trace compare a.trace b.trace --on array24.toml --data 8GB",
        )
        .arg(
            path(operand("traces", "TRACE", "the traces", "The traces."), ValueHint::FilePath)
                .required(true)
                .num_args(1..),
        )
        .arg(page_output())
        .arg(path(
            option(
                "on",
                "PROFILE",
                "replay on the virtual disk of a profile",
                "Also replay on the virtual disk. PROFILE is a file (docs/formats/volume.md) or a kind of volume, such \
                 as rotational or flash.",
            ),
            ValueHint::FilePath,
        ))
        .arg(option(
            "data",
            "SIZE",
            "size of the data, for the number of passes",
            "Size of the data that the programs processed. A pass reads and writes all of it once.",
        ))
        .arg(switch("json", "print JSON", "Print the measures of all traces as JSON, for programs."))
}

fn cut() -> Command {
    tool("cut")
        .about("Cut a time range out of a trace")
        .long_about(
            "Write the events of a time range to another trace, such as one phase of a job. The times are those since \
             the start of the recording; those of the new trace begin at the start of the range.",
        )
        .override_usage("ascot trace cut TRACE [--from TIME] [--to TIME] -o TRACE")
        .after_help("Examples:\n\x20 ascot trace cut run.trace --from 40s --to 95s -o merge.trace")
        .arg(trace_file())
        .arg(option(
            "from",
            "TIME",
            "start of the range: 40s, 1.5m, 500ms",
            "Start of the range since the start of the recording: 40s, 1.5m, 500ms. The start of the recording if not \
             given.",
        ))
        .arg(option(
            "to",
            "TIME",
            "end of the range, excluded",
            "End of the range, which is excluded. The end of the recording if not given.",
        ))
        .arg(trace_output())
}

fn replay() -> Command {
    tool("replay")
        .about("Replay a trace on a volume, or on the virtual disk")
        .long_about(
            "Replay the requests of a trace. All files of the trace lie on one volume, each of them contiguous; \
             deleted files leave their space to others. With a directory, one preallocated file without a name is the \
             volume; requests are rounded outward to whole blocks, bypass the page cache, and follow one after the \
             other. With a profile, the virtual disk computes the time and the switches of a device that is not there.",
        )
        .override_usage("ascot trace replay TRACE --on DIR|PROFILE [OPTION]...")
        .after_help(
            "Examples:\n\
             \x20 ascot trace replay run.trace --on /data --repeat 5\n\
             \x20 ascot trace replay run.trace --on array24.toml",
        )
        .arg(trace_file())
        .arg(
            path(
                option(
                    "on",
                    "WHERE",
                    "directory, file of a profile, or kind of volume",
                    "Directory on the volume, file of a profile (docs/formats/volume.md), or kind of volume, such as \
                     rotational or flash.",
                ),
                ValueHint::AnyPath,
            )
            .required(true),
        )
        .arg(choice(
            "timing",
            "WORD",
            ["fast", "recorded"],
            "fast (default), or recorded: not before its time",
            "When requests start: fast, when the one before has ended, or recorded, then but not before the recorded \
             time.",
        ))
        .arg(option(
            "repeat",
            "N",
            "repetitions (default 1)",
            "Number of repetitions; the result is their median, with half of the distance between the shortest and the \
             longest.",
        ))
        .arg(monitor())
        .arg(switch("json", "print JSON", "Print the result as JSON, for programs."))
}

fn export() -> Command {
    tool("export")
        .about("Write a trace as CSV, or as a log that fio replays")
        .long_about(
            "Write the events of a trace as CSV, or its requests as a log that fio replays. The log names \
             files of its own, not the recorded ones, which a replay would overwrite.",
        )
        .override_usage(
            "ascot trace export TRACE --csv FILE\nascot trace export TRACE --fio FILE [--fio-dir DIR] [--timing WORD]\n\
             ascot trace export TRACE --buckets FILE",
        )
        .after_help(
            "Examples:\n\
             \x20 ascot trace export run.trace --csv -\n\
             \x20 ascot trace export run.trace --fio run.log\n\
             \x20 fio --name=replay --read_iolog=run.log\n\
             \x20 ascot trace export run.trace --fio timed.log --timing recorded",
        )
        .arg(trace_file())
        .arg(file_option(
            "csv",
            "write all events to FILE (-: standard output)",
            "Write all events to FILE as CSV; - is standard output.",
        ))
        .arg(file_option(
            "buckets",
            "write the memory of each stream to FILE as CSV",
            "Write the bytes that each stream of a job of Ascot holds in memory to FILE as CSV, a line for each stream \
             at each turn, beside the size that theory predicts for its place; - is standard output.",
        ))
        .arg(file_option(
            "fio",
            "write the requests to FILE as a log of fio",
            "Write the requests to FILE as a log of fio.",
        ))
        .arg(dir_option(
            "fio-dir",
            "files for fio (default: FILE.files)",
            "Directory of the files that the log names; FILE.files if not given. It is made, and gets a sparse file \
             for each file of the trace, as long as the requests reach.",
        ))
        .arg(choice(
            "timing",
            "WORD",
            ["fast", "recorded"],
            "times for fio: fast (default, none), or recorded",
            "How fio replays the requests: fast, each when the one before has ended, or recorded, with the recorded \
             times (fio 3.31 or newer).",
        ))
}

/// The trace that a command reads.
fn trace_file() -> Arg {
    path(operand("trace", "TRACE", "the trace", "The trace."), ValueHint::FilePath)
}

/// The trace that a command writes.
fn trace_output() -> Arg {
    let output = Arg::new("output").short('o').long("output").action(ArgAction::Set).value_name("TRACE");
    let output =
        output.help("the trace to write").long_help("The trace to write. It appears when it is complete.");
    path(output, ValueHint::FilePath).required(true)
}

/// The page that a command writes.
fn page_output() -> Arg {
    let output = Arg::new("output").short('o').long("output").action(ArgAction::Set).value_name("PAGE");
    let output =
        output.help("the page to write").long_help("The page to write. It appears when it is complete.");
    path(output, ValueHint::FilePath)
}
