"""GD515: decoding that reads all weights for a few tokens."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code, speaks_from
from tb_gpudiag.rules.shared.kernel_time import HALF_THE_BYTES, KernelPart, KernelTime, if_busy, of_kernels
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import Server, StepKind
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.quantity import number

CODE = fix_code(__name__)

# The format of the weights is a choice, not a mistake: a hint needs matmuls whose half is a tenth of the
# step.
LEAST_SHARE = levels.LARGE

# A weight of 16 bits is 2 bytes, and each token takes a multiplication and an addition with it: so a matmul
# does as many operations for each byte as it has tokens. Matmuls that multiply reach half of the peak.
OF_PEAK = levels.HALF


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    if facts.job.training is not False:
        return Clear("the trace shows no inference")
    return _SPEAKS(facts, claimed)


def _few_tokens(time: KernelTime) -> Bool:
    """Mask of matmuls with a single vector, and those of a server's decode steps with too few tokens for the
    GPU's arithmetic to take as long as reading the weights."""
    kernels, tokens = time.kernels, _tokens(time)
    few = kernels.vector | ((tokens > 0) & (tokens <= _most_tokens(time)))
    return few & kernels.is_kernel & (kernels.family == Family.GEMM) & ~kernels.small_weights


def _finding(part: KernelPart) -> Finding:
    time, chosen = part.time, part.chosen
    kernels, tokens = time.kernels, _tokens(time)
    known = tokens[chosen & (tokens > 0)]
    return Finding(
        title=f"Matmuls that read all weights for a few tokens take {part.of_window} of the time",
        summary="Decoding reads every weight once in each step. For few tokens, reading takes longer than "
        "multiplying: more tokens per step are nearly free, and smaller weights are read faster.",
        fix=_fix(time.facts.job.server),
        sure=False,  # the names of the kernels do not say how large the weights are
        removable=time.saving(chosen, HALF_THE_BYTES * time.total_ns(chosen)),
        evidence=[
            time.evidence("Matmuls of a few tokens", time.total_ns(chosen)),
            Evidence("Kernels", number(int(chosen.sum()))),
            time.evidence("Products with a single vector", time.total_ns(chosen & kernels.vector)),
            *([Evidence("Tokens per step", number(int(np.median(known))))] if len(known) else []),
        ],
        **part.where,
    )


def _most_tokens(time: KernelTime) -> float:
    """Up to how many tokens a matmul waits for memory; 1 if the GPU's peaks are not known."""
    peaks = time.device.peaks
    return OF_PEAK * peaks.half / peaks.bandwidth if peaks is not None else 1.0


def _tokens(time: KernelTime) -> Int64:
    """Tokens of the decode step in which each kernel begins, else NONE."""
    serving, at_ns = time.facts.serving, time.kernels.start_ns
    found = np.full(len(at_ns), NONE, np.int64)
    if serving is None:
        return found
    decodes: Bool = np.array([mark.kind is StepKind.DECODE for mark in serving.marks], np.bool_)
    each = np.array(
        [mark.requests if mark.tokens == NONE else mark.tokens for mark in serving.marks], np.int64
    )
    step = np.searchsorted(serving.account.start_ns, at_ns, side="right") - 1
    inside = (step >= 0) & (at_ns < serving.account.end_ns[step])
    found[inside] = np.where(decodes, each, NONE)[step[inside]]
    return found


_URL = "https://docs.pytorch.org/ao/stable/workflows/inference.html"


def _fix(server: Server | None) -> Fix:
    more, code, url = "put more of them", CODE["other"], _URL
    if server is not None:
        more, url = f"let {server.value} run more of them", ""
        code = CODE.get(server.value.lower(), CODE["server"])
    return Fix(
        f"If requests wait, {more} in each step. If none do, quantize the weights (FP8, INT8 or INT4), or "
        "decode speculatively. Compare the results.",
        code,
        url,
    )


_SPEAKS = speaks_from(
    LEAST_SHARE,
    of_kernels(_few_tokens),
    lambda part: f"matmuls of a few tokens take {part.of_window} of the step window",
    if_busy(_finding),
)

RULE = GpuRule("GD515", "weight_reading", "Reading weights for a few tokens", check, severity=Severity.INFO)
