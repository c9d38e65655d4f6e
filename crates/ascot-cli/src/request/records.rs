//! The definition of records and their order.
//!
//! The layout is that of `--format` or `--csv`; otherwise lines, with one exception: files all named `.csv` (or all
//! `.tsv`) are CSV with a header if a `--key` names columns and cannot be one of the sort command's. Keys are then
//! parsed in the layout's own language.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ascot_model::units::in_shell;
use ascot_record::keys::{
    ByteRangeKey, CsvKeySpec, KeyDef, KeyError, KeyFlags, KeyOptions, parse_csv_keys, parse_range_keys,
    parse_ranges, parse_separator,
};
use ascot_record::layout::Layout;
use ascot_sort::SortError;
use ascot_sort::read::open::recognise_file;
use ascot_sort::request::{Input, Keys, Route, RouteBy};
use clap::ArgMatches;

use super::{one_of, random};
use crate::failure::{Failure, Result};
use crate::values;

/// Layout, keys and header.
#[derive(Debug)]
pub struct Records {
    /// How bytes are cut into records.
    pub layout: Layout,
    /// The keys that order them.
    pub keys: Keys,
    /// Whether the first record of each input is a header.
    pub header: bool,
    /// Lines, regardless of the format that the files seem to have.
    pub any_format: bool,
    /// The key that decides on the file of a record, and how.
    pub route: Option<Route>,
}

/// Flags that order lines: identifier, letter.
const ORDERS: &[(&str, char)] = &[
    ("ignore-leading-blanks", 'b'),
    ("dictionary-order", 'd'),
    ("ignore-case", 'f'),
    ("general-numeric-sort", 'g'),
    ("human-numeric-sort", 'h'),
    ("ignore-nonprinting", 'i'),
    ("month-sort", 'M'),
    ("numeric-sort", 'n'),
    ("random-sort", 'R'),
    ("version-sort", 'V'),
];

/// Orders by name, for `--sort`, and their letters.
pub const SORT_WORDS: &[(&str, char)] = &[
    ("general-numeric", 'g'),
    ("human-numeric", 'h'),
    ("month", 'M'),
    ("numeric", 'n'),
    ("random", 'R'),
    ("version", 'V'),
];

/// The flags' definition of records; the names of inputs may decide the layout.
pub fn records(matches: &ArgMatches, inputs: &[Input]) -> Result<Records> {
    let texts = key_texts(matches)?;
    refuse_separator_of_d(matches, inputs)?;
    let named = named_layout(matches)?;
    let layout = match named {
        Some(layout) => layout,
        None => layout_by_name(inputs, &texts).unwrap_or(Layout::LINES),
    };
    let layout = adjusted(matches, layout)?;
    let letters = order_letters(matches)?;
    let reverse = matches.get_flag("reverse");
    if let Some(letter) = letters.first()
        && !matches!(layout, Layout::Lines { .. })
    {
        return Err(orders_lines_only(*letter, layout));
    }
    let keys = match layout {
        Layout::Lines { delimiter } => line_keys(matches, &texts, &letters, reverse, delimiter)
            .map_err(|error| not_lines(inputs).filter(|_| named.is_none()).unwrap_or(error))?,
        Layout::Csv { .. } => Keys::Columns(with_nulls(column_keys(&texts, reverse)?, matches)?),
        Layout::Fixed { .. } | Layout::Prefixed { .. } => Keys::Ranges(range_keys(&texts, reverse)?),
        Layout::Number(_) => number_keys(&texts, reverse)?,
    };
    refuse_without_csv(matches, layout)?;
    let route = route(matches, layout)?;
    let routed = route.as_ref().and_then(|route| route.keys.as_ref());
    let header =
        matches.get_flag("header") || keys.name_a_column() || routed.is_some_and(Keys::name_a_column);
    if header && !matches!(layout, Layout::Lines { .. } | Layout::Csv { .. }) {
        return Err(Failure::usage(
            format!("--header applies only to lines and CSV; the format is {layout}"),
            "drop --header, or add --csv",
        ));
    }
    let any_format = matches!(named, Some(Layout::Lines { .. }));
    Ok(Records { layout, keys, header, any_format, route })
}

