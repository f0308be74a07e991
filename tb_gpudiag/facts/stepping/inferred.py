"""Inferred steps: the repetition of a device's launches, and the evidence that one repetition is a step."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Busy
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.stepping.repetition import FEWEST, Repetition, find_repetition
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import BLOCKING_CALL
from tb_gpudiag.vocabulary.marks import MODULE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

# Between two steps, a job may launch something else, such as the kernels of a log line. With more launches
# than this share of a step's, it does something else, such as an evaluation.
MOST_BETWEEN = levels.HALF

# A step is what a job repeats. Repetitions with less than this share of the GPU's work are parts of something
# larger, such as the batches of one image.
MOST_WORK = levels.HALF


class StepEvidence(Enum):
    """What distinguishes a step from a part of one, such as a layer, which can repeat just as exactly."""

    MODULE = "module"  # each calls an outermost module
    INPUT = "input"  # each copies from the host to the device
    THREADS = "threads"  # several host threads launch each, as forward and backward do
    ONE_CALL = "one_call"  # all are inside one call of an operator or a module: parts, not steps
    PART = "part"  # most of the GPU's work is outside of them
    NONE = "none"  # no evidence


@dataclass(frozen=True, eq=False)
class InferredSteps:
    """Repetitions of the device's launches, as the host ran them: those that follow each other without
    anything else of length.

    A repetition begins when the host is done with the launch before its first one and with waiting for the
    GPU. It ends where the next one begins; the last one, with its last launch call.
    """

    device: int
    period_launches: int
    steps: Steps
    evidence: StepEvidence
    inside: str  # the call that they are all inside, "" for none

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def are_steps(self) -> bool:
        return self.evidence in {StepEvidence.MODULE, StepEvidence.INPUT, StepEvidence.THREADS}


@dataclass(frozen=True, eq=False)
class _Calls:
    """A device's launch calls in order. Shape (c,) each; a graph launch is one call."""

    event: Int64
    start_ns: Int64
    end_ns: Int64
    kind: Int64  # equal for calls that launch the same
    copies_in: Bool  # copies from the host to the device
    computes: Bool  # launches a kernel


def infer_steps(
    work: Work, transfers: Transfers, host: Host, busy: Busy, recording: Window
) -> InferredSteps | None:
    """Infer the steps of a device; None if its launches do not clearly repeat. busy: the device's."""
    device = busy.device
    calls = _calls(work, transfers, device)
    if calls is None:
        return None
    pause = np.r_[0, calls.start_ns[1:] - calls.end_ns[:-1]]
    found = find_repetition(calls.kind, calls.copies_in, pause)
    found = _in_a_row(found) if found is not None else None
    # Loading a model or constants is many copies in a row, and no kernel.
    if found is None or 2 * calls.computes[found.members].any(axis=1).sum() <= len(found):
        return None
    start, end = (
        np.clip(at, recording.start_ns, recording.end_ns) for at in _in_time(work.events, calls, found)
    )
    steps = Steps([f"inferred {i}" for i in range(1, len(start) + 1)], start, end)
    evidence, inside = _evidence(work.events, host, calls, found)
    inferred = InferredSteps(device, found.period, steps, evidence, inside)
    if inferred.are_steps and _work_ns(work, steps, device) < MOST_WORK * busy.all.total:
        return replace(inferred, evidence=StepEvidence.PART)
    return inferred


def _calls(work: Work, transfers: Transfers, device: int) -> _Calls | None:
    events = work.events
    own = np.flatnonzero((work.device == device) & work.linked)
    if not len(own):
        return None
    own = own[np.lexsort((work.launch[own], work.launch_start_ns[own]))]
    call = work.launch[own]
    first = np.flatnonzero(np.r_[True, call[1:] != call[:-1]])
    copies_in = mask_of(transfers.event[transfers.to_device], len(events))
    # A graph's kernels run in another order each time: a sum of random values does not depend on the order.
    value = np.random.default_rng(0).integers(1, 2**62, max(1, len(events.names)), dtype=np.int64)
    work_event = work.event[own]
    return _Calls(
        call[first],
        events.start_ns[call[first]],
        events.end_ns[call[first]],
        np.add.reduceat(value[events.name[work_event]], first),
        np.logical_or.reduceat(copies_in[work_event], first),
        np.logical_or.reduceat(events.category[work_event] == Category.KERNEL, first),
    )


def _in_a_row(found: Repetition) -> Repetition | None:
    """Return the longest run of repetitions between which little else is launched; None if it is short."""
    between = found.start[1:] - found.start[:-1] - found.period
    breaks = np.flatnonzero(between > MOST_BETWEEN * found.period) + 1
    first, after = np.r_[0, breaks], np.r_[breaks, len(found)]
    longest = int(np.argmax(after - first))
    run = found.start[first[longest] : after[longest]]
    return Repetition(found.period, run) if len(run) >= FEWEST else None


def _in_time(events: Events, calls: _Calls, found: Repetition) -> tuple[Int64, Int64]:
    """Return the start and end of each repetition on the host."""
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
    # Before the first one, the host may have done something else: the usual time before the launch counts.
    begins[0] = max(begins[0], launch[0] - int(np.median((launch - begins)[1:])))
    between = found.start[1:] - found.start[:-1] - found.period
    if np.median(between) > 0:  # each one has some more launches, and it is not known which the last one has
        return begins[:-1], begins[1:]
    return begins, np.r_[begins[1:], calls.end_ns[found.start[-1] + found.period - 1]]


def _work_ns(work: Work, steps: Steps, device: int) -> int:
    """Return how long the device works on what is launched in these steps."""
    own = (work.device == device) & Window(int(steps.start_ns[0]), int(steps.end_ns[-1])).contains(
        work.launch_start_ns
    )
    return union(work.start_ns[own], work.end_ns[own]).total


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
