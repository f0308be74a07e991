from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.rules.answer import NO_SAVING, Severity
from tb_gpudiag.rules.kernels.evaluation_in_step import RULE
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import duration, share_of
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, cannot_tell, facts_of, figures, finding, is_clear, one_step

Act = Callable[[HostThread, float, float], object]
"""Adds the work that is asked about: (thread, at, us)."""


def evaluates(main: HostThread, at: float, us: float) -> None:
    if us:
        main.op("aten::linear", at=at, us=us).op("aten::addmm", at=at + 1, us=us - 2)


AVERAGES: Act = lambda main, at, us: main.op("aten::lerp_", at=at, us=us)  # noqa: E731


def _training(
    act: Act, us: float, *, gpu: bool, numbers: bool = True, function: str = "average"
) -> TraceBuilder:
    """Build a step of 1,000 µs: a forward pass, a backward pass, and a function that does `act` for so long.
    With a GPU, a kernel runs for as long as `act` does."""
    trace, main = one_step(devices=("GPU",) if gpu else ())
    main.frame("train.py(12): train", at=STEP_AT, us=STEP_US)
    for number in range(2):
        main.op("aten::mm", at=STEP_AT + 10 * number, us=10, sequence=number + 1 if numbers else None)
    node = {"sequence": 2, "forward_thread": 1} if numbers else {"sequence": None, "forward_thread": None}
    main.op("autograd::engine::evaluate_function: MmBackward0", at=STEP_AT + 20, us=100, **node)
    main.op("aten::mm", at=STEP_AT + 30, us=80)
    main.frame(f"train.py(40): {function}", at=STEP_AT + 130, us=us + 10)
    act(main, STEP_AT + 135, us)
    if gpu:
        main.launch("gemm", at=STEP_AT + 137, us=2, runs_at=STEP_AT + 150, runs_us=us)
        main.launch("gemm", at=STEP_AT + 142 + us, us=2, runs_at=STEP_AT + 150 + us, runs_us=850 - us)
    return trace


