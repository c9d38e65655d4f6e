//! What a volume can do, and how long a pass over it takes.
//!
//! The rate formula (bowtie streaming, section III): moving N bytes, alpha of them read, in runs of
//! mean length L costs `N (alpha/S_r + (1 - alpha)/S_w + delta/L)` seconds where reads and writes
//! alternate. Where a volume gains from doing both at once the two directions overlap and the
//! longer one counts.

use serde::{Deserialize, Serialize};

/// Speeds of a volume in bytes/s, and the cost of a switch in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeProfile {
    /// What it is called in plans.
    pub name: String,
    /// Sequential reading, bytes/s.
    pub read_bytes_per_s: f64,
    /// Sequential writing, bytes/s.
    pub write_bytes_per_s: f64,
    /// Each way while doing both at once, bytes/s; none: they take turns.
    pub duplex_bytes_per_s: Option<f64>,
    /// Seconds lost when a request does not continue the last one.
    pub switch_seconds: f64,
    /// Whether somebody measured these figures.
    pub measured: bool,
}

impl VolumeProfile {
    /// What a plain solid-state volume does, for plans made before anything was measured.
    pub fn assumed_flash() -> Self {
        VolumeProfile {
            name: "flash, assumed".into(),
            read_bytes_per_s: 1.4e9,
            write_bytes_per_s: 1.8e9,
            duplex_bytes_per_s: Some(1.0e9),
            switch_seconds: 100e-6,
            measured: false,
        }
    }

    /// Seconds to read and write so many bytes in so many switches, both going on at once where
    /// the volume gains from it.
    pub fn seconds(&self, read_bytes: f64, written_bytes: f64, switches: f64) -> f64 {
        let alone_s = read_bytes / self.read_bytes_per_s + written_bytes / self.write_bytes_per_s;
        let moving_s = match self.duplex_bytes_per_s {
            Some(duplex) => {
                let both = read_bytes.min(written_bytes);
                let rest_s = (read_bytes - both) / self.read_bytes_per_s
                    + (written_bytes - both) / self.write_bytes_per_s;
                alone_s.min(both / duplex + rest_s)
            }
            None => alone_s,
        };
        moving_s + switches * self.switch_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplex_is_used_only_where_it_wins() {
        let mut volume = VolumeProfile::assumed_flash();
        let both = volume.seconds(1e9, 1e9, 0.0);
        assert!((both - 1.0).abs() < 1e-9);
        volume.duplex_bytes_per_s = Some(0.1e9);
        let alternating = volume.seconds(1e9, 1e9, 0.0);
        assert!((alternating - (1.0 / 1.4 + 1.0 / 1.8)).abs() < 1e-9);
    }

    #[test]
    fn switches_cost_time() {
        let volume = VolumeProfile::assumed_flash();
        let extra = volume.seconds(1e9, 0.0, 1000.0) - volume.seconds(1e9, 0.0, 0.0);
        assert!((extra - 0.1).abs() < 1e-9);
    }
}
