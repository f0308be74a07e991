"""GD105: the GPU was idle although work was queued, and the trace does not show why."""

from __future__ import annotations

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.evidence import window_time
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import duration, number

# A filled queue is healthy. A little idle time while work is queued is normal too: streams and copies depend
# on each other.
LEAST_SHARE = 0.05

_CODE = """# Kineto's synchronization events show which stream waited for which event:
from torch._C._profiler import _ExperimentalConfig

with torch.profiler.profile(
    experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
    ...
) as prof:
    ..."""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Find idle time, longer than a turnaround, during which the next work had already been launched."""
    if facts.device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.main_thread_spans, claimed)
    chosen = lost.of(Cause.QUEUED)
    cost_ns = lost.total_ns(chosen)
    cost_share = share(cost_ns, lost.window_ns)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(f"the GPU is idle {cost_share} of the step window with work queued")
    gaps = len(set(lost.gap[chosen].tolist()))
    earlier_ns = lost.total_ns(chosen & (lost.end_ns <= facts.device.busy.span.start_ns))
    longest = int(lost.length_ns[chosen].max())
    return Finding(
        title=f"The GPU is idle {cost_share} of the time with work queued",
        summary="The work that ended these gaps had been launched before they began, so the host was not "
        "late. The work waited for something else: an event of another stream, another rank, or another "
        "process on the same GPU. The cause is not visible in this trace.",
        fix=Fix(
            "Record with synchronization events. With several ranks, record all of them and compare: the "
            "others wait for the rank that waits least.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/profiler.html",
        ),
        cost_ns=cost_ns,
        sure=False,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time("Idle with work queued", cost_ns, lost.window_ns),
            Evidence("Gaps", number(gaps, "gap"), (duration(longest, "longest"),)),
            *_before_first_work(earlier_ns),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
    )


def _before_first_work(idle_ns: int) -> list[Evidence]:
    """Idle time before the GPU's first recorded work, which may have been busy."""
    if not idle_ns:
        return []
    caveat = "the GPU may have been busy with work from before the recording"
    return [Evidence("Before the first recorded GPU work", duration(idle_ns), (caveat,))]


RULE = Rule("GD105", "queued_not_visible", "Idle with work queued", check)
