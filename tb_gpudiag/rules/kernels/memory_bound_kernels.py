"""GD505: memory-bound kernels in a row, which one fused kernel could replace."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Severity
from tb_gpudiag.rules.rule import GpuRule, fix_code, page_fixes, speaks_from
from tb_gpudiag.rules.shared.kernel_time import NEARLY_EMPTY_NS, KernelPart, KernelTime, of_kernels
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.quantity import number
from tb_gpudiag.wording.vocabulary import FAMILIES

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

# The most that fusing could save. Public traces of convolutional training reach 7 to 13%. A tenth of the
# window is worth trying a compiler.
LEAST_SHARE = levels.SIZEABLE

# These do a few operations per element that they read or write. A GPU could do a hundred.
BOUND_BY_MEMORY = (Family.ELEMENTWISE, Family.REDUCTION, Family.NORMALIZATION, Family.SOFTMAX, Family.COPY)


def _bound(time: KernelTime) -> Bool:
    kernels = time.kernels
    bound = np.isin(kernels.family, np.array(BOUND_BY_MEMORY, np.uint8))
    bound &= kernels.is_kernel & (kernels.duration_ns >= NEARLY_EMPTY_NS)
    return bound & ~time.device.unfused_attention.between  # the fix of GD503 removes them, reported or not


def _too_little(part: KernelPart) -> str:
    whole = part.time.of_window(part.time.total_ns(_bound(part.time)))
    return (
        f"memory-bound kernels take {whole} of the step window, and fusing them saves at most "
        f"{part.of_window}"
    )


def _finding(part: KernelPart) -> Finding:
    time, removable, cost_ns = part.time, part.chosen, part.free.total
    kernels, facts, bound = time.kernels, time.facts, _bound(time)
    removable_ns, total_ns = _removable_by_fusion(kernels, bound), time.total_ns(bound)
    compiled = time.mostly(removable, facts.launches.compiled(time.kernels))
    by_family = [
        time.evidence(FAMILIES[family.label].word, time.total_ns(own))
        for family in BOUND_BY_MEMORY
        if (own := bound & (kernels.family == family)).any()
    ]
    return Finding(
        title=f"Memory-bound kernels take {time.of_window(total_ns)} of the time, many of them in a row",
        summary="Elementwise kernels, reductions, normalizations and copies compute little, so memory "
        "bandwidth limits them. In a row, each one reads back what the previous one just wrote. One fused "
        "kernel reads the data once.",
        fix=FIXES["optimizer"]
        if time.mostly(removable, time.device.kernels_for_many_tensors)
        else _fix(facts.job, compiled=compiled, convolves=kernels.convolves),
        cost_ns=cost_ns,
        removable=time.saving(removable, cost_ns),
        evidence=[
            time.evidence("Memory-bound kernels", total_ns),
            *by_family,
            time.evidence("Removable by fusion", cost_ns),
            Evidence("Removable kernels", number(int(removable.sum()))),
        ],
        places=time.places(removable, removable_ns),
        ranges=time.ranges(removable),
        claims={time.device.id: part.free},
    )


def _fix(job: JobKind, *, compiled: bool, convolves: bool) -> Fix:
    if job.server is not None:
        return Fix(
            f"Let {job.server.value} compile the model, with its fusion passes.",
            CODE.get(job.server.value.lower(), CODE["server"]),
        )
    rest, code = "let a compiler fuse the rest.", CODE["compile"]
    if compiled:
        rest, code = "whether graph breaks keep torch.compile from fusing the rest.", CODE["graph_breaks"]
    return Fix(
        f"Check whether the copies and casts are needed at all, and {rest}",
        code
        + (f"\n{CODE['fused_optimizer']}" if job.training else "")
        + (f"\n{CODE['channels_last']}" if convolves else ""),
        "https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
    )


def _removable_by_fusion(kernels: Kernels, bound: Bool) -> Int64:
    """Duration of each kernel, shape (k,); 0 for the longest kernel of each run and for kernels in no run.

    bound: mask of the memory-bound kernels. Any other kernel or copy on the same stream ends a run.
    """
    stream = kernels.stream
    order = np.argsort(stream, kind="stable")  # within a stream they stay in order of start
    ends = np.r_[True, ~bound[order][1:] | ~bound[order][:-1] | (stream[order][1:] != stream[order][:-1])]
    run = np.empty(len(order), np.int64)
    run[order] = np.cumsum(ends[: len(order)])
    duration = kernels.duration_ns
    last = np.lexsort((np.arange(len(run)), duration, run))  # sorts the longest last in its run
    removable = np.where(bound, duration, 0)
    removable[last[np.r_[run[last][1:] != run[last][:-1], True][: len(last)]]] = 0
    return removable


# Runs of such kernels on one stream. Fused, a run takes about as long as its longest kernel.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(lambda time: _removable_by_fusion(time.kernels, _bound(time)) > 0),
    _too_little,
    _finding,
)

RULE = GpuRule(
    "GD505", "memory_bound_kernels", "Memory-bound kernels in a row", _CHECK, severity=Severity.INFO
)
