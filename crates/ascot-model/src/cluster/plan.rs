//! The phases of a sort on N nodes of a type: the rate of every stage, the bottleneck, the time and the cost.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::node_type::{NodeType, SmallSort, SpreadRate};
use crate::all_to_all::AllToAll;
use crate::units;

/// Seconds of a job besides its phases, without a sample (section 6.2.2, table 6).
const OVERHEAD_SECONDS: f64 = 2.0;
/// Seconds of overhead with a sample of keys, on 100 nodes, and those of each further node: the published 32 seconds on
/// 100 nodes and 45 on 299 (sections 5.1.2 and 6.1.2).
const SAMPLE_SECONDS_OF_100: f64 = 32.0;
const SAMPLE_SECONDS_PER_NODE: f64 = (45.0 - 32.0) / 199.0;
/// The part of a disk that files may fill (section 8.2).
const USABLE_SPACE: f64 = 0.99;

/// What is assumed of the network between more nodes than were measured (section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// It is never the bottleneck.
    Infinite,
    /// Every node keeps the best measured rate, however many there are.
    Linear,
    /// Its rate falls with the number of nodes, as measured.
    #[default]
    Measured,
}

/// A job on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRequest {
    /// Bytes of the input.
    pub input_bytes: f64,
    /// Nodes that do the work.
    pub nodes: u32,
    /// Their type.
    pub node_type: NodeType,
    /// The network.
    pub network: Network,
    /// Connections for each pair of nodes.
    pub connections: u32,
    /// Whether keys are uniform, so that no sample is needed.
    pub uniform: bool,
}

/// A job that does not fit a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DoesNotFit {
    /// Input and output, or intermediate files, need more space.
    #[error(
        "{what} of a node need {} of {}, which has {}\n  at least {nodes} nodes are needed",
        units::bytes(*needed as u64), disks, units::bytes(*there as u64)
    )]
    Space {
        /// The files.
        what: &'static str,
        /// The disks.
        disks: &'static str,
        /// Bytes of a node.
        needed: f64,
        /// Bytes that its disks have.
        there: f64,
        /// The fewest nodes whose disks hold the data.
        nodes: u64,
    },
    /// No nodes, no data or no connections.
    #[error("a cluster needs nodes, data, and a connection for each pair of nodes")]
    Nothing,
}

/// The rate of a stage, per node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStage {
    /// The stage.
    pub name: &'static str,
    /// The mean of the nodes, bytes/s.
    pub bytes_per_s: f64,
    /// The expected rate of the slowest node, bytes/s.
    pub slowest_bytes_per_s: f64,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedPhase {
    /// Its name.
    pub name: &'static str,
    /// Seconds until the slowest node has ended.
    pub seconds: f64,
    /// The stage that is its bottleneck.
    pub bound_by: &'static str,
    /// All stages with a known rate.
    pub stages: Vec<PlannedStage>,
}

/// The plan of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterPlan {
    /// The type of the nodes.
    pub node_type: String,
    /// Nodes.
    pub nodes: u32,
    /// Bytes of the input.
    pub input_bytes: f64,
    /// Bytes of a node.
    pub bytes_per_node: f64,
    /// Connections for each pair of nodes.
    pub connections: u32,
    /// What is assumed of the network.
    pub network: Network,
    /// Whether the rates are those of a small sort; otherwise those of the benchmarks.
    pub from_small_sort: bool,
    /// Seconds besides the phases: starting, and the sample.
    pub overhead_seconds: f64,
    /// Map-and-shuffle, then sort-and-reduce.
    pub phases: [PlannedPhase; 2],
    /// Seconds of the job.
    pub seconds: f64,
    /// US dollars.
    pub usd: f64,
}

