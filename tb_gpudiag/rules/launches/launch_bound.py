"""GD201: kernels end faster than the host can launch new ones."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import subtract
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Evidence, Finding, Fix, Slowed
from tb_gpudiag.rules.rule import ERROR_SHARE, GpuRule, Need, fix_code, speaks_from
from tb_gpudiag.rules.shared.launch_advice import (
    batch_evidence,
    larger_batch_evidence,
    launch_advice,
    with_ddp_copies,
)
from tb_gpudiag.rules.shared.lost_time import LONGEST_GAP_NS, LostPart, host_time, of_lost_time, removing
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.quantity import Quantity, duration, number, per_step, share_of

CODE = fix_code(__name__)

# Every job has some launches on an idle GPU. Public traces of healthy training lose below 1% in short launch
# gaps, launch-bound ones 10 to 45%.
LEAST_SHARE = levels.NOTICEABLE

# In public traces launches reach an idle GPU in 1 to 5 us on most systems, in 16 us on a virtual MI300X and
# in 31 us on a system with an RTX 5070.
SLOW_START_NS = 15_000


def _on_idle_gpu(facts: Facts) -> Quantity:
    calls = facts.launches.costs.of(facts.gpu.id)
    return share_of(float(calls.empty_queue.sum()), len(calls), "of the launches")


def _finding(part: LostPart) -> Finding:
    facts, lost, chosen, cost_ns = part.facts, part.lost, part.chosen, part.cost_ns
    calls, on_idle_gpu = facts.launches.costs.of(facts.gpu.id), _on_idle_gpu(facts)
    steps, advice = len(facts.steps), launch_advice(facts, lost, chosen)
    code = [advice.code]
    if advice.job.server is None:  # no optimizer in inference, and batches the way that the job makes them
        code += [CODE["optimizer"]] if advice.job.training and not advice.graphs_in_use else []
        code.append(CODE["pipeline_batch" if advice.job.pipeline else "batch"])
    latency, usual = duration(facts.work.latency_ns), ("a few µs are usual",)
    slow_start = Evidence("From launch to start on an idle GPU", latency, usual)
    # Thousands of launches from one operator are a loop, or a very deep model.
    most = max(facts.launches.hotspots["operator"], key=lambda operator: operator.launches)
    # Operators that are slow are left to host_bound.
    slow = host_time(facts.main_thread_spans, Cause.DISPATCH, at_least_ns=LONGEST_GAP_NS)
    launching = subtract(host_time(facts.main_thread_spans, Cause.DISPATCH, Cause.LAUNCH), slow)
    found = Finding(
        title=f"Short launch gaps keep the GPU idle {part.of_window} of the time",
        summary="The GPU finishes its short kernels before the host launches the next ones: "
        f"{on_idle_gpu} found the GPU idle. It then waits for the operator's overhead on the CPU, the launch "
        "call and the launch latency.",
        fix=Fix(advice.fix_text, "\n\n".join(code), advice.url, general=True),
        evidence=[
            Evidence.of_window("Idle in short launch gaps", cost_ns, lost.window_ns),
            Evidence("Launches", number(len(calls), "launch", "launches"), per_step(len(calls), steps)),
            Evidence("Launched on an idle GPU", on_idle_gpu),
            *([slow_start] if facts.work.latency_ns >= SLOW_START_NS else []),
            Evidence(
                "Operator with most launches",
                in_quotes(most.key, 80),
                (number(most.launches, "launch", "launches"), *per_step(most.launches, steps)),
            ),
            *batch_evidence(facts),
            advice.graph_evidence,
            *advice.in_compiled_code,
            *advice.autograd_evidence,
            *larger_batch_evidence(facts),
            Evidence("Median launch call", duration(float(np.median(calls.host_ns)))),
            Evidence("Median GPU time per launch", duration(float(np.median(calls.kernel_ns)))),
        ],
        **lost.where(facts.host, chosen, lost.launch, by_operator=True),
        removable=removing(launching),
        slowed=Slowed(lost.stretches(chosen), LEAST_SHARE),
    )
    return with_ddp_copies(found, facts.launches.ddp_copies, lost)


# Idle time in operator overhead, launch calls and launch latency, in short launch gaps.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_lost_time(lambda lost: lost.issuing),
    lambda part: (
        f"short launch gaps keep the GPU idle {part.of_window} of the step window; "
        f"{_on_idle_gpu(part.facts)} found the GPU idle"
    ),
    _finding,
)

_CALLS = CannotTell(
    "the trace has no launch call of this GPU's work",
    "Record with both ProfilerActivity.CPU and ProfilerActivity.CUDA.",
)

RULE = GpuRule(
    "GD201",
    "launch_bound",
    "Launch-bound",
    _CHECK,
    needs=(Need(lambda facts: len(facts.launches.costs.of(facts.gpu.id)), lambda _: _CALLS),),
    error_share=ERROR_SHARE,
    topic="launch",
)