/// Layout and keys for commands that use neither order letters nor file names.
pub fn named_records(
    format: Option<&str>,
    keys: &[OsString],
    default: Layout,
    inputs: &[Input],
) -> Result<(Layout, Keys)> {
    let texts = keys.iter().map(|text| utf8(text)).collect::<Result<Vec<_>, _>>()?;
    let layout = match format {
        Some(format) => parse_layout(format)?,
        None => layout_by_name(inputs, &texts).unwrap_or(default),
    };
    let keys = match layout {
        Layout::Lines { delimiter } => {
            let keys = texts.iter().map(|text| line_key(text)).collect::<Result<_, _>>()?;
            let options = KeyOptions { keys, delimiter, ..KeyOptions::default() };
            if options.needs_salt() {
                return Err(Failure::usage(
                    "this command does not support random order (R of --key)",
                    "use ascot sort -R, and check the result with ascot sort -c -R --random-source FILE",
                ));
            }
            Keys::Command(options)
        }
        Layout::Csv { .. } => Keys::Columns(column_keys(&texts, false)?),
        Layout::Fixed { .. } | Layout::Prefixed { .. } => Keys::Ranges(range_keys(&texts, false)?),
        Layout::Number(_) => number_keys(&texts, false)?,
    };
    Ok((layout, keys))
}

/// `--by` of a reshape: hash or value, of the key that orders the records or of another one.
fn route(matches: &ArgMatches, layout: Layout) -> Result<Option<Route>> {
    let Some(text) = values::word(matches, "route") else { return Ok(None) };
    let (rule, key) = text.split_once(':').map_or((text, None), |(rule, key)| (rule, Some(key)));
    let by = match rule {
        "range" if key.is_none() => return Ok(None),
        "hash" => RouteBy::Hash,
        "value" => RouteBy::Value,
        _ => {
            return Err(Failure::usage(
                format!("invalid argument '{text}' for --by"),
                "accepted: range, hash, value, hash:KEY, value:KEY, with KEY as in -k",
            ));
        }
    };
    let Some(key) = key else { return Ok(Some(Route { by, keys: None })) };
    let texts = [key.to_owned()];
    let keys = match layout {
        Layout::Lines { delimiter } => line_keys(matches, &texts, &[], false, delimiter)?,
        Layout::Csv { .. } => Keys::Columns(with_nulls(column_keys(&texts, false)?, matches)?),
        Layout::Fixed { .. } | Layout::Prefixed { .. } => Keys::Ranges(range_keys(&texts, false)?),
        Layout::Number(_) => {
            return Err(Failure::usage("a number has no other key than its value", "write: --by hash"));
        }
    };
    Ok(Some(Route { by, keys: Some(keys) }))
}

pub(super) fn key_texts(matches: &ArgMatches) -> Result<Vec<String>> {
    values::all(matches, "key").map(|text| utf8(text)).collect()
}

fn utf8(text: &OsStr) -> Result<String> {
    text.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(
            format!("--key '{}' is not valid UTF-8", text.display()),
            "give columns by number: #1, #2",
        )
    })
}

fn named_layout(matches: &ArgMatches) -> Result<Option<Layout>> {
    let format = values::word(matches, "format").map(parse_layout).transpose()?;
    match (format, matches.get_flag("csv")) {
        (Some(layout), true) if !matches!(layout, Layout::Csv { .. }) => Err(Failure::usage(
            format!("--csv and --format {layout} contradict each other"),
            "keep one of them",
        )),
        (None, true) => Ok(Some(Layout::Csv { separator: b',', quote: b'"' })),
        (format, _) => Ok(format),
    }
}

