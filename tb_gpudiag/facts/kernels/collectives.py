"""Collectives and point-to-point operations: what each sends, when its rank arrived and when it ended, what
launched it, and how long each kind was exposed."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, intersect
from tb_gpudiag.facts.core.ledger import Busy
from tb_gpudiag.facts.core.matching import kind_by_name, match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Message
from tb_gpudiag.vocabulary import marks, operators
from tb_gpudiag.vocabulary.collective_kinds import BACK_END_MARK, CALLERS, NAMES, Collective, operation
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.kernel_names import collective_kind
from tb_gpudiag.vocabulary.operators import COLLECTIVE_PARAMETERS, NUMBER_BYTES, number_format
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import LOADER

UNSAID: Final = Message("", "", (), NONE, NONE, NONE, NONE, "", NONE, NONE)


@dataclass(frozen=True, eq=False)
class CollectiveCalls:
    """Collectives in order of their start. Shape (c,) each.

    event: the kernel, or the back end's mark on the CPU. call: the host's operation, or NONE.
    start_ns: when the rank arrived.
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
        elements = (max(said.elements_in, said.elements_out) for said in self.message)
        each = (NUMBER_BYTES.get(number_format(said.element_type), 0) for said in self.message)
        found = [
            count * size if count >= 0 and size else NONE for count, size in zip(elements, each, strict=True)
        ]
        return np.array(found, np.int64)


def on_device(host: Host, kernels: Kernels) -> CollectiveCalls:
    """Find the communication kernels of the step window. Kernels of one call on one stream count as one."""
    events = host.events
    chosen = np.flatnonzero(kernels.family == Family.COLLECTIVE)
    event, origin = kernels.event[chosen], kernels.origin[chosen]
    own = np.array([text == COLLECTIVE_PARAMETERS for text in events.names], np.bool_)
    called = host.tree.nearest_of((events.category == Category.CPU_OP) & own[events.name])
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


def _calls(host: Host, event: Int64, call: Int64, origin: Int64, start: Int64, end: Int64) -> CollectiveCalls:
    events = host.events
    own, stated = events.message[event], np.where(call == NONE, NONE, events.message[call])
    message = np.where(own == NONE, stated, own)
    marks = host.tree.nearest_of(match(events, BACK_END_MARK))
    mark = np.where(origin == NONE, NONE, marks[origin])
    messages = [UNSAID if m == NONE else events.messages[m] for m in message.tolist()]
    kinds = [
        operation(said.collective)
        or ("" if marked == NONE else operation(events.names[events.name[marked]]))
        or operation(events.names[events.name[kernel]])
        or "other"
        for said, marked, kernel in zip(messages, mark.tolist(), event.tolist(), strict=True)
    ]
    return CollectiveCalls(event, call, start, end, kinds, messages)


@dataclass(frozen=True)
class CollectiveTime:
    """One kind of collective over the step window."""

    name: str  # such as `AllReduce`; the kernel's name where it contains no kind
    kernels: int
    time_ns: int  # while at least one of them ran
    exposed_ns: int  # of time_ns: nothing computed meanwhile


def exposed_communication(busy: Busy, window: Window) -> Intervals:
    """Return when a collective ran in the step window and nothing computed."""
    return clip(busy.communicating, window.start_ns, window.end_ns)


def collectives(kernels: Kernels, busy: Busy, window: Window) -> list[CollectiveTime]:
    """Return the kinds of collectives, the most exposed first. Where kinds overlap, each one counts."""
    chosen = kernels.family == Family.COLLECTIVE
    names = busy.events.names
    number, member = np.unique(busy.events.name[kernels.event[chosen]], return_inverse=True)
    kind = np.array([collective_kind(names[i]) for i in number], object)
    exposed = exposed_communication(busy, window)
    found = []
    own = np.zeros(len(chosen), np.bool_)
    for name in sorted(set(kind)):
        own[:] = False
        own[np.flatnonzero(chosen)[kind[member] == name]] = True
        ran = kernels.union(own)
        found.append(CollectiveTime(name, int(own.sum()), ran.total, intersect(ran, exposed).total))
    return sorted(found, key=lambda c: (-c.exposed_ns, -c.time_ns, c.name))


@dataclass(frozen=True, eq=False)
class CollectiveLaunches:
    """What launched each communication kernel. Shape (k,) each.

    kind: Collective.
    annotation: the name of the nearest user annotation around the launch, "" if there is
    none. The marks of steps, loaders, optimizers and back ends do not count.
    caller: a name of CALLERS, or "".
    """

    kind: UInt8
    annotation: list[str]
    caller: list[str]

    def by_annotation(self, weight_ns: Int64) -> list[tuple[str, int]]:
        """Return annotations and their time, most first. weight_ns: time of each kernel, shape (k,)."""
        total: Counter[str] = Counter()
        for name, weight in zip(self.annotation, weight_ns.tolist(), strict=True):
            total[name] += weight
        return [(name, time_ns) for name, time_ns in total.most_common() if name and time_ns]


def collective_launches(host: Host, kernel: Int64, launch: Int64) -> CollectiveLaunches:
    """Find what launched communication kernels.

    kernel: their event indices, shape (k,). launch: their launch calls, or NONE, shape (k,).
    """
    events = host.events
    of_name = kind_by_name(events, NAMES, Collective.OTHER)
    on_host = match(events, operators.COLLECTIVE)
    own = np.where(on_host & (of_name[events.name] != Collective.OTHER), of_name[events.name], NONE)
    called = np.where(launch == NONE, NONE, host.tree.nearest(own)[launch])
    kind = np.where(called == NONE, of_name[events.name[kernel]], called).astype(np.uint8)
    is_mark = (events.category == Category.USER_ANNOTATION) & ~on_host
    for pattern in (marks.STEP, marks.OPTIMIZER_STEP, marks.ZERO_GRAD, LOADER):
        is_mark &= ~match(events, pattern)
    around = host.tree.nearest_of(is_mark)
    found = np.where(launch == NONE, NONE, around[launch])
    names = ["" if event == NONE else events.names[events.name[event]] for event in found.tolist()]
    own_caller = np.full(len(events), NONE, np.int32)
    for number, (_, pattern) in enumerate(CALLERS):
        own_caller[(own_caller == NONE) & match(events, pattern)] = number
    of_caller = np.where(launch == NONE, NONE, host.tree.nearest(own_caller)[launch])
    callers = ["" if number == NONE else CALLERS[number][0] for number in of_caller.tolist()]
    return CollectiveLaunches(kind, names, callers)
