//! `ascot index build` and `ascot index plan`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ascot_index::format::pointer::WRITERS_MAX;
use ascot_index::load::{MEMORY_BYTES, RecordFiles};
use ascot_index::write::discard;
use ascot_index::{
    Attribute, DirectoryWriter, IndexError, LayoutRequest, Manifest, Named, NumberKind, OpenMode, Opening,
    PartitionBy, Scheme,
};
use ascot_io::Disk;
use ascot_model::routing_plan::{RoutingCost, RoutingJob};
use ascot_model::units;
use ascot_sort::Cancel;
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::job_trace::RequestedTrace;
use crate::monitoring::watched;
use crate::numbers;
use crate::request::memory_or;
use crate::signals::stoppable;
use crate::sys::print;
use crate::values;

/// Default memory of a build, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// Default bytes sent at a time.
const DEFAULT_BATCH_BYTES: u64 = 32 << 10;
/// Default bytes of an epoch.
const DEFAULT_EPOCH_BYTES: u64 = 256 << 20;

/// `ascot index build`.
pub fn build(matches: &ArgMatches) -> Result<u8> {
    watched(matches, || stoppable(|cancel| build_until(matches, cancel)))
}

fn build_until(matches: &ArgMatches, cancel: &Cancel) -> Result<u8> {
    let output = values::path(matches, "output").unwrap_or_default();
    let inputs = inputs(matches)?;
    let files = record_files(matches)?;
    for input in &inputs {
        let failed = Failure::file(input, "cannot be read");
        // A pipe is opened only once: its writer notices when the reader closes it.
        if fs::metadata(input).map_err(&failed)?.is_file() {
            fs::File::open(input).map_err(failed)?;
        }
    }
    let trace = RequestedTrace::start_beside(matches, &inputs, &output)?;
    let disk = trace.disk();
    let memory_bytes = memory_or(matches, DEFAULT_MEMORY_BYTES)?;
    let writer_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX).saturating_sub(MEMORY_BYTES);
    let (opening, goes_on) = opening(matches, &files, &output)?;
    // An existing directory is not removed after a failure.
    let is_new = !output.exists();
    let writer = DirectoryWriter::open(&disk, &output, &opening, writer_bytes).inspect_err(|error| {
        if !goes_on && !matches!(error, IndexError::Exists { .. } | IndexError::Locked { .. }) {
            discard(&output, is_new);
        }
    })?;
    let mut job = Building { disk, files, writer, cancel, records: 0, bytes: 0, epochs: 0 };
    let since = Instant::now();
    match job.run(&inputs, matches.get_flag("epoch-per-file")) {
        Ok(()) => {
            let Building { writer, records, bytes, epochs, .. } = job;
            let peak = writer.pool().peak() as u64;
            writer.close()?;
            trace.commit()?;
            if !matches.get_flag("quiet") {
                let seconds = since.elapsed().as_secs_f64();
                eprintln!(
                    "indexed {} in {}, {}, in {} ({}); memory {} of {}",
                    units::plural(records, "record"),
                    units::plural(epochs, "epoch"),
                    units::bytes(bytes),
                    units::seconds(seconds),
                    units::rate(bytes as f64 / seconds.max(1e-9)),
                    units::memory(peak + MEMORY_BYTES as u64),
                    units::memory(memory_bytes)
                );
            }
            Ok(0)
        }
        Err(error) => {
            let kept = job.writer.manifest().epochs;
            drop(job);
            if kept == 0 && !goes_on {
                discard(&output, is_new);
            }
            let Failure::Index(error) = error else { return Err(error) };
            let text = match kept {
                0 => String::from("nothing was kept"),
                kept => format!(
                    "{} complete in {}; --append continues after that",
                    units::plural(kept, "epoch"),
                    output.display()
                ),
            };
            Err(Failure::Usage(format!("{error}\n  {text}")))
        }
    }
}

/// The files to read; `-` is standard input.
fn inputs(matches: &ArgMatches) -> Result<Vec<PathBuf>> {
    const STANDARD_INPUT: &str = "/dev/stdin";
    let named = values::paths(matches, "files");
    if named.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(Failure::usage("- is named twice", "standard input can be read only once"));
    }
    let path = |path: PathBuf| if path.as_os_str() == "-" { PathBuf::from(STANDARD_INPUT) } else { path };
    Ok(named.into_iter().map(path).collect())
}

/// A build in progress.
struct Building<'a> {
    disk: Disk,
    files: RecordFiles,
    writer: DirectoryWriter,
    cancel: &'a Cancel,
    records: u64,
    bytes: u64,
    epochs: u64,
}

impl Building<'_> {
    fn run(&mut self, inputs: &[PathBuf], epoch_per_file: bool) -> Result<()> {
        for (number, input) in inputs.iter().enumerate() {
            let bytes = &mut self.bytes;
            let cancel = self.cancel;
            let mut between = |more| {
                *bytes += more;
                cancel.check().map_err(|_| IndexError::Request("stopped".into()))
            };
            self.records += self.files.append(&self.disk, input, &mut self.writer, &mut between)?;
            if epoch_per_file || number + 1 == inputs.len() {
                self.writer.end_epoch()?;
                self.epochs += 1;
            }
        }
        Ok(())
    }
}

