"""GD504: kernels with fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.intervals import EMPTY, coverage
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.multiprocessors import unused_ns
from tb_gpudiag.facts.kernels.roofline import Roofline
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, Need, fix_code
from tb_gpudiag.rules.shared.kernel_time import NEARLY_EMPTY_NS, KernelTime
from tb_gpudiag.rules.shared.roofline_evidence import operator_evidence, why_slow
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.quantity import mean, number

CODE = fix_code(__name__)

# Public training traces lose 1 to 1.5% of the window this way, one of a small model in a CUDA graph 8%.
LEAST_SHARE = levels.NOTICEABLE

SHAPES_SHOWN = 2


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find kernels that leave multiprocessors without a block while they run.

    A kernel with half as many blocks as multiprocessors leaves half of the GPU idle, unless other kernels use
    the other half. A kernel near the peaks wastes little, however few blocks it has: some kernels fill a GPU
    with few blocks.
    """
    time = KernelTime(facts)
    kernels = time.kernels
    blocks = kernels.blocks_per_sm
    chosen = (
        (blocks < 1)
        & kernels.is_kernel
        & (kernels.family != Family.COLLECTIVE)
        & (kernels.duration_ns >= NEARLY_EMPTY_NS)
    )
    # Leave out kernels that overlap another finding.
    already = claimed.get(time.device.id, EMPTY)
    chosen[chosen] = coverage(already, kernels.start_ns[chosen], kernels.end_ns[chosen]) == 0
    wasted_ns = np.minimum(unused_ns(kernels, chosen), kernels.duration_ns * time.above_peaks).astype(
        np.int64
    )
    cost_ns = int(wasted_ns.sum())
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"kernels with fewer blocks than multiprocessors waste {time.of_window(cost_ns)} of the step "
            "window"
        )
    weight = kernels.duration_ns[chosen]
    matmuls = time.total_ns(chosen & kernels.matrix) >= cost_ns / 2
    evidence = [
        time.evidence("Whole-GPU time wasted", cost_ns),
        time.evidence("Kernels too small", time.total_ns(chosen)),
        Evidence("Kernels", number(int(chosen.sum()))),
        Evidence("Blocks per multiprocessor", mean(np.average(blocks[chosen], weights=weight))),
        *_shapes(time.device.roofline, chosen),
    ]
    return Finding(
        title=f"Kernels too small for this GPU waste {time.of_window(cost_ns)} of the time",
        summary="These kernels have fewer blocks than the GPU has multiprocessors, so part of the GPU is "
        "idle while they run, however long they take. Larger kernels would take nearly the same time."
        + (
            " A matmul has one block for each tile of its result, however long the sums are."
            if matmuls
            else ""
        ),
        fix=_fix(facts.job.server, matmuls=matmuls, compiled=facts.launches.modes.compiled.total > 0),
        cost_ns=cost_ns,
        removable=time.saving_above_peaks(chosen, cost_ns),
        evidence=evidence,
        places=time.places(chosen, wasted_ns),
        ranges=time.ranges(chosen),
        claims={time.device.id: kernels.union(chosen)},
    )


def _fix(server: Server | None, *, matmuls: bool, compiled: bool) -> Fix:
    if server is not None:
        text = f"Give {server.value} more requests per step, or split the model over fewer GPUs."
        return Fix(text, CODE["server"])
    blocks = ("more_work", True), ("split", matmuls), ("autotune", matmuls and not compiled)
    return Fix(
        "Give each kernel more work, or run independent kernels concurrently.",
        "\n\n".join(CODE[name] for name, fits in blocks if fits),
    )


def _without_multiprocessors(facts: Facts) -> CannotTell:
    """Say what the trace lacks: the GPU's multiprocessors, or the kernels' blocks, too."""
    kernels = facts.gpu.kernels
    known = ~np.isnan(kernels.blocks) & (kernels.duration_ns >= NEARLY_EMPTY_NS)
    if not known.any():
        return CannotTell("the trace does not say how many blocks its kernels had")
    blocks = float(np.average(kernels.blocks[known], weights=kernels.duration_ns[known]))
    return CannotTell(
        "the trace does not say how many multiprocessors the GPU has; its kernels have "
        f"{blocks:,.0f} blocks on average"
    )


def _shapes(roofline: Roofline, chosen: Bool) -> list[Evidence]:
    """The heaviest operators of the chosen kernels whose shapes say why they are small."""
    own = sorted({int(i) for i in roofline.operator[chosen] if i != NONE})
    known = [found for found in (roofline.operators[i] for i in own) if why_slow(found)]
    return [operator_evidence(found) for found in known[:SHAPES_SHOWN]]


RULE = GpuRule(
    "GD504",
    "small_grids",
    "Kernels too small for the GPU",
    check,
    needs=(Need(lambda facts: np.isfinite(facts.gpu.kernels.blocks_per_sm).any(), _without_multiprocessors),),
    severity=Severity.INFO,
)
