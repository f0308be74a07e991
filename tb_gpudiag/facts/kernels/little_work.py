"""Operators on the CPU that are mostly overhead: what they compute takes less than calling them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.recorded import Category

# Dispatching an operator takes some microseconds, more while it is recorded. In 20 µs one core computes about
# a million operations: such an operator may still be mostly overhead.
SMALL_NS: Final = 20_000

# Of the calls that have the same to do, the fastest ones show what it takes: the others waited for a core or
# for another thread's part. A first few may have had less to do.
_FAST_CALL: Final = 4  # one in so many is faster


def in_small_operators(host: Host, step_starts_ns: Int64) -> Bool:
    """Mask of the events whose innermost operator is small, shape (n,): calls that have the same to do take
    less than SMALL_NS, without the operators inside of them.

    step_starts_ns: when each step starts, shape (k,)."""
    events = host.events
    calls = np.flatnonzero((events.category == Category.CPU_OP) & (host.tree.depth >= 0))
    kind = _kinds(events, calls, step_starts_ns)
    own_ns = host.tree.own_ns[calls]
    order, count = np.lexsort((own_ns, kind)), np.bincount(kind)
    fast_ns = own_ns[order][np.cumsum(count) - count + count // _FAST_CALL] if len(calls) else own_ns
    small = np.zeros(len(events), np.bool_)
    small[calls] = (fast_ns < SMALL_NS)[kind]
    return marked(small, host.operator)


def _kinds(events: Events, calls: Int64, step_starts_ns: Int64) -> Int64:
    """Group the calls that have the same to do: of one operator, with inputs of the same shapes and types.
    Without shapes, those at the same place in steps that call the operator as often."""
    name, start = events.name[calls].astype(np.int64), events.start_ns[calls]
    in_step, first = groups(np.searchsorted(step_starts_ns, start, side="right"), name)
    order, count = np.lexsort((start, in_step)), np.bincount(in_step, minlength=len(first))
    place = np.empty(len(calls), np.int64)
    place[order] = np.arange(len(calls)) - np.repeat(np.cumsum(count) - count, count)
    shapes, types = events.shapes[calls].astype(np.int64), events.types[calls].astype(np.int64)
    unknown = shapes == NONE
    calling = np.where(unknown, count[in_step], 0), np.where(unknown, place, 0)
    return groups(name, shapes, types, *calling)[0]
