"""The tab works from records in event files where traces were not kept, under both data servers."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.index import records
from tb_gpudiag.training.diagnosing import record_of
from tb_gpudiag.training.event_records import append_to
from tests.plugin.server import Server
from tests.report.reports import report_of, slow_loader
from tests.service.helpers import eventually
from tests.training.data_servers import PROVIDERS, slow_provider

pytestmark = pytest.mark.slow

SPAN = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_EVERY_S", 0.2)


def write_records(
    log: Path, tmp_path: Path, count: int, run: str = "run", worker: str = "rank0"
) -> pb.Report:
    """Write records of one worker as the handler does, in a run directory of their own."""
    report = report_of(slow_loader(), tmp_path)
    path = log / run / "gpudiag" / worker / "events.out.tfevents.1700000000.host.1"
    for number in range(count):
        report.trace.worker, report.trace.span = worker, str(SPAN + number * 10**12)
        report.trace.run = "."
        append_to(str(path), record_of(report, report.steps), {}, 10 * (number + 1))
    return report


def listed(server: Server, count: int) -> list[dict[str, Any]]:
    def there() -> list[dict[str, Any]] | None:
        traces: list[dict[str, Any]] = server.json("traces")["traces"]
        return traces if len(traces) == count else None

    return eventually(there, f"{count} recordings are listed")


@PROVIDERS
def test_records_alone_give_runs_reports_and_history(
    tmp_path: Path, serve: Callable[..., Server], provider: Callable[[Path], Any]
) -> None:
    log = tmp_path / "log"
    report = write_records(log, tmp_path, 30)  # more than TensorBoard keeps by itself
    server = serve(provider=provider(log))
    entries = listed(server, 30)
    (plugin,) = server.plugins
    assert plugin.is_active()
    assert {(one["run"], one["worker"], one["kind"], one["state"]) for one in entries} == {
        ("run", "rank0", "record", "ready")
    }
    (row,) = server.json("runs")["rows"]
    assert (row["kind"], row["recordings"], row["step_us"]) == ("record", 30, 1000)
    assert row["busy_share"] == pytest.approx(0.32)
    assert row["first_rule"] == report.findings[0].rule
    assert sum(part["us"] for part in row["account"]) == pytest.approx(report.devices[0].window_us)
    found = server.json(f"report?id={row['trace_id']}")
    assert found["report"]["verdict"]["sentence"] == report.verdict.sentence == row["sentence"]
    assert found["report"]["trace"]["run"] == "run"
    history = server.ready("history?run=run")["history"]
    assert [point["id"] for point in history["points"]] == [one["id"] for one in entries]
    assert all(point["record"] for point in history["points"])
    assert {point["step_us"] for point in history["points"]} == {1000}
    assert history["points"][0]["time_s"] == SPAN / 1e9
    assert "30 recordings" in history["notes"][0]


def test_the_history_of_records_finds_changes(tmp_path: Path, serve: Callable[..., Server]) -> None:
    log = tmp_path / "log"
    report = report_of(slow_loader(), tmp_path)
    report.trace.worker = "rank0"
    for number in range(24):
        if number == 14:
            for step in report.steps:
                step.duration_us *= 1.3
        report.trace.span = str(SPAN + number * 10**12)
        append_to(
            str(log / "run" / "events.out.tfevents.1700000000.host.1"),
            record_of(report, report.steps),
            {},
            number,
        )
    server = serve(provider=slow_provider(log))
    listed(server, 24)
    (change,) = server.ready("history?run=run")["history"]["changes"]
    assert (change["what"], change["point"]) == ("step", 14)
    assert change["after"] == pytest.approx(1.3 * change["before"])


def test_what_needs_the_trace_says_that_it_was_not_kept(tmp_path: Path, serve: Callable[..., Server]) -> None:
    log = tmp_path / "log"
    write_records(log, tmp_path, 1)
    server = serve(provider=slow_provider(log))
    ((id_,),) = [[one["id"] for one in listed(server, 1)]]
    for route in (
        "timeline?",
        "memory?",
        "operators?",
        "kernels?",
        "range?",
        "job?",
        "find?text=a&",
        "roofline?",
    ):
        found = server.json(f"{route}id={id_}")
        assert (found["state"], found["error"]["what"][:27]) == ("failed", "The trace was not kept: thi"), (
            route
        )
    assert server.json(f"gap?id={id_}&device=0&gap=0")["state"] == "failed"
    assert server.json(f"compare?base={id_}&candidate={id_}")["state"] == "failed"
    assert server.get(f"export?id={id_}&format=html").status_code == 400
    assert server.json(f"cancel?id={id_}") == {"cancelled": False}


def test_a_recording_with_trace_and_record_is_one(
    tmp_path: Path, serve: Callable[..., Server], log: Path
) -> None:
    write_records(log, tmp_path, 2)
    (trace,) = (log / "run").glob("*.pt.trace.json*")
    kept = log / "run" / f"rank0.{SPAN}.pt.trace.json"
    shutil.move(trace, kept)
    server = serve(provider=slow_provider(log))
    entries = listed(server, 2)
    assert [(one["kind"], one["span"]) for one in entries] == [
        ("trace", str(SPAN)),
        ("record", str(SPAN + 10**12)),
    ]
    history = server.ready("history?run=run")["history"]
    assert {point["id"] for point in history["points"]} == {one["id"] for one in entries}
    kept.unlink()
    assert {one["kind"] for one in eventually(lambda: only_records(server))} == {"record"}


def only_records(server: Server) -> list[dict[str, Any]] | None:
    traces: list[dict[str, Any]] = server.json("traces")["traces"]
    return traces if len(traces) == 2 and all(one["kind"] == "record" for one in traces) else None


def test_damaged_records_and_a_data_server_that_fails_are_notes(
    tmp_path: Path, serve: Callable[..., Server]
) -> None:
    log = tmp_path / "log"
    path = write_events(log, tmp_path)
    server = serve(provider=slow_provider(log))
    listed(server, 1)
    (problem,) = server.json("traces")["problems"]
    assert "damaged" in problem["what"]
    assert path.exists()

    class Broken:
        def list_tensors(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("secret")

    other = serve(provider=Broken(), logdir=str(tmp_path))
    (problem,) = eventually(lambda: other.json("traces")["problems"])
    assert problem["what"] == "Records in event files cannot be read: RuntimeError."


def write_events(log: Path, tmp_path: Path) -> Path:
    """Write one record, and after it what is none."""
    report = write_records(log, tmp_path, 1)
    path = log / "run" / "gpudiag" / "rank0" / "events.out.tfevents.1700000000.host.1"
    report.verdict.busy_share = float("nan")
    unknown = pb.Report(verdict=pb.Verdict(limiter="input"))
    unknown.findings.add().severity = 77  # type: ignore[assignment]  # of a later version
    for step, content in enumerate((b"", b"\xff" * 99, b"x" * 99_999, record_of(report, report.steps)), 20):
        append_to(str(path), content, {}, step)
    append_to(str(path), unknown.SerializeToString(), {}, 30)
    return path


def test_names_in_a_record_are_text(tmp_path: Path, serve: Callable[..., Server]) -> None:
    log = tmp_path / "log"
    report = report_of(slow_loader(), tmp_path)
    report.trace.worker, report.trace.span = "../<b>", "9" * 40
    append_to(str(log / "events.out.tfevents.1.h.1"), record_of(report, report.steps), {}, 1)
    server = serve(provider=slow_provider(log))
    (entry,) = listed(server, 1)
    assert (entry["run"], entry["worker"], entry["span"]) == (".", "../<b>", "")
    answer = server.get(f"report?id={entry['id']}")
    content = gzip.decompress(answer.data) if answer.data[:2] == b"\x1f\x8b" else answer.data
    assert json.loads(content)["report"]["trace"]["worker"] == "../<b>"
