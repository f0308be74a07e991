"""The service as a whole, with fake analyses."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import Unreadable
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.analyses import analysis_queue
from tb_gpudiag.service.analyses.analysis_queue import AnalysisQueue
from tb_gpudiag.service.analyses.task import Pending, problem
from tb_gpudiag.service.index import log_index, runs
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import GoneTrace, Service, UnknownTrace
from tb_gpudiag.service.settings import Settings
from tests.builder import SnapshotBuilder
from tests.patience import HANGS_S
from tests.service.helpers import FAKE_WORKER, eventually, hasten, report_text, write_trace

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Service]]:
    """Create services for tmp_path/log that share tmp_path/cache."""
    hasten(monkeypatch)
    monkeypatch.setenv("GPUDIAG_TEST_STARTS", str(tmp_path / "starts"))
    services = []

    def make(log: str = "log", **more: Any) -> Service:
        settings = Settings(tmp_path / "cache", **more)
        service = Service([Root(str(tmp_path / log))], settings, module=FAKE_WORKER)
        services.append(service)
        eventually(lambda: service.traces().scanned)
        return service

    yield make
    for service in services:
        service.close()


def starts() -> int:
    path = Path(os.environ["GPUDIAG_TEST_STARTS"])
    return len(path.read_text().splitlines()) if path.exists() else 0


def text_of(service: Service, id_: str) -> str:
    """Wait for the report of this trace and return its text."""

    report: dict[str, dict[str, str]] = json.loads(report_text(service, id_))
    return report["report"]["text"]


def diagnose(service: Service, id_: str) -> None:
    """Wait until the list knows that this trace is diagnosed: a moment after the report is there."""
    text_of(service, id_)
    ready = (id_, pb.TraceEntry.ready)
    eventually(lambda: ready in [(entry.id, entry.state) for entry in service.traces().traces])


def only(service: Service) -> pb.TraceEntry:
    (entry,) = service.traces().traces
    return entry


def test_a_trace_is_new_then_queued_or_running_then_ready(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log" / "run", "worker.7", "hello")
    service = serve()
    entry = only(service)
    assert (entry.run, entry.worker, entry.span, entry.state) == ("run", "worker", "7", pb.TraceEntry.new)
    generation = service.traces().generation
    first = service.report(entry.id)
    assert isinstance(first, Pending)
    assert first.state == "queued"
    assert only(service).state in (pb.TraceEntry.queued, pb.TraceEntry.running)
    diagnose(service, entry.id)
    assert text_of(service, entry.id) == "hello"
    assert only(service).sentence == "hello"
    assert service.traces().generation != generation


def test_a_memory_snapshot_is_listed_as_one(serve: Callable[..., Service], tmp_path: Path) -> None:
    write_trace(tmp_path / "log" / "run", "worker.7", "hello")
    SnapshotBuilder().write(tmp_path / "log" / "run", "oom_rank0.pickle")
    service = serve()
    assert [(entry.worker, entry.kind) for entry in service.traces().traces] == [
        ("oom_rank0", pb.TraceInfo.snapshot),
        ("worker", pb.TraceInfo.trace),
    ]


def test_after_a_restart_a_known_trace_is_ready_without_an_analysis(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log", "a", "hello")
    first = serve()
    text_of(first, only(first).id)
    first.close()
    second = serve()
    assert (only(second).state, only(second).sentence) == (pb.TraceEntry.ready, "hello")
    assert isinstance(second.report(only(second).id), bytes)
    assert only(second).id == only(first).id
    assert starts() == 1


def test_a_changed_file_is_analyzed_again(serve: Callable[..., Service], tmp_path: Path) -> None:
    write_trace(tmp_path / "log", "a", "before")
    service = serve()
    entry = only(service)
    assert text_of(service, entry.id) == "before"
    write_trace(tmp_path / "log", "a", "after", age_s=1800)
    eventually(lambda: only(service).content != entry.content)
    assert only(service).state == pb.TraceEntry.new
    assert text_of(service, entry.id) == "after"


def test_a_file_that_is_being_written_is_analyzed_once(
    serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve()
    monkeypatch.setattr(log_index, "SETTLED_AFTER_S", 600.0)
    path = write_trace(tmp_path / "log", "a", "grow", age_s=0)
    entry = eventually(lambda: next(iter(service.traces().traces), None))
    assert entry.writing
    waiting = service.report(entry.id)
    assert isinstance(waiting, Pending)
    assert (waiting.state, waiting.stage) == ("queued", "The file is still being written.")
    path.write_text("grown", encoding="utf-8")
    monkeypatch.setattr(log_index, "SETTLED_AFTER_S", 0.3)
    assert text_of(service, entry.id) == "grown"
    assert starts() == 1


def test_a_corrupt_result_is_replaced(serve: Callable[..., Service], tmp_path: Path) -> None:
    write_trace(tmp_path / "log", "a", "hello")
    service = serve()
    text_of(service, only(service).id)
    (entry,) = (tmp_path / "cache" / "entries").iterdir()
    entry.write_bytes(b"garbage")
    assert isinstance(service.report(only(service).id), Pending)
    assert text_of(service, only(service).id) == "hello"
    assert starts() == 2


def test_a_result_deleted_by_another_process_is_replaced(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log", "a", "hello")
    service = serve()
    text_of(service, only(service).id)
    (entry,) = (tmp_path / "cache" / "entries").iterdir()
    entry.rename(tmp_path / "elsewhere")
    assert text_of(service, only(service).id) == "hello"
    assert starts() == 2


def test_the_same_file_under_another_log_directory_has_its_own_run(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log" / "run", "a", "hello")
    outer = serve()
    text_of(outer, only(outer).id)
    inner = serve("log/run")
    assert (only(outer).run, only(inner).run) == ("run", ".")
    assert only(inner).state == pb.TraceEntry.new


def test_a_failure_is_shown_in_the_list_with_its_reason(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log", "bad", "refuse")
    write_trace(tmp_path / "log", "good", "fine")
    service = serve()
    bad, good = service.traces().traces
    failed = eventually(
        lambda: found if isinstance(found := service.report(bad.id), Pending) and found.error else None
    )
    assert failed.state == "failed"
    entry = service.traces().traces[0]
    assert (entry.state, entry.error.what, entry.error.remedy) == (
        pb.TraceEntry.failed,
        "no trace",
        "give another",
    )
    assert text_of(service, good.id) == "fine"


def test_a_long_list_comes_in_parts_and_then_as_changes(
    serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tb_gpudiag.service.index.overview.MOST_LISTED", 3)
    for name in "abcdefgh":
        write_trace(tmp_path / "log", name, "fine")
    service = serve()
    parts = [service.traces()]
    while parts[-1].more:
        parts.append(service.traces(parts[-1].generation))
    assert [[entry.worker for entry in part.traces] for part in parts] == [
        ["a", "b", "c"],
        ["d", "e", "f"],
        ["g", "h"],
    ]
    assert [part.whole for part in parts] == [True, False, False]
    known = parts[-1].generation
    assert service.traces(known).unchanged
    first = parts[0].traces[0]
    text_of(service, first.id)

    def settled() -> pb.TraceList | None:
        found = service.traces(known)
        return found if [entry.state for entry in found.traces] == [pb.TraceEntry.ready] else None

    change = eventually(settled)
    assert change.traces[0].id == first.id
    (tmp_path / "log" / "h.pt.trace.json").unlink()
    gone = eventually(lambda: found if (found := service.traces(change.generation)).removed else None)
    assert list(gone.removed) == [parts[-1].traces[1].id]


def test_problems_in_the_list_are_bounded(serve: Callable[..., Service], tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for number in range(150):
        (tmp_path / "log" / f"{number}.pt.trace.json").symlink_to(tmp_path / "log" / "nowhere")
    problems = serve().traces().problems
    assert len(problems) == 101
    assert problems[-1].what.startswith("50 other")


def test_a_canceled_analysis_is_new_again(serve: Callable[..., Service], tmp_path: Path) -> None:
    write_trace(tmp_path / "log", "a", "hang")
    service = serve()
    entry = only(service)
    service.report(entry.id)
    assert service.cancel(entry.id)
    assert only(service).state == pb.TraceEntry.new
    assert not service.cancel(entry.id)


def test_a_deleted_trace_is_gone_and_another_is_unknown(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    path = write_trace(tmp_path / "log", "a")
    service = serve()
    entry = only(service)
    path.unlink()
    eventually(lambda: not service.traces().traces)
    with pytest.raises(GoneTrace):
        service.report(entry.id)
    with pytest.raises(UnknownTrace) as raised:
        service.report("0" * 20)
    assert not isinstance(raised.value, GoneTrace)


def test_a_cache_that_cannot_be_written_is_a_problem_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    write_trace(tmp_path / "log", "a", "hello")
    (tmp_path / "file").write_text("in the way")
    service = Service([Root(str(tmp_path / "log"))], Settings(tmp_path / "file" / "c"), module=FAKE_WORKER)
    eventually(lambda: service.traces().traces)
    assert text_of(service, only(service).id) == "hello"
    assert ["GPUDIAG_CACHE_DIR" in problem.what for problem in service.traces().problems] == [True]
    service.close()


def test_the_table_of_runs_asks_for_the_state_of_jobs_without_a_lock(
    serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that changes takes the two locks in the other order, so that both would wait forever."""
    write_trace(tmp_path / "log" / "run", "worker.7", "hello")
    service = serve()
    asking, served = threading.current_thread(), []

    def state(_jobs: AnalysisQueue, key: str) -> None:
        if threading.current_thread() is asking:
            other = threading.Thread(target=lambda: served.append(service.traces()), daemon=True)
            other.start()
            other.join(HANGS_S)

    monkeypatch.setattr(AnalysisQueue, "state", state)
    assert len(service.runs().rows) == 1
    assert served


