"""Real exports of Nsight Systems, against SQL over their tables."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import defaultdict
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

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


def gpu_work(path: Path, columns: str) -> list[tuple[Any, ...]]:
    """These columns of the GPU work in all tables and of its calls, by start.

    Correlation ids count the calls of a process. Work from before the recording has no call.
    """
    there = {name for (name,) in rows(path, "SELECT name FROM sqlite_master")}
    found = []
    for table in TABLES:
        if f"CUPTI_ACTIVITY_KIND_{table}" in there:
            found += rows(
                path,
                f"SELECT work.deviceId, work.start, {columns} FROM CUPTI_ACTIVITY_KIND_{table} work "
                "LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME call ON call.correlationId = work.correlationId "
                "AND call.globalTid >> 24 = work.globalPid >> 24",
            )
    return sorted(found, key=itemgetter(0, 1))


def test_busy_and_idle_time_of_each_gpu_to_the_nanosecond(report: Path) -> None:
    wanted = set()
    for _, work in groupby(gpu_work(report, "work.end"), key=itemgetter(0)):
        (_, first, reached), *others = work
        busy = reached - first
        for _, start, end in others:
            busy += max(0, end - max(start, reached))
            reached = max(reached, end)
        wanted.add((busy, reached - first - busy))
    found = set()
    for device in facts_of(report).devices:
        span, busy = device.busy.span, device.busy.all.total
        found.add((busy, span.duration_ns - busy))
        assert sum(device.ledger.by_cause(span).values()) == span.duration_ns - busy
    assert found == wanted


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


def test_work_is_linked_to_each_launch_that_was_recorded(report: Path) -> None:
    latencies = [latency for _, _, latency in gpu_work(report, "ifnull(work.start - call.start, 'none')")]
    wanted = [latency for latency in latencies if latency != "none"]
    facts = facts_of(report)
    work = facts.work
    linked = work.launch != NONE
    assert int(linked.sum()) == len(wanted) > 0.99 * len(latencies)
    latency = facts.trace.events.start_ns[work.event] - work.launch_start_ns
    assert int(latency[linked].sum()) == sum(wanted)


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
