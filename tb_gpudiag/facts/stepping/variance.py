"""Step times: each step from the end of the previous step's GPU work to the end of its own, and how steps
differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.causes import CauseSpans, time_by_cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, TimeAccount
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import parse_frame, place_frame, with_any_numbers
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP, STEP


@dataclass(frozen=True)
class MeasuredSteps:
    """Steps in order of time. Shape (k,) each.

    times: with a GPU from completion to completion, because a host that runs ahead does not show how long
    steps take. The first one begins when work queued before the recording is done, as far as the trace shows
    it.
    on_host: the steps as the host ran them.
    work: how many pieces of GPU work each launched.
    """

    times: TimeAccount
    on_host: Steps
    work: Int64

    def __len__(self) -> int:
        return len(self.on_host)


def find_step_times(
    steps: Steps,
    inferred: InferredSteps | None,
    work: Work,
    time: GpuTime | None,
    main_thread: CauseSpans,
) -> MeasuredSteps | None:
    """Return the recorded steps, or the inferred ones if they are steps; None without either.

    time: the busiest device's; None without a GPU. main_thread: what the main thread did.
    """
    if len(steps):
        order = np.argsort(steps.start_ns, kind="stable")
        start = steps.start_ns[order]
        end = np.r_[start[1:], steps.end_ns[order][-1:]]
        steps = Steps([steps.names[i] for i in order], start, end)
    elif inferred is not None and inferred.are_steps:
        steps = Steps(inferred.account.names, inferred.start_ns, inferred.end_ns)
    else:
        return None
    return _on_host(steps, main_thread) if time is None else _on_device(steps, work, time)


def _on_device(steps: Steps, work: Work, time: GpuTime) -> MeasuredSteps:
    """Measure the steps that the host ran, in order and disjoint, on this device."""
    start, end = steps.start_ns, steps.end_ns
    own = work.by_launch[work.device[work.by_launch] == time.device]
    launched = work.launch_start_ns[own]
    done = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(work.end_ns[own])]
    first, after = np.searchsorted(launched, start), np.searchsorted(launched, end)
    before = done[first]
    # If there is something else between two steps, the second one begins no earlier than on the host.
    before = np.where(np.r_[True, start[1:] > end[:-1]], np.maximum(before, start), before)
    before[0] = max(before[0], _queued_before(work, time.device, own[first[0] : after[0]]))
    times = time.account(steps.names, before, np.maximum(done[after], before))
    return MeasuredSteps(times, steps, after - first)


def _queued_before(work: Work, device: int, own: Int64) -> int:
    """Return when the work from before the recording was done that precedes this work on its stream: other
    streams may run ahead."""
    events = work.events
    queued, ours = work.event[(work.device == device) & ~work.linked], work.event[own]
    streams, of_ours = np.unique(events.stream[ours], return_inverse=True)
    if not len(streams):
        return 0
    begins = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(begins, of_ours, events.start_ns[ours])
    at = np.minimum(np.searchsorted(streams, events.stream[queued]), len(streams) - 1)
    before = (streams[at] == events.stream[queued]) & (events.start_ns[queued] < begins[at])
    return int(events.end_ns[queued[before]].max(initial=0))


def _on_host(steps: Steps, spans: CauseSpans) -> MeasuredSteps:
    """Measure the steps of a trace without a GPU: the main thread's time by cause."""
    start, end, zero = steps.start_ns, steps.end_ns, np.zeros(len(steps), np.int64)
    spent = time_by_cause(Intervals(spans.start_ns, spans.end_ns), spans.cause, start, end)
    return MeasuredSteps(TimeAccount(steps.names, start, end, zero, zero, zero, spent), steps, zero)


def optimizer_only_in(host: Host, steps: MeasuredSteps, chosen: Bool) -> bool:
    """Return whether an optimizer ran in chosen steps and in no others. chosen: mask of steps, shape (k,)."""
    start_ns = host.events.start_ns[match(host.events, OPTIMIZER_STEP)]
    step = np.searchsorted(steps.on_host.start_ns, start_ns, side="right") - 1
    step = step[step >= 0]
    return bool(len(step) and chosen[step].all())


def only_in(host: Host, steps: MeasuredSteps, chosen: Bool) -> list[tuple[str, int]]:
    """Find what the chosen steps did on the host and no other step did: (name, ns) of the outermost spans,
    the longest first.

    chosen: mask of steps, shape (k,). Names that differ only in numbers or addresses count as the same.
    """
    events, tree = host.events, host.tree
    spans = tree.spans[~match(events, STEP)[tree.spans]]
    step = np.searchsorted(steps.on_host.start_ns, events.start_ns[spans], side="right") - 1
    inside = (step >= 0) & (events.end_ns[spans] <= steps.on_host.end_ns[np.maximum(step, 0)])
    spans, step = spans[inside], step[inside]
    elsewhere = np.zeros(len(events.names), np.bool_)
    elsewhere[events.name[spans[~chosen[step]]]] = True
    spans = spans[chosen[step] & ~elsewhere[events.name[spans]]]
    spans = _without_wrappers(events, tree, spans)
    own = np.zeros(len(events), np.bool_)
    own[spans] = True
    spans = spans[tree.outermost_of(own)[spans]]
    total = np.zeros(len(events.names), np.int64)
    np.add.at(total, events.name[spans], events.duration_ns[spans])
    longest = [int(i) for i in np.argsort(-total, kind="stable")[:_MOST_NAMES] if total[i]]
    others = [events.names[i] for i in np.flatnonzero(elsewhere)] if longest else []
    return [
        (events.names[i], int(total[i]))
        for i in longest
        if not any(map(with_any_numbers(events.names[i]).fullmatch, others))
    ]


def _without_wrappers(events: Events, tree: HostTree, spans: Int64) -> Int64:
    """Drop the frames of torch and other libraries around a function of the user's: a decorator such as
    `no_grad` says nothing."""
    users = np.array([place_frame(name) is not None for name in events.names], np.bool_)
    plumbing = np.array([parse_frame(name) is not None for name in events.names], np.bool_) & ~users
    own = np.zeros(len(events), np.bool_)
    own[spans] = users[events.name[spans]]
    return spans[~(plumbing[events.name[spans]] & tree.any_below(own)[spans])]


_MOST_NAMES = 5
"""Most names of what only some steps did: further ones are short, and each is compared with all other
names."""
