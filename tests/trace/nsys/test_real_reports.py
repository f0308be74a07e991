"""Real exports of Nsight Systems, against SQL over their tables."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category
from tests.conftest import SHARED_TRACES

pytestmark = pytest.mark.real

REPORTS = SHARED_TRACES.parent / "nsys"
FILES = sorted(REPORTS.glob("*.sqlite"))
TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")


@pytest.fixture(params=[path.name for path in FILES] or [""])
def report(request: pytest.FixtureRequest) -> Path:
    if not request.param:
        pytest.skip(f"no real reports at {REPORTS}")
    return REPORTS / str(request.param)


@cache
def facts_of(path: Path) -> Facts:
    return Facts(read_trace(str(path)))


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        return connection.execute(query).fetchall()


def gpu_work(path: Path) -> list[tuple[int, ...]]:
    """Start and end of the GPU work in all tables, by start."""
    there = {name for (name,) in rows(path, "SELECT name FROM sqlite_master")}
    found = []
    for table in TABLES:
        if f"CUPTI_ACTIVITY_KIND_{table}" in there:
            found += rows(path, f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table}")
    return sorted(found)


def test_busy_and_idle_time_to_the_nanosecond(report: Path) -> None:
    work = gpu_work(report)
    busy, reached = 0, work[0][0]
    for start, end in work:
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    device = facts_of(report).device
    assert device is not None
    span = device.busy.span
    assert device.busy.all.total == busy
    assert span.duration_ns - device.busy.all.total == reached - work[0][0] - busy
    assert sum(device.ledger.by_cause(span).values()) == reached - work[0][0] - busy


def test_calls_by_name_to_the_nanosecond(report: Path) -> None:
    wanted: dict[str, tuple[Any, ...]] = {}
    for name, *figures in rows(
        report,
        "SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME "
        "JOIN StringIds ON StringIds.id = nameId GROUP BY value",
    ):
        wanted[re.sub(r"_v\d+$", "", name)] = tuple(figures)
    events = facts_of(report).trace.events
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for i in events.where(*CALL_CATEGORIES).tolist():
        figures_of = found[events.names[events.name[i]]]
        figures_of[0] += 1
        figures_of[1] += int(events.duration_ns[i])
    assert {name: tuple(figures) for name, figures in found.items()} == wanted


def test_all_work_is_linked_to_its_launch(report: Path) -> None:
    facts = facts_of(report)
    assert (facts.work.launch != NONE).all()
    linked = rows(
        report,
        "SELECT sum(k.start - r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)",
    )
    events = facts.trace.events
    graphs = np.array([events.names[i].startswith("CUDA graph") for i in events.name[facts.work.event]])
    latency = events.start_ns[facts.work.event] - facts.work.launch_start_ns
    assert int(latency[~graphs].sum()) == linked[0][0]


def test_waits_are_read(report: Path) -> None:
    events = facts_of(report).trace.events
    (wanted,) = rows(report, "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    waits = events.where(Category.CUDA_SYNC)
    assert (len(waits), int(events.duration_ns[waits].sum())) == wanted
    assert facts_of(report).trace.status == "COMPLETE"


def test_a_graph_is_one_event() -> None:
    path = REPORTS / "a100_forward_compiled.sqlite"
    if not path.exists():
        pytest.skip("no real reports")
    events = facts_of(path).trace.events
    graphs = [
        i for i in events.where(Category.KERNEL) if events.names[events.name[i]].startswith("CUDA graph")
    ]
    assert len(graphs) == 10
