//! Errors that stop a command, and their messages.
//!
//! ```text
//! ascot: what is wrong, with names and numbers
//!   what to do about it
//! ```

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use ascot_device::StoreError;
use ascot_index::IndexError;
use ascot_record::file_format::FileFormat;
use ascot_sort::error::{ErrorKind as SortErrorKind, SortError};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use thiserror::Error;

use crate::size::SizeError;
use crate::unpacking;

/// Exit status of an error.
pub const STATUS_OF_ERROR: u8 = 2;
/// Exit status of a check that found disorder.
pub const STATUS_OF_DISORDER: u8 = 1;

/// Why a command failed. The first line of its text states the problem; further lines, indented, say what to do.
#[derive(Debug, Error)]
pub enum Failure {
    /// Flags that are invalid, alone or together.
    #[error("{0}")]
    Usage(String),
    /// A size or count that could not be read.
    #[error("{flag} {source}")]
    Size {
        /// The flag or variable that was given.
        flag: String,
        /// The problem with it.
        source: SizeError,
    },
    /// A job failed.
    #[error(transparent)]
    Sort(SortError),
    /// An indexed directory could not be written or read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A view could not be mounted.
    #[error(transparent)]
    Mount(#[from] ascot_mount::MountError),
    /// A study of volumes failed.
    #[error(transparent)]
    Disk(#[from] ascot_lab::disk::DiskError),
    /// A study of a network failed.
    #[error(transparent)]
    Net(#[from] ascot_lab::net::NetError),
    /// A program could not be recorded, or a trace could not be read or written.
    #[error(transparent)]
    Trace(#[from] ascot_trace::TraceError),
    /// Stored profiles could not be listed or removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A study failed.
    #[error(transparent)]
    Lab(#[from] ascot_lab::LabError),
    /// A file the command itself reads or writes.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation ("cannot write the report").
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("write failed: standard output: {0}")]
    Output(io::Error),
}

impl From<SortError> for Failure {
    /// Input read as text that is not text gets a message with the command to type instead.
    fn from(error: SortError) -> Failure {
        let SortError::OtherFormat { input, file, format, inputs } = &error else {
            return Failure::Sort(error);
        };
        let words: Vec<_> = std::env::args_os().collect();
        let command = unpacking::command(&words, *format, file.as_deref(), *inputs);
        let table = if *format == FileFormat::Sqlite {
            "\n  TABLE: sqlite3 lists the tables with .tables"
        } else {
            ""
        };
        let not = if format.is_text() { "not UTF-8" } else { "not text" };
        Failure::Usage(format!(
            "{input}: this is {}, {not}\n  convert it to text first: {command}{table}\n  --format lines \
             sorts its bytes as lines",
            format.name()
        ))
    }
}

/// What commands return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The failure of an access to a file, made of the system's error.
    pub fn file(path: impl Into<PathBuf>, doing: &'static str) -> impl Fn(io::Error) -> Failure {
        let path = path.into();
        move |source| Failure::File { path: path.clone(), doing, source }
    }

    /// A mistake in the arguments and the correct form.
    pub fn usage(what: impl AsRef<str>, instead: impl AsRef<str>) -> Failure {
        Failure::Usage(format!("{}\n  {}", what.as_ref(), instead.as_ref()))
    }

    /// Whether the only failure is that the reader of the output closed it.
    pub fn is_broken_pipe(&self) -> bool {
        match self {
            Failure::Sort(error) => error.kind() == SortErrorKind::BrokenPipe,
            Failure::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Failure::Trace(error) => error.is_broken_pipe(),
            _ => false,
        }
    }
}

/// Advice to users who name the program to record, or its flags, among those of `ascot trace record`.
const PROGRAM_AFTER_DASHES: &str =
    "the program and its arguments follow --: ascot trace record -o TRACE -- PROGRAM [ARGUMENT]...";

/// The flag before the argument `invalid` among `words`, if a value of it must follow an equals sign.
fn flag_before<'w>(invalid: &str, words: &'w [OsString], command: &Command) -> Option<&'w str> {
    let at = words.iter().position(|word| *word == *invalid)?;
    let flag = words.get(at.checked_sub(1)?)?.to_str()?;
    let name = flag.strip_prefix("--")?;
    let mut flags = command.get_arguments();
    flags.any(|arg| arg.get_long() == Some(name) && arg.is_require_equals_set()).then_some(flag)
}

/// The parser's error about the arguments `words` in Ascot's form; `name` is the command as called ("ascot sort").
pub fn from_parser(error: &clap::Error, name: &str, words: &[OsString], command: &Command) -> Failure {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => {
            Some(texts.iter().map(|text| text.replace(['<', '>'], "")).collect::<Vec<_>>().join(" or "))
        }
        _ => None,
    };
    let invalid = text(ContextKind::InvalidArg).or_else(|| text(ContextKind::InvalidSubcommand));
    let invalid = invalid.unwrap_or_default();
    let suggested = text(ContextKind::SuggestedArg).or_else(|| text(ContextKind::SuggestedSubcommand));
    let screen = format!("see {name} --help");
    let advice = |subject: &str| match &suggested {
        Some(suggested) => format!("did you mean {suggested}?  ({screen})"),
        None => format!("{subject}{screen}"),
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(advice) = other_name(&invalid, command) {
                return Failure::usage(format!("there is no flag {invalid}"), advice);
            }
            if let Some(failure) = ambiguous(&invalid, command) {
                return failure;
            }
            let dashed = invalid.starts_with('-');
            if name.ends_with(" trace record") && suggested.is_none() {
                let what = if dashed { "there is no flag" } else { "unexpected argument" };
                return Failure::usage(format!("{what} {invalid}"), PROGRAM_AFTER_DASHES);
            }
            if let Some(flag) = flag_before(&invalid, words, command).filter(|_| !dashed) {
                return Failure::usage(
                    format!("unexpected argument {invalid}"),
                    format!("a value of {flag} follows an equals sign: {flag}={invalid}  ({screen})"),
                );
            }
            let what = if dashed { "there is no flag" } else { "unexpected argument" };
            Failure::usage(format!("{what} {invalid}"), advice(if dashed { "flags: " } else { "" }))
        }
        ErrorKind::InvalidSubcommand => {
            Failure::usage(format!("there is no command {invalid}"), advice("commands: "))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let first = if name == "ascot" { "ascot sort sorts; " } else { "commands: " };
            Failure::usage("no command given", format!("{first}{screen}"))
        }
        ErrorKind::InvalidValue => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let flag = invalid.split([' ', '=']).next().unwrap_or_default();
            match error.get(ContextKind::ValidValue) {
                _ if value.is_empty() => Failure::usage(format!("{flag} needs a value"), screen),
                Some(ContextValue::Strings(words)) => Failure::usage(
                    format!("invalid argument '{value}' for {flag}"),
                    format!("accepted: {}", words.join(", ")),
                ),
                _ => Failure::usage(first_line(error), screen),
            }
        }
        ErrorKind::TooManyValues => {
            let flag = invalid.split([' ', '=']).next().unwrap_or_default();
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            Failure::usage(format!("{flag} takes no value, and got '{value}'"), screen)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = invalid.trim_matches(['<', '>']).replace(" or ", " and ");
            Failure::usage(format!("missing: {missing}"), screen)
        }
        _ => Failure::usage(first_line(error), screen),
    }
}

