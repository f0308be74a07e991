"""A digest says of a trace what its facts say, in tables that add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest, numbers, per_cause, texts
from tb_gpudiag.digest.digest_files import from_bytes, to_bytes
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.real_traces import FILES, real_facts

MOST_BYTES = 256 << 10


def digest_of(facts: Facts, path: str) -> Digest:
    (file,) = find_traces(path).files
    return build_digest(facts, build_report(facts, file), file)


def check(facts: Facts, path: str) -> Digest:
    digest = digest_of(facts, path)
    causes = len(digest.about.causes)
    for table, start, end in (("steps", "start_ns", "end_ns"), ("collectives", "since_ns", "start_ns")):
        rows = digest.table(table)
        length = numbers(rows, end) - numbers(rows, start)
        if digest.about.device_name or facts.device is not None:
            parts = sum(numbers(rows, f"{part}_ns") for part in ("computing", "copying", "communicating"))
            assert (parts + per_cause(rows, "idle_ns", causes).sum(axis=1) == length).all(), table
    assert (numbers(digest.collectives, "exposed_ns") >= 0).all()
    assert (np.diff(numbers(digest.collectives, "start_ns")) >= 0).all()
    if facts.device is not None:
        kernels = facts.device.kernels
        steady = digest.steps.filter(digest.steps.column("steady"))
        inside = kernels.start_ns >= min(numbers(steady, "start_ns"), default=0)
        assert numbers(digest.kernels, "time_ns").sum() == kernels.duration_ns[inside].sum()
        assert numbers(digest.kernels, "count").sum() == inside.sum()
    content = to_bytes(digest)
    assert len(content) <= MOST_BYTES
    read = from_bytes(content)
    assert read.about == digest.about
    assert not any(finding.ranges for finding in digest.findings)  # places on the trace's own timeline
    assert texts(read.kernels, "path") == texts(digest.kernels, "path")
    return digest


def test_what_a_rank_did_before_each_collective(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(12): train", at=0, us=1000)
    main.launch("gemm", at=5, us=5, runs_at=20, runs_us=80)
    main.loader(at=110, us=90)
    for at, number in ((200, 7), (500, 8)):
        said: dict[str, object] = {
            "Collective name": "allreduce",
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }
        said |= {"Seq": number, "In msg nelems": 100, "dtype": "Float"}
        main.op("record_param_comms", at=at, us=50, more=said)
        main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=at + 10, us=5, runs_at=at + 20, runs_us=200)
    main.launch("gemm", at=600, us=5, runs_at=610, runs_us=300, stream=9)
    path = trace.write(tmp_path)
    found = check(Facts(read_trace(str(path))), str(path)).collectives
    assert texts(found, "kind") == ["all_reduce", "all_reduce"]
    assert texts(found, "group") == ["0", "0"]
    assert numbers(found, "sequence").tolist() == [7, 8]
    assert numbers(found, "bytes").tolist() == [400, 400]
    assert numbers(found, "host_start_ns").tolist() == [200_000, 500_000]
    assert numbers(found, "start_ns").tolist() == [220_000, 520_000]
    assert numbers(found, "exposed_ns").tolist() == [200_000, 90_000]  # the second one runs beside a gemm
    assert numbers(found, "computing_ns").tolist() == [80_000, 0]
    assert numbers(found, "communicating_ns").tolist() == [0, 200_000]
    assert numbers(found, "kernels").tolist() == [1, 0]
    idle = per_cause(found, "idle_ns", len(Cause))
    assert idle[0, Cause.INPUT] == 90_000
    assert numbers(found, "step").tolist() == [0, 0]


@pytest.mark.slow
def test_equal_work_has_equal_hashes(tmp_path: Path) -> None:
    def work(order: str, folder: str) -> int:
        trace = TraceBuilder()
        main = trace.thread()
        main.step(0, at=0, us=1000)
        for at, name in enumerate([*order, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"]):
            main.launch(name, at=at * 100, us=5, runs_at=at * 100 + 20, runs_us=30)
        path = trace.write(tmp_path / folder)
        return int(numbers(check(Facts(read_trace(str(path))), str(path)).collectives, "work")[0])

    assert work("abc", "1") == work("abc", "2")
    assert len({work("abc", "3"), work("acb", "4"), work("abb", "5"), work("ab", "6")}) == 4


def test_a_trace_without_anything(tmp_path: Path) -> None:
    path = TraceBuilder(devices=()).write(tmp_path)
    digest = check(Facts(read_trace(str(path))), str(path))
    assert digest.about.steps_basis == "none"
    assert len(digest.collectives) == 0


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_digest_of_a_real_trace_adds_up(file: str) -> None:
    check(real_facts(file), str(SHARED_TRACES / file))


def test_launches_that_no_operator_made(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.op("aten::mm", at=5, us=50)
    main.launch("gemm", at=10, us=5, runs_at=20, runs_us=80)
    main.launch("graph", at=100, us=7, runs_at=120, runs_us=80)
    path = trace.write(tmp_path)
    found = check(Facts(read_trace(str(path))), str(path)).operators
    launches = dict(zip(texts(found, "operator"), numbers(found, "launches").tolist(), strict=True))
    assert launches == {"aten::mm": 1, "": 1}
    assert numbers(found, "host_ns").tolist() == [50_000, 7_000]


def test_work_of_earlier_steps_in_the_window_is_left_out(tmp_path: Path) -> None:
    """The host runs ahead: when it begins the first recorded step, the GPU works on steps before it."""
    trace = TraceBuilder()
    main = trace.thread()
    for earlier in range(3):
        trace.kernel("gemm", at=earlier * 1000, us=1000)
    for step in range(4):
        main.step(step, at=step * 100, us=100)
        main.launch("gemm", at=step * 100 + 10, us=5, runs_at=3000 + step * 1000, runs_us=1000)
    path = trace.write(tmp_path)
    found = check(Facts(read_trace(str(path))), str(path))
    steady = numbers(found.steps, "start_ns")[found.steps.column("steady").to_numpy()]
    assert (steady >= 3_000_000).all()
    assert numbers(found.kernels, "count").tolist() == [len(steady)]
