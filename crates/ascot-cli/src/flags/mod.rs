//! Every command and flag, defined once: the parser, the one-screen help, the man pages and the completions all come
//! from these definitions.
//!
//! Each flag has two texts: a few words for the screen (`help`) and the full description for the manual
//! (`long_help`). A test fails for a flag without either.

mod flow;
mod index;
mod lab;
mod lab_disk;
mod lab_net;
mod lab_sort;
mod lab_streams;
mod parts;
mod sort;
mod theory;
mod tools;
mod trace;
mod views;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, Command, ValueHint};

/// Orders of lines; shown in columns.
pub const ORDERING: &str = "Ordering lines";
/// The records and their keys.
pub const RECORDS: &str = "Records and keys";
/// The work to do.
pub const JOB: &str = "The job";
/// The resources it may use.
pub const RESOURCES: &str = "Memory, disks, processors";
/// The destinations of results and messages.
pub const OUTPUT: &str = "Output and report";

/// Long flags of the sort command, which may be abbreviated as in that command.
pub const COMMAND_FLAGS: [&str; 30] = [
    "batch-size",
    "buffer-size",
    "check",
    "compress-program",
    "debug",
    "dictionary-order",
    "field-separator",
    "files0-from",
    "general-numeric-sort",
    "help",
    "human-numeric-sort",
    "ignore-case",
    "ignore-leading-blanks",
    "ignore-nonprinting",
    "key",
    "merge",
    "month-sort",
    "numeric-sort",
    "output",
    "parallel",
    "random-sort",
    "random-source",
    "reverse",
    "sort",
    "stable",
    "temporary-directory",
    "unique",
    "version",
    "version-sort",
    "zero-terminated",
];

const EXAMPLES: &str = "Examples:
  ascot sort access.log -k4,4 -t' ' --memory 1GiB -o sorted.log
  ascot sort big.rec --format fixed:100 --key 0..10 -o out.rec --explain
  ascot gen 10M | ascot sort --format fixed:100 --key 0..10 | ascot check";

/// A command's name and its constructor.
type Named = (&'static str, fn() -> Command);

/// The commands, in the order in which help lists them.
const COMMANDS: [Named; 20] = [
    ("sort", sort::command),
    ("merge", parts::merge),
    ("split", parts::split),
    ("reshape", parts::reshape),
    ("flow", flow::flow),
    ("view", views::view),
    ("mount", views::mount),
    ("index", index::index),
    ("gen", tools::generate),
    ("check", tools::check),
    ("clean", tools::clean),
    ("probe", theory::probe),
    ("plan", theory::plan),
    ("simulate", theory::simulate),
    ("lab", lab::lab),
    ("trace", trace::trace),
    ("dash", tools::dash),
    ("man", tools::man),
    ("completions", tools::completions),
    ("help", tools::help),
];

/// The whole command.
pub fn root() -> Command {
    frame().subcommands(COMMANDS.map(|(_, command)| command()))
}

/// The commands needed for a line whose first argument is `word`: building all of them takes a considerable share of
/// a short sort's time.
pub fn root_for(word: Option<&str>) -> Command {
    let named = COMMANDS.iter().find(|(name, _)| Some(*name) == word);
    match (named, word) {
        (Some((_, command)), _) => frame().subcommand(command()),
        (None, Some("-V" | "--version")) => frame(),
        (None, _) => root(),
    }
}

/// Whether a flag of `ascot sort` defines records or their order.
pub fn says_an_order(id: &str) -> bool {
    let flags = [sort::ordering(), sort::records(), sort::layouts()];
    id == "stable" || flags.iter().flatten().any(|flag| flag.get_id() == id)
}

/// All subcommands of `command`, at every level.
#[cfg(test)]
pub fn all_below(command: &Command) -> Vec<&Command> {
    command.get_subcommands().flat_map(|sub| std::iter::once(sub).chain(all_below(sub))).collect()
}

/// The command without its subcommands.
fn frame() -> Command {
    Command::new("ascot")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Sort, merge and split files far larger than memory")
        .long_about(
            "Ascot sorts, merges, splits and reshapes files far larger than memory within a fixed amount of \
             memory. It predicts how long a job takes and why, and reports afterwards where the time went. \
             Spilled data is checksummed, outputs are written whole or not at all, and killed jobs can be \
             resumed.",
        )
        .override_usage("ascot COMMAND [ARGUMENT]...")
        .before_help("ascot COMMAND --help shows one screen; man ascot-sort has all details.")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(help_flag(Some('h')))
        .arg(version_flag().short('V'))
}

/// `--help`, with a short form if the letter is free.
fn help_flag(short: Option<char>) -> Arg {
    let flag = Arg::new("help").long("help").action(ArgAction::Help);
    let flag = flag.help("show this screen").long_help("Show one screen of help and exit.");
    match short {
        Some(letter) => flag.short(letter),
        None => flag,
    }
}

/// A required argument without a flag.
fn operand(id: &'static str, value: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    Arg::new(id).value_name(value).required(true).help(help).long_help(long_help)
}

/// An operand that names a directory.
fn dir_operand(id: &'static str, value: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    path(operand(id, value, help, long_help), ValueHint::DirPath)
}

/// The files a command reads.
fn files(help: &'static str, long_help: &'static str) -> Arg {
    path(operand("files", "FILE", help, long_help), ValueHint::FilePath).num_args(0..).required(false)
}

/// A flag without a value, spelled as its identifier.
fn switch(id: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::SetTrue).help(help).long_help(long_help)
}

