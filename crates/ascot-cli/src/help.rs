//! The `--help` screen, made from the definitions of the flags.
//!
//! At most 40 lines of 80 columns. Flags appear under their headings in the order of their definition; flags hidden
//! from short help appear only in the manual.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use crate::flags::ORDERING;

const COLUMNS: usize = 80;
const COLUMN_OF_TEXT: usize = 24;

/// The screen of `command`, called as `name` ("ascot sort").
pub fn screen(command: &Command, name: &str) -> String {
    let mut text = String::new();
    let usage = command.get_overridden_usage().map(ToString::to_string);
    let usage = usage.unwrap_or_else(|| format!("{name} COMMAND [ARGUMENT]..."));
    for (index, line) in usage.lines().enumerate() {
        let _ = writeln!(text, "{} {line}", if index == 0 { "Usage:" } else { "   or:" });
    }
    if let Some(about) = command.get_about() {
        let _ = writeln!(text, "{about}.");
    }
    if let Some(more) = command.get_before_help() {
        let _ = writeln!(text, "{more}");
    }
    write_commands(&mut text, command);
    for heading in headings(command) {
        write_group(&mut text, command, heading.as_deref());
    }
    if let Some(examples) = command.get_after_help() {
        let _ = writeln!(text, "\n{examples}");
    }
    text
}

fn write_commands(text: &mut String, command: &Command) {
    if !command.has_subcommands() {
        return;
    }
    text.push_str("\nCommands\n");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "  {:12} {about}", sub.get_name());
    }
}

/// Headings in the order of definition; flags without one come last.
fn headings(command: &Command) -> Vec<Option<String>> {
    let mut result: Vec<Option<String>> = Vec::new();
    for flag in command.get_arguments().filter(|flag| is_shown(flag)) {
        let heading = flag.get_help_heading().map(str::to_owned);
        if heading.is_some() && !result.contains(&heading) {
            result.push(heading);
        }
    }
    result.push(None);
    result
}

fn is_shown(flag: &Arg) -> bool {
    !flag.is_hide_set() && !flag.is_hide_short_help_set()
}

fn write_group(text: &mut String, command: &Command, heading: Option<&str>) {
    let flags: Vec<&Arg> =
        command.get_arguments().filter(|flag| is_shown(flag) && flag.get_help_heading() == heading).collect();
    if flags.is_empty() {
        return;
    }
    match heading {
        Some(heading) => {
            let _ = writeln!(text, "{heading}");
        }
        None => text.push('\n'),
    }
    if heading == Some(ORDERING) {
        write_columns(text, &flags);
        return;
    }
    for flag in flags {
        let name = spelling(flag);
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "  {name:width$} {help}", width = COLUMN_OF_TEXT - 3);
    }
}

/// Single letters with a few words each, three to a line.
fn write_columns(text: &mut String, flags: &[&Arg]) {
    let cell = |flag: &&Arg| {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        match flag.get_short() {
            Some(letter) => format!("-{letter} {help}"),
            None => format!("{} {help}", spelling(flag)),
        }
    };
    let cells: Vec<String> = flags.iter().map(cell).collect();
    let width = (COLUMNS - 2) / 3;
    for row in cells.chunks(3) {
        let line: String = row.iter().map(|cell| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

/// `-k, --key SPEC`; the name of a positional.
fn spelling(flag: &Arg) -> String {
    let value = match flag.get_action() {
        ArgAction::Set | ArgAction::Append => flag.get_value_names().and_then(|names| names.first()),
        _ => None,
    };
    let value = value.map(ToString::to_string).unwrap_or_default();
    let name = match (flag.get_short(), flag.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => return value,
    };
    if value.is_empty() { name } else { format!("{name} {value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_screen_is_one_screen() {
        let root = crate::flags::root();
        for command in std::iter::once(&root).chain(crate::flags::all_below(&root)) {
            let text = screen(command, "ascot");
            assert!(
                text.lines().count() <= 40,
                "{}: {} lines\n{text}",
                command.get_name(),
                text.lines().count()
            );
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn sort_shows_three_examples_and_the_order() {
        let root = crate::flags::root();
        let text = screen(root.find_subcommand("sort").unwrap(), "ascot sort");
        let examples = text.lines().filter(|line| line.starts_with("  ascot sort ")).count();
        assert_eq!(examples, 3, "{text}");
        assert!(text.contains("LC_ALL=C"), "{text}");
    }
}
