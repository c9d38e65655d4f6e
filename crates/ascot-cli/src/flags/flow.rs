//! The flags of `ascot flow`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use super::sort::{job, layouts, memory_and_disks, ordering, output, records, resources};
use super::{JOB, ORDERING, OUTPUT, RECORDS, RESOURCES, help_flag, option, switch};

/// The streams of a program.
const STREAMS: &str = "Streams and program";

/// `ascot flow`.
pub fn flow() -> Command {
    let only = |flags: Vec<Arg>, ids: &[&str]| -> Vec<Arg> {
        flags.into_iter().filter(|flag| ids.contains(&flag.get_id().as_str())).collect()
    };
    Command::new("flow")
        .about("Run a program on n input and m output files in long runs")
        .long_about(
            "Run COMMAND with one pipe for each input and output, read the input files and write the output \
             files in runs that suit the volume (--volume), within --memory. The environment of COMMAND names \
             the descriptors: ASCOT_IN_0, ASCOT_IN_1, ... to read from and ASCOT_OUT_0, ... to write to; \
             ASCOT_INPUTS and ASCOT_OUTPUTS are their numbers. If there is only one input, it is standard input \
             (descriptor 0); if there is only one output, it is standard output (descriptor 1). With several \
             inputs standard input is empty. COMMAND may read and write its streams in any order. It must read \
             all of its inputs and end with status 0; the outputs then appear together, otherwise none does. \
             Inputs and outputs may also be pipes, sockets and devices, which cost no switch.",
        )
        .override_usage("ascot flow [OPTION]... -- COMMAND [ARGUMENT]...")
        .before_help("COMMAND reads descriptors ASCOT_IN_0, ... and writes ASCOT_OUT_0, ...")
        .after_help(
            "Examples:\n\
             \x20 ascot flow --inputs a b --outputs x y z -- ./distribute\n\
             \x20 ascot flow --inputs a b --merge-by 2,2n --outputs x y -- ./route\n\
             \x20 ascot flow --inputs big.csv --outputs small.gz -- gzip",
        )
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .next_help_heading(STREAMS)
        .args(streams())
        .next_help_heading(ORDERING)
        .args(ordering().into_iter().map(|flag| flag.hide_short_help(true)))
        .next_help_heading(RECORDS)
        .args(records().into_iter().map(merged))
        .args(layouts())
        .next_help_heading(JOB)
        .args(only(job(), &["explain"]))
        .next_help_heading(RESOURCES)
        .args(only(memory_and_disks(), &["memory", "buffer-size"]))
        .args(only(resources(), &["volume", "threads"]).into_iter().map(|flag| flag.hide_short_help(false)))
        .next_help_heading(OUTPUT)
        .args(only(output(), &["report", "trace", "monitor", "progress", "quiet", "verbose"]))
        .arg(help_flag(None).hide_short_help(true))
}

fn streams() -> Vec<Arg> {
    vec![
        files(
            "inputs",
            "files, pipes or sockets that COMMAND reads",
            "Inputs of COMMAND, in the order of ASCOT_IN_0, ASCOT_IN_1, ...; - is standard input.",
        ),
        files(
            "outputs",
            "files, pipes or sockets that COMMAND writes",
            "Outputs of COMMAND, in the order of ASCOT_OUT_0, ASCOT_OUT_1, ...; - is standard output. All files \
             appear when COMMAND has ended with status 0, or none does.",
        ),
        option(
            "alpha",
            "A",
            "first guess of bytes read / bytes moved (0.5)",
            "The share of reading in all bytes of files that move, with which the job begins: 0.5 if COMMAND \
             copies, more if it drops data, less if it writes more than it reads. The job measures the share \
             while it runs and follows it.",
        ),
        option(
            "idle-timeout",
            "TIME",
            "fail if COMMAND moves no byte for so long",
            "End COMMAND with an error, which names the stream it may wait for, if it has neither read nor \
             written for TIME: 30 or 30s, 500ms, 5m, 2h. Without this flag it may take any time, because a \
             program that is stuck looks like a slow one.",
        ),
        switch(
            "allow-unread",
            "COMMAND may leave inputs unread, as head does",
            "COMMAND may close its streams before it has read all of its inputs, as head does. Without this \
             flag that is an error, because data may be lost.",
        ),
        switch(
            "merge",
            "inputs are sorted: one ordered stream of all",
            "Inputs are sorted files. COMMAND gets one stream, on standard input, of the records of all inputs \
             in order: by the whole record, or by number if the format is one of numbers.",
        ),
        Arg::new("command")
            .value_name("COMMAND")
            .num_args(1..)
            .last(true)
            .value_parser(OsStringValueParser::new())
            .value_hint(ValueHint::CommandWithArguments)
            .help("the program and its arguments, after --")
            .long_help("The program to run and its arguments, after --."),
    ]
}

fn files(id: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    Arg::new(id)
        .long(id)
        .value_name("FILE")
        .num_args(1..)
        .action(ArgAction::Append)
        .value_parser(OsStringValueParser::new())
        .value_hint(ValueHint::FilePath)
        .help(help)
        .long_help(long_help)
}

/// The key of a merge has another name here.
fn merged(flag: Arg) -> Arg {
    if flag.get_id() != "key" {
        return flag.hide_short_help(true);
    }
    flag.long("merge-by").visible_alias("key").help("as --merge, by a key as in ascot merge -k").long_help(
        "As --merge, by this key, in the syntax of -k of ascot merge: fields of lines, columns of CSV, ranges of \
         bytes. May be repeated.",
    )
}
