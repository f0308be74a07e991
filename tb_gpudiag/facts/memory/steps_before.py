"""How many steps a job had done before it was recorded.

torch.profiler's marks count from where the profiler was made. autograd numbers the nodes of its graphs from
the first one of each thread on: at a job's fourth step, it has made three steps' worth.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.memory.floor import Periods
from tb_gpudiag.vocabulary.marks import STEP, step_number


def steps_before(host: Host, periods: Periods) -> float | None:
    """Return the larger of what the marks and autograd's numbers say; None where neither is known."""
    marked = step_number(periods.names[0]) if periods.names and STEP.fullmatch(periods.names[0]) else None
    known = [float(one) for one in (marked, _by_autograd(host, periods)) if one is not None]
    return max(known, default=None)


def _by_autograd(host: Host, periods: Periods) -> float | None:
    """Return how many steps the nodes make that there were before the first period; None without any in two
    periods."""
    events, forward = host.events, host.forward_by_sequence
    thread, times = np.unique(events.thread[forward], return_counts=True)
    if not len(thread) or not len(periods):
        return None
    own = forward[events.thread[forward] == thread[times.argmax()]]
    period = np.searchsorted(periods.start_ns, events.start_ns[own], side="right") - 1
    own, period = own[period >= 0], period[period >= 0]
    at, first = np.unique(period, return_index=True)
    number = events.sequence[own][first]
    if len(at) < 2 or number[-1] <= number[0]:
        return None
    per_step = float(number[-1] - number[0]) / float(at[-1] - at[0])
    return max(0.0, float(number[0]) / per_step - float(at[0]))
