//! Plans of sorts on a cluster, whose nodes need not exist.

use std::ffi::OsString;

use ascot_device::named_node_type;
use ascot_model::cluster::{ClusterRequest, ClusterSearch, Network, NodeType};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::jobs::{Told, json};
use crate::request::{Bytes, choice, count_of};

/// The sort, and what all clusters that are planned have in common.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct ClusterOptions {
    size: Bytes,
    /// Names or files.
    node_types: Vec<OsString>,
    /// `measured`, `linear` or `infinite`.
    network: String,
    connections: u32,
    uniform: bool,
}

impl ClusterOptions {
    fn input_bytes(&self) -> Result<f64> {
        Ok(count_of("size", Some(&self.size))?.unwrap_or(0) as f64)
    }

    fn node_types(&self) -> Result<Vec<NodeType>> {
        let named = |name: &OsString| {
            named_node_type(name).map_err(|error| Failure::Request(format!("node_type: {error}")))
        };
        self.node_types.iter().map(named).collect()
    }

    fn network(&self) -> Result<Network> {
        let words =
            [("measured", Network::Measured), ("linear", Network::Linear), ("infinite", Network::Infinite)];
        choice("network", &self.network, &words)
    }

    fn plan(&self, nodes: u32) -> Result<Told> {
        let [node_type] = <[NodeType; 1]>::try_from(self.node_types()?)
            .map_err(|_| Failure::Request("a plan needs one node_type".into()))?;
        let request = ClusterRequest {
            input_bytes: self.input_bytes()?,
            nodes,
            node_type,
            network: self.network()?,
            connections: self.connections,
            uniform: self.uniform,
        };
        let plan = request.plan().map_err(|error| Failure::Request(error.to_string()))?;
        Ok((json(&plan)?, plan.to_string(), Vec::new()))
    }

    fn search(&self, within_seconds: Option<f64>, max_nodes: u32) -> Result<Told> {
        let given = self.node_types()?;
        let search = ClusterSearch {
            input_bytes: self.input_bytes()?,
            node_types: if given.is_empty() { NodeType::known().to_vec() } else { given },
            max_nodes,
            within_seconds,
            network: self.network()?,
            connections: self.connections,
            uniform: self.uniform,
        };
        let found = search.run().map_err(|error| {
            Failure::Request(format!(
                "{error}\n  allow more time with within=, or more nodes with most_nodes="
            ))
        })?;
        Ok((json(&found)?, found.to_string(), Vec::new()))
    }
}

/// The plan of a sort on `nodes` nodes of one type.
#[pyfunction]
pub fn plan_cluster(py: Python<'_>, options: ClusterOptions, nodes: u32) -> PyResult<Told> {
    Ok(py.detach(|| options.plan(nodes))?)
}

/// The cheapest cluster that sorts within some seconds.
#[pyfunction]
pub fn cheapest_cluster(
    py: Python<'_>,
    options: ClusterOptions,
    within_seconds: Option<f64>,
    most_nodes: u32,
) -> PyResult<Told> {
    Ok(py.detach(|| options.search(within_seconds, most_nodes))?)
}
