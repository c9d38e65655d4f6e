//! `ascot plan sort`: predicts the cost of a sort of a given size, and explains the method. The plan equals that of
//! `ascot sort --explain` for a file of that size.

use std::ffi::OsString;

use ascot_device::Profile;
use ascot_io::Compression;
use ascot_model::units;
use ascot_record::layout::Layout;
use ascot_sort::request::{InputChecks, Method, Output, SortRequest};
use ascot_sort::{SortPlan, Volumes};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::numbers;
use crate::request::named_records;
use crate::size;
use crate::values;

/// Default bytes of a record: those of the sort benchmark.
const DEFAULT_RECORD_BYTES: u64 = 100;
/// More than any user sorts, and little enough to count the bytes of all passes.
const MAX_BYTES: u64 = 100_000_000_000_000_000;
/// Memory must hold this many of the longest records.
const RECORDS_OF_MEMORY: u64 = 4;
/// Records up to this length are assumed to be numbers, unless flags define them.
const NUMBER_BYTES: u64 = 8;

/// Plans a sort of `input_bytes`.
pub fn plan_sort(
    matches: &ArgMatches,
    input_bytes: u64,
    memory_bytes: u64,
    profile: &Profile,
) -> Result<SortPlan, Failure> {
    let record_bytes = match values::word(matches, "record-bytes") {
        None => None,
        Some(text) => Some(size::count(text).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
            Failure::usage(format!("--record-bytes '{text}' is not a length in bytes"), "such as 100")
        })?),
    };
    // At least the share of memory that a job needs for one record.
    if let Some(bytes) = record_bytes.filter(|bytes| *bytes > memory_bytes / RECORDS_OF_MEMORY) {
        return Err(Failure::usage(
            format!(
                "--record-bytes: a record of {} is too long for {} of memory",
                units::bytes(bytes),
                units::memory(memory_bytes)
            ),
            format!(
                "the minimum is --memory {}MiB",
                bytes.saturating_mul(RECORDS_OF_MEMORY).div_ceil(1 << 20)
            ),
        ));
    }
    if input_bytes > MAX_BYTES {
        let max = units::bytes(MAX_BYTES);
        return Err(Failure::usage(
            format!("--input {} is too large", units::bytes(input_bytes)),
            format!("sorts of up to {max} can be computed"),
        ));
    }
    let request = planned_request(matches, record_bytes, memory_bytes, profile)?;
    let mean_bytes = record_bytes.unwrap_or(DEFAULT_RECORD_BYTES) as f64;
    Ok(SortPlan::new(&request, input_bytes, mean_bytes)?)
}

/// The request of a job on files that need not exist.
pub fn planned_request(
    matches: &ArgMatches,
    record_bytes: Option<u64>,
    memory_bytes: u64,
    profile: &Profile,
) -> Result<SortRequest, Failure> {
    let format = match (values::word(matches, "format"), record_bytes.unwrap_or(DEFAULT_RECORD_BYTES)) {
        (Some(format), _) => format.to_owned(),
        (None, 4) => "u32".to_owned(),
        (None, ..=NUMBER_BYTES) => "u64".to_owned(),
        (None, bytes) => format!("fixed:{bytes}"),
    };
    let keys: Vec<OsString> = values::all(matches, "key").cloned().collect();
    let (layout, keys) = named_records(Some(&format), &keys, Layout::LINES, &[])?;
    let given = matches.contains_id("format") && record_bytes.is_some();
    if given && matches!(layout, Layout::Fixed { .. } | Layout::Number(_)) {
        return Err(Failure::usage(
            format!("--record-bytes does not apply to the format {layout}, which determines the length"),
            "leave out one of them",
        ));
    }
    if matches!(layout, Layout::Csv { .. }) {
        return Err(Failure::usage(
            "plan sort reads no file, so it does not know the columns of CSV",
            "--format lines takes about as long; ascot sort FILE --explain plans the sort of an existing \
             file",
        ));
    }
    let max = numbers::whole(matches, "most-streams")?;
    Ok(SortRequest {
        inputs: Vec::new(),
        output: Output::Stdout,
        layout,
        keys,
        header: false,
        checks: InputChecks::default(),
        unique: false,
        stable: false,
        merge_only: false,
        top: None,
        memory_bytes: Some(memory_bytes),
        temp_dirs: Vec::new(),
        method: Method::Auto,
        compression: Compression::None,
        threads: profile.host.as_ref().map(|host| host.threads),
        batch_size: max.map(|max| usize::try_from(max).unwrap_or(usize::MAX).max(2)),
        volumes: Volumes {
            volume: Some(profile.volume.clone()),
            host: profile.host.clone(),
            ..Volumes::default()
        },
        boundaries: None,
        route: None,
    })
}
