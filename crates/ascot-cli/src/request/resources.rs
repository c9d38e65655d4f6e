//! The resources of a job: memory, processors, compression of its spill files.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

use ascot_io::Compression;
use ascot_model::units;
use ascot_sort::plan::budget::MIN_MEMORY_BYTES;
use ascot_sort::plan::volumes::environment_temp_dirs;
use ascot_sort::request::Method;
use ascot_sort::resources::control_group::LoweredCap;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::size::{self, Amount, SizeError};
use crate::sys;
use crate::values;

const VARIABLE: &str = "ASCOT_MEMORY";
const KEEP_VARIABLE: &str = "ASCOT_KEEP_ON_INTERRUPT";

/// The cap in bytes: the requested one, or as much of it as the control group allows.
pub fn memory(matches: &ArgMatches) -> Result<Option<u64>> {
    Ok(memory_asked(matches)?.map(lowered))
}

/// The cap in bytes of a command that uses `usual` by default. It reports a cap that is lower than requested.
pub fn memory_or(matches: &ArgMatches, usual: u64) -> Result<u64> {
    if let Some(notice) = lowered_cap(matches).or_else(|| memory_notice(matches)) {
        // A failed write to standard error has no remedy.
        let _ = writeln!(std::io::stderr().lock(), "ascot: {notice}");
    }
    Ok(memory(matches)?.unwrap_or_else(|| lowered(usual)))
}

/// The requested cap: `--memory`, the largest `-S`, or `ASCOT_MEMORY`.
fn memory_asked(matches: &ArgMatches) -> Result<Option<u64>> {
    let own = values::word(matches, "memory");
    let mut largest = None;
    for text in matches.try_get_many::<String>("buffer-size").ok().flatten().into_iter().flatten() {
        largest = largest.max(Some(bytes("-S", size::buffer_size(text))?));
    }
    match (own, largest) {
        (Some(_), Some(_)) => {
            Err(Failure::usage("both --memory and -S are given", "they mean the same: keep one"))
        }
        (Some(text), None) => bytes("--memory", size::memory_size(text)).map(Some),
        // The sort command takes any size, uses at least what it needs, and at most the memory of the machine.
        (None, Some(largest)) => Ok(Some(largest.min(sys::memory_bytes()).max(MIN_MEMORY_BYTES))),
        (None, None) => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => bytes(VARIABLE, size::memory_size(&text)).map(Some),
            _ => Ok(None),
        },
    }
}

/// The cap of each node of a cluster: `--memory` or `-S`. The variable and shares are of this machine.
pub fn memory_of_nodes(matches: &ArgMatches) -> Result<Option<u64>> {
    if !["memory", "buffer-size"].into_iter().any(|id| values::is_given(matches, id)) {
        return Ok(None);
    }
    if values::word(matches, "memory").is_some_and(|text| text.trim_end().ends_with('%')) {
        return Err(Failure::usage(
            "--memory is not a share on a cluster: nodes differ from this machine",
            "give the memory of each node: --memory 8GiB; by default a job takes half of it",
        ));
    }
    memory_asked(matches)
}

/// The notice that the control group does not allow the requested cap.
pub fn lowered_cap(matches: &ArgMatches) -> Option<String> {
    let asked = memory_asked(matches).ok()??;
    within_group(asked).map(|lowered| lowered.to_string())
}

/// `--memory` of a resumed job. The variable applies only to new jobs.
pub fn memory_of_resumed(matches: &ArgMatches) -> Result<Option<u64>> {
    let text = values::word(matches, "memory");
    text.map(|text| bytes("--memory", size::memory_size(text))).transpose()
}

/// The lowered cap for `asked` bytes in the control group; none if it fits.
fn within_group(asked: u64) -> Option<LoweredCap> {
    LoweredCap::within(asked, sys::control_group()?)
}

/// `asked`, or as much of it as the control group allows.
fn lowered(asked: u64) -> u64 {
    within_group(asked).map_or(asked, |lowered| lowered.cap)
}

