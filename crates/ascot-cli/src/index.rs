//! `ascot index get`, `range`, `info`, `verify` and `rollback`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use ascot_index::{
    Condition, Directory, IndexError, Info, Named, PartitionBy, RolledBack, Scan, Scheme, Sign,
    UnknownEpochs, Unread, Verified, roll_back,
};
use ascot_io::Disk;
use ascot_model::units;
use ascot_record::hex::{from_hex, to_hex};
use clap::ArgMatches;
use serde_json::json;

use crate::failure::{Failure, Result, STATUS_OF_DISORDER, STATUS_OF_ERROR};
use crate::index_build;
use crate::index_output::{Form, Output};
use crate::job_trace::RequestedTrace;
use crate::monitoring::watched;
use crate::numbers;
use crate::request::memory_or;
use crate::sys::print;
use crate::values;

/// Default memory of a reader, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;

/// Runs one of the commands.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    match matches.subcommand() {
        Some(("build", matches)) => index_build::build(matches),
        Some(("get", matches)) => get(matches),
        Some(("range", matches)) => range(matches),
        Some(("info", matches)) => info(matches),
        Some(("verify", matches)) => verify(matches),
        Some(("rollback", matches)) => rollback(matches),
        Some(("plan", matches)) => index_build::plan(matches),
        _ => Err(Failure::usage("no command given", "ascot index --help lists them")),
    }
}

fn open(matches: &ArgMatches) -> Result<Directory> {
    open_on(matches, &Disk::default(), DEFAULT_MEMORY_BYTES)
}

/// Opens the directory with the memory of the command line or `default` bytes.
pub fn open_on(matches: &ArgMatches, disk: &Disk, default: u64) -> Result<Directory> {
    let path = values::path(matches, "dir").unwrap_or_default();
    let bytes = memory_or(matches, default)?;
    Ok(Directory::open(disk, &path, usize::try_from(bytes).unwrap_or(usize::MAX))?)
}

/// Converts a key as users write it.
fn key(text: &str, directory: &Directory) -> Result<Vec<u8>> {
    let bad =
        |what: String| Failure::usage(what, "write 0x and hexadecimal digits, le:NUMBER, be:NUMBER, or text");
    if let Some(digits) = text.strip_prefix("0x") {
        return from_hex(digits)
            .ok_or_else(|| bad(format!("'{text}' is not a key: 0x needs pairs of hexadecimal digits")));
    }
    let number = text
        .strip_prefix("le:")
        .map(|rest| (rest, false))
        .or(text.strip_prefix("be:").map(|rest| (rest, true)));
    let Some((digits, high_first)) = number else { return Ok(text.as_bytes().to_vec()) };
    let number: u128 = digits.parse().map_err(|_| bad(format!("'{text}' is not a number")))?;
    let Some(length) = directory.manifest().layout.key_bytes.map(|bytes| bytes as usize) else {
        return Err(bad(
            "keys of this directory have no fixed length, so a number does not determine the length of its \
             key"
            .into(),
        ));
    };
    let mut bytes = number.to_le_bytes().to_vec();
    if bytes.iter().skip(length).any(|&byte| byte > 0) {
        return Err(bad(format!("{digits} does not fit in the {length} bytes of a key")));
    }
    bytes.resize(length, 0);
    if high_first {
        bytes.reverse();
    }
    Ok(bytes)
}

fn get(matches: &ArgMatches) -> Result<u8> {
    let keys: Vec<PathBuf> = values::path(matches, "keys-file").into_iter().collect();
    let dir = values::path(matches, "dir").unwrap_or_default();
    let trace = RequestedTrace::start_beside(matches, &keys, &dir)?;
    let status = get_on(matches, &trace.disk())?;
    trace.commit()?;
    Ok(status)
}

