//! Converts the flags of a command line to a request to the library.
//!
//! ```text
//! flags ──> inputs ──> layout ──> keys ──┐
//!       ──> memory, disks, threads ──────┴──> SortRequest
//! ```
//!
//! All errors that can be found without opening a file are reported here, with the correct form.

mod cluster;
mod flow;
mod inputs;
mod random;
mod records;
mod resources;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

use ascot_sort::request::{InputChecks, Output, Parts, SortRequest, SplitBy};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::size;
use crate::values;
use crate::volume;

pub use cluster::{cluster_request, remove_request, resume_request};
pub use flow::flow_request;
pub use records::{SORT_WORDS, are_text_by_name, named_records};
pub use resources::{
    is_compression_program, keeps_on_interrupt, lowered_cap, memory_of_resumed, memory_or, threads,
    usual_temp_dirs,
};

/// The task of `ascot sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sort or merge.
    Sort,
    /// Check, and report the first disorder.
    CheckAloud,
    /// Check silently.
    CheckQuietly,
}

/// The mode that the flags select.
pub fn mode(matches: &ArgMatches) -> Result<Mode> {
    let word = values::word(matches, "check");
    let named = match word {
        None => None,
        Some(word) => Some(one_of("--check", word, &["diagnose-first", "quiet", "silent"])?),
    };
    let aloud = matches.get_flag("check-diagnose") || named == Some("diagnose-first");
    let quietly = matches.get_flag("check-quiet") || matches!(named, Some("quiet" | "silent"));
    match (aloud, quietly) {
        (true, true) => Err(Failure::usage(
            "options '-cC' are incompatible",
            "-c names the disorder, -C is silent: keep one",
        )),
        (true, false) => Ok(Mode::CheckAloud),
        (false, true) => Ok(Mode::CheckQuietly),
        (false, false) => Ok(Mode::Sort),
    }
}

/// The request of a sort, merge or check.
pub fn sort_request(matches: &ArgMatches, mode: Mode) -> Result<SortRequest> {
    let inputs = inputs::inputs(matches)?;
    if mode != Mode::Sort {
        refuse_with_check(matches, mode, inputs.len())?;
    }
    let records = records::records(matches, &inputs)?;
    let volumes = volume::given(matches)?;
    Ok(SortRequest {
        inputs,
        output: output(matches)?,
        layout: records.layout,
        keys: records.keys,
        header: records.header,
        checks: InputChecks { any_format: records.any_format, strict: values::flag(matches, "strict") },
        unique: values::flag(matches, "unique"),
        stable: values::flag(matches, "stable"),
        merge_only: values::flag(matches, "merge"),
        top: count(matches, "top", "--top")?,
        memory_bytes: resources::memory(matches)?,
        temp_dirs: values::paths(matches, "temp"),
        method: resources::method(matches),
        compression: resources::compression(matches),
        threads: resources::threads(matches)?,
        batch_size: resources::batch_size(matches)?,
        boundaries: boundaries(matches)?,
        route: records.route,
        volumes,
    })
}

/// Refuses flags that do not apply to a resumed job, which has its own settings.
pub fn refuse_with_resume(matches: &ArgMatches) -> Result<()> {
    const TAKEN: &[&str] = &[
        "resume",
        "memory",
        "cluster",
        "transport",
        "keep-on-interrupt",
        "report",
        "trace",
        "monitor",
        "progress",
        "quiet",
        "verbose",
    ];
    let given = matches.ids().map(clap::Id::as_str).find(|id| {
        let on_line = values::is_given(matches, id);
        on_line && !TAKEN.contains(id)
    });
    match given {
        None => Ok(()),
        Some("files") => Err(Failure::usage(
            "--resume takes no files: the job knows its inputs",
            "write: ascot sort --resume DIR",
        )),
        Some(id) => Err(Failure::usage(
            format!(
                "--resume allows no other flags than --memory, --keep-on-interrupt, --report, --trace, \
                 --monitor, --progress, --quiet, --verbose; found {id}"
            ),
            "the job keeps its own flags: ascot sort --resume DIR",
        )),
    }
}

/// Notices about flags that are accepted but do something else, or nothing.
pub fn notices(matches: &ArgMatches) -> Vec<String> {
    let mut notices = Vec::new();
    if values::flag(matches, "debug") {
        notices.push("--debug has no effect; --explain shows the plan of the job".to_owned());
    }
    notices.extend(resources::compression_notice(matches));
    notices.extend(resources::memory_notice(matches));
    notices
}