/// A notice if the cap exceeds the memory of the machine.
pub fn memory_notice(matches: &ArgMatches) -> Option<String> {
    let cap = memory(matches).ok()??;
    let there = sys::memory_bytes();
    (cap > there).then(|| {
        format!(
            "--memory {} is more than the {} of this machine: the system may swap, or kill the job",
            units::memory(cap),
            units::memory(there)
        )
    })
}

fn bytes(flag: &'static str, amount: Result<Amount, SizeError>) -> Result<u64> {
    match amount {
        Ok(Amount::Bytes(bytes)) => Ok(bytes),
        Ok(share) => Ok(share.bytes_of(sys::memory_bytes())),
        Err(source) => Err(Failure::Size { flag: flag.into(), source }),
    }
}

/// `--method`.
pub fn method(matches: &ArgMatches) -> Method {
    match values::word(matches, "method") {
        Some("merge") => Method::Merge,
        Some("distribute") => Method::Distribute,
        _ => Method::Auto,
    }
}

/// `--compress`, or the equivalent of `--compress-program`.
pub fn compression(matches: &ArgMatches) -> Compression {
    match (values::word(matches, "compress"), program(matches)) {
        (Some("lz4"), _) | (None, Some("lz4")) => Compression::Lz4,
        (Some("zstd"), _) | (None, Some(_)) => Compression::Zstd,
        (Some("none"), _) => Compression::None,
        _ => Compression::Auto,
    }
}

/// Programs that Ascot replaces by its own compression without a notice.
const UNDERSTOOD: &[&str] = &["lz4", "zstd", "gzip", "pigz", "bzip2", "xz", "lzop"];

/// Whether `value`, given with `--compress`, is a compression program and not a word of Ascot's own.
pub fn is_compression_program(value: &OsStr) -> bool {
    let own = ["lz4", "zstd"];
    value
        .to_str()
        .is_some_and(|text| text.contains('/') || (UNDERSTOOD.contains(&text) && !own.contains(&text)))
}

/// A notice about a program that is not run.
pub fn compression_notice(matches: &ArgMatches) -> Option<String> {
    let program = program(matches).filter(|name| !UNDERSTOOD.contains(name))?;
    Some(format!(
        "--compress-program={program} is not run: spills are compressed with zstd (--compress zstd)"
    ))
}

/// The program's name without its directory.
fn program(matches: &ArgMatches) -> Option<&str> {
    let text = values::word(matches, "compress-program")?;
    text.rsplit('/').next()
}

/// The directories for spill files if no `--temp` was given.
pub fn usual_temp_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let named = environment_temp_dirs().into_iter().flatten();
    for dir in named.chain([std::env::temp_dir(), PathBuf::from(".")]) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

/// `--keep-on-interrupt`, or its variable: any value except the empty one and 0.
pub fn keeps_on_interrupt(matches: &ArgMatches) -> bool {
    let given = matches.try_get_one::<bool>("keep-on-interrupt").ok().flatten().copied();
    let variable = std::env::var_os(KEEP_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    given.unwrap_or(false) || variable
}

/// `--threads`, at least one.
pub fn threads(matches: &ArgMatches) -> Result<Option<usize>> {
    at_least(matches, "threads", "--threads", 1)
}

/// `--batch-size`, at least two.
pub fn batch_size(matches: &ArgMatches) -> Result<Option<usize>> {
    at_least(matches, "batch-size", "--batch-size", 2)
}

fn at_least(matches: &ArgMatches, id: &str, flag: &str, min: usize) -> Result<Option<usize>> {
    let Some(text) = values::word(matches, id) else { return Ok(None) };
    match text.parse::<usize>() {
        Ok(number) if number >= min => Ok(Some(number)),
        _ => Err(Failure::usage(
            format!("invalid {flag} argument '{text}'"),
            format!("accepted: a whole number of at least {min}"),
        )),
    }
}