fn get_on(matches: &ArgMatches, disk: &Disk) -> Result<u8> {
    let directory = open_on(matches, disk, DEFAULT_MEMORY_BYTES)?;
    let keys = wanted(matches, &directory)?;
    let many = matches.get_one::<OsString>("keys-file").is_some();
    let epoch = epoch(matches, &directory)?;
    let mut out = Output::new(&directory, Form::requested(matches))?;
    let mut found = 0;
    let mut unknown = Unknown::default();
    let done = directory.stored_many_there(&keys, epoch, |number, values, unknown_epochs| {
        let key = &keys[number][..];
        found += values.len();
        unknown_epochs.into_iter().for_each(|epochs| unknown.add(key, epochs));
        values.iter().try_for_each(|value| out.value(many.then_some(key), value))
    });
    out.finish(done)?;
    tell_notices(&directory);
    tell_counts(matches, &directory);
    if unknown.tell() {
        return Ok(STATUS_OF_ERROR);
    }
    Ok(if found == 0 { STATUS_OF_DISORDER } else { 0 })
}

/// The requested epoch, if any; it must be complete.
fn epoch(matches: &ArgMatches, directory: &Directory) -> Result<Option<u64>> {
    let epoch = numbers::whole(matches, "epoch")?;
    let epochs = directory.manifest().epochs;
    match epoch {
        Some(epoch) if epoch >= epochs => Err(Failure::usage(
            format!("there is no epoch {epoch}: {} complete, counted from 0", are(epochs, "epoch")),
            "ascot index info lists them",
        )),
        epoch => Ok(epoch),
    }
}

/// `1 epoch is`, `9 epochs are`.
fn are(count: u64, noun: &str) -> String {
    format!("{} {}", units::plural(count, noun), if count == 1 { "is" } else { "are" })
}

/// Keys whose values are not all known, by reason.
#[derive(Default)]
struct Unknown {
    by_error: BTreeMap<String, (u64, String)>,
}

impl Unknown {
    fn add(&mut self, key: &[u8], unknown: UnknownEpochs) {
        let UnknownEpochs { epochs, error } = unknown;
        let named = match epochs.end.saturating_sub(epochs.start) {
            0 | 1 => format!("epoch {}", epochs.start),
            _ => format!("epochs {} to {}", epochs.start, epochs.end - 1),
        };
        let first = || (0, format!("0x{} in {named}", to_hex(key)));
        self.by_error.entry(error.to_string()).or_insert_with(first).0 += 1;
    }

    /// Reports the unknown values, if any.
    fn tell(&self) -> bool {
        for (error, (count, first)) in &self.by_error {
            let others = match count - 1 {
                0 => String::new(),
                more => format!(", and {} like it", units::plural(more, "case")),
            };
            eprintln!(
                "ascot: {error}\n  so the values of {first} are unknown{others}; all other values were read"
            );
        }
        !self.by_error.is_empty()
    }
}

/// Reports what could not be read, if anything.
fn tell_unread(unread: &Unread) -> bool {
    unread.errors.iter().for_each(|error| eprintln!("ascot: {error}"));
    if !unread.is_nothing() {
        let more = if unread.more > 0 { format!("and {} more; ", unread.more) } else { String::new() };
        eprintln!("  {more}the output contains the records of all other files and blocks");
    }
    !unread.is_nothing()
}

/// Prints the counts of `--stats`.
fn tell_counts(matches: &ArgMatches, directory: &Directory) {
    if !matches.get_flag("stats") {
        return;
    }
    let counts = directory.counts();
    let reads = counts.opening_reads
        + counts.auxiliary_reads
        + counts.filter_reads
        + counts.block_reads
        + counts.value_reads;
    eprintln!(
        "read {} in {}: {} to open, {} of auxiliary tables ({} named), {} of filters, {} of blocks ({} in \
         vain), {} of values; {} opened, {}",
        units::bytes(counts.bytes),
        units::plural(reads, "read"),
        counts.opening_reads,
        counts.auxiliary_reads,
        units::plural(counts.ranks_named, "rank"),
        counts.filter_reads,
        counts.block_reads,
        counts.false_positives,
        counts.value_reads,
        units::plural(counts.files_opened, "file"),
        units::plural(counts.files_inspected, "other metadata call"),
    );
}

fn tell_notices(directory: &Directory) {
    let notices = directory.take_notices();
    notices
        .texts
        .iter()
        .for_each(|notice| eprintln!("ascot: {notice}\n  ascot index verify reports all damage"));
    if notices.more > 0 {
        eprintln!("ascot: and {} more like these", notices.more);
    }
}

