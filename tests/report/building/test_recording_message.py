from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.waiting.overhead import LEAST, MOST
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_path
from tests.builder import BASE_NS, EPOCH_NS, TraceBuilder
from tests.builder.nsys import Export
from tests.report.reports import report_of


def test_frames_and_operators_in_the_step_window(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for i in range(50):
        main.frame("train.py(3): f", at=10.0 * i, us=9)
    main.op("aten::mm", at=600, us=20).launch("gemm", at=605, us=5, runs_at=612, runs_us=300)
    cost = report_of(trace, tmp_path).recording_cost
    assert (cost.frames, cost.operators, cost.frame_us) == (50, 1, 0)
    for us, each in ((cost.low_us, LEAST), (cost.high_us, MOST)):
        assert us == pytest.approx((50 * each.frame + each.operator + each.call) / 1000)
    assert cost.high_share == pytest.approx(cost.high_us / 1000, rel=0.1)


def test_without_stacks_nothing_is_said(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.op("aten::mm", at=600, us=20).launch("gemm", at=605, us=5, runs_at=612, runs_us=300)
    assert not report_of(trace, tmp_path).HasField("recording_cost")


def test_counters_are_listed_with_their_range_of_values(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=300)
    for i, value in enumerate((300, 310.5, 290)):
        at_us = (EPOCH_NS - BASE_NS) // 1000 + i
        trace.raw({"ph": "C", "name": "power [W]", "pid": 0, "ts": at_us, "args": {"value": value}})
    (counter,) = report_of(trace, tmp_path).counters
    assert (counter.name, counter.unit, counter.device, counter.samples) == ("power [W]", "W", 0, 3)
    assert (counter.least, counter.most, counter.timed) == (290, 310.5, True)
    assert counter.mean == pytest.approx(300.17, abs=0.01)


def test_the_recorder_is_named(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=300)
    assert report_of(trace, tmp_path).trace.recorder == pb.TraceInfo.torch
    export = Export().call("cudaLaunchKernel_v7000", 100, 200, 5).kernel("gemm", 300, 900, 5)
    path = export.write(tmp_path / "report.sqlite")
    assert diagnose_path(str(path)).trace.recorder == pb.TraceInfo.nsys
