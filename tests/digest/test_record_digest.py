"""A record in an event file gives the history the same figures as the recording's own digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.digest.digest import numbers, per_cause
from tb_gpudiag.digest.record_digest import record_digest
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import read_facts
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.training.diagnosing import compared_steps, record_of
from tests.report.reports import slow_loader


def written(tmp_path: Path) -> TraceFile:
    path = slow_loader().write(tmp_path, worker="rank0", time=1_700_000_000_000_000_000)
    return TraceFile(str(path), "run", "rank0", "1700000000000000000", 0, 0, "id")


def test_the_point_of_a_record_is_that_of_its_trace(tmp_path: Path) -> None:
    file = written(tmp_path)
    facts = read_facts(file)
    report = build_report(facts, file)
    digest = build_digest(facts, report, file)
    record = record_digest(
        pb.Report.FromString(record_of(report, compared_steps(digest))), "id", digest.about.origin_ns
    )
    (own,), (kept,) = (histories([each])[0].points for each in (digest, record))
    for name in ("time_s", "rank", "limiter", "busy_share", "steps", "title", "saving_us"):
        assert getattr(kept, name) == getattr(own, name), name
    assert list(kept.rules) == list(own.rules)
    assert kept.step_us == pytest.approx(own.step_us)
    of_own = {part.cause: part.us for part in own.shares}
    of_kept = {part.cause: part.us for part in kept.shares}
    assert of_kept.keys() == of_own.keys()
    for cause, us in of_own.items():
        # The record has the account of the whole window, not one for each step.
        assert of_kept[cause] == pytest.approx(us, abs=0.01 * own.step_us), cause
    assert (record.about.pid, record.about.host) == (digest.about.pid, digest.about.host)


def test_parts_add_up_to_each_step(tmp_path: Path) -> None:
    file = written(tmp_path)
    digest = record_digest(build_report(read_facts(file), file), "id", 0)
    steps = digest.steps
    work = sum(numbers(steps, f"{name}_ns") for name in ("computing", "copying", "communicating"))
    idle = per_cause(steps, "idle_ns", len(digest.about.causes)).sum(axis=1)
    assert (work + idle).tolist() == (numbers(steps, "end_ns") - numbers(steps, "start_ns")).tolist()


def test_a_record_of_nothing_but_a_verdict_is_a_point() -> None:
    report = pb.Report(verdict=pb.Verdict(limiter="unknown"), trace=pb.TraceInfo(rank=-1))
    (point,) = histories([record_digest(report, "id", 0)])[0].points
    assert (point.steps, point.step_us, list(point.shares)) == (0, 0, [])
