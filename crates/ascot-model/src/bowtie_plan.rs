//! The plan of one bowtie: the best schedule, its runs, and its rate on a volume.

use serde::Serialize;

use crate::run_length::{Baseline, Scheme, Shape};
use crate::units;
use crate::volume::VolumeProfile;

/// The schedule, the runs and the rate of one bowtie.
#[derive(Serialize)]
pub struct BowtiePlan {
    shape: Shape,
    memory_bytes: u64,
    schedule: &'static str,
    /// Inputs filled together, outputs written together.
    read_group: f64,
    write_group: f64,
    read_memory_bytes: f64,
    write_memory_bytes: f64,
    /// Mean bytes between two switches, at most those of a request; `None`: a single stream never switches.
    run_bytes: Option<f64>,
    rate_bytes_per_s: f64,
    /// False if runs are so short that the device's cache joins them; the device is faster then.
    formula_holds: bool,
    /// Runs and rate with an equal part of memory for every stream.
    equal_parts_run_bytes: f64,
    equal_parts_rate_bytes_per_s: f64,
    volume: VolumeProfile,
}

impl BowtiePlan {
    /// The plan of `shape` with its best schedule.
    pub fn new(shape: Shape, memory_bytes: u64, volume: &VolumeProfile) -> Self {
        let scheme = Scheme::best(shape);
        let memory = memory_bytes as f64;
        let files = f64::from(shape.streams());
        let run = scheme.run_length(memory);
        let equal = Baseline::EqualParts.run_length(&shape, memory);
        BowtiePlan {
            shape,
            memory_bytes,
            schedule: scheme.algorithm.name(),
            read_group: scheme.read_group,
            write_group: scheme.write_group,
            read_memory_bytes: memory * scheme.read_share(),
            write_memory_bytes: memory * (1.0 - scheme.read_share()),
            run_bytes: Some(volume.unbroken(run)).filter(|bytes| bytes.is_finite()),
            rate_bytes_per_s: volume.rate(shape.alpha, run, files),
            formula_holds: volume.formula_holds(run, files),
            equal_parts_run_bytes: volume.unbroken(equal),
            equal_parts_rate_bytes_per_s: volume.rate(shape.alpha, equal, files),
            volume: volume.clone(),
        }
    }
}

impl std::fmt::Display for BowtiePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { inputs, outputs, alpha } = self.shape;
        writeln!(
            f,
            "bowtie    {inputs} x {outputs}, {:.0}% of the bytes read, {}",
            alpha * 100.0,
            units::memory(self.memory_bytes)
        )?;
        writeln!(f, "volume    {}", self.volume.summary(self.shape.streams()))?;
        write!(f, "schedule  {}", self.schedule)?;
        if self.read_group > 1.0 {
            write!(f, ", inputs filled {} at a time", self.read_group)?;
        }
        if self.write_group > 1.0 {
            write!(f, ", outputs written {} at a time", self.write_group)?;
        }
        writeln!(f)?;
        let memory = |bytes: f64| units::memory(bytes as u64);
        writeln!(
            f,
            "memory    {} for inputs, {} for outputs",
            memory(self.read_memory_bytes),
            memory(self.write_memory_bytes)
        )?;
        match self.run_bytes {
            None => writeln!(f, "runs      one: a stream that is alone never switches")?,
            Some(run) => writeln!(
                f,
                "runs      {} between two switches; {:.1} times as long as with equal parts of memory",
                units::bytes(run as u64),
                run / self.equal_parts_run_bytes,
            )?,
        }
        writeln!(
            f,
            "rate      {} read and written together; {} with equal parts",
            units::rate(self.rate_bytes_per_s),
            units::rate(self.equal_parts_rate_bytes_per_s),
        )?;
        if !self.formula_holds {
            writeln!(
                f,
                "note      all runs fit into the device's cache, which joins them: it will be faster"
            )?;
        }
        Ok(())
    }
}
