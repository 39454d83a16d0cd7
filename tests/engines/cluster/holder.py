"""A program: a Ray cluster of several nodes on this machine. It prints the address, then does what lines of stdin say.

"add" adds a node of two CPUs and "lose" kills it; each is answered by a line. At the end of stdin, the cluster ends.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    added = []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "add":
            added.append(cluster.add_node(num_cpus=2))
        else:
            cluster.remove_node(added.pop(), allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
