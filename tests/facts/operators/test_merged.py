"""Merged trees: nodes have the paths of their items, in depth-first order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.operators.call_tree import MergedTree, merge


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=40))
def test_nodes_have_the_paths_of_their_items(items: list[tuple[int, int]]) -> None:
    parents = [NONE if up == 0 or up > at else at - up for at, (up, _) in enumerate(items)]
    paths: list[tuple[int, ...]] = []
    for parent, (_, key) in zip(parents, items, strict=True):
        paths.append((*(paths[parent] if parent != NONE else ()), key))
    depth = np.array([len(path) - 1 for path in paths], np.int64)
    tree, node = merge(np.array(parents, np.int64), depth, np.array([key for _, key in items], np.int64))
    assert len(tree) == len(set(paths))
    of_node = {int(node[at]): path for at, path in enumerate(paths)}
    for at in range(len(tree)):
        _check_node(tree, at, of_node, paths.index(of_node[at]))
    siblings = [(int(tree.parent[at]), int(tree.first[at])) for at in range(len(tree))]
    for parent in set(tree.parent.tolist()):
        firsts = [first for above, first in siblings if above == parent]
        assert firsts == sorted(firsts)


def _check_node(tree: MergedTree, at: int, of_node: dict[int, tuple[int, ...]], first: int) -> None:
    path, above = of_node[at], int(tree.parent[at])
    assert tree.depth[at] == len(path) - 1
    assert tree.first[at] == first
    assert (above == NONE) == (len(path) == 1)
    assert above == NONE or of_node[above] == path[:-1]
    below = [other for other, found in of_node.items() if found[: len(path)] == path]
    assert sorted(below) == list(range(at, int(tree.last[at])))
