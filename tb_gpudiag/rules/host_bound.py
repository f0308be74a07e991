"""GD102: Python or one long operator on the host keeps the GPU waiting."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.intervals import Intervals, union
from tb_gpudiag.rules.format import share, time_ns
from tb_gpudiag.rules.launch_bound import LONGEST_GAP_NS, issuing
from tb_gpudiag.rules.ledger import host_time, lost_time, places, without
from tb_gpudiag.rules.rule import (
    NOTHING,
    Answer,
    CannotTell,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
    Taken,
)

# As for launching (launch_bound.py): healthy public traces lose below 1 % to the host, host-bound ones 10 to
# 60 %.
LEAST_SHARE = 0.05

# Half of the host's own work is a modest aim for batching or compiling it; out of the loop, or beside the
# computing, all of it goes.
LEAST_REMOVED = 0.5

_CODE = """# Find the line: record with stacks, and look at the places of this finding.
with torch.profiler.profile(with_stack=True, ...) as prof:
    ...

# Python between operators: let the compiler take it out,
model = torch.compile(model)
# do it for the whole batch instead of item by item,
batch = processor(images, return_tensors="pt")      # not: [processor(i) for i in images]
# move it to the GPU or into the loader's workers, or out of the loop (logging, metrics, checkpoints)."""


def check(facts: Facts, taken: Taken = NOTHING) -> Answer:
    """Idle time in user code between operators, and in operators that are no matter of launching."""
    lost = lost_time(facts, taken)
    device = facts.device
    if device is None:
        return CannotTell(
            "without GPU activity it is not known what the host kept waiting",
            "Record with ProfilerActivity.CUDA on a machine with a GPU.",
        )
    python, dispatch = lost.of(Cause.PYTHON), lost.of(Cause.DISPATCH, Cause.LAUNCH) & ~issuing(lost, device)
    chosen = python | dispatch
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"the GPU waited {share(cost_ns, lost.window_ns)} of the step window for Python and "
            f"slow operators"
        )
    found = places(facts, lost.event[chosen], lost.length_ns[chosen])
    mostly = "Python" if lost.total_ns(python) * 2 >= cost_ns else "operators on the host"
    at = f" Most of it is in {found[0].function} ({found[0].file})." if found and found[0].file else ""
    unseen = "" if facts.recorded.stacks else " The trace has no Python stacks, so the lines are not known."
    return Finding(
        title=f"The GPU waits {share(cost_ns, lost.window_ns)} of the time for {mostly}",
        summary="The GPU had finished, and the host was still busy with its own work before the next launch."
        f"{at}{unseen}",
        fix=Fix(
            "Take the host's work out of the GPU's way: compile it, batch it, or do it beside the computing.",
            _CODE,
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("GPU idle under Python", time_ns(lost.total_ns(python))),
            Evidence("GPU idle under slow operators", time_ns(lost.total_ns(dispatch))),
            Evidence(
                "longest stretch",
                time_ns(max((r.end_ns - r.start_ns for r in lost.ranges(chosen)), default=0)),
            ),
        ],
        places=found,
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=without(_host_work(facts), LEAST_REMOVED),
    )


def _host_work(facts: Facts) -> Intervals:
    """Python, and operators that take longer than the way to a launch."""
    python = host_time(facts, Cause.PYTHON)
    slow = host_time(facts, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return union(np.r_[python.start, slow.start], np.r_[python.end, slow.end])


RULE = Rule("GD102", "host_bound", "Host-bound", check, error_share=0.30)
