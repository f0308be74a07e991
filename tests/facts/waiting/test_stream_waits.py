"""Waits between streams in real recordings with synchronization events, against a search of their JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.arrays import NONE
from tests.real_traces import real_facts

pytestmark = pytest.mark.real

Event = dict[str, Any]


@pytest.mark.parametrize(
    ("folder", "waiting"),
    [("a100_cuda_sync_events", 0), ("a100_cuda_sync_two_streams", 1), ("a100_alexnet_first_run", 4)],
)
def test_the_awaited_work_is_that_of_the_json(folder: str, waiting: int, shared_traces: Path) -> None:
    (path,) = (shared_traces / folder).iterdir()
    facts = real_facts(path)
    events, work = facts.events, facts.work
    linked = work.event[work.launch != NONE]
    awaited = facts.stream_waits.awaited(work, linked)
    found = {
        int(events.correlation[k]): int(events.correlation[a])
        for k, a in zip(linked, awaited, strict=True)
        if a != NONE
    }
    assert facts.stream_waits.recorded
    assert len(found) == waiting
    assert found == _awaited(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def _awaited(events: list[Event]) -> dict[int, int]:
    """Return the correlations of work and of the work that it waited for."""
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    work = [e for e in work if _number(e) in calls]
    waits = [e for e in events if e.get("name") == "Stream Wait Event"]
    at = {number: int(call["ts"]) for number, call in calls.items()}
    found = {_number(one): _awaited_by(one, work, waits, at) for one in work}
    return {waiting: awaited for waiting, awaited in found.items() if awaited}


def _awaited_by(one: Event, work: list[Event], waits: list[Event], at: dict[int, int]) -> int:
    """Return the correlation of what the work waited for; 0 without a wait. at: when calls began."""
    stream, launched = one["args"]["stream"], at[_number(one)]
    previous = max((at[_number(e)] for e in _on(work, stream) if at[_number(e)] < launched), default=0)
    mine = [e for e in _on(waits, stream) if previous < at[_number(e)] < launched]
    mine = [e for e in mine if e["args"]["wait_on_cuda_event_record_corr_id"] > 0]
    if not mine:
        return 0
    wait = max(mine, key=lambda e: at[_number(e)])["args"]
    recorded = at[wait["wait_on_cuda_event_record_corr_id"]]
    before = [e for e in _on(work, wait["wait_on_stream"]) if at[_number(e)] < recorded]
    return _number(max(before, key=lambda e: int(e["ts"]))) if before else 0


def _number(event: Event) -> int:
    return int(event["args"]["correlation"])


def _on(events: list[Event], stream: int) -> list[Event]:
    return [e for e in events if e["args"]["stream"] == stream]
