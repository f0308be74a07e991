"""Operators that the operating system interrupted: more threads want to run than the CPU has cores."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels, operators
from tb_gpudiag.vocabulary.marks import merged_name
from tb_gpudiag.vocabulary.recorded import Category

# A thread that lost its core waits for a turn of the scheduler: one to several milliseconds.
_STALL_NS = 1_000_000
_MOST_STALL_NS = 50_000_000

# An operator that usually takes this long computes on the CPU, and for some inputs it takes longer.
_USUAL_NS = 50_000
_FEWEST_CALLS = 20

# A first call that sets something up takes up to some ten times as long as the others with the same shapes.
FAR_LONGER = 100

# Stalls come now and then. What takes long more often has another reason, such as larger inputs.
_MOST_STALLED = levels.NOTICEABLE

# Public recordings of jobs with enough cores have up to three stalls in a second.
FEWEST = 5


@dataclass(frozen=True)
class Interruptions:
    """Operators that took far longer than such operators usually take, without calling anything.

    stalls: how many. stall_ns: the median one, and total_ns: all of them. usual_ns: what these operators
    usually take, in the median. longest, longest_ns: the call that took longest among those that took far
    longer than most of their kind, however few, as an event index or NONE, and its own time.
    """

    stalls: int = 0
    stall_ns: int = 0
    total_ns: int = 0
    usual_ns: int = 0
    longest: int = NONE
    longest_ns: int = 0

    @property
    def several(self) -> bool:
        return self.stalls >= FEWEST


def find_interruptions(host: Host, *, on_cpu: bool) -> Interruptions:
    """Find them outside of data loading. on_cpu: operators compute on the CPU. Then calls of one operator are
    compared only if their inputs have the same shapes, or if it computes nothing."""
    events, tree = host.events, host.tree
    some = (events.category == Category.CPU_OP) & (tree.depth >= 0) & ~host.loader
    some &= ~(match(events, operators.WAITS_OR_COPIES) | match(events, operators.RANDOM))
    if on_cpu:
        some &= (events.shapes != NONE) | match(events, operators.COMPUTES_NOTHING)
    chosen = np.flatnonzero(some)
    if len(chosen) < _FEWEST_CALLS:
        return Interruptions()
    own_ns = tree.own_ns[chosen]
    kind, _ = groups(events.name[chosen].astype(np.int64), events.shapes[chosen].astype(np.int64))
    far = np.where(own_ns > FAR_LONGER * _medians(own_ns, kind)[kind], own_ns, 0)
    longest = int(chosen[far.argmax()]), int(far.max())
    stalled = _stalled(own_ns, kind)
    if not stalled.any():
        return Interruptions(longest=longest[0], longest_ns=longest[1])
    stalls, usual = own_ns[stalled], _medians(own_ns, kind)[kind[stalled]]
    several = len(stalls), int(np.median(stalls)), int(stalls.sum()), int(np.median(usual))
    return Interruptions(*several, *longest)


def stalled_spans(host: Host, event: Int64, own_ns: Int64) -> Bool:
    """Mask of the stretches in which a span took far longer than spans of its name do, now and then; of an
    operator that computes, than those with inputs of the same shapes.

    event, own_ns: the innermost span of each stretch, and its length, shape (s,)."""
    events = host.events
    number, member = np.unique(events.name[event], return_inverse=True)
    _, kind = np.unique([merged_name(events.names[i]) for i in number.tolist()], return_inverse=True)
    kind, _ = groups(kind[member].astype(np.int64), events.shapes[event].astype(np.int64))
    computes = (events.category[event] == Category.CPU_OP) & (events.shapes[event] == NONE)
    computes &= ~match(events, operators.COMPUTES_NOTHING)[event]
    return _stalled(own_ns, kind) & ~computes


def _stalled(own_ns: Int64, kind: Int64) -> Bool:
    """Mask of the calls that took far longer than others of their kind, now and then, shape of both."""
    usual_ns, calls = _medians(own_ns, kind), np.bincount(kind)
    stalled = (own_ns >= _STALL_NS) & (own_ns <= _MOST_STALL_NS) & (usual_ns[kind] <= _USUAL_NS)
    # The first call of an operator sets it up.
    first = mask_of(np.unique(kind, return_index=True)[1], len(kind))
    stalled &= ~first & (calls[kind] >= _FEWEST_CALLS)
    often = np.bincount(kind, weights=stalled) > _MOST_STALLED * calls
    found: Bool = stalled & ~often[kind]
    return found


def _medians(values: Int64, group: Int64) -> Int64:
    order = np.lexsort((values, group))
    count = np.bincount(group)
    return values[order][np.cumsum(count) - count + (count - 1) // 2]
