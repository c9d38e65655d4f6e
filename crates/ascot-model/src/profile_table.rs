//! A measured profile as a table for people (`ascot probe`).

use std::fmt::Write as _;

use crate::host::RecordClass;
use crate::host_measurement::HostMeasurement;
use crate::measured_profile::MeasuredProfile;
use crate::measurement::{Figure, Speed, SwitchPoint};
use crate::units;

/// Characters of the longest bar of the curve.
const BAR_LETTERS: f64 = 16.0;

impl MeasuredProfile {
    /// The figures as a table for people; measuring took `seconds`.
    pub fn table(&self, seconds: f64) -> String {
        table(self, seconds)
    }
}

fn table(profile: &MeasuredProfile, seconds: f64) -> String {
    let measured = &profile.measurement;
    let mut text = format!(
        "{}: {} of files, each figure {} times, {}\n\n",
        profile.volume.name,
        units::memory(measured.used_bytes),
        measured.repeats,
        units::seconds(seconds)
    );
    let speed = |speed: &Speed| {
        let request = units::memory(speed.request_bytes);
        format!("{}   requests of {request}, {} in flight", rate(speed.rate), speed.depth)
    };
    let _ = writeln!(text, "  reading   {}", speed(&measured.read));
    let _ = writeln!(text, "  writing   {}", speed(&measured.write));
    let _ = writeln!(text, "  both      {}   each way, at once", rate(measured.duplex));
    if let Some(request) = measured.request_seconds {
        let _ = writeln!(
            text,
            "  requests  {:>7.1} µs   each, beyond the time of its bytes",
            request.value * 1e6
        );
    }
    if let Some(checkpoint) = measured.checkpoint_seconds {
        let _ = writeln!(
            text,
            "  storing   {:>7.1} ms   of a checkpoint, which makes data and the state of a job durable",
            checkpoint.value * 1e3
        );
    }
    let cache = measured.cache.map_or("not visible in bursts of writes".to_owned(), |cache| {
        format!(
            "{:>9}         writes at {} until it is full, then at {}",
            units::memory(cache.bytes),
            units::rate(cache.filling),
            units::rate(cache.full)
        )
    });
    let _ = writeln!(text, "  cache     {cache}");
    let _ = writeln!(
        text,
        "\n  lost by a switch between files, ms, runs of {}",
        units::memory(measured.run_bytes)
    );
    let _ = writeln!(text, "  files   {:<38}writing", "reading");
    let reads = &measured.read_switches;
    let writes = &measured.write_switches;
    let max = reads.iter().chain(writes).map(|point| point.seconds.value).fold(0.0, f64::max);
    for (read, write) in reads.iter().zip(writes) {
        let line = format!("  {:>5}   {:<38}{}", read.files, switch(read, max), switch(write, max));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    append_processors(&mut text, &profile.host);
    text.push_str(
        "\n  ± is half of the distance between the least and the greatest repetition; \
         once: measured without repetition\n",
    );
    text
}

/// Appends what one thread of the processor does in a second, by layout of records.
fn append_processors(text: &mut String, host: &HostMeasurement) {
    let _ = writeln!(
        text,
        "\n  one thread            sorting            merging            merging runs       splitting"
    );
    for kernel in &host.kernels {
        let keys = if kernel.keys > 1 { format!(", {} keys", kernel.keys) } else { String::new() };
        let name = match kernel.class {
            RecordClass::Line | RecordClass::Computed => {
                format!("{} of {} bytes{keys}", kernel.layout, kernel.record_bytes)
            }
            _ => kernel.layout.clone(),
        };
        let [runs, split] =
            [kernel.merge_runs, kernel.split].map(|figure| figure.map(rate).unwrap_or_default());
        let line =
            format!("  {name:<20}{:<19}{:<19}{runs:<19}{split}", rate(kernel.sort), rate(kernel.merge));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(request) = host.request_seconds {
        let _ = writeln!(text, "  a request takes {:.1} µs of a processor", request.value * 1e6);
    }
    if let Some(moving) = host.moving {
        let _ = writeln!(text, "  moving bytes from and to the device  {}", rate(moving));
    }
}

/// `1.41 GB/s ±  2%`, or `1.41 GB/s  once` for a figure without repetitions.
fn rate(figure: Figure) -> String {
    let value = units::rate(figure.value);
    // Repetitions never take exactly the same time.
    if figure.spread == 0.0 {
        return format!("{value:>9}  once");
    }
    format!("{value:>9} ± {:>2.0}%", figure.relative_spread() * 100.0)
}

/// Milliseconds with a bar; the longest bar is `max` seconds.
fn switch(point: &SwitchPoint, max: f64) -> String {
    let Figure { value, spread } = point.seconds;
    let letters = if max > 0.0 { (value.max(0.0) / max * BAR_LETTERS).round() as usize } else { 0 };
    format!("{:>7.3} ± {:<6.3} {}", value * 1e3, spread * 1e3, "#".repeat(letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_spread() {
        assert_eq!(rate(Figure { value: 1.41e9, spread: 2.82e7 }), "1.41 GB/s ±  2%");
        assert_eq!(rate(Figure { value: 1.41e9, spread: 0.0 }), "1.41 GB/s  once");
        let point = SwitchPoint { files: 4, seconds: Figure { value: 0.5e-3, spread: 1e-5 } };
        assert_eq!(switch(&point, 1e-3), "  0.500 ± 0.010  ########");
        let lost = SwitchPoint { files: 4, seconds: Figure { value: -1e-6, spread: 1e-5 } };
        assert!(!switch(&lost, 1e-3).contains('#'));
    }
}
