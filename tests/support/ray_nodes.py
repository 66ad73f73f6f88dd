"""Two Ray nodes on this machine, as a program: prints the address of the first. A line on stdin, `kill`, ends the
second as a power cut does, `add` begins another second one; the end of stdin ends both. With a FOLDER each has a state
folder of its own in it, as two machines have; with CPUS it is told to have so many.
"""

import os
import sys
from typing import Any

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")

from ray.cluster_utils import Cluster

CPUS = int(sys.argv[2]) if sys.argv[2:] else 1
HEAD = {"num_cpus": CPUS, "object_store_memory": 100 << 20, "include_dashboard": False}


def alone(name: str) -> None:
    """The next node has its own state."""
    for folder in sys.argv[1:2]:
        os.environ["XDG_STATE_HOME"] = f"{folder}/{name}"


def add(cluster: Cluster) -> Any:
    alone("second")
    return cluster.add_node(num_cpus=CPUS, object_store_memory=100 << 20, node_ip_address="127.0.0.1")


def main() -> None:
    alone("first")
    cluster = Cluster(initialize_head=True, head_node_args={**HEAD, "node_ip_address": "127.0.0.1"})
    second = add(cluster)
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
        else:
            second = add(cluster)
        print(line.strip(), flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
