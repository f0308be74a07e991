"""GD104: code is compiled, captured or loaded inside the measured steps."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.intervals import Intervals, union
from tb_gpudiag.rules.format import count, share, time_ns
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

# In steady state nothing is compiled. A single lazy kernel load (about a millisecond) in a window of many is
# noise.
LEAST_SHARE = 0.02

_CODE = """# Let compilation and lazy loading happen before the measured steps:
with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=1, warmup=3, active=5),
    on_trace_ready=torch.profiler.tensorboard_trace_handler("log"),
) as prof:
    ...

# If it comes back in later steps, find what makes torch.compile start again:
#   TORCH_LOGS="recompiles,graph_breaks" python train.py
model = torch.compile(model, dynamic=True)  # when only sizes change"""


def check(facts: Facts, taken: Taken = NOTHING) -> Answer:
    """Idle time under compilation (TorchDynamo, Inductor, Triton, nvrtc), graph capture or module loading."""
    lost = lost_time(facts, taken)
    if not lost.window_ns:
        return CannotTell("the trace holds no host or GPU activity")
    chosen = lost.of(Cause.COMPILE)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(f"compiling and loading code took {share(cost_ns, lost.window_ns)} of the step window")
    return Finding(
        title=f"Compiling or loading GPU code takes {share(cost_ns, lost.window_ns)} of the measured time",
        summary="Code is compiled, or a kernel's module loaded at its first use, while the GPU waits. In a "
        "steady run "
        "this happens once: either the recording began too early, or something is compiled again and again.",
        fix=Fix(
            "Record after warm-up; if it happens in later steps too, stop the recompiling.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_troubleshooting.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "compiling, loading", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"
            ),
            Evidence("stretches", count(len(lost.stretches(chosen).start))),
        ],
        places=places(facts, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=without(_compiling(facts, lost.stretches(chosen))),
    )


def _compiling(facts: Facts, idle: Intervals) -> Intervals:
    """All of the main thread's compiling, and the launch calls that turned out to load a module."""
    host = host_time(facts, Cause.COMPILE)
    return union(np.r_[host.start, idle.start], np.r_[host.end, idle.end])


RULE = Rule("GD104", "compilation_in_step", "Compilation in the step", check, error_share=0.20)
