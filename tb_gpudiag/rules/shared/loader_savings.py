"""What loading batches ahead of time saves: from what real jobs reach, to all of the wait."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, subtract, union
from tb_gpudiag.facts.replay.replay import Change
from tb_gpudiag.facts.waiting.loading import Batches, LoadPart, load_part
from tb_gpudiag.rules.rule import Removable
from tb_gpudiag.rules.shared.lost_time import host_time

# Workers take cores and memory bandwidth from the main thread, and a pinning thread takes the interpreter's
# lock. In two public pairs of a job without workers and with four, its other work took 8% and 19% longer.
SLOWER_HOST = 0.20

# The main thread still takes each batch from a queue: 0.1 to 1.9 ms for 38 MB in the same pairs. For a small
# batch, a part of the time to load it.
HAND_OVER_NS = 2_000_000
HAND_OVER_SHARE = 0.25

# Workers that do not keep up: twice as many of them halve the time per batch, if there are cores for them.
# That removes at least half of the wait.
MORE_WORKERS = 0.5


def loader_removable(host: Host, main_thread: CauseSpans, batches: Batches, *, workers: bool) -> Removable:
    """Return what faster loading removes, at least and at most.

    At least, each batch is still handed over and pinned, the first batch of each new iterator cannot be
    loaded ahead, and the workers slow the main thread down. At most, all loading vanishes.

    workers: worker processes load the batches already. Then more of them remove at least half of the wait.
    """
    loading = host_time(main_thread, Cause.INPUT)
    handed_over = np.minimum(HAND_OVER_NS, HAND_OVER_SHARE * batches.duration_ns).astype(np.int64)
    kept_until = np.where(batches.fresh, batches.end_ns, batches.start_ns + handed_over)
    ahead = subtract(loading, union(batches.start_ns, kept_until))
    ahead = subtract(ahead, _pinning(host, main_thread))
    others = host_time(main_thread, Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH)
    share = MORE_WORKERS if workers else 1.0
    return Removable(Change(ahead, share, slowed=others, slower=SLOWER_HOST), Change(loading))


def _pinning(host: Host, main_thread: CauseSpans) -> Intervals:
    some = main_thread.cause == Cause.INPUT
    some[some] = load_part(host, main_thread.event[some]) == LoadPart.PIN
    return union(main_thread.start_ns[some], main_thread.end_ns[some])