def test_work_without_gradients_on_a_gpu_is_a_hint_with_its_function(tmp_path: Path) -> None:
    facts = facts_of(_training(evaluates, 300, gpu=True), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 300_000
    assert found.places[0].function == "average"
    figure = figures(found)["Without gradients"]
    assert figure == (duration(300_000), share_of(300_000, facts.window.duration_ns, "of the step window"))
    assert "evaluate(" in found.fix.code
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_an_evaluation_that_its_name_shows_is_a_warning_with_all_of_its_time(tmp_path: Path) -> None:
    facts = facts_of(_training(evaluates, 300, gpu=False, function="validate"), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "Evaluation, in the steps of the training, takes 31.0% of the main thread's time"
    assert found.cost_ns == 310_000  # with its Python
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING


@pytest.mark.parametrize("act", [evaluates, AVERAGES])
def test_a_forward_pass_after_the_backward_pass_is_an_evaluation(act: Act, tmp_path: Path) -> None:
    named = act is evaluates
    facts = facts_of(_training(act, 300, gpu=False), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title.startswith("Evaluation, in the steps of the training, takes 30.0%") is named
    assert found.cost_ns == 300_000
    severity = RULE.severity_of(found, facts.window.duration_ns)
    assert severity is (Severity.WARNING if named else Severity.INFO)


@pytest.mark.parametrize(("learns", "limiter"), [(1, "evaluation"), (4, "compute")])
def test_what_most_steps_do_before_their_backward_pass_they_may_learn_from(
    learns: int, limiter: str, tmp_path: Path
) -> None:
    """A forward pass without gradients precedes the others in one step and follows them in two, or precedes
    them in all."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = step * 1_000.0
        main.step(step, at=at, us=1_000)
        before, after = (700, 0) if step < learns else (0, 700 * (step < 3))
        evaluates(main, at, before)
        main.op("aten::mm", at=at + before, us=100, sequence=step + 1)
        node, us = "autograd::engine::evaluate_function: MmBackward0", 900 - before - after
        main.op(node, at=at + before + 100, us=us, sequence=step + 1, forward_thread=1)
        evaluates(main, at + 1_000 - after, after)
    facts = facts_of(trace, tmp_path)
    assert find_verdict(facts).limiter == limiter
    assert ("Evaluation" in finding(RULE.check(facts)).title) is (limiter == "evaluation")


def test_a_loop_of_small_operators_without_gradients_is_clear(tmp_path: Path) -> None:
    """As one that removes boxes that overlap: GD102 says so."""

    def loops(main: HostThread, at: float, us: float) -> None:
        for place in range(int(us) // 10):
            main.op("aten::minimum", at=at + 10 * place, us=10)

    assert is_clear(RULE.check(facts_of(_training(loops, 300, gpu=False), tmp_path)))


def test_an_evaluation_without_a_training_is_the_job(tmp_path: Path) -> None:
    trace, main = one_step(devices=())
    main.frame("eval.py(40): validate", at=STEP_AT, us=STEP_US)
    evaluates(main, STEP_AT + 5, 900)
    assert not facts_of(trace, tmp_path).host_work.tasks.time_ns(np.arange(4), np.full(4, 1_000))


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("learns", [True, False])
def test_what_a_backward_pass_may_learn_from_is_not_to_run_rarely(
    gpu: bool, *, learns: bool, tmp_path: Path
) -> None:
    trace = _training(evaluates, 300, gpu=gpu)
    main = trace.thread(tid=trace.recording.pid)
    name = "autograd::engine::evaluate_function: MmBackward0" if learns else "aten::mm"
    main.op(name, at=STEP_AT + 900, us=20, sequence=1, forward_thread=1 if learns else 0)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("in a cache" in found.fix.text) is learns
    assert (found.saving is NO_SAVING) is (learns or gpu)  # without a GPU, the rest is an evaluation


@pytest.mark.parametrize("gpu", [True, False])
def test_below_the_threshold_it_is_clear(gpu: bool, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_training(evaluates, 80, gpu=gpu), tmp_path)))


@pytest.mark.parametrize(
    "act",
    [
        lambda main, at, us: main.op("aten::linear", at=at, us=us, sequence=9),
        lambda main, at, us: main.op("my_layer", at=at, us=us).op("aten::mm", at=at + 1, us=9, sequence=9),
        lambda main, at, us: main.op("aten::randn", at=at, us=us),
        lambda main, at, us: main.op("c10d::allreduce_", at=at, us=us),
        lambda main, at, us: main.annotation("Optimizer.step#AdamW.step", at=at, us=us).op(
            "aten::_fused_adamw_", at=at, us=us
        ),
        lambda main, at, us: main.op("aten::_foreach_addcdiv_", at=at, us=us),
        lambda main, at, us: main.op("aten::item", at=at, us=us).op(
            "aten::_local_scalar_dense", at=at + 1, us=us - 2
        ),
    ],
    ids=[
        "with gradients",
        "with gradients inside",
        "makes a tensor",
        "collective",
        "optimizer",
        "optimizer without a mark",
        "reading a loss",
    ],
)
def test_other_work_of_a_training_is_clear(act: Act, tmp_path: Path) -> None:
    for gpu in (True, False):
        assert is_clear(RULE.check(facts_of(_training(act, 300, gpu=gpu), tmp_path / str(gpu))))


def test_without_sequence_numbers_it_cannot_tell(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_training(evaluates, 300, gpu=True, numbers=False), tmp_path)))


def test_the_function_is_the_outermost_one_without_gradients(tmp_path: Path) -> None:
    """A model's forward runs with gradients, too: it is not what to call less often."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for step in range(3):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.frame("train.py(12): train", at=at, us=999)
        main.frame("model.py(5): forward", at=at + 1, us=100)
        main.op("aten::linear", at=at + 2, us=98, sequence=step + 1)
        engine.op("LinearBackward0", at=at + 110, us=100, sequence=step + 1, forward_thread=1)
        main.frame("train.py(40): error", at=at + 300, us=600)
        main.frame("model.py(5): forward", at=at + 301, us=590)
        main.op("aten::linear", at=at + 302, us=588)
    found = finding(RULE.check(facts_of(trace, tmp_path), {}))
    assert [place.function for place in found.places] == ["error"]


def test_what_the_next_step_begins_with_is_no_part_of_an_evaluation(tmp_path: Path) -> None:
    """It copies its batch without gradients, too, and before its backward pass."""
    trace = TraceBuilder(devices=())
    main, engine = trace.thread(), trace.thread()
    for step in range(3):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.op("aten::to", at=at + 1, us=8)
        main.op("aten::linear", at=at + 10, us=98, sequence=step + 1)
        engine.op("LinearBackward0", at=at + 110, us=100, sequence=step + 1, forward_thread=1)
        main.op("aten::linear", at=at + 300, us=600)
    found = finding(RULE.check(facts_of(trace, tmp_path), {}))
    assert found.title.startswith("Evaluation, in the steps of the training, takes 60.0%")
