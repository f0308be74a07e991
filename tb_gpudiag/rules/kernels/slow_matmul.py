"""GD507: matmuls far below the GPU's roofline."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.facts.kernels.roofline import Matmul, Roofline
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
    Severity,
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time, stated_peaks
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import one_line, share
from tb_gpudiag.wording.quantity import bandwidth, duration, intensity, number, share_of, throughput

# In public traces large matmuls reach 50 to 75% of the roofline on H100 and 70 to 97% on an RTX 5080, and
# skinny ones on A100 30 to 45%.
FAR_BELOW = 1 / 4
USUAL = 1 / 2

# An empty kernel takes 2 to 3 µs, and one that fills the GPU needs some more to ramp up and drain. Below this
# the size is the problem (GD201, GD504), not the rate.
SHORTEST_NS = 50_000

# Smaller savings are not worth another layout or padding.
LEAST_SHARE = 0.05

MATMULS_SHOWN = 4

_CODE = """# Run one large matmul instead of many thin ones: fold the batch into the rows
y = x.flatten(0, 1) @ w                                # instead of: torch.bmm(x, w.expand(b, -1, -1))
q, k, v = qkv(x).chunk(3, dim=-1)                      # one layer of three times the width, instead of three

# Use sizes in multiples of 64 or 128, and a 16-bit dtype if it is precise enough
model = model.to(torch.bfloat16)

# Or let the compiler try other kernels for these shapes
model = torch.compile(model, mode="max-autotune")"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Find matmuls whose kernels take several times as long as the stated peaks allow."""
    time = kernel_time(facts.device, facts.window, facts.host)
    if time is None:
        return NO_GPU
    if not (time.kernels.family == Family.GEMM).any():
        return Clear("no matmul ran in the step window")
    roofline = facts.roofline
    if roofline is None:
        return CannotTell("the stated peaks of this GPU are not in the table")
    if not roofline.matmuls:
        return CannotTell(
            "the trace does not contain the shapes or dtypes of its matmuls",
            "Record with record_shapes=True.",
        )
    slow = [i for i, matmul in enumerate(roofline.matmuls) if _far_below(matmul)]
    chosen = np.isin(roofline.matmul, np.array(slow, np.int64))
    free = time.free(chosen, claimed)
    left = free.total / max(time.total_ns(chosen), 1)  # share not claimed by another finding
    cost_ns = min(free.total, round(left * sum(_beyond_usual_ns(roofline.matmuls[i]) for i in slow)))
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(_reached(roofline))
    slowest = [roofline.matmuls[i] for i in slow]
    return Finding(
        title=f"Matmuls far below the GPU's peaks waste {time.of_window(cost_ns)} of the time",
        summary="For these shapes the GPU's compute and memory allow several times the rate. The matmuls are "
        "thin or many, or the library has no good kernel for them.",
        fix=Fix(
            "Use larger matmuls with rounder sizes, or let the compiler choose the kernel.",
            _CODE,
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=[
            time.evidence("Beyond half the roofline's rate", cost_ns),
            time.evidence("Kernels of these matmuls", time.total_ns(chosen)),
            *(_evidence(matmul) for matmul in slowest[:MATMULS_SHOWN]),
            *_peaks(facts.peaks),
        ],
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


def _far_below(matmul: Matmul) -> bool:
    return matmul.time_ns >= SHORTEST_NS * matmul.calls and matmul.reached < FAR_BELOW


def _beyond_usual_ns(matmul: Matmul) -> float:
    return matmul.time_ns - matmul.least_ns / USUAL


def _reached(roofline: Roofline) -> str:
    time, least = (sum(p.time_ns for p in roofline.matmuls), sum(p.least_ns for p in roofline.matmuls))
    return f"matmuls of known shapes reach {share(least, time)} of the roofline"


def _evidence(matmul: Matmul) -> Evidence:
    limit = "compute-bound" if matmul.arithmetic_ns >= matmul.memory_ns else "memory-bound"
    return Evidence(
        f"{matmul.operator} {one_line(matmul.shapes, 80)}, {matmul.number.removeprefix('c10::')}",
        duration(matmul.time_ns),
        (
            number(matmul.calls, "call"),
            throughput(matmul.operations / matmul.time_ns / 1e3),
            share_of(matmul.reached, 1.0, "of the roofline"),
            intensity(matmul.operations / matmul.bytes, f"({limit})"),
        ),
    )


def _peaks(peaks: Peaks | None) -> list[Evidence]:
    assert peaks is not None  # there is no roofline without them
    return [*stated_peaks(peaks), Evidence("Stated memory bandwidth", bandwidth(peaks.bandwidth * 1e3))]


RULE = Rule("GD507", "slow_matmul", "Matmuls far below the GPU's peaks", check, severity=Severity.INFO)
