//! The ascot command: it parses, calls the library and shows the result. It contains no algorithm.
//!
//! Standard output carries only data (or the requested answer, such as a plan); messages go to standard error. Exit
//! status: 0 for success, 1 if a check found disorder, 2 for an error. Called through a link named `sort` it is
//! `ascot sort`.
//!
//! ```text
//!   flags/, arguments, values, numbers          a command line: every flag defined once; its value
//!   help, manual, completion                    the same definitions as text
//!   request/, view_flags, volume                the request that the library gets
//!   sort, cluster, flow, views, index,          the commands, one file each
//!     cluster_process, index_build, mounting,
//!     planning, cluster_planning, simulation,
//!     probe, lab, trace, trace_pages,
//!     trace_replay, dash, tools
//!   progress, chart, index_output, terminal,    what the user sees
//!     report_file, job_trace, monitoring,
//!     failure, unpacking
//!   allocator, signals, stack_signals, sys      the process
//! ```

mod allocator;
mod arguments;
mod chart;
mod cluster;
mod cluster_planning;
mod cluster_process;
mod completion;
mod dash;
mod failure;
mod flags;
mod flow;
mod help;
mod index;
mod index_build;
mod index_output;
mod job_trace;
mod lab;
mod manual;
mod monitoring;
mod mounting;
mod numbers;
mod planning;
mod probe;
mod progress;
mod report_file;
mod request;
mod signals;
mod simulation;
mod sort;
mod stack_signals;
mod sys;
mod terminal;
mod tools;
mod trace;
mod trace_pages;
mod trace_replay;
mod unpacking;
mod values;
mod view_flags;
mod views;
mod volume;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use ascot_model::size;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

use failure::{Failure, Result, STATUS_OF_ERROR};
use sys::print;

fn main() -> ExitCode {
    stack_signals::restore();
    ascot_io::emergency::end_by(allocator::end);
    allocator::end_in_order_on_abort();
    sys::raise_open_files_limit();
    sys::report_file_size_limit();
    let words: Vec<OsString> = std::env::args_os().collect();
    match run(words) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    if failure.is_broken_pipe() {
        // Silently, as most commands end when their reader closes the pipe.
        signals::end_by(libc::SIGPIPE);
    }
    let _ = writeln!(std::io::stderr().lock(), "ascot: {failure}");
    ExitCode::from(STATUS_OF_ERROR)
}

/// Runs the command line `words`, which begins with the program's name; returns the exit status.
fn run(mut words: Vec<OsString>) -> Result<u8> {
    if words.first().is_some_and(|program| arguments::program_name(program) == b"sort") {
        words.insert(1, "sort".into());
    }
    let named = [1, 2].map(|at| words.get(at).and_then(|word| word.to_str()).map(str::to_owned));
    let root = flags::root_for(named[0].as_deref());
    let words = spelled_out(words, &root)?;
    match root.try_get_matches_from(&words) {
        Ok(matches) => {
            let status = dispatch(&matches)?;
            if let Some(notice) = ascot_io::threads::notice() {
                progress::closing_notice(&matches, &notice);
            }
            Ok(status)
        }
        Err(error) => explain(&error, &words, &named),
    }
}

/// Handles a line that the parser did not accept: a request for help, or a mistake.
fn explain(error: &clap::Error, words: &[OsString], named: &[Option<String>]) -> Result<u8> {
    let root = flags::root();
    let mut command = &root;
    let mut name = "ascot".to_owned();
    for word in named.iter().map_while(Option::as_deref) {
        let Some(below) = command.find_subcommand(word) else { break };
        command = below;
        name = format!("{name} {word}");
    }
    match error.kind() {
        ErrorKind::DisplayHelp => print(help::screen(command, &name)).map(|()| 0),
        ErrorKind::DisplayVersion => print(concat!("ascot ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| 0),
        _ => Err(failure::from_parser(error, &name, words, command)),
    }
}

/// Rewrites the arguments of `sort`, and of the commands that take its flags, for the parser.
fn spelled_out(mut words: Vec<OsString>, root: &Command) -> Result<Vec<OsString>> {
    const LIKE_SORT: [&str; 4] = ["sort", "merge", "split", "reshape"];
    let word = words.get(1).and_then(|word| word.to_str()).filter(|word| LIKE_SORT.contains(word));
    if let Some(command) = word.and_then(|word| root.find_subcommand(word)) {
        let rest = words.split_off(2);
        if let Some(failure) = failure::from_foreign_flag(&rest, command) {
            return Err(failure);
        }
        words.extend(arguments::rewritten(rest, command));
    }
    Ok(words)
}

fn dispatch(matches: &ArgMatches) -> Result<u8> {
    match matches.subcommand() {
        Some(("sort", matches)) => sort::run(matches),
        Some(("merge" | "reshape", matches)) => sort::merge(matches),
        Some(("split", matches)) => sort::split(matches),
        Some(("flow", matches)) => flow::flow(matches),
        Some(("view", matches)) => views::view(matches),
        Some(("mount", matches)) => mounting::mount(matches),
        Some(("index", matches)) => index::run(matches),
        Some(("gen", matches)) => tools::generate(matches),
        Some(("check", matches)) => tools::check(matches),
        Some(("clean", matches)) => tools::clean(matches),
        Some(("plan", matches)) => planning::run(matches),
        Some(("probe", matches)) => probe::run(matches),
        Some(("simulate", matches)) => simulation::run(matches),
        Some(("lab", matches)) => lab::run(matches),
        Some(("trace", matches)) => trace::run(matches),
        Some(("dash", matches)) => dash::run(matches),
        Some(("man", matches)) => man(matches),
        Some(("completions", matches)) => completions(matches),
        Some((_, matches)) => help_of(values::word(matches, "command")),
        None => help_of(None),
    }
}

fn help_of(name: Option<&str>) -> Result<u8> {
    let root = flags::root();
    match name {
        None => print(help::screen(&root, "ascot")).map(|()| 0),
        Some(name) => match root.find_subcommand(name) {
            Some(command) => print(help::screen(command, &format!("ascot {name}"))).map(|()| 0),
            None => Err(no_such_command(name)),
        },
    }
}

fn man(matches: &ArgMatches) -> Result<u8> {
    let root = flags::root();
    if let Some(dir) = values::path(matches, "dir") {
        manual::write_pages(&root, &dir).map_err(Failure::file(&dir, "cannot write manual pages"))?;
        return Ok(0);
    }
    let name = values::word(matches, "page");
    match manual::page(&root, name.filter(|name| *name != "ascot")).map_err(Failure::Output)? {
        Some(page) => print(&page).map(|()| 0),
        None => Err(no_such_command(name.unwrap_or_default())),
    }
}

fn completions(matches: &ArgMatches) -> Result<u8> {
    let shell = values::word(matches, "shell").unwrap_or_default();
    if shell == "values" {
        let words: Vec<String> = matches.get_many("words").into_iter().flatten().cloned().collect();
        let values = completion::values(
            values::word(matches, "flag").unwrap_or_default(),
            values::word(matches, "word").unwrap_or_default(),
            &words,
        );
        return print(values.iter().map(|value| format!("{value}\n")).collect::<String>()).map(|()| 0);
    }
    match completion::script(flags::root(), shell) {
        Some(script) => print(&script).map(|()| 0),
        None => Err(Failure::usage(
            format!("there are no completions for '{shell}'"),
            "accepted: bash, elvish, fish, powershell, zsh",
        )),
    }
}

fn no_such_command(name: &str) -> Failure {
    Failure::usage(format!("there is no command {name}"), "ascot --help lists them")
}
