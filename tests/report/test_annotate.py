from __future__ import annotations

import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.annotate import FINDING_CATEGORY, IDLE_CATEGORY, PROCESS, annotate
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import diagnose_path, only_trace, read_facts
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.kineto.kineto import QUEUE_CATEGORY
from tb_gpudiag.wording.vocabulary import CAUSES
from tests.builder import Generation, SnapshotBuilder, TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.report.reports import HOSTILE, slow_loader
from tests.some_values import EACH_GENERATION

Events = list[dict[str, Any]]
REAL = [
    "h100_bert_small",  # timestamps in ns from a base
    "a100_alexnet_first_run",  # whole µs
    "mi300_ddp_resnet18_no_pool",
]


def _annotated(path: Path | str, *, pack: bool = False) -> tuple[bytes, pb.Report]:
    file = only_trace(str(path))
    facts = read_facts(file)
    report = build_report(facts, file)
    out = io.BytesIO()
    annotate(report, prepare_timeline(facts), file.path, out.write, pack=pack)
    return out.getvalue(), report


def _exact(content: bytes) -> Any:
    """Parse JSON: a float loses a quarter of a µs of the time since 1970."""
    return json.loads(content, parse_float=Decimal)


def _split(content: bytes) -> tuple[Events, Events]:
    """Return the trace's own events, and ours."""
    data = _exact(content)
    events = data["traceEvents"] if isinstance(data, dict) else data
    own = [event for event in events if event.get("pid") != PROCESS]
    return own, [event for event in events if event.get("pid") == PROCESS]


def _of(events: Events, category: str) -> Events:
    return [event for event in events if event.get("cat") == category]


def _idle_ns(events: Events, track: int, start_us: Decimal, end_us: Decimal) -> int:
    """Idle time on a device's track within a range."""
    total = 0
    for event in _of(events, IDLE_CATEGORY):
        if event["tid"] == track:
            low, high = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            total += max(min(high, round(end_us * 1000)) - max(low, round(start_us * 1000)), 0)
    return total


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_original_events_stay_and_the_gaps_add_up(generation: Generation, tmp_path: Path) -> None:
    trace = slow_loader()
    trace.generation = generation
    path = trace.write(tmp_path)
    content, report = _annotated(path)
    before, after = _exact(path.read_bytes()), _exact(content)
    own, ours = _split(content)
    assert own == before["traceEvents"]
    assert {k: v for k, v in after.items() if k != "traceEvents"} == {
        k: v for k, v in before.items() if k != "traceEvents"
    }
    (device,) = report.devices
    work = [e for e in own if e.get("cat", "").lower() in ("kernel", "gpu_memcpy", "memcpy")]
    first, last = min(e["ts"] for e in work), max(e["ts"] + e["dur"] for e in work)
    assert _idle_ns(ours, 1000 + device.id, first, last) == round(device.idle_us * 1000)
    assert {event["name"] for event in _of(ours, IDLE_CATEGORY)} >= {CAUSES["input"].word}
    assert {event["args"]["rule"] for event in _of(ours, FINDING_CATEGORY)} >= {"GD101"}


def test_our_reader_says_the_same_about_the_copy(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path / "run")
    content, report = _annotated(path)
    copy = tmp_path / "copy" / "run" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(content)
    again = diagnose_path(str(copy))
    for each in (report, again):
        each.trace.path = ""
        each.trace.events = 0
        del each.clear[:]  # says how many events were read
    assert again == report


def test_queue_depth_is_a_counter(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for i in range(5):
        main.launch("gemm", at=10.0 * i, us=5, runs_at=100 + 150 * i, runs_us=150)
    content, _ = _annotated(trace.write(tmp_path))
    depths = [event["args"]["launches"] for event in _of(_split(content)[1], QUEUE_CATEGORY)]
    assert max(depths) == 5
    assert depths[-1] == 0


def test_names_in_a_trace_stay_text(tmp_path: Path) -> None:
    trace = slow_loader(f"{HOSTILE}.py(3): {HOSTILE}", device=HOSTILE)
    content, _ = _annotated(trace.write(tmp_path))
    named = [event["args"]["name"] for event in _split(content)[1] if event["name"] == "thread_name"]
    assert any("<img src=x onerror=alert(1)>" in name for name in named)


def test_gzip(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    plain, _ = _annotated(path)
    packed, _ = _annotated(path, pack=True)
    assert gzip.decompress(packed) == plain


def test_a_memory_snapshot_is_refused(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(2 << 20, at=0)
    with pytest.raises(UsageError, match="not memory snapshots"):
        _annotated(snapshot.write(tmp_path))


@pytest.mark.parametrize("folder", REAL)
def test_real_traces(folder: str) -> None:
    found = sorted((SHARED_TRACES / folder).rglob("*.json*"), key=lambda path: path.stat().st_size)
    if not found:
        pytest.skip("the real traces are not here")
    content, report = _annotated(found[0])
    raw = found[0].read_bytes()
    before = _exact(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    own, ours = _split(content)
    assert own == before["traceEvents"]
    starts = min(e["ts"] for e in own if e.get("ph") == "X")
    for device in report.devices:
        window = Decimal(starts) + Decimal(device.window_start_us)
        found_ns = _idle_ns(ours, 1000 + device.id, window, window + Decimal(device.window_us))
        assert found_ns == pytest.approx(device.window_idle_us * 1000, abs=2)