def test_the_report_is_there_before_the_rest_of_the_result(
    serve: Callable[..., Service], tmp_path: Path
) -> None:
    write_trace(tmp_path / "log" / "run", "worker", "early")
    service = serve()
    early = eventually(lambda: [one for one in [service.report(only(service).id)] if isinstance(one, bytes)])
    assert json.loads(gzip.decompress(early[0]))["report"]["text"] == "early"
    assert only(service).state == pb.TraceEntry.running
    assert isinstance(service.slice("timeline", only(service).id, {"width": "100"}), Pending)


def test_the_newest_runs_are_analyzed_at_start_if_the_user_says_so(
    serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "ABANDONED_AFTER_S", 0.0)
    for age_s, run in enumerate(("new", "recent", "old")):
        path = write_trace(tmp_path / "log" / run, "worker", "fine")
        os.utime(path, (1e9 - age_s, 1e9 - age_s))

    service = serve(analyze_at_start=2)

    def states() -> dict[str, int]:
        return {entry.run: entry.state for entry in service.traces().traces}

    done = {"new": pb.TraceEntry.ready, "recent": pb.TraceEntry.ready, "old": pb.TraceEntry.new}
    eventually(lambda: states() == done)


def test_the_first_rows_are_those_that_the_page_shows_first_and_the_others_follow(
    serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_ROWS", 2)
    savings = {"a/1": 0.1, "b/1": 0.3, "b/2": None, "a/2": 0.5, "b/3": 0.2}
    for run, saving in savings.items():
        write_trace(tmp_path / "log" / run, "worker.7", f"saves {saving}")
    service = serve()
    eventually(lambda: len(service.traces().traces) == len(savings))
    for entry in service.traces().traces:
        if savings[entry.run] is not None:
            diagnose(service, entry.id)

    table = service.runs(first=3)
    assert [row.run for row in table.rows] == ["a/2", "a/1", "b/1"]
    assert (table.total, table.folders, table.whole, table.more) == (5, True, True, True)
    later = []
    while table.more:
        table = service.runs(table.generation)
        assert not table.whole
        later += [row.run for row in table.rows]
    assert sorted(later) == sorted(savings)
    assert service.runs(table.generation).unchanged

    monkeypatch.setattr(runs, "MOST_ROWS", 500)
    everything = service.runs(first=5)
    assert len(everything.rows) == len(savings)
    assert not everything.more
    assert service.runs(everything.generation).unchanged


def test_errors_advise_what_the_user_of_the_page_can_do() -> None:
    callers = [
        "record fewer steps, or raise Limits.max_events",
        "name a trace file",
        "close other programs",
    ]
    said = [problem(Unreadable("it is bad", remedy=remedy)).remedy for remedy in callers]
    assert said == ["record fewer steps", "choose a trace file", "close other programs"]
