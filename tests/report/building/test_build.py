from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building import time_messages, trace_message
from tb_gpudiag.rules.all import RULES
from tests.builder import Generation, TraceBuilder
from tests.report.laws import assert_report_laws
from tests.report.reports import report_of, rows_of, slow_loader, usual_report
from tests.some_values import EACH_GENERATION


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_it_adds_up_in_every_generation(generation: Generation, tmp_path: Path) -> None:
    trace = TraceBuilder(generation)
    trace.recording = slow_loader().recording
    assert_report_laws(report_of(trace, tmp_path))


def test_the_report_has_the_figures_of_the_trace() -> None:
    report = usual_report()
    (device,) = report.devices
    assert (device.id, device.name) == (0, "Test GPU")
    assert (device.window_start_us, device.window_us) == (0, 2000)
    assert device.window_computing_us == 580
    assert device.window_copying_us == 60
    assert {c.cause: c.us for c in device.window_idle_by_cause}[pb.CauseTime.input] == 1200
    assert device.span_us == 1990 - 645
    assert [(s.name, s.start_us, s.duration_us) for s in report.steps] == [
        ("ProfilerStep#0", 0, 1000),
        ("ProfilerStep#1", 1000, 1000),
    ]
    assert report.verdict.limiter == pb.Verdict.input
    assert report.verdict.busy_share == pytest.approx(0.32)
    first = report.findings[0]
    assert (first.rule, first.name, first.cost_us) == ("GD101", "input_pipeline", 1200)
    assert first.saving.possible_share == pytest.approx(0.6, rel=0.01)
    assert first.saving.basis == "replayed"
    assert (first.places[0].file, first.places[0].line) == ("train.py", 12)
    assert first.places[0].line_kind == pb.Place.DEFINITION
    assert [(r.start_us, r.end_us) for r in first.ranges] == [(10, 610), (1010, 1610)]


def test_every_rule_has_an_answer() -> None:
    report = usual_report()
    answered = (
        {a.rule for a in report.findings}
        | {a.rule for a in report.clear}
        | {a.rule for a in report.unchecked}
    )
    assert answered == {rule.id for rule in RULES}


def test_the_trace_says_what_it_is(tmp_path: Path) -> None:
    trace = TraceBuilder(rank=3, world_size=8, simulated=True)
    trace.recording = slow_loader().recording
    info = report_of(trace, tmp_path, run="a/b", worker="node7_4242").trace
    assert (info.run, info.worker, info.host) == ("a/b", "node7_4242", "node7")
    assert info.path.startswith(str(tmp_path))
    assert info.span.isdigit()
    assert (info.rank, info.world_size) == (3, 8)
    assert info.simulated
    assert info.status == pb.TraceInfo.COMPLETE
    assert info.events > 0
    assert info.recorded.steps
    assert info.recorded.stacks
    assert not info.recorded.memory


def test_what_the_trace_does_not_say_is_unknown(tmp_path: Path) -> None:
    info = report_of(slow_loader(), tmp_path, worker="worker0").trace
    assert (info.host, info.rank, info.world_size) == ("", -1, 0)


@pytest.mark.parametrize("rank", [-5, 2**40, "three", None, [1], {"a": 1}, True, 1.5])
def test_an_invalid_rank_is_unknown(rank: object, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=(), top_level={"distributedInfo": {"rank": rank, "world_size": rank}})
    trace.thread().op("aten::mm", at=0, us=1)
    info = report_of(trace, tmp_path).trace
    assert (info.rank, info.world_size) == (-1, 0)


def test_a_report_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (time_messages, trace_message):
        monkeypatch.setattr(module, "STEPS_LIMIT", 10)
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(15):
        main.step(step, at=100 * step, us=100)
        main.launch("x" * 5_000, at=100 * step, us=5, runs_at=100 * step + 50, runs_us=20)
    report = report_of(trace, tmp_path)
    assert len(report.steps) == len(report.devices[0].step_accounts) == 10
    assert any("first 10 of 15 steps" in note for note in report.trace.notes)
    assert all(len(spot.key) <= 400 for spot in report.launch_hotspots)


def test_a_cpu_trace_has_the_hosts_activity_instead_of_devices(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(12): train", at=0, us=1000)
    main.loader(at=0, us=600)
    main.op("aten::mm", at=650, us=300)
    report = report_of(trace, tmp_path)
    assert not report.devices
    rows = rows_of(report, "host")
    assert [(row["kind"], row["activity"], row["host_time"], row["host_share"]) for row in rows] == [
        ("Data loading", "data loading", 600, 0.6),
        ("Operator", "aten::mm", 300, 0.3),
        ("Python", "train (train.py, defined at line 12)", 100, 0.1),
    ]
    assert "train.py" in str(rows[1]["mostly_in"])
    assert rows[2]["mostly_in"] == ""


def test_an_empty_trace_has_a_report(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    report = report_of(trace, tmp_path)
    assert report.verdict.limiter == pb.Verdict.unknown
    assert report.verdict.sentence


def _batches(count: int) -> TraceBuilder:
    """Batches of 100 µs without step marks: a copy and five kernels each, and a setup kernel before them."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("setup", at=0, us=5, runs_at=10, runs_us=20)
    for at in (140.0 + 100 * i for i in range(count)):
        main.copy("HtoD", at=at, us=5, runs_at=at + 6, runs_us=8, bytes=4096, pinned=True)
        for kernel in range(5):
            main.launch(
                f"k{kernel}", at=at + 10 * (kernel + 1), us=5, runs_at=at + 10 * kernel + 16, runs_us=8
            )
    return trace


def test_without_recorded_steps_the_report_has_inferred_steps(tmp_path: Path) -> None:
    report = report_of(_batches(4), tmp_path)
    found = report.inferred_steps
    assert not report.steps
    assert (report.step_time.steps, report.step_time.inferred) == (4, True)
    assert report.devices[0].window_us == sum(s.duration_us for s in report.devices[0].step_accounts)
    assert (found.repetitions, found.period_launches, found.sign, found.are_steps) == (
        4,
        6,
        pb.InferredSteps.input,
        True,
    )
    assert [s.duration_us for s in found.accounts[1:3]] == [100, 100]
    assert found.setup_us + sum(s.duration_us for s in found.accounts) + found.tail_us == pytest.approx(
        report.trace.duration_us
    )
    for step in found.accounts:
        worked = step.computing_us + step.copying_us + step.communicating_us
        assert worked + sum(part.us for part in step.idle_by_cause) == pytest.approx(
            step.duration_us, abs=1e-6
        )


def test_with_recorded_steps_none_are_inferred() -> None:
    assert not usual_report().HasField("inferred_steps")
