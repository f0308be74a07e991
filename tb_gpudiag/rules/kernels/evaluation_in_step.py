"""GD511: operators that run without gradients in the steps of a training, such as an evaluation."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.training_mode import before_backward, switched_off_in
from tb_gpudiag.rules.answer import NO_SAVING, CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, page_fixes
from tb_gpudiag.rules.shared.cpu_job import in_overhead
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.rules.shared.lost_time import lost_time, places
from tb_gpudiag.rules.shared.repeated import with_repeats
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import number, per_step

FIXES = page_fixes(__name__)

# The steps of public trainings spend up to 5% here, most of them none.
LEAST_SHARE = levels.SIZEABLE


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
    rest = marked(facts.host_work.without_gradients, lost.event)
    rest &= ~in_overhead(lost, facts.host_work.small_operators)  # a loop of those is what GD102 is about
    # An evaluation is all that is said: its time is the same wherever it is told.
    mostly = lost.total_ns(lost.evaluating) >= max(1, lost.total_ns(rest & ~lost.evaluating))
    chosen = lost.evaluating if mostly else rest
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return _clear(cost_ns, lost.window_ns)
    columns = lost.event[chosen], lost.length_ns[chosen], lost.start_ns[chosen]
    found = _finding(facts, cost_ns, "the main thread's time", *columns, lost.evaluating[chosen])
    return with_repeats(replace(found, ranges=lost.ranges(chosen)), facts, lost, chosen & ~lost.evaluating)


def _on_gpu(facts: Facts, claimed: Claimed) -> RuleAnswer:
    time = KernelTime(facts)
    chosen = marked(facts.host_work.without_gradients, time.kernels.origin)
    evaluates = facts.host_work.tasks.of(time.kernels.origin) == HostTask.EVALUATING
    chosen |= evaluates
    total_ns, free = time.total_ns(chosen), time.free(chosen, claimed)
    if time.share(total_ns) < LEAST_SHARE:
        return _clear(total_ns, time.window_ns)
    kernels = time.kernels
    columns = kernels.origin[chosen], kernels.duration_ns[chosen], kernels.start_ns[chosen]
    found = _finding(facts, total_ns, "the time", *columns, evaluates[chosen])
    return replace(
        found,
        cost_ns=free.total,
        claims={time.device.id: free},
        ranges=time.ranges(chosen),
        removable=time.saving(chosen, total_ns),
    )


def _clear(cost_ns: int, window_ns: int) -> Clear:
    return Clear(
        "operators without gradients, beside the backward pass and the optimizer, take "
        f"{share(cost_ns, window_ns)} of the step window"
    )


def _finding(
    facts: Facts, cost_ns: int, whose: str, event: Int64, weight_ns: Int64, time_ns: Int64, evaluates: Bool
) -> Finding:
    """event: the host events of the time; weight_ns, time_ns: how long each takes, and when it begins;
    evaluates: mask of those in an evaluation. whose: the time that the cost is a share of."""
    window_ns, operator = facts.window.duration_ns, facts.host.operator[event[event != NONE]]
    operators = len(np.unique(operator[operator != NONE]))
    # An evaluation in a single one of several steps may be rare.
    recurs = len(np.unique(np.searchsorted(facts.steps.start_ns, time_ns))) >= min(2, len(facts.steps))
    before = marked(before_backward(facts.host, facts.recorded_steps), event)
    around = np.append(switched_off_in(facts.host), NONE)[event]
    where = np.where(around != NONE, around, event)
    mostly = (2 * weight_ns[some].sum() >= weight_ns.sum() for some in (evaluates, before))
    case = next(compress((_EVALUATES, _BEFORE), mostly), _OTHERS)
    return Finding(
        title=f"{case.title} {share(cost_ns, window_ns)} of {whose}",
        summary=case.summary,
        fix=case.fix,
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window(case.noun, cost_ns, window_ns),
            Evidence("Operators", number(operators, "operator"), per_step(operators, len(facts.steps))),
        ],
        places=places(facts.host, where, weight_ns, by_operator=not facts.recorded.stacks),
        severity=Severity.WARNING if case is _EVALUATES and recurs else Severity.INFO,
        sure=case is _EVALUATES,
        saving=None if case is _EVALUATES else NO_SAVING,
    )


class _Case(NamedTuple):
    title: str
    noun: str
    summary: str
    fix: Fix


_WITHOUT = (
    "Operators run with gradients switched off, outside the backward pass and the optimizer: {}. The trace "
    "does not show whether each step needs them."
)

_EVALUATES = _Case(
    "Evaluation, in the steps of the training, takes",
    "In the evaluation",
    "The training evaluates its model within the recorded steps: this is all of that, with its "
    "Python and its loading. The trace does not show whether it has to be so often, or with so much data.",
    FIXES["rarely"],
)

_BEFORE = _Case(
    "Work without gradients, beside the training, takes",
    "Without gradients",
    _WITHOUT.format(
        "most of them before the backward pass of a step, which may learn from what they make, as from the "
        "outputs of a teacher or a frozen encoder, targets, or moves of a game"
    ),
    FIXES["kept"],
)

_OTHERS = _BEFORE._replace(
    summary=_WITHOUT.format("an evaluation, an average of the weights, statistics, notes for later steps"),
    fix=FIXES["needed"],
)


RULE = Rule("GD511", "evaluation_in_step", "Evaluation in each step", check, severity=Severity.INFO)
