"""Call stacks of allocations as one merged tree: those of a snapshot, or the calls of a trace around them.

stack_parent, stack_last, stack_kind, stack_name   the tree in depth-first order; names are in `stack_text`
memory_node                                        node of each allocation, or NONE
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, mask_of, places_of
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.operators.merged import MergedTree, merge
from tb_gpudiag.report.slices.prepared import TextTable
from tb_gpudiag.vocabulary.marks import merged_name
from tb_gpudiag.vocabulary.recorded import Category

MOST_STACKS = 5_000
"""Stacks of a snapshot with most bytes. A training script has some hundreds."""

MOST_FRAMES = 128


class _Stacks(NamedTuple):
    """A merged tree with the category and name of each node, and the node of each allocation."""

    tree: MergedTree
    kind: npt.NDArray[np.uint8]
    names: list[str]
    node: Int64


def prepare_stacks(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of all devices' allocations, in the order of prepare_memory."""
    found = _of_snapshot(facts) if facts.trace.memory.stacks else _of_calls(facts)
    texts = TextTable()
    name = [texts.add(text) for text in found.names]
    text, first = texts.arrays()
    return {
        "memory_node": found.node.astype(np.int32),
        "stack_parent": found.tree.parent.astype(np.int32),
        "stack_last": found.tree.last.astype(np.int32),
        "stack_kind": found.kind,
        "stack_name": np.array(name, np.int32),
        "stack_text": text,
        "stack_text_first": first,
    }


def _of_snapshot(facts: Facts) -> _Stacks:
    none = np.zeros(0, np.int64)
    stack = np.concatenate([none, *(device.allocations.stack for device in facts.memory)])
    size = np.concatenate([none, *(device.allocations.bytes for device in facts.memory)])
    stacks = facts.trace.memory.stacks
    total = np.bincount(stack[stack != NONE], size[stack != NONE], len(stacks))
    parents: list[int] = []
    depths: list[int] = []
    names: list[str] = []
    known: dict[tuple[int, str], int] = {}
    leaf = np.full(len(stacks) + 1, NONE, np.int64)  # one more, so that NONE stays NONE
    for index in np.argsort(-total, kind="stable")[:MOST_STACKS].tolist():
        at = NONE
        for depth, frame in enumerate(stacks[index].split("\n")[:MOST_FRAMES]):
            found = known.get((at, frame))
            if found is None:
                found = known[at, frame] = len(names)
                parents.append(at)
                depths.append(depth)
                names.append(frame)
            at = found
        leaf[index] = at
    key = np.unique(names, return_inverse=True)[1].astype(np.int64) if names else none
    tree, node = merge(np.array(parents, np.int64), np.array(depths, np.int64), key)
    kind = np.full(len(tree), Category.PYTHON_FUNCTION, np.uint8)
    of_item = np.r_[node, NONE]
    return _Stacks(tree, kind, [names[i] for i in tree.first.tolist()], of_item[leaf[stack]])


def _of_calls(facts: Facts) -> _Stacks:
    calls, events = facts.call_tree, facts.events
    operator = np.concatenate(
        [np.zeros(0, np.int64), *(device.allocations.operator for device in facts.memory)]
    )
    of_event = np.full(len(events) + 1, NONE, np.int64)
    of_event[calls.calls.event] = calls.node
    of_event[calls.calls.repeat] = of_event[calls.calls.repeated]
    node = of_event[operator]
    used = mask_of(node[node != NONE], len(calls.tree))
    sums = np.r_[0, np.cumsum(used)]
    item = np.flatnonzero(sums[calls.tree.last] - sums[:-1] > 0)
    place = places_of(item, len(used))
    key = np.unique(calls.kind_key, return_inverse=True)[1].astype(np.int64)
    tree, of_item = merge(place[calls.tree.parent[item]], calls.tree.depth[item], key[item])
    event = calls.event[item[tree.first]] if len(tree) else item
    names = ["thread" if i == NONE else merged_name(events.names[events.name[i]]) for i in event.tolist()]
    return _Stacks(tree, calls.category[item[tree.first]], names, np.r_[of_item, NONE][place[node]])