/// Flags of other programs: the meaning, and the flags with that meaning that a command may have.
const OTHER_NAMES: &[(&str, &[&str], &str)] = &[
    ("limit", &["top", "head"], "keeps the first N records"),
    ("lines", &["top", "head"], "keeps the first N records"),
    ("head", &["top"], "keeps the first N records"),
    ("top", &["head"], "takes the first N records"),
    ("delimiter", &["separator"], "sets the byte between fields (-t)"),
    ("delim", &["separator"], "sets the byte between fields (-t)"),
    ("distinct", &["unique"], "keeps the first of equal records (-u)"),
    ("dedup", &["unique"], "keeps the first of equal records (-u)"),
    ("desc", &["reverse"], "puts the largest first (-r)"),
    ("descending", &["reverse"], "puts the largest first (-r)"),
    ("by", &["key"], "names the key to order by (-k)"),
    ("column", &["key"], "names the key to order by (-k)"),
    ("columns", &["key"], "names the key to order by (-k)"),
    ("skip-header", &["header"], "keeps the first row on top, unsorted"),
    ("tmpdir", &["temp"], "names the directory for spills (-T)"),
    ("tmp-dir", &["temp"], "names the directory for spills (-T)"),
    ("jobs", &["threads"], "sets the number of computing threads"),
    ("na-values", &["null"], "names a spelling of null"),
];

/// Features of other programs that Ascot lacks, and their alternatives.
const NOT_OFFERED: &[(&str, &str)] = &[
    (
        "where",
        "ascot does not select records: filter them first, such as awk -F, '$3 > 10' FILE | ascot sort; in \
         an indexed directory use ascot index range --where",
    ),
    (
        "filter",
        "ascot does not select records: filter them first, such as awk -F, '$3 > 10' FILE | ascot sort",
    ),
    (
        "keep",
        "--unique always keeps the first of equal records; --stable and a key put another one first; to keep \
         columns use cut",
    ),
    ("ascending", "records are in ascending order without --reverse, and columns without :desc"),
    ("select", "ascot does not select columns: cut -d, -f1,3 FILE | ascot sort"),
];

