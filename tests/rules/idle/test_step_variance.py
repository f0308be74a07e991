from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Severity
from tb_gpudiag.rules.idle.step_variance import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import duration, number, ratio, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, is_clear
from tests.simulator import Job, simulate

SAVE = "train.py(40): save_checkpoint"
SHOWN = "“save_checkpoint (train.py, defined at line 40)”"


def _steps(lengths_us: Sequence[float], *, extra: str = SAVE, gpu: bool = True) -> TraceBuilder:
    """Build steps of 100 µs, and longer ones whose host spends the rest in `extra`; the kernel runs last."""
    trace = TraceBuilder(devices=("Test GPU",) if gpu else ())
    main = trace.thread()
    at = 0.0
    for step, us in enumerate(lengths_us):
        main.step(step, at=at, us=us)
        main.frame("train.py(12): train", at=at, us=us)
        if us > 100:
            main.frame(extra, at=at + 5, us=us - 100)
        main.op("aten::mm", at=at + us - 80, us=20)
        if gpu:
            main.launch("gemm", at=at + us - 75, us=5, runs_at=at + us - 60, runs_us=55)
        at += us
    return trace


def test_says_which_step_is_slow_what_grew_in_it_and_where(tmp_path: Path) -> None:
    facts = facts_of(_steps([100] * 10 + [160] + [100] * 9), tmp_path)
    found = finding(RULE.check(facts))
    assert "1 step of 20" in found.title
    assert str(ratio(1.6, "the median")) in found.title
    evidence = figures(found)
    assert evidence["Slow steps"] == (number(1, "step"), duration(160_000, "(ProfilerStep#10)"))
    assert evidence["Slowest step"] == (ratio(1.6, "the median"),)
    assert evidence["Longer than the median"] == (
        duration(60_000),
        share_of(60_000, facts.window.duration_ns, "of the step window"),
    )
    assert evidence["Extra Python between operators"] == (duration(60_000),)
    assert evidence["Only in slow steps"] == (SHOWN, duration(60_000))
    assert (found.places[0].line, found.places[0].function) == (40, "save_checkpoint")
    assert (found.ranges[0].start_ns, found.ranges[0].end_ns) == (1_000_000, 1_160_000)
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_cannot_tell_from_steps_without_gpu_work(tmp_path: Path) -> None:
    """A file can end before the kernels of the later steps."""
    trace = _steps([100] * 3)
    main = trace.thread()
    for step in range(3, 12):
        main.step(step, at=step * 100, us=100)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def test_claims_no_time_and_says_that_other_findings_count_it(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_steps([100] * 5 + [160] + [100] * 5), tmp_path)))
    assert found.claims == {}
    assert found.cost_ns == 0
    assert found.saving is not None
    assert found.saving.high_ns == 60_000
    assert "at most" in found.saving.basis
    assert "other findings" in found.saving.basis


def test_is_a_warning_if_much_time_is_lost(tmp_path: Path) -> None:
    for slow_us, severity in ((190, Severity.INFO), (230, Severity.WARNING)):
        facts = facts_of(_steps([100] * 5 + [slow_us] + [100] * 5), tmp_path / str(slow_us))
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is severity


def test_just_under_the_ratio_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 4 + [119] + [100] * 4), tmp_path)))


def test_a_loss_too_small_to_measure_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 20 + [135] + [100] * 20), tmp_path)))


def test_even_steps_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 6), tmp_path)))


def test_slow_first_steps_are_a_warm_up(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([900, 400, 100, 100, 100, 100]), tmp_path)))


def test_a_host_that_runs_ahead_does_not_make_steps_uneven(tmp_path: Path) -> None:
    """The host finishes steps in 40 µs until it has to wait. All steps take 100 µs on the GPU."""
    trace = TraceBuilder()
    main = trace.thread()
    host_at = 0.0
    for step, us in enumerate([40, 40, 40, 280, 100, 100]):
        main.step(step, at=host_at, us=us)
        main.launch("gemm", at=host_at + 5, us=5, runs_at=15 + 100 * step, runs_us=99)
        host_at += us
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_names_a_garbage_collection(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [200] + [100] * 5, extra="<built-in function collect>")
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Only in slow steps"][0] == "“<built-in function collect>”"
    assert "gc.freeze()" in found.fix.code