impl ClusterRequest {
    /// The plan of the job.
    ///
    /// # Errors
    /// A job without nodes or data, or one whose files do not fit on the disks.
    pub fn plan(&self) -> Result<ClusterPlan, DoesNotFit> {
        if self.nodes == 0 || self.connections == 0 || self.input_bytes <= 0.0 {
            return Err(DoesNotFit::Nothing);
        }
        self.check_space()?;
        let phases = [self.map_and_shuffle(), self.sort_and_reduce()];
        let overhead_seconds = self.overhead_seconds();
        let seconds = overhead_seconds + phases.iter().map(|phase| phase.seconds).sum::<f64>();
        let node = &self.node_type;
        let usd_per_hour = f64::from(self.nodes) * node.usd_per_hour + node.coordinator_usd_per_hour;
        Ok(ClusterPlan {
            node_type: node.name.clone(),
            nodes: self.nodes,
            input_bytes: self.input_bytes,
            bytes_per_node: self.bytes_per_node(),
            connections: self.connections,
            network: self.network,
            from_small_sort: node.small_sort.is_some(),
            overhead_seconds,
            phases,
            seconds,
            usd: usd_per_hour * seconds / 3600.0,
        })
    }

    fn bytes_per_node(&self) -> f64 {
        self.input_bytes / f64::from(self.nodes)
    }

    fn check_space(&self) -> Result<(), DoesNotFit> {
        let node = &self.node_type;
        // Copies of the data: input, output, and intermediate files, wherever these lie.
        let copies: &[(&str, &str, f64, f64)] = if node.spill_disk_bytes > 0.0 {
            &[
                ("input and output", "data_disk_bytes", 2.0, node.data_disk_bytes),
                ("intermediate files", "spill_disk_bytes", 1.0, node.spill_disk_bytes),
            ]
        } else {
            &[("input, output and intermediate files", "data_disk_bytes", 3.0, node.data_disk_bytes)]
        };
        for &(what, disks, copies, space) in copies {
            let needed = copies * self.bytes_per_node();
            let there = space * USABLE_SPACE;
            if needed > there {
                let nodes = (copies * self.input_bytes / there).ceil() as u64;
                return Err(DoesNotFit::Space { what, disks, needed, there, nodes });
            }
        }
        Ok(())
    }

    fn overhead_seconds(&self) -> f64 {
        if self.uniform {
            return OVERHEAD_SECONDS;
        }
        let seconds = SAMPLE_SECONDS_OF_100 + SAMPLE_SECONDS_PER_NODE * (f64::from(self.nodes) - 100.0);
        seconds.max(OVERHEAD_SECONDS)
    }

    /// The rate of every node's network; none if it is never the bottleneck.
    fn network_rate(&self) -> Option<SpreadRate> {
        let measured = &self.node_type.network;
        let bytes_per_s = match self.network {
            Network::Infinite => return None,
            Network::Linear => measured.iter().map(|rate| rate.bytes_per_s).fold(0.0, f64::max),
            // A node alone sends nothing, and two are the fewest that were measured.
            Network::Measured => AllToAll::fitted(measured)?.model.rate(self.nodes.max(2), self.connections),
        };
        (self.nodes > 1).then_some(SpreadRate { bytes_per_s, deviation: 0.0 })
    }

    fn map_and_shuffle(&self) -> PlannedPhase {
        let node = &self.node_type;
        let own = node.small_sort.map(|sort| sort.rate(sort.map_shuffle_seconds, node.disks));
        let local = match own {
            Some(rate) => vec![("a small sort", rate)],
            None => {
                let mappers = node.mappers.map(|rate| ("mappers", rate));
                std::iter::once(("disks", node.disks)).chain(mappers).collect()
            }
        };
        let network = self.network_rate().map(|rate| ("network", rate));
        self.phase("map and shuffle", self.bytes_per_node(), local.into_iter().chain(network))
    }

