//! A kind of machine, as DiskBench, NetBench or a small sort measured it: its rates, its space and its price.

use serde::{Deserialize, Serialize};

use crate::all_to_all::{AllToAll, AllToAllRate};

/// The rate of one stage on the nodes of a cluster, bytes/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpreadRate {
    /// The mean of the nodes.
    pub bytes_per_s: f64,
    /// Their standard deviation.
    #[serde(default)]
    pub deviation: f64,
}

impl SpreadRate {
    /// The expected rate of the slowest of `nodes`, bytes/s; at least a tenth of the mean.
    pub fn slowest(&self, nodes: u32) -> f64 {
        let slowest = self.bytes_per_s - expected_maximum(nodes) * self.deviation;
        slowest.max(self.bytes_per_s / 10.0)
    }
}

/// The expected maximum of `count` standard normal numbers (Blom's approximation; the quantile by Abramowitz and
/// Stegun, formula 26.2.23, whose error is below 0.0005).
fn expected_maximum(count: u32) -> f64 {
    if count < 2 {
        return 0.0;
    }
    let count = f64::from(count);
    let above = 1.0 - (count - 0.375) / (count + 0.25);
    let t = (-2.0 * above.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

/// A sort that was run on a few nodes of a type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmallSort {
    /// Nodes.
    pub nodes: u32,
    /// Bytes of its input.
    pub input_bytes: f64,
    /// Seconds of map-and-shuffle.
    pub map_shuffle_seconds: f64,
    /// Seconds of sort-and-reduce.
    pub sort_reduce_seconds: f64,
}

/// A kind of machine. Its text is TOML (docs/formats/node-type.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// Its name.
    pub name: String,
    /// Price of a node, US dollars an hour.
    pub usd_per_hour: f64,
    /// Price of the node that coordinates the others, US dollars an hour.
    #[serde(default)]
    pub coordinator_usd_per_hour: f64,
    /// Processor cores.
    pub cores: u32,
    /// Memory, bytes.
    pub memory_bytes: f64,
    /// Space for input and output, bytes.
    pub data_disk_bytes: f64,
    /// Space for intermediate files on other disks, bytes; 0: they share the disks of input and output.
    #[serde(default)]
    pub spill_disk_bytes: f64,
    /// DiskBench: every node reads and writes at once, at this rate each.
    pub disks: SpreadRate,
    /// NetBench: all to all.
    pub network: Vec<AllToAllRate>,
    /// The mappers of a node, if their rate is known; else they are not the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mappers: Option<SpreadRate>,
    /// A sort on a few of these nodes, if one was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_sort: Option<SmallSort>,
}

