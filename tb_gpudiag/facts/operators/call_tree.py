"""The call tree: host calls of a trace, merged where they have the same path.

A path begins with the thread. It goes on with Python frames, modules, `record_function` ranges, operators and
calls to the runtime and driver. Operators with other input shapes have other nodes. What autograd runs in
backward also has the forward operator in its path: the same node of the graph for the same line of code.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of, places_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.nesting import Descent
from tb_gpudiag.facts.core.threads import innermost
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import marks
from tb_gpudiag.vocabulary.frames import parse_frame
from tb_gpudiag.vocabulary.recorded import HOST_CATEGORIES, Category


@dataclass(frozen=True, eq=False)
class HostCalls:
    """Host spans, shape (c,) each. Those of one thread nest exactly: see HostTree."""

    event: Int64
    parent: Int64  # place of the call around each, or NONE
    depth: Int64
    start_ns: Int64
    end_ns: Int64
    repeat: Int64  # events that are no calls of their own: see _repeats, shape (r,)
    repeated: Int64  # the events that they belong to

    def spans(self) -> Int64:
        """Return the event that is in the tree of host spans: of a call of no duration the one around it."""
        instant = (self.start_ns == self.end_ns) & (self.parent != NONE)
        return np.where(instant, self.event[self.parent], self.event)


class CallTree:
    """The merged tree, and for each call and each piece of GPU work its node.

    Arrays over nodes have shape (m,). The nodes of threads are at depth 0 and have no calls.
    """

    def __init__(self, host: Host, work: Work) -> None:
        events = host.events
        self.calls = _calls(host)
        self.threads: Int64 = np.unique(events.thread[self.calls.event]).astype(np.int64)
        self._name = _names_without_numbers(events)
        label = _labels(events, self._name, self.calls.event)
        number = len(self.threads)
        # Threads come first. They are the parents of outermost calls.
        parent = np.r_[
            np.full(number, NONE, np.int64),
            np.where(
                self.calls.parent == NONE,
                np.searchsorted(self.threads, events.thread[self.calls.event]),
                self.calls.parent + number,
            ),
        ]
        depth = np.r_[np.zeros(number, np.int64), self.calls.depth + 1]
        key = np.r_[np.arange(number), label + number]
        key = _with_forward(host, self.calls, parent, depth, key, number)
        self.tree, node = merge(parent, depth, key)
        self.node: Int64 = node[number:]
        self.thread_node: Int64 = node[:number]
        # A call of each node, NONE for threads.
        self.call: Int64 = np.maximum(self.tree.first - number, NONE)
        self.event: Int64 = np.where(self.call == NONE, NONE, self.calls.event[self.call])
        place = np.full(len(events) + 1, NONE, np.int64)  # one more, so that NONE stays NONE
        place[self.calls.event] = self.node
        place[self.calls.repeat] = place[self.calls.repeated]
        self.work_node: Int64 = place[work.origin]
        spans = self.calls.spans()
        self.forward: Int64 = np.where(self.call == NONE, NONE, place[host.forward[spans[self.call]]])
        self.category = np.where(self.event == NONE, Category.OTHER, events.category[self.event])
        self._host = host

    @property
    def kind_key(self) -> Int64:
        """Key of a node that does not tell input shapes apart: its name and category, shape (m,)."""
        named = self._name[self.event] * (max(Category) + 1) + self.category
        threads = np.cumsum(self.event == NONE) - 1
        return np.where(self.event == NONE, threads, named + len(self.threads))

    def nearest(self, chosen: Bool, *, strictly: bool = False) -> Int64:
        """Return the nearest chosen node at or above each node, or NONE, shape (m,).

        chosen: mask over nodes. strictly: above it.
        """
        found = np.where(chosen, np.arange(len(self.tree)), NONE)
        parent = self.tree.parent
        Descent(np.arange(len(parent)), self.tree.depth, parent).nearest(found)
        return np.where(parent == NONE, NONE, found[parent]) if strictly else found

    def _or_forwards(self, found: Int64, nothing: int = NONE) -> Int64:
        """Fill `found` where it is `nothing` from the forward operator, shape (m,)."""
        return np.where((found == nothing) & (self.forward != NONE), found[self.forward], found)

    def modules(self) -> Int64:
        """Return the nearest `nn.Module` node of each node, in backward the forward operator's, or NONE."""
        events = self._host.events
        is_module = match(events, marks.MODULE)
        return self._or_forwards(self.nearest((self.event != NONE) & is_module[self.event]))

    def frames(self) -> Int64:
        """Return the nearest Python frame above each node, in backward the forward operator's, or NONE."""
        return self._or_forwards(self.nearest(self.category == Category.PYTHON_FUNCTION, strictly=True))

    def code_stacks(self) -> Int64:
        """Number the stack of each node: of the functions around it, without modules and built-ins, in
        backward the forward operator's. 0 if it has none."""
        events = self._host.events
        names = np.unique(events.name[self.event[self.category == Category.PYTHON_FUNCTION]])
        known = mask_of(
            [i for i in names.tolist() if parse_frame(events.names[i]) is not None], len(events.names) + 1
        )
        function = (self.category == Category.PYTHON_FUNCTION) & known[events.name[self.event]]
        above = self.nearest(function, strictly=True)
        item = np.flatnonzero(function)
        place = places_of(item, len(above))
        change = np.zeros(len(above) + 1, np.int64)
        change[item + 1] = 1  # what is below a node follows it
        np.add.at(change, self.tree.last[item], -1)
        depth = np.cumsum(change)[:-1]
        _, code = merge(place[above[item]], depth[item], self._name[self.event[item]])
        found = np.where(above == NONE, 0, np.r_[code + 1, 0][place[above]])
        return self._or_forwards(found, nothing=0)

    def callers(self) -> Int64:
        """Return the nearest node above each that is not a Python frame, or NONE: calls of operators, ranges
        and the runtime nest in one another as in torch's key_averages()."""
        return self.nearest((self.category != Category.PYTHON_FUNCTION) & (self.event != NONE), strictly=True)

    def merged_shapes(self) -> tuple[MergedTree, Int64]:
        """Return the tree without input shapes and forward operators, and the place of each node in it."""
        return merge(self.tree.parent, self.tree.depth, self.kind_key)


