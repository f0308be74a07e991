"""Collectives and point-to-point operations: each with what it sends, when its rank arrived and when it
ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.trace.events import Message
from tb_gpudiag.vocabulary.collective_kinds import BACK_END_MARK, operation
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.operators import COLLECTIVE_PARAMETERS, NUMBER_BYTES, number_format
from tb_gpudiag.vocabulary.recorded import Category

_UNSAID: Final = Message("", "", (), NONE, NONE, NONE, NONE, "", NONE, NONE)


@dataclass(frozen=True)
class CollectiveCalls:
    """Collectives in order of their start. Shape (c,) each.

    event: the kernel, or the back end's mark on the CPU. call: the host's operation, or NONE.
    """

    event: Int64
    call: Int64
    start_ns: Int64
    end_ns: Int64
    kind: list[str]
    message: list[Message]

    def __len__(self) -> int:
        return len(self.event)

    def first(self, count: int) -> CollectiveCalls:
        """Return the first ones."""
        return CollectiveCalls(
            self.event[:count],
            self.call[:count],
            self.start_ns[:count],
            self.end_ns[:count],
            self.kind[:count],
            self.message[:count],
        )

    @property
    def bytes(self) -> Int64:
        """The larger of what goes in and what comes out; NONE if the trace does not say."""
        return np.array([_bytes(message) for message in self.message], np.int64)


def on_device(host: Host, kernels: Kernels) -> CollectiveCalls:
    """Find the communication kernels of the step window. Kernels of one call on one stream count as one."""
    events = host.events
    chosen = np.flatnonzero(kernels.family == Family.COLLECTIVE)
    event, origin = kernels.event[chosen], kernels.origin[chosen]
    named = events.category == Category.CPU_OP
    called = host.tree.nearest_of(named & _named(host, COLLECTIVE_PARAMETERS))
    call = np.where(origin == NONE, NONE, called[origin])
    # Of kernels without such an operation, each one is a call.
    lone = np.where(call == NONE, -1 - np.arange(len(call)), call)
    stream = kernels.stream[chosen].astype(np.int64)
    key = (lone + len(call)) * (int(stream.max(initial=0)) + 2) + stream + 1
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    end = np.zeros(len(first), np.int64)
    np.maximum.at(end, member, kernels.end_ns[chosen])
    start = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(start, member, kernels.start_ns[chosen])
    order = np.argsort(start, kind="stable")
    return _calls(
        host, event[first[order]], call[first[order]], origin[first[order]], start[order], end[order]
    )


def on_cpu(host: Host, window: Window) -> CollectiveCalls:
    """Find the collectives that a back end ran on the CPU in the window: Gloo's, MPI's and the like."""
    events = host.events
    ran = np.flatnonzero(match(events, BACK_END_MARK) & (events.duration_ns > 0))
    ran = ran[(events.start_ns[ran] >= window.start_ns) & (events.start_ns[ran] < window.end_ns)]
    none = np.full(len(ran), NONE, np.int64)
    return _calls(host, ran, none, ran, events.start_ns[ran], events.end_ns[ran])


def _named(host: Host, name: str) -> Bool:
    """Mask of the events of this name, shape (n,)."""
    events = host.events
    known = np.array([text == name for text in events.names] or [False], np.bool_)
    return known[events.name] if len(events) else np.zeros(0, np.bool_)


def _calls(host: Host, event: Int64, call: Int64, origin: Int64, start: Int64, end: Int64) -> CollectiveCalls:
    events = host.events
    own, stated = events.message[event], np.where(call == NONE, NONE, events.message[call])
    message = np.where(own == NONE, stated, own)
    marks = host.tree.nearest_of(match(events, BACK_END_MARK))
    mark = np.where(origin == NONE, NONE, marks[origin])
    messages = [_UNSAID if m == NONE else events.messages[m] for m in message.tolist()]
    kinds = [
        operation(said.collective)
        or ("" if marked == NONE else operation(events.names[events.name[marked]]))
        or operation(events.names[events.name[kernel]])
        or "other"
        for said, marked, kernel in zip(messages, mark.tolist(), event.tolist(), strict=True)
    ]
    return CollectiveCalls(event, call, start, end, kinds, messages)


def _bytes(message: Message) -> int:
    elements = max(message.elements_in, message.elements_out)
    each = NUMBER_BYTES.get(number_format(message.element_type), 0)
    return elements * each if elements >= 0 and each else NONE
