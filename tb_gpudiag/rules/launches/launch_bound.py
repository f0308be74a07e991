"""GD201: kernels end faster than the host can launch new ones."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, subtract
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.fewer_launches import batch_evidence, graph_evidence, larger_batch_evidence
from tb_gpudiag.rules.shared.launch_gaps import LONGEST_GAP_NS, issuing
from tb_gpudiag.rules.shared.lost_time import host_time, lost_time, places, removing
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# A GPU that loses 5 % to launching has some launches on an empty queue in every job; public traces of healthy
# training lose below 1 %, host-bound ones 10 to 45 %.
LEAST_SHARE = 0.05

# Fusing takes at least every second kernel out of an eager elementwise chain; a CUDA graph replaces all
# launches of a step by one.
LEAST_REMOVED = 0.5

_CODE = """# Fewer, larger kernels, launched together:
model = torch.compile(model)                           # fuses elementwise kernels
model = torch.compile(model, mode="reduce-overhead")   # and replays them as CUDA graphs (fixed shapes)

# One launch for all parameters instead of one for each:
optimizer = torch.optim.AdamW(model.parameters(), fused=True)   # or foreach=True
optimizer.zero_grad(set_to_none=True)                           # no kernel at all

# Items one by one: several in one batch take about as many launches as one of them
outputs = model(torch.stack(items))                 # not: [model(item[None]) for item in items]"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time in dispatch, launch call and latency, of launches that were issued while the queue was
    empty."""
    device = facts.device
    if device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    chosen = issuing(lost, device)
    cost_ns = lost.total_ns(chosen)
    calls = facts.launch_costs.of(device.id)
    if not len(calls):
        return CannotTell(
            "no launch call of this GPU's work is in the trace",
            "Record with both ProfilerActivity.CPU and ProfilerActivity.CUDA.",
        )
    on_empty = share(float(calls.empty_queue.sum()), float(len(calls)))
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"launching cost {share(cost_ns, lost.window_ns)} of the step window; {on_empty} of the "
            f"launches found an "
            "empty queue"
        )
    steps = len(facts.steps)
    per_step = f", {count(round(len(calls) / steps))} a step" if steps else ""
    return Finding(
        title=f"The host cannot launch fast enough: {share(cost_ns, lost.window_ns)} of the time goes into "
        f"launching",
        summary=f"Kernels are so short that the GPU has finished them before the next "
        f"launch arrives: {on_empty} of the "
        f"launches found nothing queued. The GPU then waits for "
        f"the operator's dispatch, the launch call and the "
        "kernel's start.",
        fix=Fix(
            "Launch fewer and larger kernels: fuse them, or replay the whole step as a CUDA graph.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "GPU idle for launching",
                f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window",
            ),
            Evidence("launches", f"{count(len(calls))}{per_step}"),
            Evidence("issued on an empty queue", on_empty),
            *_most_launched(facts),
            *batch_evidence(facts),
            graph_evidence(facts),
            *larger_batch_evidence(facts, device),
            Evidence("median launch call", time_ns(float(np.median(calls.host_ns)))),
            Evidence("median GPU time of a launch", time_ns(float(np.median(calls.kernel_ns)))),
        ],
        places=places(facts.host, lost.launch[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(_launching(facts), LEAST_REMOVED),
    )


def _most_launched(facts: Facts) -> list[Evidence]:
    """The operator with most launches: thousands of one are a loop, or a model of very many layers."""
    found = max(facts.hotspots("operator"), key=lambda h: h.launches, default=None)
    if found is None:
        return []
    steps = len(facts.steps)
    per_step = f", {count(round(found.launches / steps))} a step" if steps else ""
    return [
        Evidence(
            "operator with most launches", f"{one_line(found.key, 80)}: {count(found.launches)}{per_step}"
        )
    ]


def _launching(facts: Facts) -> Intervals:
    """The host's way to its launches, without operators so slow that they are host_bound's."""
    slow = host_time(facts.host_pieces, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    return subtract(host_time(facts.host_pieces, Cause.DISPATCH, Cause.LAUNCH), slow)


RULE = Rule("GD201", "launch_bound", "Launch-bound", check, error_share=0.30)
