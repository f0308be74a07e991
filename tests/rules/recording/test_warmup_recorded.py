from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.warmup_recorded import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import number
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, is_clear


@pytest.mark.parametrize(("load_ms", "first"), [(15, True), (5, False)])
def test_first_run_work_that_is_the_largest_part_comes_first(
    load_ms: int, first: bool, tmp_path: Path
) -> None:
    """Three kernels load their code. The rest of the recording is as long, and judged as well."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(1): <module>", at=0, us=200_000)
    main.launch("gemm", at=0, us=5, runs_at=8, runs_us=25_000)
    main.frame("train.py(9): prepare", at=100, us=44_800)
    at = 45_000.0
    for kernel in range(3):
        main.launch(f"new_{kernel}", at=at, us=load_ms * 1_000, runs_at=at + load_ms * 1_000 + 5, runs_us=10)
        at += load_ms * 1_000 + 50
    facts = facts_of(trace, tmp_path)
    leading = run_rules(facts, RULES).findings[0].rule.id == "GD902"
    assert leading == (find_verdict(facts).limiter == "initialization") == first


def _steps(lengths_us: Sequence[float], *, gpu: bool = True) -> TraceBuilder:
    trace = TraceBuilder(devices=("Test GPU",) if gpu else ())
    main = trace.thread()
    at = 0.0
    for step, us in enumerate(lengths_us):
        main.step(step, at=at, us=us)
        if gpu:
            main.launch("gemm", at=at, us=5, runs_at=at + 6, runs_us=us - 10)
        else:
            main.op("aten::mm", at=at, us=us - 1)
        at += us
    return trace


def test_a_slow_first_step_is_a_hint(tmp_path: Path) -> None:
    facts = facts_of(_steps([250, 100, 100, 100, 100, 100, 100, 100, 100]), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert figures(found)["Slow steps"] == (number(1, suffix="of 9"),)


def test_a_warm_up_that_dominates_the_figures_is_a_warning(tmp_path: Path) -> None:
    facts = facts_of(_steps([2000, 400, 100, 100, 100], gpu=False), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert "include them" in found.summary


def test_a_warm_up_that_the_step_window_leaves_out_is_a_hint(tmp_path: Path) -> None:
    facts = facts_of(_steps([2000, 400, 100, 100, 100]), tmp_path)
    found = finding(RULE.check(facts))
    assert facts.window.start_ns == 2_400_000
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert "leaves these steps out" in found.summary
    assert figures(found)["Slow steps"] == (number(2, suffix="of 5"),)


def test_a_warm_up_is_found_without_a_gpu_too(tmp_path: Path) -> None:
    finding(RULE.check(facts_of(_steps([900, 100, 100, 100], gpu=False), tmp_path)))


def test_a_first_step_that_alone_updates_the_model_is_of_another_kind(tmp_path: Path) -> None:
    trace = _steps([900, 100, 100, 100], gpu=False)
    main = trace.thread(tid=trace.recording.pid)
    main.annotation("Optimizer.step#Adam.step", at=500, us=100)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_just_under_twice_the_others_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([195, 100, 100, 100]), tmp_path)))


def test_a_slow_step_in_the_middle_is_not_a_warm_up(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100, 100, 900, 100, 100]), tmp_path)))


def test_equal_steps_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100, 100, 100]), tmp_path)))


def test_cannot_tell_from_two_steps(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_steps([900, 100]), tmp_path)))


def test_a_warm_up_is_found_if_the_host_runs_ahead(tmp_path: Path) -> None:
    """The host launches all steps within 500 µs. The first step's kernels take eight times as long."""
    trace = TraceBuilder()
    main = trace.thread()
    done = 10.0
    for step, us in enumerate([800, 100, 100, 100, 100]):
        main.step(step, at=step * 100, us=100)
        main.launch("gemm", at=step * 100 + 1, us=5, runs_at=done, runs_us=us)
        done += us
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Slow steps"] == (number(1, suffix="of 5"),)
    assert (found.ranges[0].start_ns, found.ranges[0].end_ns) == (0, 810_000)


def test_cannot_tell_if_most_steps_have_no_gpu_work(tmp_path: Path) -> None:
    trace = _steps([100, 100])
    main = trace.thread()
    for step in range(2, 9):
        main.step(step, at=step * 100, us=100)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def test_work_queued_before_the_recording_does_not_count_as_the_first_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    trace.kernel("gemm", at=1, us=390)  # launched before the recording
    for step in range(5):
        main.step(step, at=step * 100, us=100)
        main.launch("gemm", at=step * 100 + 1, us=5, runs_at=400 + step * 100, runs_us=95)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_earlier_queued_work_is_recognized_if_another_stream_runs_ahead(tmp_path: Path) -> None:
    """A copy of the first step runs in parallel with kernels launched before the recording."""
    trace = TraceBuilder()
    main = trace.thread()
    trace.kernel("gemm", at=1, us=190)
    trace.kernel("gemm", at=200, us=190)
    for step in range(5):
        main.step(step, at=step * 100, us=100)
        main.launch("copy_ahead", at=step * 100 + 1, us=5, runs_at=step * 100 + 10, runs_us=5, stream=20)
        main.launch("gemm", at=step * 100 + 10, us=5, runs_at=400 + step * 100, runs_us=95)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_starting_a_loader_for_one_batch_on_a_cpu_is_first_run_work(tmp_path: Path) -> None:
    """Starting workers takes seconds, and more of them take longer."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.frame("torch/utils/data/dataloader.py(1010): __init__", at=0, us=100_000)
    main.loader(at=101_000, us=12_000_000, workers=4)
    main.op("aten::mm", at=12_200_000, us=200_000)
    found = finding(RULE.check(facts_of(trace, tmp_path), {}))
    assert found.severity is Severity.WARNING
    assert found.title.startswith("Starting a data loader takes 9")
    assert "num_workers=0" in found.fix.text
