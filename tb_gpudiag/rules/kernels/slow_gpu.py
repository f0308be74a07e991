"""GD512: a GPU far below its peaks, whatever it computes."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.answer import CannotTell, Clear, Fix, RuleAnswer
from tb_gpudiag.rules.rule import Claimed, GpuRule, Need, fix_code
from tb_gpudiag.rules.shared.kernel_time import BelowRoofline, KernelTime
from tb_gpudiag.rules.shared.roofline_evidence import why_slow
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes, share

CODE = fix_code(__name__)

# Among operators with this much work at the stated peaks, the best one of each public trace reaches at least
# 54% of the roofline. Some single ones reach 2%, because the library has a poor kernel for their shape.
LEAST_WORK_NS = 20_000

# So no operator's kernel explains that nearly all of them stay below this. A GPU at a tenth of its clocks, or
# one that reads its data over PCIe, does.
FAR_BELOW = 1 / 10
NEARLY_ALL = levels.NEARLY_ALL

# Fewer could have poor kernels, each for its own reason.
FEWEST = 3

# Large matmuls and convolutions reach half of the roofline.
USUAL = 1 / 2

# A small part of the time says little about the GPU.
LEAST_SHARE = levels.SIZEABLE


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find that different operators, with enough work and good shapes, all take over ten times as long as the
    stated peaks allow."""
    judged = [found for found in facts.gpu.roofline.operators if _is_judged(found)]
    if not judged:
        return Clear("no operator of known shape and layout is large enough to judge the GPU by")
    time = KernelTime(facts)
    slow = [found for found in judged if found.reached < FAR_BELOW]
    chosen = facts.gpu.roofline.kernels_of(slow)
    below = BelowRoofline(time, slow, USUAL, chosen, time.free(chosen, claimed))
    mostly = sum(o.time_ns for o in slow) >= NEARLY_ALL * sum(o.time_ns for o in judged)
    if not mostly or not _differ(slow) or time.share(below.cost_ns) < LEAST_SHARE:
        best = max(judged, key=lambda found: found.reached)
        return Clear(f"{in_quotes(best.operator)} reaches {share(best.reached, 1)} of the roofline")
    amd = bool(facts.gpu.properties.architecture)
    return below.finding(
        "A GPU far below all its peaks wastes",
        "Different operators, each large enough to come near a peak, all stay below a tenth of it. So "
        "neither their code nor their shapes explain it: the GPU may run at low clocks (a power limit, heat, "
        "a laptop on battery), share its time with another process, or read data that is not in its memory. "
        "On Windows, what does not fit there spills into the host's memory.",
        Fix(
            "Look at the GPU's clocks, power and memory while the job runs.", CODE["amd" if amd else "clocks"]
        ),
        "Beyond half the roofline's rate",
    )


def _is_judged(found: OperatorTime) -> bool:
    """Whether an operator has enough work, and nothing about its shape or layout makes it slow."""
    return (
        found.least_ns >= LEAST_WORK_NS * found.calls and found.in_order is not False and not why_slow(found)
    )


def _differ(found: list[OperatorTime]) -> bool:
    """Whether these are different enough to rule out poor kernels: of two kinds, or several operators."""
    return len({o.kind for o in found}) > 1 or len({o.operator for o in found}) >= FEWEST


_SHAPES = CannotTell(
    "the trace does not contain the shapes or dtypes of its operators", "Record with record_shapes=True."
)
_PEAKS = CannotTell("the stated peaks of this GPU are not known")

RULE = GpuRule(
    "GD512",
    "slow_gpu",
    "A GPU far below all its peaks",
    check,
    needs=(
        Need(lambda facts: facts.gpu.roofline.operators, lambda _: _SHAPES),
        Need(lambda facts: facts.gpu.peaks, lambda _: _PEAKS),
    ),
)