def _calls(host: Host) -> HostCalls:
    """Find the host spans. Those of no duration are below the innermost span at that time."""
    events, tree = host.events, host.tree
    repeats = _repeats(host)
    nested = tree.spans[~repeats[tree.spans]]
    kept = tree.nearest_of((tree.depth >= 0) & ~repeats)
    level = tree.depth - tree.count_around(repeats)
    bare = events.among(*HOST_CATEGORIES) & (events.duration_ns == 0)
    instant = np.flatnonzero(bare).astype(np.int64)
    event = np.r_[nested, instant]
    thread, time_ns = events.thread[instant], events.start_ns[instant]
    around = innermost(tree.activities(), thread, time_ns) if len(instant) else instant
    above = np.r_[tree.parent[nested], around]
    above = np.where(above == NONE, NONE, kept[above])
    place = places_of(event, len(events))
    depth = np.where(above == NONE, 0, level[above] + 1)
    start_ns = np.r_[tree.start_ns[nested], events.start_ns[instant]]
    end_ns = np.r_[tree.end_ns[nested], events.start_ns[instant]]
    order = np.lexsort((np.arange(len(event)), start_ns, events.thread[event])) if len(instant) else None
    repeat = np.flatnonzero(repeats)
    more = (repeat, kept[repeat].astype(np.int64))
    if order is None:
        return HostCalls(event, place[above], depth, start_ns, end_ns, *more)
    place[event[order]] = np.arange(len(event))
    return HostCalls(event[order], place[above[order]], depth[order], start_ns[order], end_ns[order], *more)


def _repeats(host: Host) -> Bool:
    """Mask of operators that are all that an operator of the same name calls, such as `aten::sum` that only
    changes the number format in `aten::sum`. As in torch's key_averages(), the two are one call."""
    events, tree = host.events, host.tree
    real = (tree.depth >= 0) & (events.category != Category.PYTHON_FUNCTION)
    nearest = tree.nearest_of(real)
    caller = np.where(real & (tree.parent != NONE), nearest[tree.parent], NONE)
    called = np.bincount(caller[caller != NONE], minlength=len(events))
    operator = events.category == Category.CPU_OP
    alone = (caller != NONE) & (called[caller] == 1)
    return alone & operator & operator[caller] & (events.name == events.name[caller])


def _names_without_numbers(events: Events) -> Int64:
    """Return the name of each event, the same for all steps, and for all addresses of objects, shape (n,)."""
    first: dict[str, int] = {}
    name = [first.setdefault(marks.merged_name(text), i) for i, text in enumerate(events.names)]
    return np.array(name, np.int64)[events.name]


def _labels(events: Events, name: Int64, event: Int64) -> Int64:
    """Number what tells calls below the same call apart: category, name, input shapes, recorded stack."""
    label = name[event] * (max(Category) + 1) + events.category[event]
    for column in (events.shapes, events.call_stack):
        known = np.flatnonzero(column[event] != NONE)
        most = int(label.max(initial=0)) + 1
        code = np.unique(label[known], return_inverse=True)[1].astype(np.int64)
        code = code * (int(column.max(initial=0)) + 1) + column[event[known]]
        label[known] = most + np.unique(code, return_inverse=True)[1]
    return label


def _with_forward(
    host: Host, calls: HostCalls, parent: Int64, depth: Int64, key: Int64, number: int
) -> Int64:
    """Return the keys, which for calls in backward also tell forward operators of other paths apart.

    number: of threads, which come before the calls.
    """
    backward = host.in_backward[calls.spans()]
    if not backward.any():
        return key
    early = np.flatnonzero(~backward)
    # Items outside of backward are merged on their own, because nothing above them is in it.
    items = np.r_[np.arange(number), early + number]
    place = places_of(items, len(key))
    _, node = merge(place[parent[items]], depth[items], key[items])
    of_event = np.full(len(host.events) + 1, NONE, np.int64)
    of_event[calls.event[early]] = node[number:]
    forward = of_event[host.forward[calls.spans()]]
    known = np.flatnonzero(forward != NONE)
    code = np.unique(key[known + number], return_inverse=True)[1].astype(np.int64)
    code = code * (int(node.max(initial=0)) + 1) + forward[known]
    found: Int64 = key.copy()
    found[known + number] = int(key.max()) + 1 + np.unique(code, return_inverse=True)[1]
    return found


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
