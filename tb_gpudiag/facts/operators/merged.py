"""Trees that are merged by key: children of one node that have the same key become one node."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True, eq=False)
class MergedTree:
    """Nodes in depth-first order: each is followed by what is below it. Shape (m,) each.

    parent: the node above, or NONE. last: the first node that is not below it: nodes i + 1 up to last[i] are.
    first: the first item of the node; children of one node are sorted by it.
    """

    parent: Int64
    last: Int64
    depth: Int64
    first: Int64

    def __len__(self) -> int:
        return len(self.parent)


def merge(parent: Int64, depth: Int64, key: Int64) -> tuple[MergedTree, Int64]:
    """Merge items that have the same key and whose parents are merged.

    parent: the item above each, or NONE. depth: 0 for items without one. key: not negative. Shape (k,) each.
    Returns the tree, and the node of each item, shape (k,).
    """
    span = int(key.max(initial=0)) + 1
    node = np.full(len(key), NONE, np.int64)
    parents: list[Int64] = []
    firsts: list[Int64] = []
    count = 0
    by_depth = np.argsort(depth, kind="stable")
    borders = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=NONE)) + 2))
    for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        here = by_depth[low:high]
        above = np.where(parent[here] == NONE, NONE, node[parent[here]])
        found, first, member = np.unique(
            (above + 1) * span + key[here], return_index=True, return_inverse=True
        )
        node[here] = count + member
        parents.append(found // span - 1)
        firsts.append(here[first])
        count += len(found)
    none = np.zeros(0, np.int64)
    tree, order = _in_depth_first_order(
        np.concatenate([none, *parents]), np.concatenate([none, *firsts]), [len(found) for found in parents]
    )
    return tree, order[node]


def _in_depth_first_order(parent: Int64, first: Int64, sizes: list[int]) -> tuple[MergedTree, Int64]:
    """Sort nodes, given level by level with `sizes` nodes each. Return also the new place of each."""
    count = len(parent)
    borders = np.cumsum([0, *sizes]).tolist()
    levels = list(pairwise(borders))
    weight = np.ones(count, np.int64)  # the node and all below it
    for low, high in levels[:0:-1]:
        # numpy would copy all weights for each level, because these are a part of them.
        np.add.at(weight, parent[low:high], weight[low:high].copy())
    order = np.lexsort((first, parent))  # level by level, because a parent's number is that of its level
    above = parent[order]
    before = np.cumsum(weight[order]) - weight[order]
    is_eldest = np.r_[True, above[1:] != above[:-1]][:count]
    eldest = np.maximum.accumulate(np.where(is_eldest, np.arange(count), 0))
    place = np.empty(count, np.int64)
    place[order] = before - before[eldest] + (above != NONE)  # after the parent
    for low, high in levels[1:]:
        place[low:high] += place[parent[low:high]]
    back = np.empty(count, np.int64)
    back[place] = np.arange(count)
    moved = np.where(parent == NONE, NONE, place[parent]) if count else parent
    depth = np.repeat(np.arange(len(sizes)), sizes)
    tree = MergedTree(moved[back], (place + weight)[back], depth[back], first[back])
    return tree, place
