"""Answers about several recordings, and the table of runs."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.analyses import analysis_queue
from tb_gpudiag.service.analyses.task import Pending
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.service import Service, UnknownTrace
from tb_gpudiag.service.settings import Settings
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.service.helpers import eventually, hasten, write_trace
from tests.service.in_process import InProcess
from tests.simulator.jobs import DistributedJob, JobFault, simulate_job

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.slow]  # each test analyzes several traces


def write(folder: Path, worker: str, kernel_us: float, span: int) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(8):
        main.step(step, at=step * 1000, us=1000)
        main.launch("gemm", at=step * 1000 + 5, us=5, runs_at=step * 1000 + 20, runs_us=kernel_us)
    trace.write(folder, worker=worker, time=span)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Service]]:
    hasten(monkeypatch)
    made: list[Service] = []

    def start() -> Service:
        made.append(Service([Root(str(tmp_path / "log"))], Settings(tmp_path / "cache")))
        eventually(lambda: made[-1].traces().scanned)
        eventually(lambda: all(entry.content for entry in made[-1].traces().traces))
        return made[-1]

    yield start
    for one in made:
        one.close()


def answer(ask: Callable[[], bytes | Pending]) -> str:
    def ready() -> bytes | None:
        found = ask()
        assert isinstance(found, bytes) or found.state != "failed", found
        return found if isinstance(found, bytes) else None

    return gzip.decompress(eventually(ready)).decode()


def state_of(served: Service, trace: str) -> pb.ReportState.State | None:
    """Return the state of a diagnosis; None before there is a report. The report is there before the rest."""
    found = served.report(trace)
    return (
        from_json(gzip.decompress(found).decode(), pb.ReportState).state if isinstance(found, bytes) else None
    )


def test_two_traces_are_compared(service: Callable[[], Service], tmp_path: Path) -> None:
    write(tmp_path / "log" / "a", "w_1", 600, 1)
    write(tmp_path / "log" / "b", "w_1", 300, 2)
    served = service()
    base, candidate = (entry.id for entry in served.traces().traces)
    state = from_json(answer(lambda: served.compare(base, candidate)), pb.ReportState)
    assert state.state == pb.ReportState.ready
    computing = {part.cause: part.candidate_us - part.base_us for part in state.comparison.causes}[
        pb.CauseTime.computing
    ]
    assert computing == pytest.approx(-300, abs=1)
    again = served.compare(base, candidate)
    assert isinstance(again, bytes)  # from the cache


def test_the_ranks_of_a_job(service: Callable[[], Service], tmp_path: Path) -> None:
    simulate_job(DistributedJob("ddp", ranks=3, steps=2), seed=0).write(tmp_path / "log" / "job")
    write(tmp_path / "log" / "other", "w_1", 600, 1)
    served = service()
    *ranks, other = (entry.id for entry in served.traces().traces)
    state = from_json(answer(lambda: served.job(ranks[1])), pb.ReportState)
    assert [rank.rank for rank in state.job.ranks] == [0, 1, 2]
    assert sorted(rank.id for rank in state.job.ranks) == sorted(ranks)

    def refused() -> str:
        found = served.job(other)
        return found.error.what if isinstance(found, Pending) and found.error else ""

    assert "not a rank of a job" in eventually(refused)


def test_snapshots_whose_names_say_no_rank_are_recordings_of_one_process(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    (folder := tmp_path / "log" / "run").mkdir(parents=True)
    for name in ("before.pickle", "after.pickle"):
        made = SnapshotBuilder()
        made.segment(1 << 20)
        made.write(folder, name)
    (row,) = service().runs().rows
    assert (row.ranks, row.recordings) == (1, 2)


def test_the_row_of_a_job_has_its_verdict_and_not_one_rank_s(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    simulate_job(DistributedJob("ddp", ranks=3, steps=6, fault=JobFault("loader", (1,), 20.0)), seed=0).write(
        tmp_path / "log" / "job"
    )
    served = service()

    def row() -> pb.RunRow:
        (found,) = served.runs().rows
        return found

    first = row()
    assert (first.kind, first.state, first.ranks) == (pb.TraceInfo.job, pb.TraceEntry.new, 3)
    answer(lambda: served.report(first.trace_id))
    eventually(lambda: row().state == pb.TraceEntry.ranks)
    assert row().step_us > 0
    assert not any((row().limiter, row().first_rule, row().saving_share))
    state = from_json(answer(lambda: served.job(first.trace_id)), pb.ReportState)
    of_job = row()
    assert (of_job.kind, of_job.state, of_job.sentence) == (
        pb.TraceInfo.job,
        pb.TraceEntry.ready,
        state.job.verdict.sentence,
    )
    assert of_job.first_rule == state.job.findings[0].rule
    assert of_job.step_us == state.job.step_time.median_us

    served = service()  # a TensorBoard that starts later finds it in the cache
    assert eventually(lambda: row().state == pb.TraceEntry.ready)
    assert row().sentence == of_job.sentence


def test_what_is_analyzed_ahead_is_in_the_lists_and_opens_at_once(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    simulate_job(DistributedJob("ddp", ranks=3, steps=2), seed=0).write(tmp_path / "log" / "job")
    served = service()
    id_ = served.runs().rows[0].trace_id
    assert eventually(lambda: served.report_ahead(id_).state == "ready")
    assert served.runs().rows[0].state == pb.TraceEntry.ranks
    answer(lambda: served.job(id_, awaited=False))
    assert {entry.state for entry in served.traces().traces} == {pb.TraceEntry.ready}
    assert all(entry.sentence for entry in served.traces().traces)
    assert served.runs().rows[0].state == pb.TraceEntry.ready
    for entry in served.traces().traces:
        assert state_of(served, entry.id) == pb.ReportState.running  # the report, before its timeline
        assert answer(partial(served.slice, "timeline", entry.id, {}))
        assert state_of(served, entry.id) == pb.ReportState.ready


def test_traces_that_are_not_one_job_keep_the_row_of_a_trace(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    for name in ("a_1", "b_1"):
        write(tmp_path / "log" / "run", name, 600, 1)
    served = service()
    id_ = served.runs().rows[0].trace_id
    answer(lambda: served.report(id_))

    def refused() -> bool:
        found = served.job(id_)
        return isinstance(found, Pending) and found.state == "failed"

    assert eventually(refused)
    (row,) = served.runs().rows
    assert (row.kind, row.state, bool(row.limiter)) == (pb.TraceInfo.trace, pb.TraceEntry.ready, True)


def test_the_history_of_a_run(service: Callable[[], Service], tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "log" / "run", "w_1", 300 + 100 * number, 1_700_000_000_000 + 60_000 * number)
    served = service()
    state = from_json(answer(lambda: served.history("run")), pb.ReportState)
    assert [round(point.busy_share, 2) for point in state.history.points] == [0.3, 0.4, 0.5]
    assert {point.id for point in state.history.points} == {entry.id for entry in served.traces().traces}
    with pytest.raises(UnknownTrace):
        served.history("no run")


def test_a_trace_that_cannot_be_read_is_the_answer_s_problem(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    write(tmp_path / "log" / "a", "w_1", 600, 1)
    write_trace(tmp_path / "log" / "b", "w.2", "not a trace")
    served = service()
    base, candidate = (entry.id for entry in served.traces().traces)

    def failed() -> Pending | None:
        found = served.compare(base, candidate)
        return found if isinstance(found, Pending) and found.state == "failed" else None

    error = eventually(failed).error
    assert error is not None
    assert error.where.endswith("w.2.pt.trace.json")


def test_a_damaged_digest_is_made_again(
    service: Callable[[], Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_queue, "RETRY_AFTER_S", 0.2)
    write(tmp_path / "log" / "a", "w_1", 600, 1)
    served = service()
    (entry,) = served.traces().traces
    answer(lambda: served.compare(entry.id, entry.id))
    for path in (tmp_path / "cache" / "entries").iterdir():
        content = bytearray(path.read_bytes())
        content[-1] ^= 255
        path.write_bytes(content)

    def ready() -> bytes | None:
        found = served.compare(entry.id, entry.id)
        return found if isinstance(found, bytes) else None

    assert eventually(ready)


def test_the_digest_of_a_diagnosed_trace_needs_no_process(
    service: Callable[[], Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "log" / "a", "w_1", 600, 1)
    write(tmp_path / "log" / "b", "w_1", 300, 2)
    served = service()
    one, other = served.traces().traces
    eventually(lambda: {state_of(served, entry.id) for entry in (one, other)} == {pb.ReportState.ready})
    kinds: list[str] = []

    ask = InProcess.messages

    def counted(child: InProcess, request: dict[str, Any]) -> Iterator[ChildMessage]:
        kinds.append(request["task"]["kind"])
        return ask(child, request)

    monkeypatch.setattr(InProcess, "messages", counted)
    answer(lambda: served.compare(one.id, other.id))
    assert kinds == ["compare"]


def test_unknown_traces_and_runs(service: Callable[[], Service], tmp_path: Path) -> None:
    write(tmp_path / "log" / "a", "w_1", 600, 1)
    served = service()
    (entry,) = served.traces().traces
    with pytest.raises(UnknownTrace):
        served.compare(entry.id, "../../etc/passwd")


def test_the_table_of_runs_has_a_row_for_each_and_then_what_changed(
    service: Callable[[], Service], tmp_path: Path
) -> None:
    for rank in range(2):
        write(tmp_path / "log" / "job", f"rank{rank}_1", 600, 1)
    write(tmp_path / "log" / "one", "w_1", 600, 1)
    served = service()
    table = served.runs()
    assert [(row.run, row.kind, row.ranks, row.state) for row in table.rows] == [
        ("job", pb.TraceInfo.job, 2, pb.TraceEntry.new),
        ("one", pb.TraceInfo.trace, 1, pb.TraceEntry.new),
    ]
    assert served.runs(table.generation).unchanged
    id_ = table.rows[1].trace_id
    answer(lambda: served.report(id_))
    eventually(lambda: any(row.state == pb.TraceEntry.ready for row in served.runs(table.generation).rows))
    changed = served.runs(table.generation)
    assert [row.run for row in changed.rows] == ["one"]
    assert changed.rows[0].step_us == pytest.approx(1000, rel=0.01)
    assert changed.rows[0].busy_share == pytest.approx(0.6, abs=0.01)