/// Ascot's name for `flag`, which `command` does not have, or a note that it has none.
fn other_name(flag: &str, command: &Command) -> Option<String> {
    let plain = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    let has = |name: &str| command.get_arguments().any(|known| known.get_long() == Some(name));
    if let ['-', byte] = flag.chars().collect::<Vec<_>>()[..]
        && byte.is_ascii_punctuation()
        && has("separator")
    {
        return Some(format!("--separator sets the byte between fields: -t '{byte}'"));
    }
    if !flag.starts_with("--") {
        return None;
    }
    let renamed = OTHER_NAMES.iter().find(|(other, ..)| *other == plain);
    if let Some((_, names, does)) = renamed
        && let Some(name) = names.iter().find(|name| has(name))
    {
        return Some(format!("did you mean --{name}?  it {does}"));
    }
    NOT_OFFERED.iter().find(|(other, _)| *other == plain).map(|(_, advice)| (*advice).to_owned())
}

/// The error for `flag` if several flags of `command` begin with it.
fn ambiguous(flag: &str, command: &Command) -> Option<Failure> {
    let begun = flag.strip_prefix("--")?.split('=').next().filter(|begun| !begun.is_empty())?;
    let shown = command.get_arguments().filter(|known| !known.is_hide_set());
    let like: Vec<String> = shown
        .filter_map(|known| known.get_long().filter(|long| long.starts_with(begun)))
        .map(|long| format!("--{long}"))
        .collect();
    let several = like.len() > 1;
    several.then(|| {
        Failure::usage(
            format!("--{begun} is short for several flags"),
            format!("write one of: {}", like.join(", ")),
        )
    })
}

/// The error for the first word that is a flag of other programs only. The parser would read it as an abbreviation of
/// a flag of `command` (`--keep` for `--keep-on-interrupt`).
pub fn from_foreign_flag(words: &[OsString], command: &Command) -> Option<Failure> {
    let flags = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    flags.filter_map(|word| word.strip_prefix("--")).find_map(|flag| {
        let name = flag.split('=').next().unwrap_or_default();
        let (_, advice) = NOT_OFFERED.iter().find(|(other, _)| *other == name)?;
        let known = command.get_arguments().any(|known| known.get_long() == Some(name));
        (!known).then(|| Failure::usage(format!("there is no flag --{name}"), *advice))
    })
}

/// The parser's message, without its prefix and usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(line: &str) -> String {
        let root = crate::flags::root();
        let name = line.split(' ').nth(1).unwrap_or_default();
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        if let Some(failure) =
            root.find_subcommand(name).and_then(|command| from_foreign_flag(&words, command))
        {
            return failure.to_string();
        }
        let error = crate::flags::root().try_get_matches_from(&words).unwrap_err();
        from_parser(&error, "ascot sort", &words, root.find_subcommand(name).unwrap_or(&root)).to_string()
    }

    #[test]
    fn a_value_without_its_equals_sign_is_named() {
        assert!(complaint("ascot probe . --monitor 0.5s").contains("follows an equals sign: --monitor=0.5s"));
        assert!(!complaint("ascot probe . --json 0.5s").contains("equals sign"));
    }

    #[test]
    fn flags_of_other_programs_lead_to_ours() {
        for (line, told) in [
            ("ascot sort --limit 10", "--top"),
            ("ascot view v --limit 10", "--head"),
            ("ascot sort --delimiter ;", "--separator"),
            ("ascot sort --where x>3", "filter them first"),
            ("ascot sort --keep last", "--unique always keeps the first"),
            ("ascot sort -;", "-t ';'"),
            ("ascot sort --column 3", "--key"),
            ("ascot sort --skip-header", "--header"),
            ("ascot sort --ascending", "without --reverse"),
            ("ascot sort --tmpdir /x", "--temp"),
        ] {
            let text = complaint(line);
            assert!(text.contains(told), "{line}: {text}");
        }
    }

    #[test]
    fn a_wrong_flag_suggests_the_right_one() {
        let text = complaint("ascot sort --memry=1G");
        assert!(text.contains("--memry") && text.contains("did you mean --memory"), "{text}");
        let text = complaint("ascot srot a");
        assert!(text.contains("did you mean sort"), "{text}");
    }

    #[test]
    fn what_may_be_several_flags_is_told_with_all_of_them() {
        let text = complaint("ascot sort --random-s");
        assert!(text.contains("--random-s is short for several flags"), "{text}");
        assert!(text.ends_with("write one of: --random-sort, --random-source"), "{text}");
        let text = complaint("ascot sort --unlike");
        assert!(text.contains("there is no flag --unlike"), "{text}");
    }

    #[test]
    fn a_flag_without_values_says_so() {
        let text = complaint("ascot probe --json=3 .");
        assert!(text.starts_with("--json takes no value, and got '3'\n"), "{text}");
    }

    #[test]
    fn other_complaints_say_where_help_is() {
        for line in [
            "ascot sort --qqq",
            "ascot gen",
            "ascot",
            "ascot sort --memory",
            "ascot sort --csv=1",
            "ascot man a b",
        ] {
            let text = complaint(line);
            assert!(text.contains("--help"), "{line}: {text}");
            assert!(!text.contains("error:") && !text.contains("Usage"), "{line}: {text}");
        }
    }
}