fn wanted(matches: &ArgMatches, directory: &Directory) -> Result<Vec<Vec<u8>>> {
    if let Some(file) = values::path(matches, "keys-file") {
        let text =
            if file.as_os_str() == "-" { io::read_to_string(io::stdin()) } else { fs::read_to_string(&file) };
        let text = text.map_err(Failure::file(&file, "cannot read the keys"))?;
        return text.lines().filter(|line| !line.is_empty()).map(|line| key(line, directory)).collect();
    }
    values::word(matches, "key").map(|text| key(text, directory)).into_iter().collect()
}

fn range(matches: &ArgMatches) -> Result<u8> {
    let directory = open(matches)?;
    let text = values::word(matches, "range").unwrap_or("");
    let Some((from, end)) = text.split_once("..") else {
        return Err(Failure::usage(
            format!("'{text}' is not a range of keys"),
            "write: A..B, A.., ..B or ..",
        ));
    };
    let bound = |text: &str| (!text.is_empty()).then(|| key(text, &directory)).transpose();
    let scan = Scan {
        from: bound(from)?.unwrap_or_default(),
        end: bound(end)?,
        epoch: epoch(matches, &directory)?,
        condition: values::word(matches, "where").map(|text| condition(text, &directory)).transpose()?,
        by_key: !matches.get_flag("unordered"),
    };
    if scan.end.as_ref().is_some_and(|end| *end < scan.from) {
        return Err(Failure::usage("the range ends before it begins", "write the smaller key first"));
    }
    let mut out = Output::new(&directory, Form::requested(matches))?;
    let mut unread = Unread::default();
    let done = directory.scan_stored_there(&scan, &mut unread, |record| out.record(&record));
    out.finish(done)?;
    tell_notices(&directory);
    tell_counts(matches, &directory);
    Ok(if tell_unread(&unread) { STATUS_OF_ERROR } else { 0 })
}

/// Parses a condition such as `NAME>X`.
fn condition(text: &str, directory: &Directory) -> Result<Condition> {
    const SIGNS: [(&str, Sign); 4] =
        [(">=", Sign::AtLeast), ("<=", Sign::AtMost), (">", Sign::Above), ("<", Sign::Below)];
    let found = SIGNS.iter().find_map(|(spelled, sign)| {
        let (name, number) = text.split_once(spelled)?;
        let number = number.trim().parse::<f64>().ok().filter(|number| !number.is_nan())?;
        Some((name.trim(), *sign, number))
    });
    let Some((name, sign, number)) = found else {
        return Err(Failure::usage(
            format!("'{text}' is not a condition"),
            "write NAME>X, NAME>=X, NAME<X or NAME<=X, where X is a number",
        ));
    };
    match &directory.manifest().layout.attribute {
        Some(attribute) if attribute.name == name => Ok(Condition { sign, number }),
        Some(attribute) => Err(Failure::usage(
            format!("there is no attribute {name}"),
            format!("this directory has {}", attribute.name),
        )),
        None => Err(Failure::usage(
            "this directory was made without an attribute",
            "ascot index build --attribute NAME=OFFSET:TYPE declares one",
        )),
    }
}

fn info(matches: &ArgMatches) -> Result<u8> {
    let directory = open(matches)?;
    let (info, unread) = directory.info()?;
    print(&if matches.get_flag("json") {
        info_json(&directory, &info)?
    } else {
        info_text(&directory, &info)
    })?;
    Ok(if tell_unread(&unread) { STATUS_OF_ERROR } else { 0 })
}

fn info_json(directory: &Directory, info: &Info) -> Result<String> {
    let mut json = json!(info);
    json["manifest"] = json!(directory.manifest());
    numbers::json_line(&json)
}

