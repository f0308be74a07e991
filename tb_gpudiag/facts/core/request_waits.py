"""When an inference engine had nothing to run: no request was left, or a worker had no batch."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, union
from tb_gpudiag.facts.core.matching import match, match_some, occurs
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls, engines
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category


@dataclass(frozen=True)
class RequestWaits:
    """The waits, by thread.

    for_engine: a worker waited for its engine's process, so it is not known whether a request was there.
    """

    by_thread: dict[int, Intervals] = field(default_factory=dict)
    for_engine: bool = False


def find_request_waits(host: Host) -> RequestWaits:
    """Find the waits. SGLang's scheduler polls: from one round that found no request to the next one, it
    waits, unless it launches something in between."""
    events = host.events
    patterns = engines.NOTHING_TO_SERVE, engines.INPUT_QUEUE, engines.WORKER_WAITS
    if not any(occurs(events, pattern) for pattern in patterns):
        return RequestWaits()
    tree = host.tree
    blocked = match(events, engines.BLOCKED)
    engine = tree.under(match(events, engines.INPUT_QUEUE)) & blocked
    worker = tree.under(match(events, engines.WORKER_LOOP)) & match(events, engines.WORKER_WAITS)
    idle = match(events, engines.NOTHING_TO_SERVE)
    found: dict[int, Intervals] = {}
    waits = np.flatnonzero((engine | worker | idle) & (events.category == Category.PYTHON_FUNCTION))
    for thread in np.unique(events.thread[waits]).tolist():
        own = waits[events.thread[waits] == thread]
        rounds = own[idle[own]]
        start, end = _polled(events, rounds, thread)
        single = own[~idle[own]]
        found[thread] = union(np.r_[events.start_ns[single], start], np.r_[events.end_ns[single], end])
    return RequestWaits(found, for_engine=bool(worker.any()))


def _polled(events: Events, rounds: Int64, thread: int) -> tuple[Int64, Int64]:
    """Return the stretches of rounds between which the thread launches nothing."""
    if not len(rounds):
        return rounds, rounds
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[events.thread[calls] == thread]
    launched = events.start_ns[calls[match_some(events, api_calls.LAUNCH_CALL, calls)]]
    start, end = events.start_ns[rounds], np.maximum.accumulate(events.end_ns[rounds])
    after = np.searchsorted(launched, start, side="right")
    before = np.searchsorted(launched, end, side="left")
    breaks = after[1:] > before[:-1]
    return start[np.r_[True, breaks]], end[np.r_[breaks, True]]
