"""Waits between streams in real recordings with synchronization events, against a search of their JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.trace.events import NONE
from tests.real_traces import real_facts

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
    awaited = facts.stream_waits.awaited(events, work, linked)
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
    work = [e for e in work if e["args"]["correlation"] in calls]
    found = {}
    for one in work:
        stream, launched = one["args"]["stream"], calls[one["args"]["correlation"]]["ts"]
        previous = [t for t in _launches(work, calls, stream) if t < launched]
        waits = [
            e
            for e in events
            if e.get("name") == "Stream Wait Event"
            and e["args"]["stream"] == stream
            and e["args"]["wait_on_cuda_event_record_corr_id"] > 0
            and max(previous, default=0) < calls[e["args"]["correlation"]]["ts"] < launched
        ]
        if not waits:
            continue
        wait = max(waits, key=lambda e: int(calls[e["args"]["correlation"]]["ts"]))["args"]
        recorded = calls[wait["wait_on_cuda_event_record_corr_id"]]["ts"]
        before = [
            e
            for e in work
            if e["args"]["stream"] == wait["wait_on_stream"]
            and calls[e["args"]["correlation"]]["ts"] < recorded
        ]
        if before:
            last = max(before, key=lambda e: int(e["ts"]))
            found[one["args"]["correlation"]] = last["args"]["correlation"]
    return found


def _launches(work: list[Event], calls: dict[int, Event], stream: int) -> list[int]:
    return [calls[e["args"]["correlation"]]["ts"] for e in work if e["args"]["stream"] == stream]
