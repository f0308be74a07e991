from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.idle.step_variance import RULE
from tb_gpudiag.rules.rule import Finding, Severity
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, is_clear
from tests.simulator import Job, simulate

SAVE = "train.py(40): save_checkpoint"


def _steps(lengths_us: Sequence[float], *, extra: str = SAVE, gpu: bool = True) -> TraceBuilder:
    """Steps of 100 µs, and longer ones in which the host is in `extra` for the rest; the kernel is last."""
    trace = TraceBuilder(devices=("Test GPU",) if gpu else ())
    main = trace.thread()
    at = 0.0
    for number, us in enumerate(lengths_us):
        main.step(number, at=at, us=us)
        main.frame("train.py(12): train", at=at, us=us)
        if us > 100:
            main.frame(extra, at=at + 5, us=us - 100)
        main.op("aten::mm", at=at + us - 80, us=20)
        if gpu:
            main.launch("gemm", at=at + us - 75, us=5, runs_at=at + us - 60, runs_us=55)
        at += us
    return trace


def _evidence(found: Finding) -> dict[str, str]:
    return {evidence.label: evidence.text for evidence in found.evidence}


def test_a_slow_step_is_named_with_what_grew_in_it_and_where(tmp_path: Path) -> None:
    facts = facts_of(_steps([100] * 10 + [160] + [100] * 9), tmp_path)
    found = finding(RULE.check(facts))
    assert "1 step of 20" in found.title
    assert "1.6 times" in found.title
    evidence = _evidence(found)
    assert evidence["slow steps"] == "ProfilerStep#10 160 µs"
    assert evidence["more Python between operators"] == "60 µs"
    assert evidence["only in slow steps"] == f"{SAVE} 60 µs"
    assert (found.places[0].line, found.places[0].function) == (40, "save_checkpoint")
    assert (found.ranges[0].start_ns, found.ranges[0].end_ns) == (995_000, 1_155_000)
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_steps_without_gpu_work_are_no_measure(tmp_path: Path) -> None:
    """As where the file ends before the kernels of the later steps."""
    trace = _steps([100] * 3)
    main = trace.thread()
    for number in range(3, 12):
        main.step(number, at=number * 100, us=100)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def test_it_claims_no_time_and_says_that_its_saving_is_in_others(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_steps([100] * 5 + [160] + [100] * 5), tmp_path)))
    assert found.claims == {}
    assert found.cost_ns == 0
    assert found.saving is not None
    assert found.saving.high_ns == 60_000
    assert "at most" in found.saving.basis
    assert "other findings" in found.saving.basis


def test_it_is_a_warning_where_much_is_lost(tmp_path: Path) -> None:
    for slow_us, severity in ((190, Severity.INFO), (230, Severity.WARNING)):
        facts = facts_of(_steps([100] * 5 + [slow_us] + [100] * 5), tmp_path / str(slow_us))
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is severity


def test_just_under_the_ratio_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 4 + [119] + [100] * 4), tmp_path)))


def test_too_little_to_be_measured_afterwards_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 20 + [135] + [100] * 20), tmp_path)))


def test_even_steps_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100] * 6), tmp_path)))


def test_slow_first_steps_are_a_warm_up_and_not_uneven(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([900, 400, 100, 100, 100, 100]), tmp_path)))


def test_a_host_that_runs_ahead_makes_no_step_uneven(tmp_path: Path) -> None:
    """The host is done with steps in 40 µs until it has to wait: the GPU's steps are all of 100 µs."""
    trace = TraceBuilder()
    main = trace.thread()
    host_at = 0.0
    for number, us in enumerate([40, 40, 40, 280, 100, 100]):
        main.step(number, at=host_at, us=us)
        main.launch("gemm", at=host_at + 5, us=5, runs_at=15 + 100 * number, runs_us=99)
        host_at += us
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_collection_is_named_where_it_shows(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [200] + [100] * 5, extra="<built-in function collect>")
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "<built-in function collect>" in _evidence(found)["only in slow steps"]
    assert "gc.freeze()" in found.fix.code
    assert "gc.freeze()" in found.fix.code


def test_steps_that_do_the_same_more_slowly_are_not_told_to_do_less(tmp_path: Path) -> None:
    found = finding(
        RULE.check(facts_of(_steps([100] * 5 + [200] + [100] * 5, extra="train.py(12): train"), tmp_path))
    )
    assert "only in slow steps" not in _evidence(found)
    assert "more slowly" in found.fix.text
    assert not found.fix.code


def test_what_slow_steps_launch_is_counted(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [300] + [100] * 5)
    main = trace.thread()
    for i in range(10):
        main.launch("evaluate", at=510 + 10 * i, us=2, runs_at=513 + 10 * i, runs_us=8)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert _evidence(found)["kernels and copies in a slow step"] == "11, in another 1"
    assert _evidence(found)["more computing"] == "80 µs"


def test_a_number_in_a_name_does_not_make_it_the_slow_steps_own(tmp_path: Path) -> None:
    trace = _steps([100] * 5 + [200] + [100] * 5)
    main = trace.thread()
    for number in range(11):
        at = 100.0 * number + (100 if number > 5 else 0)
        main.annotation(f"iteration {number}", at=at, us=99)
    assert "iteration" not in _evidence(finding(RULE.check(facts_of(trace, tmp_path))))["only in slow steps"]


def test_without_a_gpu_it_is_the_hosts_time(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_steps([100] * 5 + [200] + [100] * 5, gpu=False), tmp_path)))
    assert _evidence(found)["more Python between operators"] == "100 µs"
    assert found.places[0].line == 40


def test_it_compares_inferred_steps_where_none_were_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for number in range(12):
        main.copy("HtoD", at=at, us=5, runs_at=at + 6, runs_us=8, bytes=4096, pinned=True)
        for kernel in range(5):
            main.launch(
                f"k{kernel}", at=at + 10 * kernel + 10, us=5, runs_at=at + 10 * kernel + 16, runs_us=8
            )
        if number == 6:
            main.frame(SAVE, at=at + 60, us=90)
        at += 160 if number == 6 else 70
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "1 inferred step of 12" in found.title
    assert found.places[0].line == 40


def test_a_simulated_job_of_even_steps_is_clear(tmp_path: Path) -> None:
    written = simulate(Job(steps=12)).write(tmp_path)
    assert is_clear(RULE.check(Facts(read_trace(str(written)))))


def test_cannot_tell_from_three_steps(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_steps([100, 100, 200]), tmp_path)))


def test_cannot_tell_without_steps(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=50)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))
