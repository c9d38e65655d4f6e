//! A profile with all its measurements, and its text (docs/formats/volume.md).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_measurement::HostMeasurement;
use crate::measurement::{CacheMeasurement, Figure, VolumeMeasurement};
use crate::volume::{SwitchCost, VolumeProfile};

/// A profile with all its measurements. Its `Display` is the text of the profile file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredProfile {
    /// The profile for plans.
    pub volume: VolumeProfile,
    /// Its measurements.
    pub measurement: VolumeMeasurement,
    /// The host.
    pub host: HostMeasurement,
}

impl fmt::Display for MeasuredProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VolumeProfile { name, read_bytes_per_s, write_bytes_per_s, .. } = &self.volume;
        writeln!(f, "# What `ascot plan --volume FILE` reads: docs/formats/volume.md.")?;
        writeln!(f, "name = {}", quoted(name))?;
        writeln!(f, "read_bytes_per_s = {read_bytes_per_s:e}")?;
        writeln!(f, "write_bytes_per_s = {write_bytes_per_s:e}")?;
        if let Some(duplex) = self.volume.duplex_bytes_per_s {
            writeln!(f, "duplex_bytes_per_s = {duplex:e}")?;
        }
        if self.volume.request_seconds > 0.0 {
            writeln!(f, "request_seconds = {:e}", self.volume.request_seconds)?;
        }
        if self.volume.checkpoint_seconds > 0.0 {
            writeln!(f, "checkpoint_seconds = {:e}", self.volume.checkpoint_seconds)?;
        }
        match &self.volume.switch_seconds {
            SwitchCost::Constant(seconds) => writeln!(f, "switch_seconds = {seconds:e}")?,
            SwitchCost::Curve(points) => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("[{x}, {y:e}]")).collect();
                writeln!(f, "switch_seconds = [{}]", points.join(", "))?;
            }
        }
        if self.volume.cache_bytes > 0 {
            writeln!(f, "cache_bytes = {}", self.volume.cache_bytes)?;
        }
        writeln!(f, "measured = {}", self.volume.measured)?;
        write_measurement(f, &self.measurement)?;
        writeln!(f, "\n[host]\nthreads = {}", self.host.threads)?;
        if let Some(request) = self.host.request_seconds {
            writeln!(f, "request_seconds = {}", table(request))?;
        }
        if let Some(moving) = self.host.moving {
            writeln!(f, "moving = {}", table(moving))?;
        }
        for kernel in &self.host.kernels {
            writeln!(f, "\n[[host.kernels]]\nlayout = {}", quoted(&kernel.layout))?;
            writeln!(f, "class = \"{:?}\"\nrecord_bytes = {:e}", kernel.class, kernel.record_bytes)?;
            writeln!(f, "keys = {}", kernel.keys)?;
            writeln!(f, "sort = {}\nmerge = {}", table(kernel.sort), table(kernel.merge))?;
            for (name, figure) in [("merge_runs", kernel.merge_runs), ("split", kernel.split)] {
                if let Some(figure) = figure {
                    writeln!(f, "{name} = {}", table(figure))?;
                }
            }
        }
        Ok(())
    }
}

fn write_measurement(f: &mut fmt::Formatter<'_>, measured: &VolumeMeasurement) -> fmt::Result {
    let VolumeMeasurement { run_bytes, used_bytes, repeats, seconds, .. } = measured;
    writeln!(f, "\n[measurement]\nduplex = {}", table(measured.duplex))?;
    if let Some(request) = measured.request_seconds {
        writeln!(f, "request_seconds = {}", table(request))?;
    }
    if let Some(checkpoint) = measured.checkpoint_seconds {
        writeln!(f, "checkpoint_seconds = {}", table(checkpoint))?;
    }
    writeln!(f, "run_bytes = {run_bytes}\nused_bytes = {used_bytes}")?;
    writeln!(f, "repeats = {repeats}\nseconds = {seconds:e}")?;
    for (name, speed) in [("read", &measured.read), ("write", &measured.write)] {
        writeln!(
            f,
            "{name} = {{ rate = {}, request_bytes = {}, depth = {} }}",
            table(speed.rate),
            speed.request_bytes,
            speed.depth
        )?;
    }
    if let Some(CacheMeasurement { bytes, filling, full }) = measured.cache {
        writeln!(f, "cache = {{ bytes = {bytes}, filling = {filling:e}, full = {full:e} }}")?;
    }
    for (name, points) in
        [("read_switches", &measured.read_switches), ("write_switches", &measured.write_switches)]
    {
        writeln!(f, "{name} = [")?;
        for point in points {
            writeln!(f, "  {{ files = {}, seconds = {} }},", point.files, table(point.seconds))?;
        }
        writeln!(f, "]")?;
    }
    Ok(())
}

fn table(figure: Figure) -> String {
    format!("{{ value = {:e}, spread = {:e} }}", figure.value, figure.spread)
}

/// A string in TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }
}
