//! The command to type after one that was given a compressed or binary file: the same command, with text instead of
//! that file.
//!
//! ```text
//! ascot sort s.csv.gz -k2 -o x            zcat s.csv.gz | ascot sort -k2 -o x
//! ascot merge a.gz b                      zcat a.gz > a && ascot merge a b
//! ```

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ascot_model::units;
use ascot_record::file_format::FileFormat;

/// File name endings that unpacking removes.
const ENDINGS: [&str; 12] =
    ["gz", "zst", "zstd", "xz", "bz2", "lz4", "zip", "parquet", "arrow", "feather", "db", "sqlite"];

/// Commands that need the sizes of their inputs, or open them again.
const NEED_FILES: [&str; 3] = ["split", "reshape", "index"];

/// The command for a file of `format`, one of `inputs`, that `words` (which begin with the program's name) read as
/// text.
pub fn command(
    words: &[impl AsRef<OsStr>],
    format: FileFormat,
    file: Option<&Path>,
    inputs: usize,
) -> String {
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    let place = file.and_then(|file| words.iter().skip(2).position(|word| *word == file.as_os_str()));
    let place = place.map(|place| place + 2);
    let quoted = file.map(|file| units::in_shell(&no_flag(file)));
    let unpack = format.unpack_command(quoted.as_deref());
    let parts = words.iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--parts")));
    let needs_file = parts || words.get(1).is_some_and(|verb| NEED_FILES.iter().any(|name| *verb == *name));
    let csv = format.becomes_csv() && !words.iter().any(|word| *word == "--csv");
    let csv = if csv { " --csv --header" } else { "" };
    let shown = |words: &[&OsStr]| {
        let mut shown: Vec<String> =
            words.iter().skip(1).map(|word| units::in_shell(Path::new(word))).collect();
        if let Some(verb) = shown.first_mut() {
            verb.push_str(csv);
        }
        format!("ascot {}", shown.join(" "))
    };
    let mut words = words;
    match (place, file) {
        (Some(place), Some(file)) if inputs > 1 || needs_file => {
            let text = no_flag(&text_name(file, format));
            words[place] = text.as_os_str();
            format!("{unpack} > {} && {}", units::in_shell(&text), shown(&words))
        }
        (Some(place), _) => {
            words.remove(place);
            if words.last().is_some_and(|word| *word == "--") {
                words.pop();
            }
            format!("{unpack} | {}", shown(&words))
        }
        (None, Some(_)) if inputs <= 1 => format!("{unpack} | {}", shown(&words)),
        (None, Some(file)) => format!("{unpack} > {}", units::in_shell(&no_flag(&text_name(file, format)))),
        (None, None) => format!("... | {unpack} | {}", shown(&words)),
    }
}

/// The file by a name that no program reads as a flag.
fn no_flag(file: &Path) -> PathBuf {
    if file.as_os_str().as_bytes().starts_with(b"-") { Path::new(".").join(file) } else { file.to_path_buf() }
}

/// An unused name for the text of a file.
fn text_name(file: &Path, format: FileFormat) -> PathBuf {
    let known = file.extension().and_then(OsStr::to_str).is_some_and(|ending| ENDINGS.contains(&ending));
    let plain = if known { file.with_extension("") } else { file.to_path_buf() };
    let ending = if format.becomes_csv() { ".csv" } else { ".txt" };
    let with = |ending: &str| {
        let mut name = plain.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    let first = (known && !format.becomes_csv()).then(|| plain.clone());
    let numbered = (1..).map(|number| with(&format!(".{number}{ending}")));
    let mut names = first.into_iter().chain([with(ending)]).chain(numbered);
    names.find(|name| !name.exists()).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instead(line: &str, format: FileFormat, file: Option<&str>, inputs: usize) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        command(&words, format, file.map(Path::new), inputs)
    }

    #[test]
    fn one_file_comes_through_a_pipe() {
        let text = instead("/bin/ascot sort s.csv.gz -k2 -o x", FileFormat::Gzip, Some("s.csv.gz"), 1);
        assert_eq!(text, "zcat s.csv.gz | ascot sort -k2 -o x");
        let text = instead("ascot sort u.txt", FileFormat::Utf16, Some("u.txt"), 1);
        assert_eq!(text, "iconv -f UTF-16 -t UTF-8 u.txt | ascot sort");
        let text = instead("ascot sort t.parquet", FileFormat::Parquet, Some("t.parquet"), 1);
        assert!(text.ends_with("t.parquet | ascot sort --csv --header"), "{text}");
    }

    #[test]
    fn a_name_with_a_dash_is_no_flag() {
        let text = instead("ascot sort -u -- -s.gz", FileFormat::Gzip, Some("-s.gz"), 1);
        assert_eq!(text, "zcat ./-s.gz | ascot sort -u");
        let text = instead("ascot merge -- -a.gz b", FileFormat::Gzip, Some("-a.gz"), 2);
        assert_eq!(text, "zcat ./-a.gz > ./-a && ascot merge -- ./-a b");
    }

    #[test]
    fn several_files_are_unpacked_first() {
        let text = instead("ascot merge a.gz b", FileFormat::Gzip, Some("a.gz"), 2);
        assert_eq!(text, "zcat a.gz > a && ascot merge a b");
        let text = instead("ascot split a --parts 3", FileFormat::Zstd, Some("a"), 1);
        assert_eq!(text, "zstd -dc a > a.txt && ascot split a.txt --parts 3");
    }

    #[test]
    fn standard_input_is_unpacked_on_its_way() {
        assert_eq!(instead("ascot sort -u", FileFormat::Xz, None, 1), "... | xz -dc | ascot sort -u");
        assert_eq!(
            instead("ascot sort", FileFormat::Gzip, Some("/a b.gz"), 1),
            "zcat '/a b.gz' | ascot sort"
        );
    }
}
