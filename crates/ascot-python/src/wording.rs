//! Texts of the libraries, which name flags of the command, in the words of the package.
//!
//! A flag becomes an argument: `--memory 512MiB` becomes `memory='512MiB'`, `--temp DIR` becomes `temp=DIR`, and
//! `--strict` becomes `strict=True`. A flag that has no argument stays as it is.

/// Flags of the command, and the arguments with the same meaning.
const ARGUMENTS: &[(&str, &str)] = &[
    ("--alpha", "alpha"),
    ("--block", "block"),
    ("--bytes", "size"),
    ("--compress", "compress"),
    ("--connections", "connections"),
    ("--format", "layout"),
    ("--group", "group"),
    ("--growth", "growth"),
    ("--header", "header"),
    ("--input", "size"),
    ("--inputs", "inputs"),
    ("--key", "key"),
    ("--local", "peers"),
    ("--memory", "memory"),
    ("--memory-limit", "memory"),
    ("--method", "method"),
    ("--most-streams", "most_streams"),
    ("--null", "nulls"),
    ("--out", "out"),
    ("--outputs", "outputs"),
    ("--parts", "parts"),
    ("--record-bytes", "record_bytes"),
    ("--request", "request"),
    ("--schedule", "schedule"),
    ("--seconds", "seconds"),
    ("--separator", "separator"),
    ("--skew", "skew"),
    ("--strict", "strict"),
    ("--temp", "temp"),
    ("--threads", "threads"),
    ("--total", "total"),
    ("--view", "view"),
    ("--volume", "volume"),
    ("--wait", "wait"),
    ("--work", "work"),
];
/// Flags without a value.
const SWITCHES: &[&str] = &["--header", "--strict"];
/// Commands, and the calls with the same meaning.
const CALLS: &[(&str, &str)] = &[
    ("ascot sort --resume ", "ascot.resume('"),
    ("split --by hash", "split by='hash'"),
    ("(-o)", "(to=FILE)"),
    ("-o FILE", "to=FILE"),
];

/// A text of a library in the words of the package.
pub fn in_python(text: &str) -> String {
    text.lines().map(line_in_python).collect::<Vec<_>>().join("\n")
}

fn line_in_python(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = next(rest) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((call, path)) =
            CALLS.iter().find_map(|(flags, call)| Some((call, rest.strip_prefix(flags)?)))
        {
            let end = if call.ends_with('\'') { path.find("  ").unwrap_or(path.len()) } else { 0 };
            out.push_str(call);
            if call.ends_with('\'') {
                out.push_str(&path[..end]);
                out.push_str("')");
            }
            rest = &path[end..];
            continue;
        }
        let flag = &rest[..word_end(rest)];
        rest = &rest[flag.len()..];
        let Some((_, argument)) = ARGUMENTS.iter().find(|(known, _)| *known == flag) else {
            out.push_str(flag);
            continue;
        };
        out.push_str(argument);
        out.push('=');
        if SWITCHES.contains(&flag) {
            out.push_str("True");
            continue;
        }
        let value = value_of(rest);
        if !value.is_empty() {
            let text = value.trim_start().trim_matches('\'');
            let plain = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                || text.parse::<f64>().is_ok();
            out.push_str(&if plain { text.to_owned() } else { format!("'{text}'") });
            rest = &rest[value.len()..];
        }
    }
    out.push_str(rest);
    out
}

/// The start of the next flag or command.
fn next(text: &str) -> Option<usize> {
    let flag = text.match_indices("--").map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '-')
            && text[at + 2..].starts_with(|letter: char| letter.is_ascii_lowercase())
    });
    let call = CALLS.iter().filter_map(|(flags, _)| text.find(flags)).min();
    flag.into_iter().chain(call).min()
}

/// The end of the flag with which a text begins.
fn word_end(text: &str) -> usize {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    text.find(|letter| !is_part(letter)).unwrap_or(text.len())
}

/// The value after a flag, with its space: a placeholder, a number, or a word in quotes; empty if words of the text
/// follow.
fn value_of(rest: &str) -> &str {
    let Some(value) = rest.strip_prefix(' ') else { return "" };
    if let Some(quoted) = value.strip_prefix('\'') {
        return quoted.find('\'').map_or("", |end| &rest[..end + 3]);
    }
    let end = value.find([' ', ',', ')', ';', ':']).unwrap_or(value.len());
    let word = &value[..end];
    let is_word =
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !VALUES.contains(&word);
    if word.is_empty() || is_word {
        return "";
    }
    let after = &value[end..];
    let unit =
        UNITS.iter().find(|unit| after.strip_prefix(' ').is_some_and(|after| first_word(after) == **unit));
    &rest[..1 + end + unit.map_or(0, |unit| 1 + unit.len())]
}

fn first_word(text: &str) -> &str {
    text.split([' ', ',', ':', ';', ')']).next().unwrap_or_default()
}

/// Units that are written after a space.
const UNITS: &[&str] = &["B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"];
/// Words that are values, not part of the text.
const VALUES: &[&str] = &["zstd", "none", "lz4", "lines", "auto", "hash", "equal", "rotational", "flash"];