fn parse_layout(text: &str) -> Result<Layout> {
    Layout::parse(text).map_err(|error| {
        let text = error.to_string();
        // One long sentence: the problem; the correct form.
        match text.split_once("; ") {
            Some((what, instead)) => Failure::usage(format!("--format: {what}"), instead),
            None => Failure::Usage(text),
        }
    })
}

/// CSV or TSV, if the files' names indicate it and a key can be nothing else.
fn layout_by_name(inputs: &[Input], keys: &[String]) -> Option<Layout> {
    let columns = keys.iter().any(|key| KeyDef::parse(key).is_err() && parse_ranges(key).is_err());
    let all = |extension: &str| inputs.iter().all(|input| has_extension(input, extension));
    match columns {
        true if all("csv") => Some(Layout::Csv { separator: b',', quote: b'"' }),
        true if all("tsv") => Some(Layout::Csv { separator: b'\t', quote: b'"' }),
        _ => None,
    }
}

/// Whether the files' names indicate text: sort reads them as lines, or as rows if a key names a column.
pub fn are_text_by_name(inputs: &[Input]) -> bool {
    const TEXT: [&str; 5] = ["csv", "tsv", "txt", "log", "lines"];
    inputs.iter().all(|input| TEXT.iter().any(|extension| has_extension(input, extension)))
}

fn has_extension(input: &Input, wanted: &str) -> bool {
    let Input::Path(path) = input else { return false };
    Path::new(path).extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

/// The layout, adjusted by `-t`, `--quote` and `-z`.
fn adjusted(matches: &ArgMatches, layout: Layout) -> Result<Layout> {
    let separator = separator(matches)?;
    let quote = quote(matches)?;
    let zero_ended = matches.get_flag("zero-terminated");
    match layout {
        Layout::Csv { separator: own, quote: own_quote } if !zero_ended => {
            let separator = separator.unwrap_or(own);
            let quote = quote.unwrap_or(own_quote);
            if separator == quote {
                return Err(Failure::usage(
                    format!("'{}' cannot be both separator and quote", char::from(quote).escape_default()),
                    "choose another one with -t or --quote",
                ));
            }
            Ok(Layout::Csv { separator, quote })
        }
        Layout::Lines { delimiter } if quote.is_none() => {
            Ok(Layout::Lines { delimiter: if zero_ended { 0 } else { delimiter } })
        }
        Layout::Lines { .. } => {
            Err(Failure::usage("--quote applies only to CSV", "add --csv, or drop --quote"))
        }
        other if !zero_ended && separator.is_none() && quote.is_none() => Ok(other),
        other => Err(Failure::usage(
            format!(
                "-t and --quote apply only to lines and CSV, and -z only to lines; the format is {other}"
            ),
            "drop the flag, or the --format",
        )),
    }
}

/// The separator of `-t`; several different ones are a mistake, as in the sort command.
pub(super) fn separator(matches: &ArgMatches) -> Result<Option<u8>> {
    let mut chosen = None;
    for text in values::all(matches, "separator") {
        let byte = byte_named(text).map_err(|error| {
            Failure::usage(
                error.to_string(),
                "-t takes one byte, '\\0', '\\t', tab, comma, semicolon or space",
            )
        })?;
        if chosen.is_some_and(|other| other != byte) {
            return Err(Failure::usage(
                "incompatible tabs: -t is given twice with different values",
                "keep one -t",
            ));
        }
        chosen = Some(byte);
    }
    Ok(chosen)
}

fn byte_named(text: &OsStr) -> Result<u8, KeyError> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"comma" => Ok(b','),
        b"semicolon" => Ok(b';'),
        b"space" => Ok(b' '),
        other => parse_separator(other),
    }
}

fn quote(matches: &ArgMatches) -> Result<Option<u8>> {
    let Some(text) = matches.get_one::<OsString>("quote") else { return Ok(None) };
    match text.as_bytes() {
        [byte] => Ok(Some(*byte)),
        _ => Err(Failure::usage(
            format!("--quote takes one byte, not '{}'", text.display()),
            "for example --quote \"'\"",
        )),
    }
}

