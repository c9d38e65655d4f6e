"""Sorts, and functions on records and on keys, on a cluster of Ray: data larger than one machine, in two passes.

The input is read once, and each record is sent to the node that has its partition; then each partition is sorted.
What is done is in files and in a journal: a job survives the loss of nodes, and its driver may be killed and the job
resumed.

Needs Ray: `pip install ascot[cluster]`.
"""

from ascot.cluster.bench import diskbench, netbench
from ascot.cluster.jobs import Finished, map_reduce, remove, resume, sort
from ascot.cluster.node_types import node_type
from ascot.cluster.records import check, gen
from ascot.cluster.reports import ClusterReport, NodeShare, Phase, Stage
from ascot.cluster.series import Series
from ascot.cluster.settings import Settings
from ascot.cluster.whole import open_parts

__all__ = [
    "ClusterReport",
    "Finished",
    "NodeShare",
    "Phase",
    "Series",
    "Settings",
    "Stage",
    "check",
    "diskbench",
    "gen",
    "map_reduce",
    "netbench",
    "node_type",
    "open_parts",
    "remove",
    "resume",
    "sort",
]
