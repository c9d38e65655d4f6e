//! `ascot sort --cluster`: the request for the process that runs it.
//!
//! Records and keys keep the words of the flags, which the package understands as the command does. They are read
//! here, too, so that a mistake has the same message as in a job on one machine.

use std::path::{Path, PathBuf};

use ascot_io::Compression;
use ascot_record::layout::Layout;
use ascot_sort::request::{Input, Keys, Output, SortRequest};
use clap::ArgMatches;
use serde_json::{Map, Value, json};

use super::{inputs, records, resources};
use crate::failure::{Failure, Result};
use crate::values;

/// A job for a cluster.
pub struct ClusterRequest {
    /// The files that it reads and writes, for checks of names.
    pub files: SortRequest,
    /// The request of the process.
    pub line: Value,
}

/// Flags that a cluster does not serve: identifier, flag, and what to do instead.
const REFUSED: &[(&str, &str, &str)] = &[
    ("unique", "--unique", "sort first, then: ascot merge --unique OUTPUT/* -o FILE"),
    ("top", "--top", "sort on one machine: ascot sort --top N keeps only N records in memory"),
    ("merge", "--merge", "merge on one machine: ascot merge"),
    ("check-diagnose", "-c", "ascot check DIR checks the parts of an output"),
    ("check-quiet", "-C", "ascot check --quiet DIR checks the parts of an output"),
    ("check", "--check", "ascot check DIR checks the parts of an output"),
    ("explain", "--explain", "ascot plan cluster predicts the time of a sort on a cluster"),
    ("view", "--view", "write: -o DIR --parts-as views"),
    ("reads", "--reads", "make the view on one machine"),
    ("method", "--method", "a cluster always divides the records by their keys"),
    ("volume", "--volume", "the disks of the nodes need no profile"),
    ("volume-in", "--volume-in", "the disks of the nodes need no profile"),
    ("batch-size", "--batch-size", "the memory of the nodes decides how many files are merged at once"),
    ("trace", "--trace", "trace a sort on one machine"),
    ("monitor", "--monitor", "the report has the time of each node: --report FILE"),
    ("random-sort", "--random-sort", "random order is for one machine"),
    ("random-source", "--random-source", "random order is for one machine"),
];

/// The request of a sort on a cluster.
pub fn cluster_request(matches: &ArgMatches) -> Result<ClusterRequest> {
    for (id, flag, instead) in REFUSED {
        if values::is_given(matches, id) {
            return Err(Failure::usage(format!("a cluster does not serve {flag}"), instead));
        }
    }
    let inputs = inputs::inputs(matches)?;
    let paths = inputs.iter().map(file).collect::<Result<Vec<_>, _>>()?;
    let records = records::records(matches, &inputs)?;
    let output = output(matches)?;
    let texts = records::key_texts(matches)?;
    let letters = records::order_letters(matches)?;
    if is_random(&records.keys) {
        return Err(Failure::usage("a cluster does not serve random order (R)", "sort on one machine"));
    }
    let temp = values::paths(matches, "temp");
    let line = json!({
        "verb": "sort",
        "inputs": texts_of(&paths)?,
        "output": text_of(&output)?,
        "records": {
            "layout": records.layout.to_string(),
            "keys": texts,
            "order": letters.into_iter().collect::<String>(),
            "reverse": values::flag(matches, "reverse"),
            "separator": separator(matches, records.layout)?,
            "quote": quote(records.layout),
            "nulls": records::null_texts(matches)?,
            "header": records.header,
        },
        "strict": values::flag(matches, "strict"),
        "any_format": records.any_format,
        "stable": values::flag(matches, "stable"),
        "memory": resources::memory_of_nodes(matches)?,
        "threads": resources::threads(matches)?,
        "parts": super::number_of_parts(matches)?,
        "temp": texts_of(&temp)?,
        "compress": word(resources::compression(matches)),
        "settings": settings(matches)?,
        "uniform": values::flag(matches, "uniform"),
        "transport": values::word(matches, "transport"),
        "shuffle": values::word(matches, "shuffle"),
        "parts_as": values::word(matches, "parts-as"),
        "cluster": values::word(matches, "cluster"),
        "keep": resources::keeps_on_interrupt(matches),
    });
    let files = SortRequest::new(inputs, Output::Path(output), records.layout, records.keys);
    Ok(ClusterRequest { files, line })
}

/// The request to continue the job in a directory.
pub fn resume_request(matches: &ArgMatches, dir: &Path) -> Result<Value> {
    if values::is_given(matches, "memory") {
        return Err(Failure::usage(
            "--memory does not apply to a job of a cluster that is resumed",
            "the job keeps its division of the memory: leave out --memory, or remove the job (ascot clean) and \
             start it again",
        ));
    }
    Ok(json!({
        "verb": "resume",
        "job": text_of(dir)?,
        "cluster": values::word(matches, "cluster"),
        "transport": values::word(matches, "transport"),
    }))
}

/// The request to remove the job in a directory.
pub fn remove_request(dir: &Path) -> Result<Value> {
    Ok(json!({ "verb": "remove", "job": text_of(dir)? }))
}

/// The settings, by their names. The package knows these, and checks the values.
fn settings(matches: &ArgMatches) -> Result<Map<String, Value>> {
    let mut settings = Map::new();
    for text in matches.get_many::<String>("setting").into_iter().flatten() {
        let refused = |problem| {
            Failure::usage(format!("--setting {text} {problem}"), "write --setting NAME=VALUE once")
        };
        let (name, value) = text.split_once('=').ok_or_else(|| refused("has no value"))?;
        if settings.insert(name.to_owned(), Value::from(value)).is_some() {
            return Err(refused("is given twice"));
        }
    }
    Ok(settings)
}

fn file(input: &Input) -> Result<PathBuf> {
    match input {
        Input::Path(path) => Ok(path.clone()),
        Input::Range(_) | Input::Stdin | Input::Program => Err(Failure::usage(
            "a cluster sorts files, which every node reads, not standard input",
            "name files on storage that all nodes share",
        )),
    }
}

/// The directory of the parts.
fn output(matches: &ArgMatches) -> Result<PathBuf> {
    let mut names = values::all(matches, "output");
    match (names.next(), names.next()) {
        (Some(name), None) if !name.is_empty() => Ok(PathBuf::from(name)),
        (Some(name), None) => {
            Err(Failure::usage(format!("-o is given an empty name '{}'", name.display()), "name a directory"))
        }
        (Some(_), Some(_)) => Err(Failure::usage("-o is given twice", "keep one -o")),
        (None, _) => Err(Failure::usage(
            "--cluster needs a directory for the result",
            "write: -o DIR; its files, in order, are the result",
        )),
    }
}

/// The separator of fields of lines.
fn separator(matches: &ArgMatches, layout: Layout) -> Result<Option<u8>> {
    if matches!(layout, Layout::Lines { .. }) { records::separator(matches) } else { Ok(None) }
}

fn quote(layout: Layout) -> Option<u8> {
    if let Layout::Csv { quote, .. } = layout { Some(quote) } else { None }
}

fn is_random(keys: &Keys) -> bool {
    matches!(keys, Keys::Command(options) if options.needs_salt())
}

fn word(compression: Compression) -> &'static str {
    match compression {
        Compression::Auto => "auto",
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

fn texts_of(paths: &[PathBuf]) -> Result<Vec<&str>> {
    paths.iter().map(|path| text_of(path)).collect()
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Failure::usage(format!("'{}' is not UTF-8", path.display()), "files of a cluster have names in UTF-8")
    })
}
