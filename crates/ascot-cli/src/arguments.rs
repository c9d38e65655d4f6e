//! Arguments as the sort command reads them, rewritten to what the parser reads.
//!
//! Three habits of the sort command differ from most parsers': the rest of a cluster is taken as a
//! value untouched (`-t=` separates at `=`, `-k2` and `-nk2` are fine), any value may begin with a
//! dash, and fields may be named in the old way (`+1 -2` for `-k2,2`). Which letters take values is
//! read from the definitions of the flags.
//!
//! ```text
//! -nt=      ->  -n  -t =
//! +1.2 -3n  ->  -k 2.3,3n
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Command};

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
        if bytes.starts_with(b"--") {
            let wants_value = !bytes.contains(&b'=') && long_takes_value(sort, &bytes[2..]);
            push_valued(&mut result, argument, wants_value.then(|| arguments.next()).flatten());
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

/// `--flag value` becomes `--flag=value`, which no parser takes for two flags.
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
                // The long form with `=` keeps a value such as `=` or `-1` in one piece.
                let long = flag.get_long().unwrap_or_default();
                match value {
                    Some(value) => push_valued(result, format!("--{long}").into(), Some(value)),
                    None => result.push(format!("-{}", char::from(*letter)).into()),
                }
                return;
            }
            Some(_) => result.push(format!("-{}", char::from(*letter)).into()),
            None => {
                // Left whole for the parser to complain about.
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

/// Whether the long flag `name`, perhaps abbreviated, takes a value of its own.
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

/// `+F[.C][OPTS]`, counted from 0, as the start of a key counted from 1.
fn old_start(argument: &[u8]) -> Option<String> {
    let (field, byte, options) = old_position(argument.strip_prefix(b"+")?)?;
    let byte = if byte > 0 { format!(".{}", byte + 1) } else { String::new() };
    Some(format!("{}{byte}{options}", field.checked_add(1)?))
}

/// `-F[.C][OPTS]`, counted from 0 and not included, as the end of a key.
fn old_end(argument: &[u8]) -> Option<String> {
    let (field, byte, options) = old_position(argument.strip_prefix(b"-")?)?;
    if byte > 0 {
        return Some(format!(",{}.{byte}{options}", field.checked_add(1)?));
    }
    (field > 0).then(|| format!(",{field}{options}"))
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

fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The name of the program, of a path to it.
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
        assert_eq!(rewrite("--mem 1G --rev"), "--mem=1G --rev");
        assert_eq!(rewrite("--check x"), "--check x");
        assert_eq!(rewrite("--top=3 -- -n +1"), "--top=3 -- -n +1");
    }

    #[test]
    fn old_keys_become_new() {
        assert_eq!(rewrite("+1 -2 f"), "-k 2,2 f");
        assert_eq!(rewrite("+1.2 -3.4n"), "-k 2.3,4.4n");
        assert_eq!(rewrite("+0n -n"), "-k 1n -n");
        assert_eq!(rewrite("+file"), "+file");
    }

    #[test]
    fn names_of_programs() {
        assert_eq!(program_name(OsStr::new("/usr/bin/sort")), b"sort");
        assert_eq!(program_name(OsStr::new("ascot")), b"ascot");
    }
}
