//! Shell completions: the parser's script for commands and flags, extended by the values of flags that the command
//! computes: columns of the CSV file on the line, layouts, sizes.
//!
//! ```text
//!   ascot sort events.csv --key ten<TAB>
//!     shell script ─▶ ascot completions values --key ten -- sort events.csv --key ten ─▶ tenant
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use ascot_record::keys::header_columns;
use clap::Command;
use clap_complete::Shell;

/// Bytes of a file read to find its header.
const MAX_HEADER_BYTES: u64 = 64 << 10;

use crate::request::SORT_WORDS;

const FORMATS: &[&str] = &[
    "lines",
    "csv",
    "tsv",
    "fixed:",
    "u32-le",
    "u64-le",
    "i32-le",
    "i64-le",
    "f32-le",
    "f64-le",
    "u32-be",
    "u64-be",
    "i32-be",
    "i64-be",
    "f32-be",
    "f64-be",
    "prefixed:u8",
    "prefixed:u16",
    "prefixed:u32",
    "prefixed:u64",
    "keyed:u32",
];
const SIZES: &[&str] = &["64MiB", "256MiB", "512MiB", "1GiB", "2GiB", "4GiB", "8GiB", "16GiB"];
const LINE_KEYS: &[&str] = &["1,1", "2,2", "2,2n", "3,3nr"];
const RANGE_KEYS: &[&str] = &["0..8", "0..10", "0..16"];

const BASH: &str = r#"
_ascot_with_values() {
    local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]}
    # Bash takes --key=NAME for three words.
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $flag == "=" ]]; then
        flag=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case $flag in
        --key|-k|--format|--memory|--buffer-size|-S|--sort)
            local IFS=$'\n'
            COMPREPLY=($(ascot completions values "$flag" --word="$word" -- "${COMP_WORDS[@]:1}" 2>/dev/null))
            compopt -o nospace 2>/dev/null
            return 0
            ;;
    esac
    _ascot "$@"
}
complete -F _ascot_with_values -o bashdefault -o default ascot
"#;

const FISH: &str = r#"
function __ascot_values
    set -l words (commandline -opc)
    ascot completions values $argv[1] --word=(commandline -ct) -- $words[2..-1] 2>/dev/null
end
complete -c ascot -n '__fish_seen_subcommand_from sort merge split reshape check' -s k -l key -x -a '(__ascot_values --key)'
complete -c ascot -n '__fish_seen_subcommand_from sort merge split reshape check' -l format -x -a '(__ascot_values --format)'
complete -c ascot -n '__fish_seen_subcommand_from sort merge split reshape view' -s S -l memory -x -a '(__ascot_values --memory)'
"#;

const ZSH: &str = r#"
_ascot_values() {
    local -a values
    values=(${(f)"$(ascot completions values $1 --word="$PREFIX" -- ${words[2,-1]} 2>/dev/null)"})
    compadd -S '' -a values
}
"#;

/// The completion script for `shell`; `None` if the shell is unknown.
pub fn script(mut root: Command, shell: &str) -> Option<Vec<u8>> {
    let shell: Shell = shell.parse().ok()?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "ascot", &mut script);
    match shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
        Shell::Zsh => return Some(with_values_for_zsh(&String::from_utf8_lossy(&script)).into_bytes()),
        _ => {}
    }
    Some(script)
}

/// The script of zsh, extended by requests for the values of some flags: its last lines run it.
fn with_values_for_zsh(script: &str) -> String {
    let flag_of = |line: &str| {
        let spelled =
            |flag: &str| line.contains(&format!("'{flag}=[")) || line.contains(&format!("'*{flag}=["));
        let known = ["--key", "--format", "--memory"];
        known.into_iter().find(|flag| {
            let short = match *flag {
                "--key" => spelled("-k+") || line.contains("'*-k+["),
                "--memory" => line.contains("'-S+[") || line.contains("'*-S+["),
                _ => false,
            };
            short || spelled(flag)
        })
    };
    let asked = |line: &str| match flag_of(line) {
        Some(flag) => line.replace(":_default'", &format!(":_ascot_values {flag}'")),
        None => line.to_owned(),
    };
    let lines: Vec<String> = script.lines().map(asked).collect();
    let (first, rest) = lines.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    format!("{first}\n{ZSH}{}\n", rest.join("\n"))
}

/// The values of `flag` that begin with `word`, for a line of `words`, the command first.
pub fn values(flag: &str, word: &str, words: &[String]) -> Vec<String> {
    let all = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let values = match flag {
        "--format" => all(FORMATS),
        "--memory" | "--buffer-size" | "-S" => all(SIZES),
        "--sort" => SORT_WORDS.iter().map(|(word, _)| (*word).to_owned()).collect(),
        _ => return keys(word, words),
    };
    values.into_iter().filter(|value| value.starts_with(word)).collect()
}

