"""Synchronizations by call site: their kind, how long they blocked the host, and the idle time after them."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, ShownRanges, Window, coverage, longest, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import api_calls, operators, torch_frames
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category, LabeledEnum


class SyncKind(LabeledEnum):
    """Why the host waited. If several kinds fit, the first one in this order says most."""

    PRINT = 0  # a tensor is printed
    SIZE = 1  # the size of a result depends on data: nonzero, a boolean index, unique
    CONDITION = 2  # a tensor's value is a condition
    ITEM = 3  # a single value is read
    COPY_TO_HOST = 4
    COPY_TO_DEVICE = 5
    DEVICE = 6  # for the whole device
    EVENT = 7
    STREAM = 8
    LAUNCH = 9  # each launch waits for its kernel
    COPY = 10  # a copy whose direction is not known


# Frames and operators around the call.
_AROUND = (
    (SyncKind.PRINT, torch_frames.TENSOR_PRINT),
    (SyncKind.SIZE, operators.DATA_DEPENDENT_SIZE),
    (SyncKind.CONDITION, operators.CONDITION),
    (SyncKind.ITEM, operators.SINGLE_VALUE),
)
# The call itself.
_CALL = (
    (SyncKind.DEVICE, api_calls.DEVICE_WAIT),
    (SyncKind.EVENT, api_calls.EVENT_WAIT),
    (SyncKind.STREAM, api_calls.STREAM_WAIT),
    (SyncKind.LAUNCH, api_calls.LAUNCH_CALL),
)


@dataclass(frozen=True)
class SyncSite:
    """Waits of one kind and one operator at one place."""

    kind: SyncKind
    place: int  # number of a frame (see Host.frame), or NONE
    operator: str  # the innermost one; "" outside any
    count: int
    held_ns: int  # time in the calls
    refill_ns: int  # the device's idle time after them, at most as long as they had blocked the host
    ranges: ShownRanges  # the longest waits


def sync_kinds(host: Host, transfers: Transfers, calls: Int64) -> UInt8:
    """Return the SyncKind of each call that waits, shape (k,). calls: their event indices, shape (k,)."""
    events = host.events
    found = host.purpose(_AROUND, len(SyncKind))[0][calls].astype(np.uint8)
    for kind, is_it in (
        (SyncKind.COPY_TO_HOST, transfers.to_host),
        (SyncKind.COPY_TO_DEVICE, transfers.to_device),
    ):
        copies = transfers.launch[is_it & (transfers.launch != NONE)]
        of_copy = np.isin(calls, copies) | (
            (host.operator[calls] != NONE) & np.isin(host.operator[calls], host.operator[copies])
        )
        found[of_copy] = np.minimum(found[of_copy], np.uint8(kind))
    for kind, pattern in _CALL:
        called = match_some(events, pattern, calls)
        found[called] = np.minimum(found[called], np.uint8(kind))
    found[found > SyncKind.COPY] = SyncKind.COPY
    return found


def sync_sites(
    host: Host, transfers: Transfers, blocking: Int64, time: GpuTime, window: Window, host_window: Window
) -> list[SyncSite]:
    """Group the waits that begin in the host window, the site that costs the device most first.

    blocking: the calls that wait (handover.HostTime.blocking). Calls inside one operator are one wait, such
    as a copy that blocks and the synchronization after it. time: the device's.
    """
    events, ledger = host.events, time.ledger
    calls = blocking[host_window.contains(events.start_ns[blocking])]
    if not len(calls):
        return []
    drained_in = ledger.gaps.blocked_in[ledger.gap]
    some = drained_in != NONE
    refill = summed(drained_in[some], np.minimum(ledger.drained_ns, ledger.inside(window))[some], len(events))
    operator = host.operator[calls]
    _, wait = np.unique(np.where(operator == NONE, calls, operator), return_inverse=True)
    kinds = sync_kinds(host, transfers, calls).astype(np.int64)
    columns = np.stack([kinds, host.place[calls], host.names(operator)])
    keys, member = np.unique(columns, axis=1, return_inverse=True)
    member = member.reshape(-1)
    held_ns = np.bincount(member, weights=events.duration_ns[calls])
    refill_ns = np.bincount(member, weights=refill[calls])
    pairs, part = np.unique(np.stack([member, wait]), axis=1, return_inverse=True)
    count = np.bincount(pairs[0])
    begins, ends = np.full(pairs.shape[1], host_window.end_ns), np.full(pairs.shape[1], host_window.start_ns)
    np.minimum.at(begins, part.reshape(-1), events.start_ns[calls])
    np.maximum.at(ends, part.reshape(-1), events.end_ns[calls])
    stop = np.cumsum(count)
    return [
        SyncSite(
            SyncKind(int(keys[0, i])),
            int(keys[1, i]),
            "" if keys[2, i] == NONE else events.names[keys[2, i]],
            int(count[i]),
            int(held_ns[i]),
            int(refill_ns[i]),
            longest(begins[stop[i] - count[i] : stop[i]], ends[stop[i] - count[i] : stop[i]], time.device),
        )
        for i in np.lexsort((-held_ns, -refill_ns))
    ]


def operators_around(host: Host, calls: Int64, little_ns: int) -> Intervals:
    """Find the outermost operators that these calls are in, where they take at most `little_ns` longer than
    the call."""
    events = host.events
    operator = host.tree.outermost(events.category == Category.CPU_OP)[calls]
    calls, operator = calls[operator != NONE], operator[operator != NONE]
    own = operator[events.duration_ns[operator] - events.duration_ns[calls] <= little_ns]
    return union(events.start_ns[own], events.end_ns[own])


def between_launches(work: Work, calls: Int64, longest_ns: int) -> Intervals:
    """Return the host time from one of these calls to the next, of at most `longest_ns`, in which nothing
    else is launched. calls: event indices, shape (k,)."""
    launch, first = np.unique(work.launch[work.linked], return_index=True)
    start_ns = work.launch_start_ns[work.linked][first]
    order = np.argsort(start_ns, kind="stable")
    own, at = np.isin(launch, calls)[order], start_ns[order]
    loop = own[:-1] & own[1:] & (np.diff(at) <= longest_ns)
    return union(at[:-1][loop], at[1:][loop])


def calls_in(host: Host, stretches: Intervals) -> Int64:
    """Find the driver calls that begin in these stretches: event indices."""
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    begins = events.start_ns[calls]
    return calls[coverage(stretches, begins, begins + 1) > 0]


def waits_in(host: Host, blocking: Int64, idle: Intervals, least: float) -> str:
    """Name the operator in which the host waits for the GPU for at least this share of the idle time; "" if
    there is none."""
    events, operator = host.events, host.operator[blocking]
    spent = coverage(idle, events.start_ns[blocking], events.end_ns[blocking])
    inside = (operator != NONE) & (spent > 0)
    if not inside.any():
        return ""
    by_name = np.bincount(events.name[operator[inside]], weights=spent[inside])
    most = int(by_name.argmax())
    return events.names[most] if by_name[most] >= least * idle.total else ""
