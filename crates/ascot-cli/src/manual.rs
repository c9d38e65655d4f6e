//! Manual pages, made from the definitions of the flags.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::report_file::write_whole;

const FILE_OF_PAGE: &str = "1";

/// Environment, for the pages of commands that sort.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("ASCOT_MEMORY", "Memory to use where --memory is not given, written as there."),
    ("ASCOT_TMPDIR", "Directories for spills where --temp is not given, separated by colons."),
    ("ASCOT_VOLUME", "The profile of all volumes where --volume is not given, written as there."),
    ("TMPDIR", "A directory for spills where neither --temp nor ASCOT_TMPDIR is given."),
    ("ASCOT_KEEP_ON_INTERRUPT", "If set, not empty and not 0, every sort does as with --keep-on-interrupt."),
    ("XDG_STATE_HOME", "The directory of stored profiles (ascot/profiles); ~/.local/state if not set."),
    ("NO_COLOR", "If set and not empty, no colour on terminals."),
];

/// Exit status 0 and 1 of the pages whose commands answer a question; all others have 0 for success, and no 1.
const ANSWERS: &[(&str, &str, &str)] = &[
    ("ascot", "Done.", "A check found disorder or damage, or a key was not found."),
    ("ascot-sort", "Done; with -c or -C: the input is sorted.", "With -c or -C: the input is not sorted."),
    ("ascot-check", "All records are in order.", "Records are out of order."),
    ("ascot-index", "Done.", "A key was not found (get), or damage was found (verify)."),
    ("ascot-index-get", "Found.", "No key that was asked for was ever written."),
    ("ascot-index-verify", "The directory is whole.", "The directory is damaged."),
];
const STATUS_OF_ERRORS: (&str, &str) = ("2", "An error, named on standard error with what to do about it.");
const STATUS_OF_SIGNALS: (&str, &str) = (
    "129, 130, 143",
    "Stopped by SIGHUP, SIGINT or SIGTERM, after temporary files were removed, or what is kept was made safe. A second \
     signal ends the process at once and leaves its files: ascot clean removes those of jobs, and the next study in \
     the same directory those of a study (ascot lab).",
);

const NOTES: &str = "Order is that of bytes, whatever the locale: the order of the sort command under \
    LC_ALL=C. Results are its results, byte for byte. The output takes its name when it is complete and \
    on the disk, so a job that fails or is killed leaves what was there before.";

/// The page of `ascot` (no command given) or of one of its commands, in roff; `None` if there is no such command.
pub fn page(root: &Command, command: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let Some(subject) = subject(root, command) else { return Ok(None) };
    let examples = subject.get_after_help().map(ToString::to_string);
    let sorts = subject.get_name() == "ascot-sort";
    let exit_status = exit_status(subject.get_name());
    let has_commands = subject.has_subcommands();
    let version = format!("ascot {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(subject).section(FILE_OF_PAGE).source(version).manual("Ascot");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = examples {
        write_examples(&mut page, &examples)?;
    }
    if sorts {
        let mut notes = Roff::new();
        notes.control("SH", ["ORDER AND OUTPUT"]).text([roman(NOTES)]);
        notes.to_writer(&mut page)?;
        write_list(&mut page, "ENVIRONMENT", ENVIRONMENT)?;
    }
    write_list(&mut page, "EXIT STATUS", &exit_status)?;
    Ok(Some(page))
}

/// The exit statuses of a page's command.
fn exit_status(name: &str) -> Vec<(&'static str, &'static str)> {
    let mut list = match ANSWERS.iter().find(|(page, ..)| *page == name) {
        Some((_, yes, no)) => vec![("0", *yes), ("1", *no)],
        None => vec![("0", "Done.")],
    };
    list.extend([STATUS_OF_ERRORS, STATUS_OF_SIGNALS]);
    list
}

/// Writes all pages into `dir`, which it creates; returns their paths.
pub fn write_pages(root: &Command, dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let mut paths = Vec::new();
    let mut names = vec![None];
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        names.push(Some(command.get_name().to_owned()));
        let below =
            command.get_subcommands().map(|below| format!("{}-{}", command.get_name(), below.get_name()));
        names.extend(below.map(Some));
    }
    for command in names {
        let name = command.as_ref().map_or("ascot.1".to_owned(), |command| format!("ascot-{command}.1"));
        if let Some(text) = page(root, command.as_deref())? {
            write_whole(&dir.join(&name), &text)?;
            paths.push(dir.join(name));
        }
    }
    Ok(paths)
}

fn subject(root: &Command, command: Option<&str>) -> Option<Command> {
    match command {
        None => Some(root.clone()),
        Some(name) => {
            // The name of a subcommand has a dash: index-build.
            let nested = name
                .split_once('-')
                .and_then(|(above, below)| root.find_subcommand(above)?.find_subcommand(below));
            let command = root.find_subcommand(name).or(nested)?.clone();
            let full_name = format!("ascot-{name}");
            let called = if nested.is_some() { name.replacen('-', " ", 1) } else { name.to_owned() };
            Some(command.name(full_name.clone()).display_name(full_name).bin_name(format!("ascot {called}")))
        }
    }
}

/// Writes the examples of the help screen under a section heading.
fn write_examples(page: &mut Vec<u8>, examples: &str) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in examples.lines().skip(1) {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff.to_writer(page)
}

fn write_list(page: &mut Vec<u8>, title: &str, entries: &[(&str, &str)]) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, text) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*text)]);
    }
    roff.to_writer(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_every_flag() {
        let root = crate::flags::root();
        let text = String::from_utf8(page(&root, Some("sort")).unwrap().unwrap()).unwrap();
        let plain = text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        for flag in root.find_subcommand("sort").unwrap().get_arguments() {
            if let Some(long) = flag.get_long() {
                assert!(plain.contains(&format!("--{long}")), "--{long}");
            }
        }
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "ENVIRONMENT", "EXIT STATUS"] {
            assert!(
                text.contains(&format!(".SH \"{section}\"")) || text.contains(&format!(".SH {section}")),
                "{section}"
            );
        }
    }

    #[test]
    fn only_commands_that_answer_a_question_have_status_1() {
        let root = crate::flags::root();
        let has_status_1 = |name: &str| {
            let text = String::from_utf8(page(&root, Some(name)).unwrap().unwrap()).unwrap();
            let (_, list) = text.split_once("EXIT STATUS").unwrap();
            list.contains("\\fB1\\fR")
        };
        for name in ["sort", "check", "index-get", "index-verify"] {
            assert!(has_status_1(name), "{name}");
        }
        for name in ["split", "merge", "reshape", "gen", "view", "index-build"] {
            assert!(!has_status_1(name), "{name}");
        }
        // Each entry belongs to an existing page.
        for (name, ..) in ANSWERS.iter().skip(1) {
            assert!(page(&root, name.strip_prefix("ascot-")).unwrap().is_some(), "{name}");
        }
    }

    #[test]
    fn all_pages_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let paths = write_pages(&crate::flags::root(), dir.path()).unwrap();
        let names: Vec<_> = paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        for name in ["ascot.1", "ascot-sort.1", "ascot-gen.1", "ascot-check.1", "ascot-clean.1"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(page(&crate::flags::root(), Some("srot")).unwrap().is_none());
    }
}
