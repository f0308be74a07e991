"""GD507: matrix products far below what the GPU's arithmetic and memory allow."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.peaks import peaks_of
from tb_gpudiag.facts.kernels.roofline import Product, Roofline
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
from tb_gpudiag.rules.shared.kernel_time import KernelTime, kernel_time
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# Large products of public traces reach 50 to 75 % of the roofline on H100, 70 to 97 % on an RTX 5080, skinny
# ones on A100 30 to 45 %.
FAR_BELOW = 1 / 4
USUAL = 1 / 2

# A kernel that does nothing takes 2 to 3 us, and one that fills the GPU needs some more to begin and end.
# Below this the size is what is wrong (GD201, GD504), not the rate.
SHORTEST_NS = 50_000

# Less than this of the window to be won is not worth another layout or padding.
LEAST_SHARE = 0.05

PRODUCTS_SHOWN = 4

_CODE = """# One large product instead of many thin ones: fold the batch into the rows,
y = x.flatten(0, 1) @ w                                # instead of: torch.bmm(x, w.expand(b, -1, -1))
q, k, v = qkv(x).chunk(3, dim=-1)                      # one layer of three times the width, instead of three

# sizes in multiples of 64 or 128, and numbers of 16 bits where they are precise enough,
model = model.to(torch.bfloat16)

# or let the compiler measure other kernels for these shapes.
model = torch.compile(model, mode="max-autotune")"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Products whose kernels take several times as long as the stated peaks would."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    if not (time.kernels.family == Family.GEMM).any():
        return Clear("no matrix product ran in the step window")
    line = facts.roofline
    if line is None:
        return CannotTell("the stated peaks of this GPU are not known")
    if not line.products:
        return CannotTell(
            "the shapes or number formats of its matrix products are not in the trace",
            "Record with record_shapes=True.",
        )
    slow = [i for i, product in enumerate(line.products) if _far_below(product)]
    chosen = np.isin(line.product, np.array(slow, np.int64))
    free = time.free(chosen, claimed)
    left = free.total / max(time.total_ns(chosen), 1)  # of them, what no other finding speaks of
    cost_ns = min(free.total, round(left * sum(_beyond_usual_ns(line.products[i]) for i in slow)))
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(_reached(line))
    products = [line.products[i] for i in slow]
    return Finding(
        title=f"Matrix products far below the GPU's peaks waste {time.of_window(cost_ns)} of the time",
        summary="For these shapes the GPU's arithmetic and memory would allow several times the rate. They "
        "are thin or many, or the library has no good kernel for them.",
        fix=Fix(
            "Give the library larger products and rounder sizes, or let the compiler choose the kernel.",
            _CODE,
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=[
            Evidence("kernels of such products", time.figure(chosen)),
            *(Evidence(_name(product), _figures(product)) for product in products[:PRODUCTS_SHOWN]),
            _peaks(time),
        ],
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


def _far_below(product: Product) -> bool:
    return product.time_ns >= SHORTEST_NS * product.calls and product.reached < FAR_BELOW


def _beyond_usual_ns(product: Product) -> float:
    return product.time_ns - product.least_ns / USUAL


def _reached(line: Roofline) -> str:
    time, least = (sum(p.time_ns for p in line.products), sum(p.least_ns for p in line.products))
    return f"matrix products of known shapes reach {share(least, time)} of what arithmetic and memory allow"


def _name(product: Product) -> str:
    return f"{product.operator} {one_line(product.shapes, 80)}, {product.number.removeprefix('c10::')}"


def _figures(product: Product) -> str:
    limit = "arithmetic" if product.arithmetic_ns >= product.memory_ns else "memory"
    rate = product.operations / product.time_ns / 1e3
    return (
        f"{time_ns(product.time_ns)} in {count(product.calls, 'call')}, {rate:,.3g} TFLOP/s; "
        f"{product.operations / product.bytes:,.3g} operations a byte, so {limit} limits it, and it reaches "
        f"{share(product.reached)} of that"
    )


def _peaks(time: KernelTime) -> Evidence:
    peaks = peaks_of(time.device.name)
    assert peaks is not None
    return Evidence(
        "this GPU's stated peaks",
        f"half {peaks.half:g}, FP32 {peaks.fp32:g} TFLOP/s, memory {peaks.bandwidth:g} TB/s",
    )


RULE = Rule("GD507", "slow_matmul", "Matrix products far below the peaks", check, severity=Severity.INFO)
