//! `ascot plan cluster`: predicts the phases, the time and the cost of a sort on a cluster, or finds the cheapest
//! cluster.

use std::ffi::OsString;

use ascot_device::named_node_type;
use ascot_model::cluster::{ClusterRequest, ClusterSearch, Network, NodeType};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::numbers;
use crate::values;

/// Flags of no other plan.
pub const FLAGS: [&str; 7] =
    ["nodes", "node-type", "cheapest", "within", "network", "connections", "uniform"];
/// The most nodes of a cluster that is searched for, unless `--nodes` says otherwise.
const MAX_NODES: u32 = 1000;

/// `ascot plan cluster`.
pub fn run(matches: &ArgMatches, input_bytes: u64) -> Result<u8> {
    let nodes = count(matches, "nodes")?;
    let connections = count(matches, "connections")?.unwrap_or(1);
    let node_types = node_types(matches)?;
    let input_bytes = input_bytes as f64;
    let network = network(matches);
    let uniform = values::flag(matches, "uniform");
    if values::flag(matches, "cheapest") {
        let within_seconds = within(matches)?;
        let node_types = if node_types.is_empty() { NodeType::known().to_vec() } else { node_types };
        let max_nodes = nodes.unwrap_or(MAX_NODES).min(numbers::MAX_STREAMS as u32);
        let search = ClusterSearch {
            input_bytes,
            node_types,
            max_nodes,
            within_seconds,
            network,
            connections,
            uniform,
        };
        let found = search.run().map_err(|error| {
            Failure::usage(error.to_string(), "allow more time with --within, or more nodes with --nodes")
        })?;
        return numbers::show(matches, &found);
    }
    if values::is_given(matches, "within") {
        return Err(Failure::usage(
            "--within is a deadline for the search of a cluster",
            "give --cheapest, too, or leave it out",
        ));
    }
    let Some(nodes) = nodes else {
        return Err(Failure::usage(
            "the number of nodes is missing",
            "give it with --nodes, or --cheapest to search for the cheapest cluster",
        ));
    };
    let mut node_types = node_types.into_iter();
    let (Some(node_type), None) = (node_types.next(), node_types.next()) else {
        return Err(Failure::usage(
            "a plan needs one type of nodes",
            "give one --node-type; --cheapest compares several",
        ));
    };
    let request = ClusterRequest { input_bytes, nodes, node_type, network, connections, uniform };
    let plan = request.plan().map_err(|error| Failure::Usage(error.to_string()))?;
    numbers::show(matches, &plan)
}

fn count(matches: &ArgMatches, id: &str) -> Result<Option<u32>> {
    let count = numbers::whole(matches, id)?;
    if count == Some(0) {
        return Err(Failure::usage(
            format!("--{id} 0 is not a number of {id}"),
            "give at least 1, such as 8",
        ));
    }
    Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
}

fn node_types(matches: &ArgMatches) -> Result<Vec<NodeType>> {
    let named = |name: &OsString| {
        named_node_type(name).map_err(|error| Failure::Usage(format!("--node-type: {error}")))
    };
    values::all(matches, "node-type").map(named).collect()
}

fn network(matches: &ArgMatches) -> Network {
    match values::word(matches, "network") {
        Some("infinite") => Network::Infinite,
        Some("linear") => Network::Linear,
        _ => Network::Measured,
    }
}

/// The deadline, seconds.
fn within(matches: &ArgMatches) -> Result<Option<f64>> {
    let Some(text) = values::word(matches, "within") else { return Ok(None) };
    let time = numbers::duration(text).ok_or_else(|| {
        Failure::usage(format!("--within '{text}' is not a time"), "such as 20min, 900s or 2h")
    })?;
    Ok(Some(time.as_secs_f64()))
}