/// A flag with a value, spelled as its identifier; the last one given wins.
fn option(id: &'static str, value: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    Arg::new(id)
        .long(id)
        .action(ArgAction::Set)
        .value_name(value)
        .help(help)
        .long_help(long_help)
        .allow_hyphen_values(true)
}

/// A flag that names a file.
fn file_option(id: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    path(option(id, "FILE", help, long_help), ValueHint::FilePath)
}

/// A flag that names a directory.
fn dir_option(id: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    path(option(id, "DIR", help, long_help), ValueHint::DirPath)
}

/// An argument that takes any path; `hint` is its kind, for completions.
fn path(argument: Arg, hint: ValueHint) -> Arg {
    argument.value_parser(OsStringValueParser::new()).value_hint(hint)
}

/// A flag with a value that may be given several times.
fn repeated(id: &'static str, value: &'static str, help: &'static str, long_help: &'static str) -> Arg {
    option(id, value, help, long_help).action(ArgAction::Append)
}

/// An option that takes one of a few words.
fn choice<const N: usize>(
    id: &'static str,
    value: &'static str,
    words: [&'static str; N],
    help: &'static str,
    long_help: &'static str,
) -> Arg {
    option(id, value, help, long_help).value_parser(words)
}

/// The flag that writes the requests of a job.
fn trace() -> Arg {
    file_option(
        "trace",
        "write every request to its files",
        "When the job is done, write its requests to files (time, file, offset, bytes, read or write), and the memory \
         that each stream holds, to FILE, a trace. ascot trace show FILE counts it; ascot trace plot FILE draws it; \
         ascot trace replay FILE repeats it on another volume.",
    )
    .hide_short_help(true)
}

/// The flag that samples the use of resources, of every command with a job.
fn monitor() -> Arg {
    option(
        "monitor",
        "TIME",
        "sample processors, memory, disks, network: =0.5s",
        "Sample the use of resources every TIME while the job runs, and show it at the end, on standard error and in \
         the report (of a study: on its page): how busy each core was, the memory and the processor time of the \
         process, the bytes of each disk and network interface. TIME is 0.5s, 100ms, 1m and the like, at least 50ms; \
         one second if it is left out. With --quiet only the report shows it.",
    )
    .num_args(0..=1)
    .require_equals(true)
    .default_missing_value("1s")
}

/// `--version`.
fn version_flag() -> Arg {
    let flag = Arg::new("version").long("version").action(ArgAction::Version);
    flag.help("print the version").long_help("Print the version and exit.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_flag(check: impl Fn(&Command, &Arg)) {
        let mut root = root();
        root.build();
        for command in std::iter::once(&root).chain(all_below(&root)) {
            command.get_arguments().for_each(|flag| check(command, flag));
        }
    }

    #[test]
    fn definitions_are_consistent() {
        root().debug_assert();
    }

    #[test]
    fn commands_are_found_by_their_names() {
        for (name, command) in COMMANDS {
            assert_eq!(command().get_name(), name);
            let only = root_for(Some(name));
            assert!(only.get_subcommands().map(Command::get_name).eq([name]));
        }
        assert_eq!(root_for(Some("srot")).get_subcommands().count(), COMMANDS.len());
        assert_eq!(root_for(None).get_subcommands().count(), COMMANDS.len());
    }

    #[test]
    fn every_flag_has_both_texts() {
        each_flag(|command, flag| {
            let place = format!("{} {}", command.get_name(), flag.get_id());
            let help = flag.get_help().unwrap_or_else(|| panic!("{place} lacks help")).to_string();
            let long = flag.get_long_help().unwrap_or_else(|| panic!("{place} lacks long help")).to_string();
            assert!(!help.ends_with('.') && help.len() <= 56, "{place}: {help}");
            assert!(long.ends_with('.'), "{place}: {long}");
        });
    }

    #[test]
    fn every_flag_of_the_sort_command_is_there() {
        let root = root();
        let sort = root.find_subcommand("sort").unwrap();
        let shorts: String = sort.get_arguments().filter_map(Arg::get_short).collect();
        for letter in "bdfgiMhnRrVcCkmosStTuz".chars() {
            assert!(shorts.contains(letter), "-{letter}");
        }
        let longs: Vec<&str> =
            sort.get_arguments().filter_map(Arg::get_long_and_visible_aliases).flatten().collect();
        for name in COMMAND_FLAGS {
            assert!(longs.contains(&name), "--{name}");
        }
    }
}