/// Letters of the orders that apply to all keys.
pub(super) fn order_letters(matches: &ArgMatches) -> Result<Vec<char>> {
    let given = ORDERS.iter().filter(|(id, _)| matches.get_flag(id)).map(|(_, letter)| *letter);
    let mut letters: Vec<char> = given.collect();
    for word in matches.get_many::<String>("sort-word").into_iter().flatten() {
        let words: Vec<&str> = SORT_WORDS.iter().map(|(word, _)| *word).collect();
        let word = one_of("--sort", word, &words)?;
        letters.extend(SORT_WORDS.iter().filter(|(known, _)| *known == word).map(|(_, letter)| *letter));
    }
    Ok(letters)
}

fn orders_lines_only(letter: char, layout: Layout) -> Failure {
    let what = format!("-{letter} orders lines; the format is {layout}");
    if letter == 'R' {
        return Failure::usage(what, "random order is for lines: drop -R, or the --format");
    }
    match layout {
        Layout::Csv { .. } => {
            Failure::usage(what, "give the type with the column: --key COLUMN:number, :text or :date")
        }
        Layout::Number(_) => Failure::usage(what, format!("numbers are ordered by value: drop -{letter}")),
        _ => Failure::usage(
            what,
            format!("byte ranges are ordered by their bytes: drop -{letter}, or sort lines"),
        ),
    }
}

fn line_keys(
    matches: &ArgMatches,
    texts: &[String],
    letters: &[char],
    reverse: bool,
    delimiter: u8,
) -> Result<Keys> {
    let mut global = KeyFlags { reverse, ..KeyFlags::default() };
    for letter in letters {
        assert!(global.set(*letter), "every letter of the orders is an option of keys");
    }
    let keys = texts.iter().map(|text| line_key(text)).collect::<Result<_, _>>()?;
    let separator = separator(matches)?;
    let mut options = KeyOptions { keys, global, separator, delimiter, ..KeyOptions::default() };
    random::set_salt(matches, &mut options)?;
    Ok(Keys::Command(options))
}

fn line_key(text: &str) -> Result<KeyDef> {
    KeyDef::parse(text).map_err(|error| {
        let advice = if parse_ranges(text).is_ok() {
            "byte ranges are for records of fixed length: add --format fixed:LEN"
        } else if text.starts_with(|first: char| first.is_ascii_digit()) {
            "a key of lines is F[.C][OPTS][,F[.C][OPTS]], such as -k2,2nr; fields and bytes count from 1"
        } else {
            "keys of lines are numbers of fields, such as -k2,2nr; for columns by name add --csv --header"
        };
        Failure::usage(format!("--key '{text}': {error}"), advice)
    })
}

/// The error for a key that cannot apply to lines because an input has another format: the format, and what to do.
fn not_lines(inputs: &[Input]) -> Option<Failure> {
    inputs.iter().find_map(|input| {
        let Input::Path(path) = input else { return None };
        let name = path.display();
        let quoted = in_shell(path);
        if path.is_file()
            && let Ok(Some(format)) = recognise_file(path)
        {
            let error = SortError::OtherFormat {
                input: name.to_string(),
                file: Some(path.clone()),
                format,
                inputs: inputs.len(),
            };
            return Some(error.into());
        }
        if path.is_dir() {
            return Some(Failure::usage(
                format!("{name} is a directory"),
                format!("name the files in it: {}/*", quoted.trim_end_matches('/')),
            ));
        }
        let json = ["json", "jsonl", "ndjson"].iter().any(|extension| has_extension(input, extension));
        (json || begins_as_json(path)).then(|| {
            Failure::usage(
                format!("{name} is JSON, and ascot cannot sort by its fields"),
                format!(
                    "convert it to CSV first, such as with jq -r '[.FIELD, .OTHER] | @csv' {quoted} | ascot \
                     sort --csv --key '#1'"
                ),
            )
        })
    })
}

