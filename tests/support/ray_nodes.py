"""Two Ray nodes on this machine, as a program: prints the address of the first. A line on stdin, `kill`, ends the
second as a power cut does; the end of stdin ends both.
"""

import os
import sys

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")

from ray.cluster_utils import Cluster

CPUS = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**CPUS, "node_ip_address": "127.0.0.1"})
    second = cluster.add_node(num_cpus=1, object_store_memory=100 << 20, node_ip_address="127.0.0.1")
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
