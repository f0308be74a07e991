"""GD105: work was queued, yet the GPU was idle; the trace does not show why."""

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
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.wording.format import count, share, time_ns

# Queueing is health, not illness; only idle time beside a full queue is worth a word, and little of it is
# normal: dependencies between streams and copies.
LEAST_SHARE = 0.05

_CODE = """# Kineto's synchronisation events show which stream waited for which event:
from torch._C._profiler import _ExperimentalConfig

with torch.profiler.profile(
    experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
    ...
) as prof:
    ..."""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time in which the next work had already been launched, for longer than a bare turnaround."""
    if facts.device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    chosen = lost.of(Cause.QUEUED)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"the GPU was idle beside queued work for {share(cost_ns, lost.window_ns)} of the step window"
        )
    gaps = len(set(lost.gap[chosen].tolist()))
    earlier_ns = lost.total_ns(chosen & (lost.end_ns <= facts.device.busy.span.start_ns))
    longest = int(lost.length_ns[chosen].max())
    return Finding(
        title=f"The GPU is idle for {share(cost_ns, lost.window_ns)} of the time although work is queued",
        summary="The work that ended these gaps had been launched before they began, so the host was not "
        "late. It "
        "waited for something else: an event of another stream, another rank, another process on the same "
        "GPU. The "
        "cause is not visible in this trace.",
        fix=Fix(
            "Record with synchronisation events; with several ranks, compare them: the one that waits least "
            "is the one "
            "that the others wait for.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/profiler.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "idle beside queued work",
                f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window",
            ),
            Evidence("gaps", f"{count(gaps)}, the longest {time_ns(longest)}"),
            *(
                [
                    Evidence(
                        "before the GPU's first work in the trace",
                        f"{time_ns(earlier_ns)}; it may have been busy with work from before the recording",
                    )
                ]
                if earlier_ns
                else []
            ),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
    )


RULE = Rule("GD105", "queued_not_visible", "Queued, cause not visible", check)