def test_does_not_suggest_doing_less_if_slow_steps_do_the_same(tmp_path: Path) -> None:
    found = finding(
        RULE.check(facts_of(_steps([100] * 5 + [200] + [100] * 5, extra="train.py(12): train"), tmp_path))
    )
    assert "Only in slow steps" not in figures(found)
    assert "more slowly" in found.fix.text
    assert not found.fix.code


@pytest.mark.parametrize("every", [True, False])
def test_steps_that_allocate_as_all_others_change_nothing(every: bool, tmp_path: Path) -> None:
    """Without a cache each step frees its tensors, which may take longer from some step on. Memory that slow
    steps alone get is for new shapes."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for step, us in enumerate([100] * 6 + [190] * 5):
        main.step(step, at=at, us=us)
        if every or us > 100:
            main.call("cudaFree", at=at + 2, us=us - 92)
        main.op("aten::mm", at=at + us - 80, us=20)
        main.launch("gemm", at=at + us - 75, us=5, runs_at=at + us - 60, runs_us=55)
        at += us
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("see GD103" in found.fix.text) is every
    assert ("new shapes" in found.fix.text) is not every


def test_counts_what_slow_steps_launch(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [300] + [100] * 5)
    main = trace.thread()
    for i in range(10):
        main.launch("evaluate", at=510 + 10 * i, us=2, runs_at=513 + 10 * i, runs_us=8)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    evidence = figures(found)
    assert evidence["Kernels and copies"] == (
        number(11, suffix="per slow step"),
        number(1, suffix="per other step"),
    )
    assert evidence["Extra computing"] == (duration(80_000),)


def test_names_that_differ_only_in_a_number_are_not_unique_to_slow_steps(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [200] + [100] * 5)
    main = trace.thread()
    for step in range(11):
        at = 100.0 * step + (100 if step > 5 else 0)
        main.annotation(f"iteration {step}", at=at, us=99)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert [e.value for e in found.evidence if e.label == "Only in slow steps"] == [SHOWN]


def test_without_a_gpu_it_is_the_hosts_time(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_steps([100] * 5 + [200] + [100] * 5, gpu=False), tmp_path)))
    assert figures(found)["Extra Python between operators"] == (duration(100_000),)
    assert found.places[0].line == 40


def test_on_a_cpu_single_steps_that_do_the_same_are_slow_by_chance(tmp_path: Path) -> None:
    for extra, severity in (("train.py(12): train", Severity.INFO), (SAVE, Severity.WARNING)):
        trace = _steps([100] * 5 + [300] + [100] * 5, extra=extra, gpu=False)
        facts = facts_of(trace, tmp_path)
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is severity


def test_on_a_cpu_a_single_step_whose_operators_take_longer_had_no_core(tmp_path: Path) -> None:
    for slow in ([4], [2, 4, 6]):  # every second step is no chance
        trace = TraceBuilder(devices=())
        main, at = trace.thread(), 0.0
        for step in range(8):
            us = 500 if step in slow else 200
            main.step(step, at=at, us=us)
            main.op("aten::mm", at=at + 1, us=us - 2)
            at += us
        answer = RULE.check(facts_of(trace, tmp_path))
        assert isinstance(answer, Clear) is (len(slow) == 1)


def test_steps_that_wait_longer_are_to_see_what_they_wait_for(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main, at = trace.thread(), 0.0
    for step in range(12):
        us = 900 if step >= 5 else 200
        main.step(step, at=at, us=us)
        name = "<built-in method acquire of _thread.lock object at 0x1>"
        main.frame("replay.py(3): sample", at=at + 1, us=us - 150).frame(name, at=at + 2, us=us - 160)
        main.op("aten::mm", at=at + us - 140, us=130)
        at += us
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "GD102" in found.fix.text


def test_on_a_cpu_slow_steps_that_run_more_operators_are_not_called_the_same(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main, at = trace.thread(), 0.0
    for step in range(8):
        count = 40 if step % 3 == 1 else 4
        main.step(step, at=at, us=count * 100)
        main.frame("train.py(12): train", at=at, us=count * 100)
        for i in range(count):
            main.op("aten::mm", at=at + 100 * i, us=90)
        at += count * 100
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Operators"] == (
        number(40.0, suffix="per slow step"),
        number(4.0, suffix="per other step"),
    )
    assert found.fix is not None
    assert "run more of" in found.fix.text


def test_on_a_cpu_loading_that_is_slow_as_operators_are_is_slow_by_chance(tmp_path: Path) -> None:
    for longer_us, severity in ((1_000, Severity.INFO), (100, Severity.WARNING)):
        trace = TraceBuilder(devices=())
        main, at = trace.thread(), 0.0
        for step in range(6):
            slow = step < 2
            loads_us, us = 100 + 2_000 * slow, 5_000 + longer_us * slow
            main.step(step, at=at, us=loads_us + us)
            main.loader(at=at, us=loads_us)
            main.op("aten::mm", at=at + loads_us, us=us)
            at += loads_us + us
        facts = facts_of(trace, tmp_path)
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is severity


def test_compares_inferred_steps_if_none_were_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for step in range(12):
        main.copy("HtoD", at=at, us=5, runs_at=at + 6, runs_us=8, bytes=4096, pinned=True)
        for kernel in range(5):
            main.launch(
                f"k{kernel}", at=at + 10 * kernel + 10, us=5, runs_at=at + 10 * kernel + 16, runs_us=8
            )
        if step == 6:
            main.frame(SAVE, at=at + 60, us=90)
        at += 160 if step == 6 else 70
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "1 inferred step of 12" in found.title
    assert found.places[0].line == 40


@pytest.mark.slow
def test_a_simulated_job_of_even_steps_is_clear(tmp_path: Path) -> None:
    written = simulate(Job(steps=12)).write(tmp_path)
    assert is_clear(RULE.check(Facts(read_trace(str(written)))))


def test_cannot_tell_from_three_steps(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_steps([100, 100, 200]), tmp_path)))


def test_cannot_tell_without_steps(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=50)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def test_a_job_that_is_slower_from_some_step_on_is_named_although_most_steps_are_slow(tmp_path: Path) -> None:
    facts = facts_of(_steps([118, 115, 1015, 1068, 1076], extra="train.py(12): train"), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "Steps 3–5 took 9.17× as long as steps 1–2"
    assert figures(found)["Median of the other steps"] == (duration(116_500),)  # 118 and 115 µs
    assert figures(found)["Slow steps"][0] == number(3, "step")
    assert "changed at this step" in found.fix.text


def test_steps_that_the_gpu_ran_right_after_earlier_work_are_not_fast_ones(tmp_path: Path) -> None:
    """The host launches two steps while the GPU still runs work from before them."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("prefill", at=0, us=5, runs_at=10, runs_us=2_000)
    gpu = 2_010.0
    for step in range(12):
        began = 100 + 1_000.0 * step
        main.step(step, at=began, us=1_000)
        for kernel in range(10):
            runs_at = max(gpu, began + 100 * kernel + 7)
            main.launch("gemm", at=began + 100 * kernel, us=5, runs_at=runs_at, runs_us=30)
            gpu = runs_at + 30
    facts = facts_of(trace, tmp_path)
    assert facts.steady.borders_ns[1] - facts.steady.borders_ns[0] < 500_000
    assert is_clear(RULE.check(facts))


def test_names_the_period_of_slow_steps(tmp_path: Path) -> None:
    facts = facts_of(_steps([100, 100, 100, 190] * 5), tmp_path)
    assert "Every 4th step" in finding(RULE.check(facts)).title


def test_says_that_steps_take_longer_and_longer(tmp_path: Path) -> None:
    rising = [100.0 + 5 * step for step in range(16)]
    found = finding(RULE.check(facts_of(_steps(rising, extra="train.py(12): train"), tmp_path)))
    assert "longer and longer" in found.title
    assert "grows" in found.fix.text


def test_accumulated_gradients_are_not_uneven_steps(tmp_path: Path) -> None:
    trace = _steps([100, 100, 100, 190] * 5, extra="Optimizer.step#AdamW.step")
    answer = RULE.check(facts_of(trace, tmp_path))
    assert is_clear(answer)


def test_a_decorator_of_torch_is_not_what_slow_steps_ran(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [500] + [100] * 5, extra="torch/utils/_contextlib.py(120): decorate_context")
    trace.thread(tid=trace.recording.pid).frame("train.py(18): evaluate", at=515, us=380)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Only in slow steps"][0] == "“evaluate (train.py, defined at line 18)”"
    assert "ran “evaluate" in found.summary