fn record_files(matches: &ArgMatches) -> Result<RecordFiles> {
    let bad = |error: ascot_record::layout::LayoutError| {
        Failure::usage(error.to_string(), "see ascot index build --help")
    };
    let layout =
        ascot_record::layout::Layout::parse(values::word(matches, "format").unwrap_or("")).map_err(bad)?;
    let key = values::word(matches, "key").unwrap_or("");
    let ends = key.split_once("..").and_then(|(from, end)| Some((from.parse().ok()?, end.parse().ok()?)));
    let Some((from, end)) = ends else {
        return Err(Failure::usage(format!("--key '{key}' is not a range of bytes"), "write: --key 0..8"));
    };
    Ok(RecordFiles::new(layout, from..end)?)
}

/// How the directory is opened, and whether an existing one is continued: its settings then replace those missing on
/// the command line.
fn opening(matches: &ArgMatches, files: &RecordFiles, output: &Path) -> Result<(Opening, bool)> {
    let mode = if matches.get_flag("append") {
        Some(OpenMode::Append)
    } else {
        values::word(matches, "open").and_then(OpenMode::named)
    };
    let mode = mode.unwrap_or_default();
    let rollback = numbers::whole(matches, "rollback")?;
    if mode == OpenMode::Create && rollback.is_some() {
        return Err(Failure::usage(
            "--rollback applies only to an existing directory",
            "add --append, or --open auto if the directory may not exist yet",
        ));
    }
    let partitions = numbers::whole(matches, "partitions")?;
    let mut request = LayoutRequest {
        scheme: values::word(matches, "scheme").and_then(Scheme::named),
        partitions: partitions.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        partition_by: values::word(matches, "partition-by").and_then(PartitionBy::named),
        attribute: values::word(matches, "attribute").map(attribute).transpose()?,
        ..LayoutRequest::default()
    };
    let goes_on = Opening { mode, rollback, ..Opening::default() }.goes_on(output)?;
    if goes_on {
        files.check_same(&Manifest::read(output)?.layout)?;
    } else {
        request.key_bytes = u32::try_from(files.key.len()).ok();
        request.value_bytes = files.value_bytes();
        request.source = Some(files.described());
        request.layout(1, 1).check()?;
    }
    Ok((Opening { mode, rollback, request }, goes_on))
}

fn attribute(text: &str) -> Result<Attribute> {
    let parts = text.split_once('=').and_then(|(name, rest)| {
        let (offset, kind) = rest.split_once(':')?;
        let kind = NumberKind::named(kind)?;
        (!name.is_empty()).then_some(Attribute { name: name.into(), offset: offset.parse().ok()?, kind })
    });
    let wrong = || {
        Failure::usage(
            format!("'{text}' is not an attribute"),
            "write NAME=OFFSET:TYPE, such as energy=40:f64; types: f64, f32, i64, u64, i32, u32",
        )
    };
    parts.ok_or_else(wrong)
}

/// A plan, in its JSON form.
#[derive(Serialize)]
struct Plans {
    ranks: u64,
    ranks_per_node: u64,
    nodes: u64,
    batch_bytes: u64,
    epoch_bytes: u64,
    direct: RoutingCost,
    three_hop: RoutingCost,
}

/// `ascot index plan`.
pub fn plan(matches: &ArgMatches) -> Result<u8> {
    let max = u64::from(WRITERS_MAX);
    let many = |id: &'static str| match numbers::whole(matches, id)? {
        Some(count) if (1..=max).contains(&count) => Ok(count),
        _ => Err(Failure::usage(
            format!("--{id} must be a number from 1 to {}", units::count(max)),
            "such as 64",
        )),
    };
    let ranks = many("ranks")?;
    let ranks_per_node = many("ranks-per-node")?;
    let batch_bytes = numbers::data(matches, "batch", DEFAULT_BATCH_BYTES)?.max(1);
    let epoch_bytes = numbers::data(matches, "bytes", DEFAULT_EPOCH_BYTES)?;
    let job = RoutingJob { ranks, ranks_per_node, batch_bytes, epoch_bytes };
    let plans = Plans {
        ranks,
        ranks_per_node,
        nodes: job.nodes(),
        batch_bytes,
        epoch_bytes,
        direct: job.direct(),
        three_hop: job.three_hop(),
    };
    print(&if matches.get_flag("json") { numbers::json_line(&plans)? } else { table(&plans) })?;
    Ok(0)
}

fn table(plans: &Plans) -> String {
    let mut text = format!(
        "{} on {}, batches of {}, {} of records from each in an epoch\n\n{:28}{:>14}{:>14}\n",
        units::plural(plans.ranks, "rank"),
        units::plural(plans.nodes, "node"),
        units::memory(plans.batch_bytes),
        units::memory(plans.epoch_bytes),
        "each rank, at most",
        "direct",
        "three hops",
    );
    type Show = (&'static str, fn(&RoutingCost) -> String);
    let rows: [Show; 6] = [
        ("connections in the node", |cost| units::count(cost.local_connections)),
        ("connections to other nodes", |cost| units::count(cost.remote_connections)),
        ("memory of batches", |cost| units::memory(cost.memory_bytes)),
        ("messages in the node", |cost| units::count(cost.local_messages)),
        ("messages to other nodes", |cost| units::count(cost.remote_messages)),
        ("bytes to other nodes", |cost| units::bytes(cost.remote_bytes)),
    ];
    for (name, show) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:28}{:>14}{:>14}", show(&plans.direct), show(&plans.three_hop));
    }
    text
}
