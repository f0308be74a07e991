"""Engine steps in the report, and as text."""

from __future__ import annotations

from pathlib import Path

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_file, only_trace
from tests.builder import TraceBuilder
from tests.report.reports import rows_of
from tests.report.views.formats import to_text

SCHEDULE = "/venv/site-packages/vllm/v1/core/sched/scheduler.py(200): schedule"


def _report(folder: Path, *, waits: bool = False) -> pb.Report:
    """A prefill of 2 ms, and two decodes after 0.5 ms of scheduling each."""
    trace = TraceBuilder()
    main = trace.thread()
    for at, mark, busy in (
        (0.0, "execute_context_2(4096)_generation_0(0)", 2_000),
        (2_600.0, "execute_context_0(0)_generation_2(2)", 400),
        (3_600.0, "execute_context_0(0)_generation_2(2)", 400),
    ):
        main.annotation(mark, at=at, us=120)
        main.launch("gemm", at=at + 80, us=20, runs_at=at + 100, runs_us=busy)
        main.frame(SCHEDULE, at=at + 100 + busy, us=500)
    if waits:
        main.frame("/v/vllm/v1/executor/multiproc_executor.py(700): worker_busy_loop", at=4_000, us=5_000)
        queue = "/v/vllm/distributed/device_communicators/shm_broadcast.py(500): dequeue"
        main.frame(queue, at=4_700, us=4_000)
        main.annotation("execute_context_0(0)_generation_1(1)", at=8_800, us=120)
        main.launch("gemm", at=8_880, us=20, runs_at=8_900, runs_us=400)
    return diagnose_file(only_trace(str(trace.write(folder))))


def test_the_report_has_engine_steps_by_kind(tmp_path: Path) -> None:
    report = _report(tmp_path)
    found = report.serving
    assert (found.server, found.marked, found.waiting_us) == ("vLLM", True, 0)
    assert [row["kind"] for row in rows_of(report, "engine_steps")] == ["Prefill", "Decode"]
    steps = rows_of(report, "each_engine_step")
    assert [row["step"] for row in steps] == [step.name for step in report.devices[0].step_accounts]
    assert found.steps == len(steps)
    assert sum(float(row["time"]) for row in steps) == report.devices[0].window_us
    functions = rows_of(report, "engine_functions")
    idle_us = sum(float(row["idle_before"]) + float(row["idle_inside"]) for row in functions)
    assert abs(idle_us - report.devices[0].window_idle_us) < 0.01
    waits = {row["function"]: row["idle_before"] for row in functions}
    assert waits["schedule (vllm/v1/core/sched/scheduler.py)"] == 1_000
    # What a training has is said of neither.
    assert "prof.step()" not in to_text([report])


def test_text_says_them_as_the_report_does(tmp_path: Path) -> None:
    text = to_text([_report(tmp_path)])
    assert "3 engine steps" in text
    assert "vLLM: 1 prefill step of 2.60 ms, 2 requests" in " ".join(text.split())
    assert "Engine steps of vLLM" in text
    assert "What the engine did while the GPU was idle" in text


def test_a_worker_that_waited_is_told_apart(tmp_path: Path) -> None:
    found = _report(tmp_path, waits=True).serving
    assert found.waits_for_engine
    assert found.waiting_us == 4_000