/// Keys, the last of them completed: columns of the file on the line, or the key forms of its format.
fn keys(word: &str, words: &[String]) -> Vec<String> {
    let begun = word.rfind(',').map_or(0, |comma| comma + 1);
    let (before, last) = word.split_at(begun);
    let (dash, name) = last.strip_prefix('-').map_or(("", last), |name| ("-", name));
    let columns = columns(words);
    if !columns.is_empty() {
        let begins = |column: &&String| column.starts_with(name);
        return columns.iter().filter(begins).map(|column| format!("{before}{dash}{column}")).collect();
    }
    let fixed = words.iter().any(|word| word.contains("fixed:") || word.contains("prefixed:"));
    let forms = if fixed { RANGE_KEYS } else { LINE_KEYS };
    forms.iter().filter(|form| form.starts_with(word)).map(|form| (*form).to_owned()).collect()
}

/// The columns of the first file on the line that is CSV by its name or by the flags.
fn columns(words: &[String]) -> Vec<String> {
    let said =
        |word: &String| ["--csv", "--format=csv", "--format=tsv", "csv", "tsv"].contains(&word.as_str());
    let named = |word: &str| [".csv", ".tsv"].iter().any(|end| word.to_lowercase().ends_with(end));
    let says_csv = words.iter().any(said);
    let file = words.iter().skip(1).find(|word| {
        let path = Path::new(word);
        (named(word) || says_csv) && !word.starts_with('-') && path.is_file()
    });
    let Some(file) = file else { return Vec::new() };
    let tsv = file.to_lowercase().ends_with(".tsv") || words.iter().any(|word| word.contains("tsv"));
    let separator = separator(words).unwrap_or(if tsv { b'\t' } else { b',' });
    let mut header = Vec::new();
    let read = File::open(file)
        .and_then(|file| BufReader::new(file.take(MAX_HEADER_BYTES)).read_until(b'\n', &mut header));
    if read.is_err() {
        return Vec::new();
    }
    while header.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        header.pop();
    }
    header_columns(&header, separator, b'"').iter().map(|name| in_key(name)).collect()
}

/// A column name as written in a key: quoted if it holds a character that separates keys.
fn in_key(name: &str) -> String {
    let plain = !name.starts_with(['-', '#', '"']) && !name.contains([',', ':']);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The separator given with `-t` or `--separator` on the line.
fn separator(words: &[String]) -> Option<u8> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            // A shell that splits words at "=" passes it as a word of its own.
            "-t" | "--separator" | "--field-separator" => words.find(|word| *word != "=").map(String::as_str),
            word => word
                .strip_prefix("--separator=")
                .or(word.strip_prefix("--field-separator="))
                .or(word.strip_prefix("-t").filter(|_| !word.starts_with("--"))),
        };
        match value {
            Some("tab" | "\\t") => return Some(b'\t'),
            Some("semicolon") => return Some(b';'),
            Some("comma") => return Some(b','),
            Some(value) => return value.trim_matches(['\'', '"']).bytes().next(),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(flag: &str, word: &str, line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        values(flag, word, &words)
    }

    #[test]
    fn scripts_for_every_shell() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let script = String::from_utf8(script(crate::flags::root(), shell).unwrap()).unwrap();
            assert!(script.contains("compress"), "{shell}");
            let asks = ["bash", "fish", "zsh"].contains(&shell);
            assert_eq!(script.contains("ascot completions values"), asks, "{shell}");
        }
        assert!(script(crate::flags::root(), "csh").is_none());
        let zsh = String::from_utf8(script(crate::flags::root(), "zsh").unwrap()).unwrap();
        for flag in ["--key", "--format", "--memory"] {
            assert!(zsh.contains(&format!(":_ascot_values {flag}'")), "{flag}");
        }
        assert!(zsh.starts_with("#compdef"));
    }

    #[test]
    fn layouts_and_sizes_are_told() {
        assert_eq!(asked("--format", "fix", "sort"), ["fixed:"]);
        assert!(asked("--memory", "", "sort").contains(&"1GiB".to_owned()));
        assert_eq!(asked("-S", "51", "sort"), ["512MiB"]);
        assert_eq!(asked("--sort", "", "sort").len(), 6);
        assert_eq!(asked("--sort", "ran", "sort"), ["random"]);
        assert_eq!(asked("--key", "2", "sort a.txt"), ["2,2", "2,2n"]);
        assert!(asked("--key", "0", "sort --format fixed:100 a").contains(&"0..10".to_owned()));
    }

    #[test]
    fn columns_of_the_file_on_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events.csv");
        std::fs::write(&file, "\u{feff}tenant,ts,\"a, b\",time\r\n1,2,3,4\r\n").unwrap();
        let line = format!("sort {} --key", file.display());
        assert_eq!(asked("--key", "t", &line), ["tenant", "ts", "time"]);
        assert_eq!(asked("-k", "tenant,-ti", &line), ["tenant,-time"]);
        assert_eq!(asked("--key", "", &line)[2], "\"a, b\"");
        std::fs::write(&file, "id;name\n").unwrap();
        for words in ["-t ;", "-t;", "--separator=;", "--separator = ;"] {
            assert_eq!(asked("--key", "n", &format!("{line} {words}")), ["name"], "{words}");
        }
    }
}
