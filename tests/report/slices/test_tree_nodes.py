"""The nodes of a tree that are shown have their parents among them."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.report.slices.prepared import heaviest_nodes
from tests.with_each import with_each


def test_few_nodes_are_all_there() -> None:
    nodes = np.array([0, 2, 3])
    assert heaviest_nodes(nodes, np.array([5, 0, 3, 1]), 3) is nodes


def test_of_equal_nodes_the_first_ones_are_there() -> None:
    assert heaviest_nodes(np.arange(100), np.full(100, 7), 10).tolist() == list(range(10))


def random_tree(seed: int, size: int) -> tuple[Int64, Int64]:
    """Parents, and weights with all that is below. Most nodes weigh the same."""
    draw = np.random.default_rng(seed)
    parent = np.array([NONE, *(int(draw.integers(max(0, i - 5), i)) for i in range(1, size))])
    weight = draw.choice([0, 1, 1, 1, 4], size)
    for node in range(size - 1, 0, -1):
        weight[parent[node]] += weight[node]
    return parent, weight


@with_each("seed", range(20))
def test_parents_are_there(seed: int) -> None:
    parent, weight = random_tree(seed, 200)
    found = heaviest_nodes(np.arange(200), weight, 50)
    assert len(found) == 50
    assert set(parent[found].tolist()) <= {NONE, *found.tolist()}
    assert weight[found].sum() == np.sort(weight)[-50:].sum()
