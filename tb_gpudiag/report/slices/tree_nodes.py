"""Which nodes of a large tree are shown."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64


def heaviest_nodes(nodes: Int64, weight: Int64, most: int) -> Int64:
    """Return the `most` heaviest of some nodes, ascending.

    nodes: ascending indices, parents before their children. weight: of each node with all that is below it.
    No node is heavier than its parent, and of equal ones the first counts: what is returned has the parents
    of what it has.
    """
    if len(nodes) <= most:
        return nodes
    order = np.argsort(-weight[nodes], kind="stable")
    return np.sort(nodes[order[:most]])
