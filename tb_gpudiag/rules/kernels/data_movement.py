"""GD506: time spent on casts, layout changes and tensor copies: of the GPU, or of a job on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import Move, cpu_moves_of, find_moves, of_channels_first, of_rounding
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code, speaks_from
from tb_gpudiag.rules.shared.cpu_job import in_overhead
from tb_gpudiag.rules.shared.kernel_time import KernelPart, KernelTime, of_kernels
from tb_gpudiag.rules.shared.lost_time import lost_time
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import duration, number, share_of

CODE = fix_code(__name__)

# Public training traces spend 0 to 3% of the window here, segmentation with heavy postprocessing 5%, and a
# convolutional net whose GPU library needs another layout 8%. The common rule of thumb, aten::copy_ at 40% of
# an operator table, counts host time including waits and says little about the GPU.
LEAST_SHARE = levels.NOTICEABLE

# A CPU moves a tensor about as fast as it does simple arithmetic on it: healthy jobs have copies, too.
LEAST_CPU_SHARE = levels.LARGE

_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

_KINDS = {
    Move.CAST: ("casts", "Keep one dtype throughout the model.", CODE["cast"]),
    Move.LAYOUT: ("layout changes", "Keep one layout throughout the model.", CODE["layout"]),
    Move.COPY: (
        "tensor copies",
        "Write results directly to their destination, new rows into a ring buffer.",
        CODE["copy"],
    ),
}


def _moves(time: KernelTime) -> Int64:
    """The Move of each kernel, or NONE, shape (k,): GPU work launched by casting, copying and layout
    operators, and the layout kernels that libraries add around their own."""
    return find_moves(time.kernels, time.facts.host)


def _finding(part: KernelPart) -> Finding:
    time, facts, chosen, cost_ns = part.time, part.time.facts, part.chosen, part.free.total
    move = _moves(time)
    kinds = _by_kind(time.total_ns, move)
    main, advice, code = _KINDS[kinds[0][1]]
    of_library = of_channels_first(time.kernels, facts.host)
    channels_first = part.share_of(of_library) >= LEAST_SHARE
    if kinds[0][1] is Move.CAST and time.mostly(move == Move.CAST, of_rounding(time.kernels, facts.host)):
        advice, code = _NO_ROUNDING, CODE["half"]
    if kinds[0][1] is Move.LAYOUT and time.kernels.convolves:
        code = f"{CODE['channels_last']}\n\n{code}"
        advice = _CHANNELS_LAST if channels_first else advice
    if kinds[0][1] is Move.LAYOUT and not time.mostly(chosen, facts.launches.compiled(time.kernels)):
        code += f"\n{CODE['fuse']}"
    of_busy = share_of(time.total_ns(chosen), time.busy_ns, "of the GPU's busy time")
    around_convolutions = Evidence("Around convolutions", duration(time.total_ns(of_library)))
    return Finding(
        title=f"Data movement on the GPU takes {part.of_window} of the time, mostly {main}",
        summary="Casts, layout changes and copies read and write whole tensors and compute nothing. "
        f"They take {of_busy}.",
        fix=Fix(advice, code, _URL),
        removable=replace(
            time.saving(chosen, cost_ns), least=time.shorter((of_library, 1.0)) if channels_first else None
        ),
        severity=Severity.WARNING.when(channels_first),
        evidence=[
            time.evidence("Data movement", cost_ns),
            *([around_convolutions] if channels_first else []),
            *(_kind_evidence(kind, ns, int((move == kind).sum()), _ON_GPU) for ns, kind in kinds),
            Evidence("All data movement", of_busy),
        ],
        **part.where,
    )


# A recorded ResNet in bfloat16 has 17% of these kernels, and channels last took 54% off its step: batch norm
# and the convolutions themselves become faster, too.
_CHANNELS_LAST = (
    "Use channels last: the convolutions change the layout of channels-first tensors, there and back. Batch "
    "norm becomes faster as well."
)


_NO_ROUNDING = (
    "Try mixed precision: cuDNN rounds the FP32 inputs of each convolution to TF32, and leaves 16-bit inputs "
    "as they are. Compare the results."
)


def _by_kind(total_ns: Callable[[Bool], int], move: Int64) -> list[tuple[int, Move]]:
    return sorted(((total_ns(move == kind), kind) for kind in Move if (move == kind).any()), reverse=True)


def _on_cpu(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find operators of the main thread that move data, and are long enough to be more than their call."""
    lost, host = lost_time(facts), facts.host
    called = np.where(lost.event == NONE, NONE, host.operator[lost.event])
    chosen = lost.of(Cause.DISPATCH) & ~in_overhead(lost, facts.host_work.small_operators)
    move = np.where(chosen, cpu_moves_of(host, called), NONE)
    chosen = move != NONE
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_CPU_SHARE:
        return Clear(
            f"casts, layout changes and copies take {share(cost_ns, lost.window_ns)} of the step window"
        )
    kinds = _by_kind(lost.total_ns, move)
    main, advice, code = _KINDS[kinds[0][1]]
    return Finding(
        title=lost.sentence("Data movement", cost_ns) + f", mostly {main}",
        summary="Casts, layout changes and copies read and write whole tensors and compute nothing.",
        fix=Fix(advice, code, _URL),
        evidence=[
            Evidence.of_window("Data movement", cost_ns, lost.window_ns),
            *(
                _kind_evidence(kind, ns, len(np.unique(called[move == kind])), ("operator", "operators"))
                for ns, kind in kinds
            ),
        ],
        **lost.where(host, chosen, by_operator=True),
    )


_ON_GPU = ("kernel or copy", "kernels and copies")


def _kind_evidence(kind: Move, nanoseconds: int, launched: int, noun: tuple[str, str]) -> Evidence:
    label = _KINDS[kind][0].capitalize()
    return Evidence(label, duration(nanoseconds), (number(launched, *noun),))


_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(lambda time: _moves(time) >= 0),
    lambda part: f"casts, layout changes and copies on the GPU take {part.of_window} of the step window",
    _finding,
)

RULE = GpuRule("GD506", "data_movement", "Data movement", _CHECK, on_cpu=_on_cpu, severity=Severity.INFO)
