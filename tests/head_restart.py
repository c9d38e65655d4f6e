"""A sort during which the head of the cluster is killed and started again: the arguments are the input, a directory,
the shuffle, and the phase and the share at which that happens.

Ray keeps the state of the head in Redis (RAY_REDIS_ADDRESS).
"""

import sys
import time

import ascot
import ascot.cluster
import ray
from ray.cluster_utils import Cluster
from ray_machines import MEMORY, MIB, RECORDS, At, tell

NODES = 4
FIRST_ADDRESS = 120
# So long there is no head.
AWAY_SECONDS = 3


def main():
    source, directory, shuffle, phase, share = sys.argv[1:]
    cluster = Cluster()
    for number in range(NODES):
        address = f"127.0.0.{FIRST_ADDRESS + number}"
        cluster.add_node(
            node_ip_address=address,
            num_cpus=1,
            object_store_memory=80 * MIB,
            include_dashboard=False,
            env_vars={"ASCOT_TMPDIR": f"{directory}/{address}"},
        )
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

    def restart():
        before = cluster.head_node.all_processes["gcs_server"][0].process.pid
        cluster.head_node.kill_gcs_server()
        time.sleep(AWAY_SECONDS)
        cluster.head_node.start_gcs_server()
        assert cluster.head_node.all_processes["gcs_server"][0].process.pid != before

    at = At(phase, float(share), restart)
    options = {"layout": RECORDS, "memory_per_node": MEMORY, "partitions": 4 * NODES, "shuffle": shuffle}
    done = ascot.cluster.sort(source, f"{directory}/out", **options, progress=at)
    assert at.acted
    checked = ascot.check(list(done.outputs), layout=RECORDS)
    assert checked.is_sorted and len(done.outputs) == 4 * NODES
    tell(done.report, 0)
    print(checked.checksum, checked.records, len(done.report.lost_nodes))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
