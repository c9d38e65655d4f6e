//! The cheapest cluster that meets a deadline: every number of nodes of every type is planned.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::node_type::NodeType;
use super::plan::{ClusterPlan, ClusterRequest, Network};
use crate::units;

/// Which clusters are tried, and for which job.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSearch {
    /// Bytes of the input.
    pub input_bytes: f64,
    /// The types of nodes.
    pub node_types: Vec<NodeType>,
    /// The most nodes of a cluster.
    pub max_nodes: u32,
    /// The deadline, seconds; none: any time.
    pub within_seconds: Option<f64>,
    /// The network.
    pub network: Network,
    /// Connections for each pair of nodes.
    pub connections: u32,
    /// Whether keys are uniform, so that no sample is needed.
    pub uniform: bool,
}

/// The cheapest cluster of every type, cheapest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cheapest {
    /// The cheapest cluster.
    pub plan: ClusterPlan,
    /// The cheapest cluster of each other type that meets the deadline.
    pub others: Vec<ClusterPlan>,
    /// The types of which no cluster meets the deadline, with the seconds of the fastest; none: no number of nodes
    /// holds the data.
    pub too_slow: Vec<TooSlow>,
}

/// A type of which no cluster meets the deadline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TooSlow {
    /// The type.
    pub node_type: String,
    /// Seconds of its fastest cluster; none: no number of nodes holds the data.
    pub fastest_seconds: Option<f64>,
}

/// No cluster meets the deadline.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("no cluster of up to {max_nodes} nodes meets the deadline: {}", listed(too_slow))]
pub struct NoCluster {
    /// The most nodes that were tried.
    pub max_nodes: u32,
    /// Every type.
    pub too_slow: Vec<TooSlow>,
}

fn listed(types: &[TooSlow]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Display for TooSlow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.fastest_seconds {
            Some(seconds) => write!(f, "{} takes at least {}", self.node_type, units::seconds(seconds)),
            None => write!(f, "the disks of {} do not hold the data", self.node_type),
        }
    }
}

impl ClusterSearch {
    /// The cheapest cluster; of two that cost the same, the one with fewer nodes.
    ///
    /// # Errors
    /// No cluster meets the deadline.
    pub fn run(&self) -> Result<Cheapest, NoCluster> {
        let mut plans = Vec::new();
        let mut too_slow = Vec::new();
        for node_type in &self.node_types {
            match self.best_of(node_type) {
                Ok(plan) => plans.push(plan),
                Err(slow) => too_slow.push(slow),
            }
        }
        plans.sort_by(|a, b| a.usd.total_cmp(&b.usd));
        let mut plans = plans.into_iter();
        match plans.next() {
            Some(plan) => Ok(Cheapest { plan, others: plans.collect(), too_slow }),
            None => Err(NoCluster { max_nodes: self.max_nodes, too_slow }),
        }
    }

    /// The cheapest cluster of a type.
    fn best_of(&self, node_type: &NodeType) -> Result<ClusterPlan, TooSlow> {
        let mut best: Option<ClusterPlan> = None;
        let mut fastest: Option<f64> = None;
        for nodes in 1..=self.max_nodes {
            let Ok(plan) = self.request(node_type, nodes).plan() else { continue };
            fastest = Some(fastest.map_or(plan.seconds, |seconds| seconds.min(plan.seconds)));
            let in_time = self.within_seconds.is_none_or(|within| plan.seconds <= within);
            if in_time && best.as_ref().is_none_or(|best| plan.usd < best.usd) {
                best = Some(plan);
            }
        }
        best.ok_or_else(|| TooSlow { node_type: node_type.name.clone(), fastest_seconds: fastest })
    }

    fn request(&self, node_type: &NodeType, nodes: u32) -> ClusterRequest {
        ClusterRequest {
            input_bytes: self.input_bytes,
            nodes,
            node_type: node_type.clone(),
            network: self.network,
            connections: self.connections,
            uniform: self.uniform,
        }
    }
}

impl Display for Cheapest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        for plan in &self.others {
            let nodes = units::plural(plan.nodes.into(), "node");
            let time = units::seconds(plan.seconds);
            writeln!(f, "why not   {nodes} of {}: {time}, {:.2} USD", plan.node_type, plan.usd)?;
        }
        for slow in &self.too_slow {
            writeln!(f, "why not   {slow}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(within_seconds: Option<f64>) -> ClusterSearch {
        ClusterSearch {
            input_bytes: 100e12,
            node_types: NodeType::known().to_vec(),
            max_nodes: 1000,
            within_seconds,
            network: Network::Measured,
            connections: 1,
            uniform: true,
        }
    }

    #[test]
    fn the_published_machine_is_the_cheapest_within_20_minutes() {
        let found = search(Some(1200.0)).run().unwrap();
        assert_eq!(found.plan.node_type, "gce-n1-standard-32");
        assert!(found.plan.seconds <= 1200.0);
        assert_eq!(found.others.len(), 1);
        assert!(found.others[0].usd > found.plan.usd);
        let shown = found.to_string();
        assert!(shown.contains("why not") && shown.contains("ec2-i2.8xlarge"), "{shown}");
    }

    #[test]
    fn every_number_of_nodes_costs_at_least_as_much() {
        let search = search(Some(900.0));
        let found = search.run().unwrap();
        for node_type in &search.node_types {
            for nodes in 1..=search.max_nodes {
                let Ok(plan) = search.request(node_type, nodes).plan() else { continue };
                assert!(plan.seconds > 900.0 || plan.usd >= found.plan.usd, "{plan}");
            }
        }
    }

    #[test]
    fn a_shorter_deadline_takes_more_nodes() {
        let nodes = |within: f64| search(Some(within)).run().unwrap().plan.nodes;
        assert!(nodes(600.0) > nodes(900.0));
        let any = search(None).run().unwrap().plan;
        assert!(any.seconds > 900.0, "{any}");
    }

    #[test]
    fn deadlines_that_no_cluster_meets_are_refused() {
        let error = search(Some(1.0)).run().unwrap_err();
        assert!(error.to_string().contains("ec2-i2.8xlarge takes at least"), "{error}");
        let error = ClusterSearch { max_nodes: 3, ..search(None) }.run().unwrap_err();
        assert!(error.to_string().contains("do not hold the data"), "{error}");
    }
}