/// An impossible type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeType {
    /// A figure that must be a positive, finite number.
    #[error("{0} must be a positive number")]
    NotPositive(&'static str),
    /// A figure that must not be negative.
    #[error("{0} must not be negative")]
    Negative(&'static str),
    /// No rate of an all-to-all transfer.
    #[error("network must have the rate of at least one all-to-all transfer between two or more peers")]
    NoNetwork,
}

impl NodeType {
    /// Whether the figures are possible.
    ///
    /// # Errors
    /// The first figure that is not.
    pub fn check(&self) -> Result<(), BadNodeType> {
        let of = |rate: Option<SpreadRate>| rate.unwrap_or(SpreadRate { bytes_per_s: 1.0, deviation: 0.0 });
        let mappers = of(self.mappers);
        let unused =
            SmallSort { nodes: 1, input_bytes: 1.0, map_shuffle_seconds: 1.0, sort_reduce_seconds: 1.0 };
        let sort = self.small_sort.unwrap_or(unused);
        let positive = [
            ("cores", f64::from(self.cores)),
            ("memory_bytes", self.memory_bytes),
            ("data_disk_bytes", self.data_disk_bytes),
            ("disks.bytes_per_s", self.disks.bytes_per_s),
            ("mappers.bytes_per_s", mappers.bytes_per_s),
            ("small_sort.nodes", f64::from(sort.nodes)),
            ("small_sort.input_bytes", sort.input_bytes),
            ("small_sort.map_shuffle_seconds", sort.map_shuffle_seconds),
            ("small_sort.sort_reduce_seconds", sort.sort_reduce_seconds),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return Err(BadNodeType::NotPositive(name));
        }
        let not_negative = [
            ("usd_per_hour", self.usd_per_hour),
            ("coordinator_usd_per_hour", self.coordinator_usd_per_hour),
            ("spill_disk_bytes", self.spill_disk_bytes),
            ("disks.deviation", self.disks.deviation),
            ("mappers.deviation", mappers.deviation),
        ];
        if let Some((name, _)) = not_negative.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0))
        {
            return Err(BadNodeType::Negative(name));
        }
        let usable = |rate: &AllToAllRate| rate.bytes_per_s.is_finite() && rate.connections > 0;
        match AllToAll::fitted(&self.network).filter(|_| self.network.iter().all(usable)) {
            Some(_) => Ok(()),
            None => Err(BadNodeType::NoNetwork),
        }
    }

    /// The machine of the published sort of 100 TB in 915 seconds: Google's n1-standard-32 with four local SSDs, of
    /// which two have input and output and two the intermediate files (sections 4.2, 5 and 6; table 1; cluster B).
    pub fn published_n1_standard_32() -> NodeType {
        use crate::all_to_all::published::{A_100, B_100, B_299};
        NodeType {
            name: "gce-n1-standard-32".into(),
            usd_per_hour: 2.052,
            coordinator_usd_per_hour: 1.60,
            cores: 32,
            memory_bytes: 120e9,
            data_disk_bytes: 750e9,
            spill_disk_bytes: 750e9,
            disks: SpreadRate { bytes_per_s: 811.01e6, deviation: 3.83e6 },
            network: vec![B_100, B_299, A_100],
            mappers: None,
            small_sort: None,
        }
    }

    /// The machine of the published sort of 100 TB for 299.45 dollars: Amazon's i2.8xlarge, whose price follows from
    /// the cost of 178 nodes for 888 seconds (section 7.1), with half of its eight disks of 800 GB for intermediate
    /// files.
    pub fn published_i2_8xlarge() -> NodeType {
        NodeType {
            name: "ec2-i2.8xlarge".into(),
            usd_per_hour: 6.82,
            coordinator_usd_per_hour: 0.0,
            cores: 32,
            memory_bytes: 244e9,
            data_disk_bytes: 3.2e12,
            spill_disk_bytes: 3.2e12,
            disks: SpreadRate { bytes_per_s: 1700e6, deviation: 0.0 },
            network: vec![AllToAllRate { peers: 178, connections: 1, bytes_per_s: 1100e6 }],
            mappers: None,
            small_sort: None,
        }
    }

    /// All types that have a name of their own.
    pub fn known() -> [NodeType; 2] {
        [NodeType::published_n1_standard_32(), NodeType::published_i2_8xlarge()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_many_is_slower() {
        // Tabulated expected maxima of normal samples.
        for (count, expected) in [(2, 0.564), (10, 1.539), (100, 2.508), (300, 2.878)] {
            let found = expected_maximum(count);
            assert!((found - expected).abs() < 0.03, "{count}: {found}");
        }
        let disks = SpreadRate { bytes_per_s: 800.0, deviation: 5.0 };
        assert_eq!(disks.slowest(1), 800.0);
        assert!(disks.slowest(300) < disks.slowest(10) && disks.slowest(10) < 800.0);
        // 299 writers of mean 800.4 and deviation 5.3: the slowest had 785 (section 6.1.2).
        let writers = SpreadRate { bytes_per_s: 800.4, deviation: 5.3 };
        assert!((writers.slowest(299) - 785.0).abs() < 1.0, "{}", writers.slowest(299));
        assert_eq!(SpreadRate { bytes_per_s: 1.0, deviation: 9.0 }.slowest(9), 0.1);
    }

    #[test]
    fn impossible_figures_are_named() {
        for known in NodeType::known() {
            assert_eq!(known.check(), Ok(()));
        }
        let right = NodeType::published_n1_standard_32();
        let without_disks =
            NodeType { disks: SpreadRate { bytes_per_s: 0.0, deviation: 0.0 }, ..right.clone() };
        assert_eq!(without_disks.check(), Err(BadNodeType::NotPositive("disks.bytes_per_s")));
        let free = NodeType { usd_per_hour: f64::NAN, ..right.clone() };
        assert_eq!(free.check(), Err(BadNodeType::Negative("usd_per_hour")));
        let unplugged = NodeType { network: Vec::new(), ..right.clone() };
        assert_eq!(unplugged.check(), Err(BadNodeType::NoNetwork));
        let endless = AllToAllRate { peers: 3, connections: 1, bytes_per_s: f64::INFINITY };
        assert_eq!(NodeType { network: vec![endless], ..right }.check(), Err(BadNodeType::NoNetwork));
    }
}