fn info_text(directory: &Directory, info: &Info) -> String {
    let manifest = directory.manifest();
    let layout = &manifest.layout;
    let scheme = layout.scheme.name();
    let by = if layout.partition_by == PartitionBy::Range { "range" } else { "hash" };
    let length =
        |bytes: Option<u32>| bytes.map_or("of any length".into(), |bytes| format!("of {bytes} bytes"));
    let records: u64 = info.epochs.iter().map(|epoch| epoch.records()).sum();
    let state = if manifest.closed { "closed" } else { "not closed: its writer is running, or was stopped" };
    let lines = [
        format!("{}, {}, {state}", units::plural(records, "record"), units::plural(manifest.epochs, "epoch")),
        format!(
            "  scheme      {scheme}; {} by {by}, {}",
            units::plural(layout.partitions.into(), "partition"),
            units::plural(layout.writers.into(), "writer")
        ),
        format!("  records     keys {}, values {}", length(layout.key_bytes), length(layout.value_bytes)),
        format!(
            "  on disk     {} of data, {} of indexes",
            units::bytes(info.data_bytes),
            units::bytes(info.index_bytes)
        ),
    ];
    let mut text = lines.join("\n") + "\n";
    for (epochs, shape) in manifest.sections().filter(|_| !manifest.earlier.is_empty()) {
        text += &format!(
            "  epochs      {} to {}: {}, {}\n",
            epochs.start,
            epochs.end.saturating_sub(1),
            units::plural(shape.partitions.into(), "partition"),
            units::plural(shape.writers.into(), "writer")
        );
    }
    if let Some(attribute) = &layout.attribute {
        text += &format!("  attribute   {} at byte {} of values\n", attribute.name, attribute.offset);
    }
    if info.tail_bytes > 0 {
        text +=
            &format!("  unfinished  {} of an epoch that was not completed\n", units::bytes(info.tail_bytes));
    }
    text += "\n  epoch       records    tables  reads of filters  bits a key: filters  auxiliary\n";
    for (number, epoch) in info.epochs.iter().enumerate() {
        let kept = if layout.scheme == Scheme::Ranks { epoch.writer_records } else { epoch.records() };
        let auxiliary = epoch.auxiliary_bytes as f64 * 8.0 / epoch.records().max(1) as f64;
        text += &format!(
            "  {number:5} {:>13} {:>9} {:>17} {:>20.1} {auxiliary:>10.1}\n",
            units::count(epoch.records()),
            units::count(epoch.tables),
            epoch.segments_max,
            epoch.filter_bits(kept)
        );
    }
    text
}

fn rollback(matches: &ArgMatches) -> Result<u8> {
    let path = values::path(matches, "dir").unwrap_or_default();
    let epochs = numbers::whole(matches, "to-epoch")?.unwrap_or_default();
    let done = roll_back(&Disk::default(), &path, epochs)?;
    let RolledBack { kept, dropped, freed_bytes } = done;
    if matches.get_flag("json") {
        let told = json!({ "epochs": kept, "dropped": dropped, "freed_bytes": freed_bytes });
        print(&numbers::json_line(&told)?)?;
    } else if !matches.get_flag("quiet") {
        eprintln!(
            "{}: {} complete, {} dropped, {} freed; the next is epoch {kept}",
            path.display(),
            are(kept, "epoch"),
            units::count(dropped),
            units::bytes(freed_bytes)
        );
    }
    Ok(0)
}

fn verify(matches: &ArgMatches) -> Result<u8> {
    let verified = watched(matches, || match open(matches) {
        // The manifest is part of the directory.
        Err(Failure::Index(error @ IndexError::Damaged { .. })) => {
            Ok(Verified { problems: vec![error.to_string()], ..Verified::default() })
        }
        directory => Ok(directory?.verify()?),
    })?;
    let text = if matches.get_flag("json") { verified_json(&verified)? } else { verified_text(&verified) };
    print(&text)?;
    Ok(if verified.is_whole() { 0 } else { STATUS_OF_DISORDER })
}

fn verified_json(verified: &Verified) -> Result<String> {
    let mut json = json!(verified);
    json["whole"] = verified.is_whole().into();
    numbers::json_line(&json)
}

fn verified_text(verified: &Verified) -> String {
    let seen = format!(
        "{}, {}, {}, {}",
        units::plural(verified.logs, "log"),
        units::plural(verified.tables, "table"),
        units::plural(verified.blocks, "block"),
        units::plural(verified.records, "record")
    );
    if verified.is_whole() {
        return format!("whole: {seen}\n");
    }
    let more = if verified.more_problems > 0 {
        format!("and {} more\n", verified.more_problems)
    } else {
        String::new()
    };
    format!("{}\n{more}damaged; checked {seen}\n", verified.problems.join("\n"))
}
