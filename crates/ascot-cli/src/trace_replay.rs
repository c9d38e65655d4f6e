//! `ascot trace replay`: the requests of a trace on a directory, or on the virtual disk of a profile.

use std::fmt::Write as _;
use std::path::PathBuf;

use ascot_model::units;
use ascot_trace::TraceReader;
use ascot_trace::replay::{
    DiskReplay, DiskReplayRequest, Pace, Rounding, VirtualReplay, VolumeUse, replay_on_disk,
    replay_on_virtual,
};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::monitoring::{Monitored, sampled};
use crate::numbers;
use crate::signals::stoppable;
use crate::sys::print;
use crate::values;
use crate::volume;

/// Bounds of `--repeat`.
const MAX_REPETITIONS: u64 = 1000;

/// Replays `trace` as the flags say.
pub fn run(matches: &ArgMatches, trace: &TraceReader) -> Result<u8> {
    let on = values::path(matches, "on").unwrap_or_default();
    let repetitions = numbers::whole(matches, "repeat")?.unwrap_or(1);
    if !(1..=MAX_REPETITIONS).contains(&repetitions) {
        return Err(Failure::usage(format!("--repeat {repetitions} is not possible"), "give 1 to 1000"));
    }
    let text = if on.is_dir() {
        let request = request(matches, on, repetitions as u32);
        let replay =
            || stoppable(|cancel| replay_on_disk(trace, &request, &cancel.flag()).map_err(Failure::from));
        let (result, monitor) = sampled(matches, replay)?;
        let replayed = Monitored { result, monitor };
        for notice in &replayed.result.notices {
            eprintln!("ascot: {notice}");
        }
        if values::flag(matches, "json") { numbers::json(&replayed)? } else { disk_text(&replayed.result) }
    } else {
        if let Some(flag) =
            ["timing", "repeat", "monitor"].into_iter().find(|flag| values::is_given(matches, flag))
        {
            return Err(Failure::usage(
                format!("--{flag} needs a directory: the virtual disk has a clock of its own"),
                "--on DIR replays on a real volume",
            ));
        }
        let replayed = replay_on_virtual(trace, &volume::of_word(on.as_os_str(), "--on")?)?;
        if values::flag(matches, "json") { numbers::json(&replayed)? } else { virtual_text(&replayed) }
    };
    for remark in trace.recording().remarks() {
        eprintln!("ascot: {remark}");
    }
    print(&text).map(|()| 0)
}

fn request(matches: &ArgMatches, directory: PathBuf, repetitions: u32) -> DiskReplayRequest {
    let recorded = values::word(matches, "timing") == Some("recorded");
    DiskReplayRequest { directory, pace: if recorded { Pace::Recorded } else { Pace::Fast }, repetitions }
}

fn virtual_text(replayed: &VirtualReplay) -> String {
    let mut text = format!(
        "replayed on {} in {} ({})\n",
        replayed.profile,
        units::fine_seconds(replayed.seconds),
        units::rate(replayed.bytes_per_s)
    );
    let of_cache = match replayed.switches == replayed.switches_without_cache {
        true => String::new(),
        false => format!(
            " of {}, of which the cache avoids the others",
            units::count(replayed.switches_without_cache)
        ),
    };
    let _ = writeln!(
        text,
        "  switches {}{of_cache}; at most {} at a time",
        units::count(replayed.switches),
        units::plural(replayed.streams, "stream")
    );
    append_volume(&mut text, &replayed.volume);
    append_rounding(&mut text, &replayed.rounding);
    text
}

fn disk_text(replayed: &DiskReplay) -> String {
    let mut text = format!(
        "replayed in {} in {} ({})\n",
        replayed.directory,
        units::fine_seconds(replayed.median_seconds),
        units::rate(replayed.bytes_per_s)
    );
    if replayed.seconds.len() > 1 {
        let _ = writeln!(
            text,
            "  median of {}, ± {:.1}%",
            units::plural(replayed.seconds.len() as u64, "repetition"),
            100.0 * replayed.spread_seconds / replayed.median_seconds.max(f64::MIN_POSITIVE)
        );
    }
    append_volume(&mut text, &replayed.volume);
    append_rounding(&mut text, &replayed.rounding);
    match &replayed.extents {
        Some(extents) => {
            let _ =
                write!(text, "  the volume file has {}", units::plural(extents.pieces, "contiguous piece"));
            if let Some(offset) = extents.physical_offset {
                let _ = write!(text, ", the first at byte {} of the device", units::count(offset));
            }
            text.push('\n');
        }
        None => text.push_str("  the file system does not say where the volume file lies\n"),
    }
    text
}

fn append_volume(text: &mut String, volume: &VolumeUse) {
    let VolumeUse { volume_bytes, files, pieces, .. } = *volume;
    let pieces = match pieces == files {
        true => "each contiguous".to_owned(),
        false => format!("in {} of it", units::plural(pieces, "piece")),
    };
    let _ = writeln!(
        text,
        "  volume   {}, as large as the live data; {}, {pieces}",
        units::bytes(volume_bytes),
        units::plural(files, "file")
    );
}

fn append_rounding(text: &mut String, rounding: &Rounding) {
    let moved = rounding.read_bytes + rounding.written_bytes;
    let _ = writeln!(
        text,
        "  requests {} of {} in whole blocks, {}; as recorded {} of {}",
        units::count(rounding.volume_requests),
        units::bytes(moved),
        relation(rounding.bytes, moved),
        units::count(rounding.requests),
        units::bytes(rounding.bytes)
    );
}

/// `4.0% more`.
fn relation(before: u64, after: u64) -> String {
    let percent = (after as f64 / before.max(1) as f64 - 1.0) * 100.0;
    format!("{:.1}% {}", percent.abs(), if percent < 0.0 { "less" } else { "more" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_shown_with_their_spread() {
        let once = DiskReplay {
            directory: "/data".to_owned(),
            seconds: vec![2.0],
            median_seconds: 2.0,
            spread_seconds: 0.0,
            bytes_per_s: 5e6,
            extents: None,
            notices: Vec::new(),
            volume: VolumeUse { volume_bytes: 10_000_000, live_bytes: 10_000_000, files: 1, pieces: 1 },
            rounding: Rounding::default(),
        };
        assert!(!disk_text(&once).contains('±'));
        let seconds = vec![2.5, 2.0, 1.75];
        let text = disk_text(&DiskReplay { seconds, spread_seconds: 0.375, ..once });
        assert!(
            text.contains("in /data in 2.00 s") && text.contains("median of 3 repetitions, ± 18.8%\n"),
            "{text}"
        );
    }
}
