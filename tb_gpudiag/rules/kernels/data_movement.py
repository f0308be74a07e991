"""GD506: GPU time spent on casts, layout changes and tensor copies."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import Move, find_moves
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import Claimed, Clear, Evidence, Finding, Fix, Rule, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.wording.quantity import duration, number, share_of

CODE = fix_code(__name__)

# Public training traces spend 0 to 3% of the window here, segmentation with heavy postprocessing 5%, and a
# convolutional net whose GPU library needs another layout 8%. The common rule of thumb, aten::copy_ at 40% of
# an operator table, counts host time including waits and says little about the GPU.
LEAST_SHARE = 0.05

_KINDS = {
    Move.CAST: ("casts", "Keep one dtype throughout the model.", CODE["cast"]),
    Move.LAYOUT: ("layout changes", "Keep one layout throughout the model.", CODE["layout"]),
    Move.COPY: ("tensor copies", "Write results directly to their destination.", CODE["copy"]),
}


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find GPU work launched by casting, copying and layout operators, and the layout kernels that libraries
    add around their own."""
    time = KernelTime(facts)
    move = find_moves(time.kernels, facts.host)
    chosen = move >= 0
    free = time.free(chosen, claimed)
    cost_ns = free.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"casts, layout changes and copies on the GPU take {time.of_window(cost_ns)} of the step window"
        )
    kinds = sorted(
        ((time.total_ns(move == kind), kind) for kind in Move if (move == kind).any()), reverse=True
    )
    main, advice, code = _KINDS[kinds[0][1]]
    if kinds[0][1] is Move.LAYOUT and time.kernels.convolves:
        code = f"{CODE['channels_last']}\n\n{code}"
    if kinds[0][1] is Move.LAYOUT and not time.mostly(chosen, facts.compiled_kernels):
        code += f"\n{CODE['fuse']}"
    of_busy = share_of(time.total_ns(chosen), time.busy_ns, "of the GPU's busy time")
    return Finding(
        title=f"Data movement on the GPU takes {time.of_window(cost_ns)} of the time, mostly {main}",
        summary="Casts, layout changes and copies read and write whole tensors and compute nothing. "
        f"They take {of_busy}.",
        fix=Fix(
            advice,
            code,
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=[
            time.evidence("Data movement", cost_ns),
            *(_kind_evidence(kind, ns, int((move == kind).sum())) for ns, kind in kinds),
            Evidence("All data movement", of_busy),
        ],
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


def _kind_evidence(kind: Move, nanoseconds: int, launched: int) -> Evidence:
    label = _KINDS[kind][0].capitalize()
    return Evidence(label, duration(nanoseconds), (number(launched, "kernel or copy", "kernels and copies"),))


RULE = Rule(
    "GD506", "data_movement", "Data movement on the GPU", check, needs_gpu=True, severity=Severity.INFO
)
