"""Collectives and messages that a back end runs on the CPU: gloo, MPI and the like.

A thread of the back end sets a mark around each operation. A rank arrives when its host calls the operation,
which can be much earlier: the back end starts an operation only once a thread is free.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, union
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.operator_inputs import input_list, is_plausible, is_shape
from tb_gpudiag.facts.kernels.collectives import UNSAID, CollectiveCalls
from tb_gpudiag.trace.events import Message, Metadata
from tb_gpudiag.vocabulary.collective_kinds import BACK_END_MARK, CALL, operation
from tb_gpudiag.vocabulary.operators import NUMBER_BYTES, number_format
from tb_gpudiag.vocabulary.recorded import Category

# Clocks of threads agree within this.
_CLOCK_NS: Final = 20_000

# gloo reduces everything on all ranks where it has to reduce and scatter.
_SCATTERED: Final = "reduce_scatter"
_REDUCED: Final = "all_reduce"

_Group = tuple[str, list[int]]
"""Name and ranks of a process group."""

_UNKNOWN: Final[_Group] = ("", [])


def on_cpu(host: Host, window: Window, metadata: Metadata) -> CollectiveCalls:
    """Find the operations that begin in the window, in order of their calls."""
    events = host.events
    mark, call = _marks(host)
    start = np.where(call == NONE, events.start_ns[mark], events.start_ns[call])
    order = np.argsort(start, kind="stable")
    order = order[window.contains(start[order])]
    mark, call = mark[order], call[order]
    called = [operation(host.name(one)) for one in call.tolist()]
    # A back end may make an all-reduce of a reduce-scatter.
    kinds = [
        _SCATTERED if of_call == _SCATTERED else operation(host.name(one)) or "other"
        for one, of_call in zip(mark.tolist(), called, strict=True)
    ]
    only_group = _only_group(metadata)
    messages = [
        _message(host, m, c, kind, only_group)
        for m, c, kind in zip(mark.tolist(), call.tolist(), kinds, strict=True)
    ]
    return CollectiveCalls(mark, call, start[order], events.end_ns[mark], kinds, messages)


def under_way(host: Host) -> Intervals:
    """Return when an operation was under way: from the host's call until it ended."""
    events = host.events
    mark, call = _marks(host)
    begin = np.where(call == NONE, events.start_ns[mark], events.start_ns[call])
    return union(begin, events.end_ns[mark])


def _marks(host: Host) -> tuple[Int64, Int64]:
    """Return the back ends' marks in order of time, and the call of each, or NONE; shape (m,) each."""
    events = host.events
    mark = np.flatnonzero(match(events, BACK_END_MARK) & (events.duration_ns > 0))
    mark = mark[np.argsort(events.start_ns[mark], kind="stable")]
    calls = np.flatnonzero(match(events, CALL) & (events.category == Category.CPU_OP))
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    found = np.full(len(mark), NONE, np.int64)
    kind, called_kind = _kinds(host, mark), _kinds(host, calls)
    if _SCATTERED not in kind:
        called_kind = np.where(called_kind == _SCATTERED, _REDUCED, called_kind)
    for one in np.unique(kind).tolist():
        own, called = np.flatnonzero(kind == one), calls[called_kind == one]
        for some, candidates in _by_size(host, own, mark, called):
            _pair(host, some, mark, candidates, found)
    return mark, found


def _kinds(host: Host, some: Int64) -> NDArray[np.str_]:
    """Return the operations that the names of some events contain, "" for none; shape of `some`."""
    names, place = np.unique(host.events.name[some], return_inverse=True)
    return np.array([operation(host.events.names[i]) for i in names.tolist()], np.str_)[place]


def _by_size(host: Host, own: Int64, mark: Int64, calls: Int64) -> list[tuple[Int64, Int64]]:
    """Split marks and calls of one kind by what they send, if each mark sends what some call does. A back end
    with several threads can begin a large operation and a small one in either order."""
    sent, called = _elements(host, mark[own]), _elements(host, calls)
    if not np.isin(sent, called).all():
        return [(own, calls)]
    return [(own[sent == size], calls[called == size]) for size in np.unique(sent).tolist()]


def _elements(host: Host, some: Int64) -> Int64:
    """Return how many elements the inputs of some events have together, as far as they say so."""
    shapes, place = np.unique(host.events.shapes[some], return_inverse=True)
    texts = host.events.input_shapes
    found: Int64 = np.array([_count(_inputs(texts, shape)) for shape in shapes.tolist()], np.int64)
    return found[place]


def _count(shape: list[Any], depth: int = 2) -> int:
    """Return the elements of a tensor, or of all tensors in a list."""
    if shape and all(type(size) is int for size in shape):
        return math.prod(shape) if is_shape(shape) and is_plausible(shape) else 0
    return sum(_count(one, depth - 1) for one in shape if isinstance(one, list)) if depth >= 0 else 0


def _pair(host: Host, own: Int64, mark: Int64, calls: Int64, found: Int64) -> None:
    """Find the calls of marks of one kind. A back end begins operations in the order of their calls. The
    recording can begin between a call and its mark, and end there."""
    start = host.events.start_ns
    # Marks without a call come first, calls without a mark come last.
    for without in range(max(0, len(own) - len(calls)), len(own)):
        paired = own[without:]
        if (start[calls[: len(paired)]] <= start[mark[paired]] + _CLOCK_NS).all():
            found[paired] = calls[: len(paired)]
            return


def _only_group(metadata: Metadata) -> _Group:
    """Return the process group if there is only one, else `_UNKNOWN`: calls do not name theirs."""
    match metadata.distributed.get("pg_config"):
        case [{"pg_name": str(name), "ranks": [*ranks]}] if all(type(rank) is int for rank in ranks):
            return name, ranks
    return _UNKNOWN


def _message(host: Host, mark: int, call: int, kind: str, group: _Group) -> Message:
    """Return what an operation sends, as its call and its mark say."""
    name, ranks = group
    elements, element_type = _sizes(host, mark)
    said = UNSAID._replace(group=name, elements_in=elements, element_type=element_type)
    if kind not in ("send", "recv"):
        return said
    match _inputs(host.events.input_settings, int(host.events.settings[call]) if call != NONE else NONE):
        case [_, _, str(text), *_] if text.isascii() and text.isdigit() and len(text) < 9:
            peer = int(text)  # c10d's calls name the other rank, within its group, in this place
        case _:
            peer = NONE
    if 0 <= peer < len(ranks):
        peer = ranks[peer]
    return said._replace(destination=peer) if kind == "send" else said._replace(source=peer)


def _sizes(host: Host, mark: int) -> tuple[int, str]:
    """Return how many elements a mark lists as inputs, or NONE, and their type."""
    events = host.events
    shapes = _inputs(events.input_shapes, int(events.shapes[mark]))
    types = _inputs(events.input_types, int(events.types[mark]))
    formats = [number_format(one) if isinstance(one, str) else "" for one in types]
    sizes = [  # an input without dimensions is one number, if it is a tensor at all
        math.prod(shape)
        for shape, one in zip_longest(shapes, formats)
        if is_shape(shape) and is_plausible(shape) and (shape or one in NUMBER_BYTES)
    ]
    known = set(formats) & NUMBER_BYTES.keys()
    return (sum(sizes), known.pop()) if sizes and len(known) == 1 else (NONE, "")


def _inputs(texts: list[str], index: int) -> list[Any]:
    return input_list(texts[index]) if index != NONE else []
