//! Rewrites the arguments of the sort command to arguments that the parser reads.
//!
//! The sort command differs from most parsers in four ways: the rest of a cluster is a value, taken literally (`-t=`
//! separates at `=`, `-k2` and `-nk2` are fine), any value may begin with a dash, fields may be named in the old way
//! (`+1 -2` for `-k2,2`), and a long flag may be abbreviated if no other flag of the sort command begins that way
//! (`--p` is `--parallel`, even if a flag of Ascot's own begins with `p`). The definitions of the flags say which
//! letters take values.
//!
//! ```text
//! -nt=      ->  -n  -t =
//! +1.2 -3n  ->  -k 2.3,3n
//! --p=2     ->  --parallel=2
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Command};

use crate::flags::COMMAND_FLAGS;
use crate::request::is_compression_program;

/// Rewrites the arguments (without the program's name) of `ascot sort`.
pub fn rewritten(arguments: impl IntoIterator<Item = OsString>, sort: &Command) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let mut result = Vec::new();
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            result.push(argument);
            result.extend(arguments);
            break;
        }
        if let Some(long) = bytes.strip_prefix(b"--") {
            push_long(&mut result, long, sort, || arguments.next());
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            push_cluster(&mut result, &bytes[1..], sort, || arguments.next());
        } else if let Some(start) = old_start(bytes) {
            let end = arguments.peek().and_then(|next| old_end(next.as_bytes()));
            if end.is_some() {
                arguments.next();
            }
            result.push("-k".into());
            result.push(format!("{start}{}", end.unwrap_or_default()).into());
        } else {
            result.push(argument);
        }
    }
    result
}

/// `long`: a long flag without its dashes, possibly abbreviated, possibly with its value.
fn push_long(
    result: &mut Vec<OsString>,
    long: &[u8],
    sort: &Command,
    next: impl FnOnce() -> Option<OsString>,
) {
    let (name, own) = match long.iter().position(|byte| *byte == b'=') {
        Some(at) => (&long[..at], Some(OsString::from_vec(long[at + 1..].to_vec()))),
        None => (long, None),
    };
    let mut name = full_name(sort, name).map_or(name, str::as_bytes);
    let value = match own {
        None if long_takes_value(sort, name) => next(),
        own => own,
    };
    // Short for --compress-program in the sort command, and a flag of its own here.
    if name == b"compress" && value.as_deref().is_some_and(is_compression_program) {
        name = b"compress-program";
    }
    push_valued(result, OsString::from_vec([b"--", name].concat()), value);
}

/// The flag of the sort command that `name` abbreviates: the only one that begins with it.
fn full_name(sort: &Command, name: &[u8]) -> Option<&'static str> {
    let spelled = |text: &str| sort.get_arguments().any(|flag| spellings(flag).contains(&text));
    if name.is_empty() || std::str::from_utf8(name).is_ok_and(spelled) {
        return None;
    }
    let mut like = COMMAND_FLAGS.into_iter().filter(|full| full.as_bytes().starts_with(name));
    match (like.next(), like.next()) {
        (Some(full), None) if spelled(full) => Some(full),
        _ => None,
    }
}

/// `--flag value` becomes `--flag=value`, which no parser reads as two flags.
fn push_valued(result: &mut Vec<OsString>, mut flag: OsString, value: Option<OsString>) {
    if let Some(value) = value {
        flag.push("=");
        flag.push(value);
    }
    result.push(flag);
}

/// `letters`: a cluster without its dash. The value of its last letter may be the next argument.
fn push_cluster(
    result: &mut Vec<OsString>,
    letters: &[u8],
    sort: &Command,
    next: impl FnOnce() -> Option<OsString>,
) {
    for (index, letter) in letters.iter().enumerate() {
        let known = sort.get_arguments().find(|flag| flag.get_short() == Some(char::from(*letter)));
        match known {
            Some(flag) if takes_value(flag) => {
                let rest = &letters[index + 1..];
                let value = if rest.is_empty() { next() } else { Some(OsString::from_vec(rest.to_vec())) };
                // The long form with `=` keeps a value such as `=` or `-1` in one argument.
                let long = flag.get_long().unwrap_or_default();
                match value {
                    Some(value) => push_valued(result, format!("--{long}").into(), Some(value)),
                    None => result.push(format!("-{}", char::from(*letter)).into()),
                }
                return;
            }
            Some(_) => result.push(format!("-{}", char::from(*letter)).into()),
            None => {
                // Left unchanged, so that the parser reports it.
                let mut unknown = vec![b'-'];
                unknown.extend_from_slice(&letters[index..]);
                result.push(OsString::from_vec(unknown));
                return;
            }
        }
    }
}

fn takes_value(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append) && !flag.is_require_equals_set()
}

fn spellings(flag: &Arg) -> Vec<&str> {
    flag.get_long_and_visible_aliases().unwrap_or_default()
}

/// Whether the long flag `name`, possibly abbreviated, takes a value.
fn long_takes_value(sort: &Command, name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let exact = sort.get_arguments().find(|flag| spellings(flag).contains(&name));
    if let Some(flag) = exact {
        return takes_value(flag);
    }
    let mut like =
        sort.get_arguments().filter(|flag| spellings(flag).iter().any(|long| long.starts_with(name)));
    match (like.next(), like.next()) {
        (Some(flag), None) => takes_value(flag),
        _ => false,
    }
}