fn begins_as_json(path: &Path) -> bool {
    let mut head = [0; 64];
    // Opening a pipe would wait for its writer.
    if !path.is_file() {
        return false;
    }
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let mut bytes = head[..read].iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    match (bytes.next(), bytes.next()) {
        (Some(b'{'), next) => matches!(next, Some(b'"' | b'}') | None),
        (Some(b'['), next) => matches!(next, Some(b'{' | b'[' | b'"' | b']') | None),
        _ => false,
    }
}

/// Refuses `-d ';'` in its meaning in other programs: here -d is dictionary order, and the next word is a file name.
fn refuse_separator_of_d(matches: &ArgMatches, inputs: &[Input]) -> Result<()> {
    if !matches.get_flag("dictionary-order") {
        return Ok(());
    }
    let meant = inputs.iter().find_map(|input| {
        let Input::Path(path) = input else { return None };
        let text = path.to_str()?;
        let one = text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_punctuation() || byte == b'\t');
        ((one || ["\\t", "tab", ""].contains(&text)) && !path.exists()).then_some(text)
    });
    match meant {
        None => Ok(()),
        Some(text) => Err(Failure::usage(
            format!(
                "-d '{text}': -d is dictionary order and takes no value, so '{text}' is the name of a \
                 file, which does not exist"
            ),
            format!("for a separator write --separator '{text}', or -t '{text}'"),
        )),
    }
}

fn column_keys(texts: &[String], reverse: bool) -> Result<Vec<CsvKeySpec>> {
    let mut columns = Vec::new();
    for text in texts {
        columns.extend(parse_csv_keys(text).map_err(|error| {
            Failure::usage(error.to_string(), "write columns as in --key tenant,-ts or --key '#1,#3:number'")
        })?);
    }
    if columns.is_empty() && reverse {
        return Err(Failure::usage(
            "-r with CSV needs a column to reverse",
            "add --key COLUMN, or --key COLUMN:desc",
        ));
    }
    columns.iter_mut().for_each(|column| column.descending ^= reverse);
    Ok(columns)
}

/// The keys with the spellings of `--null`.
fn with_nulls(mut keys: Vec<CsvKeySpec>, matches: &ArgMatches) -> Result<Vec<CsvKeySpec>> {
    let nulls = null_texts(matches)?;
    keys.iter_mut().for_each(|key| key.nulls.clone_from(&nulls));
    Ok(keys)
}

pub(super) fn null_texts(matches: &ArgMatches) -> Result<Vec<String>> {
    let text = |text: &OsString| {
        text.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::usage(
                format!("--null '{}' is not valid UTF-8", text.display()),
                "give a spelling in UTF-8",
            )
        })
    };
    values::all(matches, "null").map(text).collect()
}

/// Refuses flags about column values if the layout has no columns.
fn refuse_without_csv(matches: &ArgMatches, layout: Layout) -> Result<()> {
    let given = [("null", "--null"), ("strict", "--strict")]
        .into_iter()
        .find(|(id, _)| values::is_given(matches, id));
    match (given, layout) {
        (Some((_, flag)), layout) if !matches!(layout, Layout::Csv { .. }) => Err(Failure::usage(
            format!("{flag} applies only to columns of CSV; the format is {layout}"),
            format!("add --csv and --key COLUMN, or drop {flag}"),
        )),
        _ => Ok(()),
    }
}

fn range_keys(texts: &[String], reverse: bool) -> Result<Vec<ByteRangeKey>> {
    parse_range_keys(texts, reverse).map_err(|error| {
        Failure::usage(error.to_string(), "bytes are counted from 0; several ranges: --key 0..10,12..16")
    })
}

fn number_keys(texts: &[String], reverse: bool) -> Result<Keys> {
    match texts.first() {
        None => Ok(Keys::Value { descending: reverse }),
        Some(text) => Err(Failure::usage(
            format!("--key {text}: a number is its own key"),
            "drop --key; -r puts the largest first",
        )),
    }
}
