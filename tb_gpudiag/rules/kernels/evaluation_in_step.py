"""GD511: operators that run without gradients in the steps of a training, such as an evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.training_mode import before_backward
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import number, per_step

CODE = fix_code(__name__)

# The steps of public trainings spend up to 5% here, most of them none.
LEAST_SHARE = levels.SIZEABLE

_TITLE = "Work without gradients, beside the training, takes"


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find the time of operators that run while gradients are off: on the GPU or, without one, on the main
    thread."""
    if facts.job.training is False:
        return Clear("the trace shows no training")
    if facts.job.autograd_nodes and not facts.host.in_backward.any():
        return Clear("the trace shows no backward pass")
    if not facts.job.autograd_nodes:
        return CannotTell(
            "no operator has one of autograd's numbers, so it is unknown which ran without gradients",
            "Record with ProfilerActivity.CPU, without CUDA graphs.",
        )
    return _on_main_thread(facts) if facts.device is None else _on_gpu(facts, claimed)


def _on_main_thread(facts: Facts) -> RuleAnswer:
    lost = lost_time(facts)
    chosen = _among(facts.host_work.without_gradients, lost.event)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return _clear(cost_ns, lost.window_ns)
    found = _finding(facts, lost.event[chosen], cost_ns, lost.length_ns[chosen])
    return replace(found, ranges=lost.ranges(chosen))


def _on_gpu(facts: Facts, claimed: Claimed) -> RuleAnswer:
    time = KernelTime(facts)
    chosen = _among(facts.host_work.without_gradients, time.kernels.origin)
    total_ns, free = time.total_ns(chosen), time.free(chosen, claimed)
    if time.share(total_ns) < LEAST_SHARE:
        return _clear(total_ns, time.window_ns)
    found = _finding(facts, time.kernels.origin[chosen], total_ns, time.kernels.duration_ns[chosen])
    return replace(
        found,
        cost_ns=free.total,
        claims={time.device.id: free},
        ranges=time.ranges(chosen),
        removable=time.saving(chosen, total_ns),
    )


def _among(mask: Bool, event: Int64) -> Bool:
    """Whether each event is in the mask; not where it is NONE."""
    found: Bool = event != NONE
    found[found] = mask[event[found]]
    return found


def _clear(cost_ns: int, window_ns: int) -> Clear:
    return Clear(
        "operators without gradients, beside the backward pass and the optimizer, take "
        f"{share(cost_ns, window_ns)} of the step window"
    )


def _finding(facts: Facts, event: Int64, cost_ns: int, weight_ns: Int64) -> Finding:
    """event: the host events of the time, and weight_ns how long each takes."""
    window_ns = facts.window.duration_ns
    operators = len(np.unique(facts.host.operator[event]))
    whose = "the main thread's time" if facts.device is None else "the time"
    before = before_backward(facts.host, facts.recorded_steps)[event]
    learns = bool(2 * weight_ns[before].sum() >= weight_ns.sum())
    return Finding(
        title=f"{_TITLE} {share(cost_ns, window_ns)} of {whose}",
        summary="Operators run with gradients switched off, outside the backward pass and the optimizer: "
        f"{_BEFORE if learns else _OTHERS}. The trace does not show whether each step needs them.",
        fix=_MORE_AT_A_TIME if learns else Fix(_RARELY, CODE["rarely"]),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Without gradients", cost_ns, window_ns),
            Evidence("Operators", number(operators, "operator"), per_step(operators, len(facts.steps))),
        ],
        places=places(facts.host, event, weight_ns, by_operator=not facts.recorded.stacks),
        sure=not learns,
    )


_OTHERS = "an evaluation, a second model, an average of the weights, statistics"

_BEFORE = (
    "most of them before the backward pass of a step, which may learn from what they make, as from moves of "
    "a game or the outputs of another model"
)

_RARELY = "Run what not every step needs in every hundredth."

_MORE_AT_A_TIME = Fix(
    "If the step learns from what this makes, make it in a cheaper way, or more of it at a time: larger "
    "batches, more games at once. Otherwise, run it in every hundredth step."
)


RULE = Rule("GD511", "evaluation_in_step", "Evaluation in each step", check, severity=Severity.INFO)