/// `+F[.C][OPTS]`, counted from 0, as the start of a key, which counts from 1.
fn old_start(argument: &[u8]) -> Option<String> {
    let (field, byte, options) = old_position(argument.strip_prefix(b"+")?)?;
    let byte = if byte > 0 { format!(".{}", byte.saturating_add(1)) } else { String::new() };
    Some(format!("{}{byte}{options}", field.saturating_add(1)))
}

/// `-F[.C][OPTS]`, counted from 0 and exclusive, as the end of a key.
fn old_end(argument: &[u8]) -> Option<String> {
    let (field, byte, options) = old_position(argument.strip_prefix(b"-")?)?;
    if byte > 0 {
        return Some(format!(",{}.{byte}{options}", field.saturating_add(1)));
    }
    // The end of the field before, or of the first field if none comes before.
    Some(format!(",{}{options}", field.max(1)))
}

fn old_position(text: &[u8]) -> Option<(u64, u64, &str)> {
    let text = std::str::from_utf8(text).ok()?;
    let (field, rest) = digits(text)?;
    let (byte, options) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => (0, rest),
    };
    options.bytes().all(|letter| b"bdfgiMhnrRV".contains(&letter)).then_some((field, byte, options))
}

/// The number at the start of `text` and the text after it; a number too large becomes the largest.
fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].parse().unwrap_or(u64::MAX), &text[end..]))
}

/// The program's name in a path.
pub fn program_name(path: &OsStr) -> &[u8] {
    path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(line: &str) -> String {
        let root = crate::flags::root();
        let sort = root.find_subcommand("sort").unwrap();
        let words = line.split(' ').map(OsString::from);
        let result: Vec<String> =
            rewritten(words, sort).into_iter().map(|w| w.into_string().unwrap()).collect();
        result.join(" ")
    }

    #[test]
    fn clusters_come_apart() {
        assert_eq!(rewrite("-nr a"), "-n -r a");
        assert_eq!(rewrite("-nt= a"), "-n --separator== a");
        assert_eq!(rewrite("-k2,2nr -k 1"), "--key=2,2nr --key=1");
        assert_eq!(rewrite("-o -n -"), "--output=-n -");
        assert_eq!(rewrite("-cu x"), "-c -u x");
        assert_eq!(rewrite("-nQ"), "-n -Q");
        assert_eq!(rewrite("-k"), "-k");
    }

    #[test]
    fn long_values_stay_whole() {
        assert_eq!(rewrite("--key -ts --csv"), "--key=-ts --csv");
        assert_eq!(rewrite("--mem 1G --rev"), "--mem=1G --reverse");
        assert_eq!(rewrite("--check x"), "--check x");
        assert_eq!(rewrite("--key= --key==,="), "--key= --key==,=");
        assert_eq!(rewrite("--top=3 -- -n +1"), "--top=3 -- -n +1");
    }

    #[test]
    fn abbreviations_mean_what_they_mean_to_the_sort_command() {
        assert_eq!(rewrite("--p=2 --par 3"), "--parallel=2 --parallel=3");
        assert_eq!(
            rewrite("--me --re --t /x --random-so"),
            "--merge --reverse --temporary-directory=/x --random-so"
        );
        assert_eq!(rewrite("--ch --ch=quiet f"), "--check --check=quiet f");
        assert_eq!(rewrite("--co gzip --compress=gzip"), "--compress-program=gzip --compress-program=gzip");
        assert_eq!(rewrite("--compress lz4 --compress=./x"), "--compress=lz4 --compress-program=./x");
        // Ambiguous or unknown in the sort command: the parser decides.
        assert_eq!(rewrite("--s --memo 1M --c"), "--s --memo=1M --c");
    }

    #[test]
    fn every_flag_of_the_sort_command_may_be_abbreviated() {
        for full in COMMAND_FLAGS {
            for end in 1..full.len() {
                let short = &full[..end];
                let like: Vec<&str> =
                    COMMAND_FLAGS.into_iter().filter(|name| name.starts_with(short)).collect();
                let root = crate::flags::root();
                let sort = root.find_subcommand("sort").unwrap();
                let exact = sort.get_arguments().any(|flag| spellings(flag).contains(&short));
                let expected = (like == [full] && !exact).then_some(full);
                assert_eq!(full_name(sort, short.as_bytes()), expected, "{short}");
                // An Ascot flag that is such an abbreviation has the same meaning.
                let known = ["sort", "temp", "compress", "version"];
                assert!(!exact || known.contains(&short), "--{short} hides --{full}");
            }
        }
    }

    #[test]
    fn old_keys_become_new() {
        assert_eq!(rewrite("+1 -2 f"), "-k 2,2 f");
        assert_eq!(rewrite("+1.2 -3.4n"), "-k 2.3,4.4n");
        assert_eq!(rewrite("+0n -n"), "-k 1n -n");
        assert_eq!(rewrite("+0 -0"), "-k 1,1");
        assert_eq!(rewrite("+0.18446744073709551615R"), "-k 1.18446744073709551615R");
        assert_eq!(rewrite("+1 -1.99999999999999999999"), "-k 2,2.18446744073709551615");
        assert_eq!(rewrite("+file"), "+file");
    }

    #[test]
    fn names_of_programs() {
        assert_eq!(program_name(OsStr::new("/usr/bin/sort")), b"sort");
        assert_eq!(program_name(OsStr::new("ascot")), b"ascot");
    }
}
