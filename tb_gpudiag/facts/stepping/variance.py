"""Step times: each step from the end of the previous step's GPU work to the end of its own, and how steps
differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.busy import Busy
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, coverage
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Account, Ledger, account_of
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import parse_frame, place_frame, with_any_numbers
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP, STEP


@dataclass(frozen=True)
class StepTimes:
    """Steps in order of time. Shape (k,) each.

    times: with a GPU from completion to completion, because a host that runs ahead does not show how long
    steps take. The first one begins when work queued before the recording is done, as far as the trace shows
    it.
    host_start_ns, host_end_ns: when the host ran each.
    work: how many pieces of GPU work each launched.
    """

    times: Account
    host_start_ns: Int64
    host_end_ns: Int64
    work: Int64

    def __len__(self) -> int:
        return len(self.host_start_ns)

    @property
    def on_host(self) -> Steps:
        """The steps as the host ran them."""
        return Steps(self.times.names, self.host_start_ns, self.host_end_ns)


def find_step_times(
    steps: Steps,
    inferred: InferredSteps | None,
    events: Events,
    work: Work,
    busy: Busy | None,
    ledger: Ledger | None,
    main_thread: CauseSpans,
) -> StepTimes | None:
    """Return the recorded steps, else the inferred ones where they are steps; None without either.

    busy, ledger: the busiest device's; None without a GPU. main_thread: what the main thread did.
    """
    if len(steps):
        order = np.argsort(steps.start_ns, kind="stable")
        names, start = [steps.names[i] for i in order], steps.start_ns[order]
        end = np.r_[start[1:], steps.end_ns[order][-1:]]
    elif inferred is not None and inferred.are_steps:
        names, start, end = inferred.account.names, inferred.start_ns, inferred.end_ns
    else:
        return None
    if busy is None or ledger is None:
        return on_host(names, start, end, main_thread)
    return completions(names, start, end, events, work, busy, ledger)


def completions(
    names: list[str], start: Int64, end: Int64, events: Events, work: Work, busy: Busy, ledger: Ledger
) -> StepTimes:
    """Measure the steps that the host ran in [start, end), in order and disjoint, on the device of this
    work."""
    on_device = np.zeros(len(events), np.bool_)
    on_device[busy.work] = True
    own = np.flatnonzero(on_device[work.event] & (work.launch != NONE))
    own = own[np.argsort(work.launch_start_ns[own], kind="stable")]
    launched = work.launch_start_ns[own]
    done = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(events.end_ns[work.event[own]])]
    first, after = np.searchsorted(launched, start), np.searchsorted(launched, end)
    before = done[first]
    # If there is something else between two steps, the second one begins no earlier than on the host.
    before = np.where(np.r_[True, start[1:] > end[:-1]], np.maximum(before, start), before)
    before[0] = max(before[0], _queued_before(events, work, on_device, own[first[0] : after[0]]))
    times = account_of(names, before, np.maximum(done[after], before), busy, ledger)
    return StepTimes(times, start, end, after - first)


def _queued_before(events: Events, work: Work, on_device: Bool, own: Int64) -> int:
    """Return when the work from before the recording was done that precedes this work on its stream: other
    streams may run ahead."""
    queued, ours = work.event[on_device[work.event] & (work.launch == NONE)], work.event[own]
    streams, of_ours = np.unique(events.stream[ours], return_inverse=True)
    if not len(streams):
        return 0
    begins = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(begins, of_ours, events.start_ns[ours])
    at = np.minimum(np.searchsorted(streams, events.stream[queued]), len(streams) - 1)
    before = (streams[at] == events.stream[queued]) & (events.start_ns[queued] < begins[at])
    return int(events.end_ns[queued[before]].max(initial=0))


def on_host(names: list[str], start: Int64, end: Int64, pieces: CauseSpans) -> StepTimes:
    """Measure the steps of a trace without a GPU: the main thread's time by cause."""
    spent = np.zeros((len(start), len(Cause)), np.int64)
    for cause in Cause:
        some = pieces.cause == cause
        spent[:, cause] = coverage(Intervals(pieces.start_ns[some], pieces.end_ns[some]), start, end)
    zero = np.zeros(len(start), np.int64)
    return StepTimes(Account(names, start, end, zero, zero, zero, spent), start, end, zero)


def optimizer_only_in(host: Host, steps: StepTimes, chosen: Bool) -> bool:
    """Return whether an optimizer ran in chosen steps and in no others. chosen: mask of steps, shape (k,)."""
    start_ns = host.events.start_ns[match(host.events, OPTIMIZER_STEP)]
    step = np.searchsorted(steps.host_start_ns, start_ns, side="right") - 1
    step = step[step >= 0]
    return bool(len(step) and chosen[step].all())


def only_in(host: Host, steps: StepTimes, chosen: Bool) -> list[tuple[str, int]]:
    """Find what the chosen steps did on the host and no other step did: (name, ns) of the outermost spans,
    the longest first.

    chosen: mask of steps, shape (k,). Names that differ only in numbers or addresses count as the same.
    """
    events, tree = host.events, host.tree
    spans = tree.spans[~match(events, STEP)[tree.spans]]
    step = np.searchsorted(steps.host_start_ns, events.start_ns[spans], side="right") - 1
    inside = (step >= 0) & (events.end_ns[spans] <= steps.host_end_ns[np.maximum(step, 0)])
    spans, step = spans[inside], step[inside]
    elsewhere = np.zeros(len(events.names), np.bool_)
    elsewhere[events.name[spans[~chosen[step]]]] = True
    spans = spans[chosen[step] & ~elsewhere[events.name[spans]]]
    spans = _without_wrappers(events, tree, spans)
    own = np.zeros(len(events), np.bool_)
    own[spans] = True
    below = own & (tree.parent != NONE)
    below[below] = tree.under(own)[tree.parent[below]]
    spans = spans[~below[spans]]
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
    """Drop the frames of torch and the like around a function of the user's: a decorator's, such as
    `no_grad`'s, says nothing."""
    users = np.array([place_frame(name) is not None for name in events.names], np.bool_)
    plumbing = np.array([parse_frame(name) is not None for name in events.names], np.bool_) & ~users
    own = np.zeros(len(events), np.bool_)
    own[spans] = users[events.name[spans]]
    return spans[~(plumbing[events.name[spans]] & tree.any_below(own)[spans])]


_MOST_NAMES = 5
"""Most names of what only some steps did: further ones are short, and each is compared with all other
names."""