    fn sort_and_reduce(&self) -> PlannedPhase {
        let node = &self.node_type;
        if let Some(sort) = node.small_sort {
            let rate = sort.rate(sort.sort_reduce_seconds, node.disks);
            return self.phase(
                "sort and reduce",
                self.bytes_per_node(),
                std::iter::once(("a small sort", rate)),
            );
        }
        // Every core holds a partition; the disks write nothing until the first one has been read.
        let partition = (node.memory_bytes / f64::from(node.cores)).min(self.bytes_per_node());
        self.phase(
            "sort and reduce",
            self.bytes_per_node() + partition,
            std::iter::once(("disks", node.disks)),
        )
    }

    /// A phase in which every node moves `bytes`; the first stage counts among equals.
    fn phase(
        &self,
        name: &'static str,
        bytes: f64,
        stages: impl Iterator<Item = (&'static str, SpreadRate)>,
    ) -> PlannedPhase {
        let stages: Vec<PlannedStage> = stages
            .map(|(name, rate)| PlannedStage {
                name,
                bytes_per_s: rate.bytes_per_s,
                slowest_bytes_per_s: rate.slowest(self.nodes),
            })
            .collect();
        let bottleneck = stages.iter().min_by(|a, b| a.slowest_bytes_per_s.total_cmp(&b.slowest_bytes_per_s));
        let (bound_by, rate) =
            bottleneck.map_or(("nothing", f64::INFINITY), |one| (one.name, one.slowest_bytes_per_s));
        PlannedPhase { name, seconds: bytes / rate, bound_by, stages }
    }
}

impl SmallSort {
    /// The mean rate of a node in a phase that took `seconds`, if the nodes differ as their disks do.
    fn rate(&self, seconds: f64, disks: SpreadRate) -> SpreadRate {
        let slowest = self.input_bytes / f64::from(self.nodes) / seconds;
        let mean = slowest * disks.bytes_per_s / disks.slowest(self.nodes);
        SpreadRate { bytes_per_s: mean, deviation: mean * disks.deviation / disks.bytes_per_s }
    }
}

impl Display for ClusterPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let node_bytes = units::bytes(self.bytes_per_node as u64);
        writeln!(f, "job       sort {}, {node_bytes} on a node", units::bytes(self.input_bytes as u64))?;
        writeln!(f, "cluster   {} of {}", units::plural(self.nodes.into(), "node"), self.node_type)?;
        let source = if self.from_small_sort { "a small sort" } else { "DiskBench and NetBench" };
        let network = match self.network {
            Network::Infinite => "a network that is never the bottleneck",
            Network::Linear => "a network that keeps its rate however many nodes there are",
            Network::Measured => "a network that slows down with the number of nodes",
        };
        writeln!(f, "rates     of {source}, {network}")?;
        writeln!(f, "start     {}", units::seconds(self.overhead_seconds))?;
        for (number, phase) in (1..).zip(&self.phases) {
            writeln!(
                f,
                "phase {number}   {}: {}, bound by {}",
                phase.name,
                units::seconds(phase.seconds),
                phase.bound_by
            )?;
            for stage in &phase.stages {
                let mean = units::rate(stage.bytes_per_s);
                let slowest = units::rate(stage.slowest_bytes_per_s);
                writeln!(f, "          {} {mean} a node, the slowest {slowest}", stage.name)?;
            }
        }
        writeln!(f, "in all    {}, {:.2} USD", units::seconds(self.seconds), self.usd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all_to_all::published::{A_100, A_299, B_299};

    /// A published sort: what was measured before, and what it took (tables 2, 4 and 6).
    struct Published {
        name: &'static str,
        request: ClusterRequest,
        map_shuffle: f64,
        sort_reduce: f64,
        total: f64,
        usd: f64,
    }

    const TB: f64 = 1e12;

    fn request(
        nodes: u32,
        input_bytes: f64,
        disks: (f64, f64),
        net: crate::all_to_all::AllToAllRate,
    ) -> ClusterRequest {
        let node_type = NodeType {
            disks: SpreadRate { bytes_per_s: disks.0 * 1e6, deviation: disks.1 * 1e6 },
            network: vec![net],
            coordinator_usd_per_hour: 0.10,
            ..NodeType::published_n1_standard_32()
        };
        let connections = net.connections;
        ClusterRequest {
            input_bytes,
            nodes,
            node_type,
            network: Network::Measured,
            connections,
            uniform: false,
        }
    }

    /// Mappers that ended after `mean` seconds, with this deviation.
    fn with_mappers(mut request: ClusterRequest, mean: f64, deviation: f64) -> ClusterRequest {
        let bytes_per_s = request.bytes_per_node() / mean;
        request.node_type.mappers =
            Some(SpreadRate { bytes_per_s, deviation: bytes_per_s * deviation / mean });
        request
    }

    fn published() -> Vec<Published> {
        let a_100 = request(100, 33.3 * TB, (810.05, 3.97), A_100);
        let a_299 = request(299, 100.0 * TB, (801.84, 7.81), A_299);
        let b_296 = request(296, 100.0 * TB, (811.01, 3.83), B_299);
        let coordinator = NodeType { coordinator_usd_per_hour: 1.60, ..b_296.node_type.clone() };
        let b_296 = ClusterRequest { uniform: true, node_type: coordinator, ..b_296 };
        vec![
            Published {
                name: "A-100",
                request: a_100,
                map_shuffle: 468.0,
                sort_reduce: 430.0,
                total: 930.0,
                usd: 53.04,
            },
            Published {
                name: "A-299, four mappers",
                request: a_299.clone(),
                map_shuffle: 497.0,
                sort_reduce: 434.0,
                total: 976.0,
                usd: 166.32,
            },
            Published {
                name: "A-299, five mappers",
                request: a_299,
                map_shuffle: 484.0,
                sort_reduce: 445.0,
                total: 976.0,
                usd: 166.32,
            },
            Published {
                name: "B-296",
                request: b_296,
                map_shuffle: 469.0,
                sort_reduce: 444.0,
                total: 915.0,
                usd: 154.78,
            },
        ]
    }

    fn off(predicted: f64, actual: f64) -> f64 {
        (predicted / actual - 1.0).abs()
    }

    #[test]
    fn published_sorts_are_predicted_from_their_benchmarks() {
        for one in published() {
            let plan = one.request.plan().unwrap();
            let [map_shuffle, sort_reduce] = &plan.phases;
            let text = format!("{}: {plan}", one.name);
            assert!(off(plan.seconds, one.total) < 0.10, "{text}");
            assert!(off(plan.usd, one.usd) < 0.10, "{text}");
            assert!(off(map_shuffle.seconds, one.map_shuffle) < 0.20, "{text}");
            assert!(off(sort_reduce.seconds, one.sort_reduce) < 0.10, "{text}");
            assert_eq!(sort_reduce.bound_by, "disks", "{text}");
        }
    }

    #[test]
    fn phases_bound_by_mappers_are_predicted_from_their_rate() {
        let rows = published();
        for (row, mean, deviation) in [(0, 401.0, 13.0), (1, 432.8, 10.9), (2, 420.9, 16.5)] {
            let plan = with_mappers(rows[row].request.clone(), mean, deviation).plan().unwrap();
            let phase = &plan.phases[0];
            assert!(off(phase.seconds, rows[row].map_shuffle) < 0.10, "{}: {plan}", rows[row].name);
            assert_eq!(phase.bound_by, "mappers", "{}", rows[row].name);
        }
    }

    #[test]
    fn a_network_slower_than_the_disks_binds_the_shuffle() {
        let node_type = NodeType::published_i2_8xlarge();
        let request = ClusterRequest {
            input_bytes: 100.0 * TB,
            nodes: 178,
            node_type,
            network: Network::Measured,
            connections: 1,
            uniform: true,
        };
        let plan = request.plan().unwrap();
        assert_eq!((plan.phases[0].bound_by, plan.phases[1].bound_by), ("network", "disks"));
        assert!(off(plan.seconds, 888.0) < 0.10 && off(plan.usd, 299.45) < 0.10, "{plan}");
        let unbound = ClusterRequest { network: Network::Infinite, ..request.clone() }.plan().unwrap();
        assert_eq!(unbound.phases[0].bound_by, "disks");
        assert!(unbound.seconds < plan.seconds * 0.85);
        let few = ClusterRequest { nodes: 100, ..request };
        let linear = ClusterRequest { network: Network::Linear, ..few.clone() };
        // Fewer peers than were measured: the line is faster than at 178.
        assert!(few.plan().unwrap().seconds < linear.plan().unwrap().seconds);
    }

    /// Both published predictions of 100 TB on this machine (section 7.2), without the coordinator.
    #[test]
    fn published_predictions_are_met() {
        let alone = NodeType { coordinator_usd_per_hour: 0.0, ..NodeType::published_n1_standard_32() };
        let large = ClusterRequest {
            input_bytes: 100.0 * TB,
            nodes: 296,
            node_type: alone.clone(),
            network: Network::Measured,
            connections: 1,
            uniform: true,
        };
        let by_benchmarks = large.plan().unwrap();
        assert!(off(by_benchmarks.usd, 139.33) < 0.05, "{by_benchmarks}");
        // The times of the sort of 1.2 TB on 10 nodes are not published; these are the model's own.
        let small = ClusterRequest { input_bytes: 1.2 * TB, nodes: 10, ..large.clone() }.plan().unwrap();
        let small_sort = Some(SmallSort {
            nodes: 10,
            input_bytes: 1.2 * TB,
            map_shuffle_seconds: small.phases[0].seconds,
            sort_reduce_seconds: small.phases[1].seconds,
        });
        let node_type = NodeType { small_sort, ..alone };
        let by_sort = ClusterRequest { node_type, ..large }.plan().unwrap();
        assert!(off(by_sort.usd, 147.64) < 0.05, "{by_sort}");
    }

    #[test]
    fn the_sort_on_100_nodes_predicts_those_on_300() {
        let rows = published();
        let small_sort = SmallSort {
            nodes: 100,
            input_bytes: 33.3 * TB,
            map_shuffle_seconds: 468.0,
            sort_reduce_seconds: 430.0,
        };
        for row in &rows[1..] {
            let mut request = row.request.clone();
            request.node_type.small_sort = Some(small_sort);
            let plan = request.plan().unwrap();
            assert!(
                off(plan.seconds, row.total) < 0.05 && off(plan.usd, row.usd) < 0.05,
                "{}: {plan}",
                row.name
            );
            assert!(off(plan.phases[0].seconds, row.map_shuffle) < 0.10, "{}: {plan}", row.name);
        }
    }

    #[test]
    fn data_that_disks_cannot_hold_are_refused_with_the_nodes_they_need() {
        let mut request = published()[3].request.clone();
        request.nodes = 200;
        let error = request.plan().unwrap_err();
        let DoesNotFit::Space { what: "input and output", nodes, .. } = error else { panic!("{error}") };
        request.nodes = u32::try_from(nodes).unwrap();
        assert!(request.plan().is_ok());
        request.nodes -= 1;
        assert!(request.plan().is_err());
        request.node_type.spill_disk_bytes = 0.0;
        assert!(request.plan().unwrap_err().to_string().contains("input, output and intermediate files"));
        request.nodes = 0;
        assert_eq!(request.plan(), Err(DoesNotFit::Nothing));
    }

    #[test]
    fn a_sample_takes_more_time_on_more_nodes() {
        let of = |nodes| {
            let request = ClusterRequest { nodes, ..published()[1].request.clone() };
            request.overhead_seconds()
        };
        assert!((of(100) - 32.0).abs() < 1e-9 && (of(299) - 45.0).abs() < 1e-9);
        assert!(of(1) >= OVERHEAD_SECONDS && of(10) < of(1000));
    }
}