/// The destination of the result. Several different names are a mistake, as in the sort command.
pub fn output(matches: &ArgMatches) -> Result<Output> {
    let mut names = values::all(matches, "output");
    let Some(first) = names.next() else {
        return match number_of_parts(matches)? {
            None => Ok(Output::Stdout),
            Some(_) => Err(Failure::usage("--parts needs names for the parts", "write: -o 'part-{:05}'")),
        };
    };
    if first.is_empty() {
        return Err(Failure::usage("-o is given an empty name", "name a file, or leave -o out"));
    }
    if let Some(other) = names.find(|name| *name != first) {
        return Err(Failure::usage(
            format!("multiple output files specified: {} and {}", first.display(), other.display()),
            "keep one -o",
        ));
    }
    // Its existing contents stay, and so do those that others write to it: it is not a file of ours.
    const STANDARD_OUTPUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    match number_of_parts(matches)? {
        None if STANDARD_OUTPUT.iter().any(|name| first == name) => Ok(Output::Stdout),
        None => Ok(Output::Path(PathBuf::from(first))),
        Some(_) if values::flag(matches, "unique") || values::word(matches, "top").is_some() => {
            Err(Failure::usage(
                "--parts cannot be combined with --unique or --top",
                "the sizes of parts follow from the size of the inputs: write one file first, then: ascot \
                 reshape FILE --parts N",
            ))
        }
        Some(count) => {
            let pattern = first.to_str().ok_or_else(|| {
                Failure::usage(format!("'{}' is not UTF-8", first.display()), "name parts in UTF-8")
            })?;
            Ok(Output::Parts(Parts::new(pattern, count)?))
        }
    }
}

/// `--parts`.
fn number_of_parts(matches: &ArgMatches) -> Result<Option<u32>> {
    let Some(text) = values::word(matches, "parts") else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(count) if count > 0 => Ok(Some(count)),
        _ => Err(Failure::usage(
            format!("invalid --parts argument '{text}'"),
            "accepted: a whole number of at least 1",
        )),
    }
}

/// The kind of split: `--by`, or the kind that the keys imply.
pub fn split_by(matches: &ArgMatches) -> Result<SplitBy> {
    let keyed = matches.contains_id("key");
    match values::word(matches, "by") {
        Some("range") => Ok(SplitBy::Range),
        Some("hash") => Ok(SplitBy::Hash),
        Some(_) if keyed => Err(Failure::usage(
            "--by size does not use a key",
            "leave out --key, or split --by range or --by hash",
        )),
        None if keyed || values::is_given(matches, "boundaries") => Ok(SplitBy::Range),
        _ => Ok(SplitBy::Size),
    }
}

/// `--boundaries` of a split, which is then by range.
fn boundaries(matches: &ArgMatches) -> Result<Option<PathBuf>> {
    let file = values::path(matches, "boundaries");
    if file.is_some() && split_by(matches)? != SplitBy::Range {
        return Err(Failure::usage(
            "--boundaries divides keys into ranges, which --by hash and --by size do not use",
            "split --by range, with a key",
        ));
    }
    Ok(file)
}

fn refuse_with_check(matches: &ArgMatches, mode: Mode, inputs: usize) -> Result<()> {
    let letter = if mode == Mode::CheckAloud { 'c' } else { 'C' };
    if inputs > 1 {
        let extra = matches.get_many::<OsString>("files").and_then(|mut files| files.nth(1));
        let extra = extra.map(|file| format!("extra operand '{}'", file.display()));
        return Err(Failure::usage(
            format!("{} not allowed with -{letter}", extra.unwrap_or_else(|| "more than one file is".into())),
            format!("check files one by one, or all as one sequence: cat FILES | ascot sort -{letter}"),
        ));
    }
    const WRITES: [(&str, &str); 5] = [
        ("output", "-o"),
        ("top", "--top"),
        ("explain", "--explain"),
        ("report", "--report"),
        ("trace", "--trace"),
    ];
    for (id, flag) in WRITES {
        if values::is_given(matches, id) {
            return Err(Failure::usage(
                format!("options '-{letter}' and '{flag}' are incompatible"),
                format!("-{letter} only checks and writes nothing: drop {flag} or -{letter}"),
            ));
        }
    }
    Ok(())
}

/// A count, if the flag or argument is given.
pub fn count(matches: &ArgMatches, id: &str, flag: &'static str) -> Result<Option<u64>> {
    let Some(text) = values::word(matches, id) else { return Ok(None) };
    size::count(text).map(Some).map_err(|source| Failure::Size { flag: flag.into(), source })
}

/// `--start` of `ascot gen`.
pub fn record_number(matches: &ArgMatches) -> Result<u128> {
    let Some(text) = values::word(matches, "start") else { return Ok(0) };
    size::record_number(text).map_err(|source| Failure::Size { flag: "--start".into(), source })
}

/// The one of `words` that `word` equals or unambiguously begins.
fn one_of<'w>(flag: &str, word: &str, words: &[&'w str]) -> Result<&'w str> {
    let exact = words.iter().find(|candidate| **candidate == word);
    let mut like = words.iter().filter(|candidate| !word.is_empty() && candidate.starts_with(word));
    match (exact, like.next(), like.next()) {
        (Some(word), _, _) | (None, Some(word), None) => Ok(word),
        _ => Err(Failure::usage(
            format!("invalid argument '{word}' for {flag}"),
            format!("accepted: {}", words.join(", ")),
        )),
    }
}
