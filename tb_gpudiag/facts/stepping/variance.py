"""What each step consists of, and how steps differ."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, mask_of, summed
from tb_gpudiag.facts.core.causes import CauseSpans, time_by_cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, TimeAccount
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import parse_frame, place_frame, with_any_numbers
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP, STEP
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """All steps of the recording, marked or inferred, in order of time. Shape (k,) each.

    times: between the steps' borders, see core/steady.py.
    on_host: the steps as the host ran them.
    work: how many pieces of GPU work each launched on the busiest device; without a GPU, how many operators
    ran in it.
    """

    times: TimeAccount
    on_host: Steps
    work: Int64

    def __len__(self) -> int:
        return len(self.on_host)

    @property
    def length_ns(self) -> Int64:
        return self.times.end_ns - self.times.start_ns


def measure_on_device(steps: Steps, borders_ns: Int64, work: Work, time: GpuTime) -> MeasuredSteps:
    own = work.by_launch[work.device[work.by_launch] == time.device]
    launched = np.searchsorted(work.launch_start_ns[own], np.r_[steps.start_ns, steps.end_ns[-1:]])
    return MeasuredSteps(time.account(steps.names, borders_ns[:-1], borders_ns[1:]), steps, np.diff(launched))


def measure_on_host(steps: Steps, spans: CauseSpans, events: Events) -> MeasuredSteps:
    """Measure the steps of a trace without a GPU: the main thread's time by cause."""
    start, end, zero = steps.start_ns, steps.end_ns, np.zeros(len(steps), np.int64)
    spent = time_by_cause(Intervals(spans.start_ns, spans.end_ns), spans.cause, start, end)
    ran_ns = events.start_ns[events.where(Category.CPU_OP)]
    work = np.searchsorted(ran_ns, end) - np.searchsorted(ran_ns, start)
    return MeasuredSteps(TimeAccount(steps.names, start, end, zero, zero, zero, spent), steps, work)


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
    elsewhere = mask_of(events.name[spans[~chosen[step]]], len(events.names))
    spans = spans[chosen[step] & ~elsewhere[events.name[spans]]]
    spans = _without_wrappers(events, tree, spans)
    own = mask_of(spans, len(events))
    spans = spans[tree.outermost_of(own)[spans]]
    total = summed(events.name[spans], events.duration_ns[spans], len(events.names))
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
