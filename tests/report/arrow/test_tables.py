"""Arrow tables and the documented queries say what the report says."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import tb_gpudiag
from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.arrow.arrow_columns import numbers
from tb_gpudiag.report.arrow.sql_query import TABLES
from tb_gpudiag.report.arrow.trace_tables import Tables
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import read_facts
from tb_gpudiag.wording.vocabulary import FAMILIES, QUESTIONS
from tests.builder import TraceBuilder
from tests.report.reports import HOSTILE, rows_of, slow_loader
from tests.simulator import simulate
from tests.some_values import slow

pytestmark = pytest.mark.slow

pytest.importorskip("duckdb")

GPU_JOBS = (
    "input_pipeline",
    *slow("exposed_communication", "launch_bound", "host_sync"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@cache
def _job(scenario: str, folder: Path) -> tuple[pb.Report, Tables]:
    simulate(scenario, seed=0).write(folder / scenario)
    tables = tb_gpudiag.tables(folder / scenario)
    (file,) = tables.files
    return build_report(read_facts(file), file), tables


@pytest.fixture(params=GPU_JOBS)
def job(request: pytest.FixtureRequest, folder: Path) -> tuple[pb.Report, Tables]:
    return _job(request.param, folder)


def answer(tables: Tables, question: str) -> list[dict[str, Any]]:
    """All rows that answer a documented question, which shows the first 20."""
    (found,) = (each for each in QUESTIONS if each.question.startswith(question))
    rows: list[dict[str, Any]] = tables.sql(found.query.removesuffix(" LIMIT 20")).to_pylist()
    return rows


def ns(us: float) -> int:
    return round(us * 1000)


def word(message: Any, field: str) -> Any:
    return tb_gpudiag.to_dict(message)[field]


def test_every_table_has_the_columns_that_are_described(job: tuple[pb.Report, Tables]) -> None:
    for name, schema in TABLES.items():
        table = job[1][name]
        table.validate(full=True)
        assert table.schema == schema
        assert all(name.isidentifier() for name in table.column_names)
    assert job[1].events.num_rows > 0


def test_idle_time_by_cause_is_the_devices(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    device = report.devices[0]
    found = tables.sql(
        "SELECT cause, sum(duration_ns) AS ns FROM idle WHERE in_window AND device = "
        f"{device.id} GROUP BY cause"
    ).to_pylist()
    assert {row["cause"]: row["ns"] for row in found} == {
        word(each, "cause"): ns(each.us) for each in device.window_idle_by_cause
    }
    assert pc.sum(tables.gaps["window_ns"]).as_py() == sum(ns(d.window_idle_us) for d in report.devices)
    (gaps,) = tables.sql(
        """SELECT count(*) AS n FROM gaps WHERE start_ns >= (
        SELECT min(start_ns) FROM events WHERE category IN ('kernel', 'memcpy', 'memset'))"""
    ).to_pylist()
    assert gaps["n"] == sum(device.gaps for device in report.devices)


def test_idle_time_by_step_is_the_steps_accounts(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    found = {
        (row["device"], row["step"], row["cause"]): row["idle_ms"]
        for row in answer(tables, "Why was the GPU idle, step by step")
    }
    expected = {
        (device.id, number, word(each, "cause")): pytest.approx(each.us / 1e3)
        for device in report.devices
        for number, account in enumerate(device.step_accounts)
        for each in account.idle_by_cause
    }
    assert found == expected
    steps = tables.steps.to_pylist()
    accounts = [account for device in report.devices for account in device.step_accounts]
    assert [row["duration_ns"] for row in steps] == [ns(account.duration_us) for account in accounts]
    for row in steps:
        parts = ("computing_ns", "copying_ns", "communicating_ns", "idle_ns")
        assert sum(row[part] for part in parts) == row["duration_ns"]
    assert tables.traces["step_ns"].to_pylist() == [ns(report.step_time.median_us)]


def test_lines_share_the_idle_time_of_the_window(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    found = answer(tables, "Which line of yours")
    assert {row["cause"] for row in found} <= {cause.label for cause in Cause}
    idle_ms = sum(device.window_idle_us for device in report.devices) / 1e3
    assert sum(row["idle_ms"] for row in found) == pytest.approx(idle_ms)


def test_parts_of_long_gaps_add_up_to_them(job: tuple[pb.Report, Tables]) -> None:
    rows = answer(job[1], "What did the host do in gaps")
    parts: dict[tuple[int, int], float] = {}
    for row in rows:
        assert row["gap_ms"] > 1
        key = (row["device"], row["gap"])
        parts[key] = parts.get(key, 0.0) + row["part_ms"] / row["gap_ms"]
    assert all(share == pytest.approx(1) for share in parts.values())
    longest = pc.max(job[1].gaps["duration_ns"]).as_py()
    assert (not rows) == (longest <= 1e6)


def test_launches_by_operator_are_the_hotspots(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    spots = {spot.key: spot for spot in report.launch_hotspots if word(spot, "kind") == "operator"}
    found = answer(tables, "How many launches has a step")
    assert found
    steps = len(report.devices[0].step_accounts)
    for row in found:
        spot = spots[row["operator"] or "(outside any operator)"]
        assert row["launches_per_step"] == pytest.approx(spot.launches / steps)
        assert row["host_ms"] == pytest.approx(spot.host_us / 1e3)
        assert row["idle_ms"] == pytest.approx(spot.idle_us / 1e3)
        assert row["empty_queue_share"] == pytest.approx(spot.empty_queue_share)
    slowest = answer(tables, "Which are the slowest 1 %")
    assert slowest[0]["host_us"] * 1000 == pc.max(tables.launches["duration_ns"]).as_py()


def test_kernels_are_the_families_of_the_report(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    found = tables.sql(
        "SELECT device, family, sum(duration_ns) AS ns, count(*) AS n FROM kernels GROUP BY ALL"
    ).to_pylist()
    said = rows_of(report, "kernel_families")
    assert {
        (f"GPU {row['device']}", FAMILIES[row["family"]].word): (row["ns"], row["n"]) for row in found
    } == {(row["gpu"], row["family"]): (ns(float(row["kernel_time"])), row["kernels"]) for row in said}
    shares = answer(tables, "Which kernels take")
    total = sum(float(row["kernel_time"]) for row in said)
    assert shares[0]["percent"] == pytest.approx(100 * shares[0]["ms"] * 1e3 / total)
    steps = len(report.devices[0].step_accounts)
    modules = answer(tables, "How much GPU time")
    assert sum(row["ms_per_step"] for row in modules) == pytest.approx(total / 1e3 / steps)


def test_copies_have_their_bandwidth(tmp_path: Path) -> None:
    slow_loader().write(tmp_path)
    (row,) = answer(tb_gpudiag.tables(tmp_path), "How fast are copies")
    assert (row["direction"], row["pageable"], row["copies"]) == ("to_device", False, 2)
    assert row["gb_per_s"] == pytest.approx(2**20 / 30_000)


def test_collectives_are_exposed_as_long_as_the_report_says(folder: Path) -> None:
    report, tables = _job("exposed_communication", folder)
    rows = answer(tables, "How long do collectives take")
    assert rows
    whole_us = sum(device.window_communicating_us for device in report.devices)
    assert sum(row["exposed_ms"] for row in rows) == pytest.approx(whole_us / 1e3)
    assert sum(row["calls"] for row in rows) == tables.collectives.num_rows


def test_memory_at_the_peak_is_the_reports(folder: Path) -> None:
    report, tables = _job("leak_kept_graph", folder)
    memory = report.memory[0]
    assert pc.max(tables.memory["allocated_bytes"]).as_py() == memory.peak_allocated_bytes
    held = sum(row["mb"] for row in answer(tables, "Who holds memory")) * 1e6
    before = sum(each.bytes for each in memory.peak_kinds if word(each, "kind") == "before")
    assert held == pytest.approx(memory.peak_allocated_bytes - before)


def test_findings_are_the_reports(job: tuple[pb.Report, Tables]) -> None:
    report, tables = job
    found = tables.findings.to_pylist()
    assert [row["rule"] for row in found] == [finding.rule for finding in report.findings]
    assert [row["cost_ns"] for row in found] == [ns(finding.cost_us) for finding in report.findings]
    for row, finding in zip(found, report.findings, strict=True):
        saves = finding.HasField("saving")
        assert row["saving_high_ns"] == (ns(finding.saving.high_us) if saves else None)


def test_engine_steps_are_the_reports(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for at, mark in ((0, "execute_context_1(900)_generation_0(0)"), (2_000, "step[TARGET_VERIFY bs=3]")):
        main.annotation(mark, at=at, us=150)
        main.launch("gemm", at=at + 100, us=20, runs_at=at + 150, runs_us=1_000)
    trace.write(tmp_path)
    tables = tb_gpudiag.tables(tmp_path)
    (file,) = tables.files
    said = rows_of(build_report(read_facts(file), file), "each_engine_step")
    rows = tables.engine_steps.to_pylist()
    assert [(row["name"], row["kind"], row["requests"], row["tokens"], row["gap_ns"]) for row in rows] == [
        ("prefill 1", "prefill", 1, 900, None),
        ("decode 2", "decode", 3, None, 1_000_000),
    ]
    assert [(row["duration_ns"], row["busy_ns"]) for row in rows] == [
        (ns(float(step["time"])), ns(float(step["gpu_busy"]))) for step in said
    ]


def test_a_folder_of_runs_is_one_table_with_their_names(tmp_path: Path) -> None:
    for run in ("a", "b"):
        slow_loader(steps=3 if run == "b" else 2).write(tmp_path / run)
    (tmp_path / "b" / "bad.pt.trace.json").write_text("{")
    tables = tb_gpudiag.tables(tmp_path)
    found = tables.sql("SELECT run, worker, count(*) AS n FROM steps GROUP BY ALL ORDER BY run").to_pylist()
    assert [(row["run"], row["n"]) for row in found] == [("a", 2), ("b", 3)]
    assert len(tables.problems) == 1
    assert tables.traces.num_rows == 2


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = f"x'; DROP TABLE idle; -- {HOSTILE} \ud800"
    slow_loader(f"train.py(3): {name}").write(tmp_path)
    tables = tb_gpudiag.tables(tmp_path)
    lines = tables.sql("SELECT DISTINCT line FROM idle WHERE line LIKE '%DROP TABLE%'").to_pylist()
    assert len(lines) == 1
    assert "\ud800" not in lines[0]["line"]
    assert tables.sql("SELECT count(*) AS n FROM idle").to_pylist()[0]["n"] > 0


def test_numbers_are_not_copied() -> None:
    values = np.array([1, NONE, 3], np.int64)
    column = numbers(values)
    assert column.to_pylist() == [1, None, 3]
    assert column.buffers()[1].address == values.ctypes.data


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead):
        tb_gpudiag.tables(tmp_path)
    slow_loader().write(tmp_path)
    tables = tb_gpudiag.tables(tmp_path)
    with pytest.raises(AttributeError, match="launches"):
        _ = tables.nothing
    with pytest.raises(UsageError, match="launches"):
        tables["nothing"]
