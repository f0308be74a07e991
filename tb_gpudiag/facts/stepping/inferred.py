"""Inferred steps: the repetition of a device's launches, and the evidence that one repetition is a step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, TimeAccount
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.stepping.repetition import Repetition, find_repetition
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.api_calls import BLOCKING_CALL
from tb_gpudiag.vocabulary.marks import MODULE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category


class StepEvidence(Enum):
    """What distinguishes a step from a part of one, such as a layer, which can repeat just as exactly."""

    MODULE = "module"  # each calls an outermost module
    INPUT = "input"  # each copies from the host to the device
    THREADS = "threads"  # several host threads launch each, as forward and backward do
    ONE_CALL = "one_call"  # all are inside one call of an operator or a module: parts, not steps
    NONE = "none"  # no evidence


@dataclass(frozen=True)
class InferredSteps:
    """Repetitions of the device's launches. Shape (k,) each.

    A repetition begins when the host is done with the launch before its first one and with waiting for the
    GPU. It ends where the next one begins. Where something else follows, it ends with its own GPU work or at
    the next launch, whichever is earlier.
    """

    period_launches: int
    start_ns: Int64
    end_ns: Int64
    account: TimeAccount  # time of each, as for recorded steps
    evidence: StepEvidence
    inside: str  # the call that they are all inside, "" for none

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def are_steps(self) -> bool:
        """Whether there is evidence that they are steps."""
        return self.evidence in {StepEvidence.MODULE, StepEvidence.INPUT, StepEvidence.THREADS}


@dataclass(frozen=True)
class _Calls:
    """A device's launch calls in order. Shape (c,) each; a graph launch is one call."""

    event: Int64
    start_ns: Int64
    end_ns: Int64
    work_end_ns: Int64  # of the last work that it launched
    kind: Int64  # equal for calls that launch the same
    copies_in: Bool  # copies from the host to the device


def infer_steps(
    work: Work, transfers: Transfers, host: Host, time: GpuTime, window: Window
) -> InferredSteps | None:
    """Infer the steps in the window of a device; None if its launches do not clearly repeat."""
    events = work.events
    calls = _calls(work, transfers, time.device)
    if calls is None:
        return None
    pause = np.r_[0, calls.start_ns[1:] - calls.end_ns[:-1]]
    found = find_repetition(calls.kind, calls.copies_in, pause)
    if found is None:
        return None
    start, end = (np.clip(at, window.start_ns, window.end_ns) for at in _in_time(events, calls, found))
    evidence, inside = _evidence(events, host, calls, found)
    account = time.account([f"inferred {i}" for i in range(1, len(start) + 1)], start, end)
    return InferredSteps(found.period, start, end, account, evidence, inside)


def _calls(work: Work, transfers: Transfers, device: int) -> _Calls | None:
    events = work.events
    own = np.flatnonzero((work.device == device) & work.linked)
    if not len(own):
        return None
    own = own[np.lexsort((work.launch[own], work.launch_start_ns[own]))]
    call = work.launch[own]
    first = np.flatnonzero(np.r_[True, call[1:] != call[:-1]])
    copies_in = np.zeros(len(events), np.bool_)
    copies_in[transfers.event[transfers.to_device]] = True
    # A graph's kernels run in another order each time: a sum of random values does not depend on the order.
    value = np.random.default_rng(0).integers(1, 2**62, max(1, len(events.names)), dtype=np.int64)
    work_event = work.event[own]
    return _Calls(
        call[first],
        events.start_ns[call[first]],
        events.end_ns[call[first]],
        np.maximum.reduceat(events.end_ns[work_event], first),
        np.add.reduceat(value[events.name[work_event]], first),
        np.logical_or.reduceat(copies_in[work_event], first),
    )


def _in_time(events: Events, calls: _Calls, found: Repetition) -> tuple[Int64, Int64]:
    """Return the start and end of each repetition."""
    after = found.start + found.period
    touches = np.r_[False, after[:-1] == found.start[1:]]
    # What the host does before the first launch (such as loading a batch) belongs to the repetition. Waiting
    # before that belongs to earlier launches.
    launch = calls.start_ns[found.start]
    begins = np.r_[np.int64(0), calls.end_ns][found.start]
    waits = events.where(*CALL_CATEGORIES)
    waits = waits[
        match_some(events, BLOCKING_CALL, waits)
        & (events.thread[waits] == events.thread[calls.event[found.start[0]]])
    ]
    ends = np.r_[np.int64(0), np.sort(events.end_ns[waits])]
    begins = np.minimum(np.maximum(begins, ends[np.searchsorted(ends, launch, side="right") - 1]), launch)
    # Where no other repetition precedes, the host may have done something else: the usual time before the
    # launch counts.
    usual = int(np.median((launch - begins)[touches])) if touches.any() else 0
    start = np.where(touches, begins, np.maximum(begins, launch - usual))
    own_end = np.maximum(calls.end_ns, calls.work_end_ns)[found.members].max(axis=1)
    following = np.r_[calls.start_ns, np.iinfo(np.int64).max][after]
    end = np.where(np.r_[touches[1:], False], np.r_[start[1:], 0], np.minimum(own_end, following))
    return start, end


def _evidence(events: Events, host: Host, calls: _Calls, found: Repetition) -> tuple[StepEvidence, str]:
    first, last = int(calls.event[found.start[0]]), int(calls.event[found.start[-1] + found.period - 1])
    shared = set(host.tree.ancestors(first)[:-1]) & set(host.tree.ancestors(last)[:-1])
    module = match(events, MODULE)
    inside = [i for i in shared if module[i] or events.category[i] == Category.CPU_OP]
    if inside:
        return StepEvidence.ONE_CALL, events.names[
            events.name[min(inside, key=lambda i: int(host.tree.depth[i]))]
        ]
    outermost = np.flatnonzero(host.tree.outermost_of(module))
    if _once_in_each(events, outermost, calls.start_ns[found.members[:, -1]]):
        return StepEvidence.MODULE, ""
    if calls.copies_in[found.members].any(axis=1).all():
        return StepEvidence.INPUT, ""
    threads = events.thread[calls.event[found.members]]
    if (threads.min(axis=1) < threads.max(axis=1)).all():
        return StepEvidence.THREADS, ""
    return StepEvidence.NONE, ""


def _once_in_each(events: Events, modules: Int64, last_launch_ns: Int64) -> bool:
    """Return whether the same module is called between any two consecutive launches. Layers outside any
    enclosing module are modules of different names."""
    often, count = np.unique(events.name[modules], return_counts=True)
    for name in often[count >= len(last_launch_ns) - 1]:
        begun = np.searchsorted(
            np.sort(events.start_ns[modules[events.name[modules] == name]]), last_launch_ns
        )
        if (begun[1:] > begun[:-1]).all():
            return True
    return False
