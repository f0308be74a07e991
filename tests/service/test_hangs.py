"""Dumps of the flight recorder in a log directory: one entry for each folder, with its report."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.slice_table import SLICES
from tb_gpudiag.service.analyses.task import Pending
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tests.service.helpers import eventually, hasten, report_text
from tests.simulator import simulate
from tests.simulator.scenarios import SHORT
from tests.trace.flight_recorder.dumps import WORLD, entry, write

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>\n‮"


@pytest.fixture
def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None
) -> Iterator[Callable[[], Service]]:
    hasten(monkeypatch)
    services: list[Service] = []

    def make() -> Service:
        services.append(Service([Root(str(tmp_path / "log"))], Settings(tmp_path / "cache")))
        return services[-1]

    yield make
    for service in services:
        service.close()


def hanging(folder: Path, ranks: int = 3, name: str = "step") -> None:
    """Rank 1 has not called what the others wait in."""
    waits = [entry("all_reduce", 1), entry("all_reduce", 2, state="started", line=7)]
    for one in waits:
        one["frames"][1]["name"] = name
    world = {WORLD: range(ranks)}
    for rank in range(ranks):
        write(folder, rank, waits[:1] if rank == 1 else waits, world)


def listed(service: Service, count: int) -> list[pb.TraceEntry]:
    """Wait for so many settled entries."""

    def ask() -> list[pb.TraceEntry] | None:
        traces = list(service.traces().traces)
        return traces if len(traces) == count and all(t.content and not t.writing for t in traces) else None

    return eventually(ask)


def report_of(service: Service, entry_: pb.TraceEntry) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(report_text(service, entry_.id))["report"]
    return report


def test_a_folder_of_dumps_is_one_job_that_hangs(serve: Callable[[], Service], tmp_path: Path) -> None:
    hanging(tmp_path / "log" / "run" / "dumps")
    simulate(SHORT).write(tmp_path / "log" / "run")
    (tmp_path / "log" / "run" / "shard_1").write_bytes(b"\x80\x02weights")
    service = serve()
    found = {pb.TraceInfo.Kind.Name(each.kind): each for each in listed(service, 2)}
    hang = found["hang"]
    assert (hang.run, hang.worker) == ("run/dumps", "flight recorder")
    report = report_of(service, hang)
    assert report["trace"]["kind"] == "hang"
    assert (report["hang"]["why"], report["hang"]["culprits"]) == ("NOT_CALLED", [1])
    assert report["verdict"]["sentence"] == report["hang"]["sentence"]
    assert [row["ranks"] for row in report["hang"]["ranks"]] == [[1], [0, 2]]
    (row,) = [row for row in service.runs().rows if row.trace_id == hang.id]
    assert (row.kind, row.sentence) == (pb.TraceInfo.hang, report["hang"]["sentence"])


def test_a_dump_that_comes_later_changes_the_report(serve: Callable[[], Service], tmp_path: Path) -> None:
    dumps = tmp_path / "log" / "dumps"
    waits = [entry("all_reduce", 1, state="started")]
    write(dumps, 0, waits, {WORLD: (0, 1)})
    service = serve()
    (hang,) = listed(service, 1)
    assert report_of(service, hang)["hang"]["why"] == "NO_DUMP"
    write(dumps, 1, [], {WORLD: (0, 1)})
    assert eventually(lambda: report_of(service, hang)["hang"]["why"] == "NOT_CALLED")


def test_a_job_that_hangs_has_no_slices_but_can_be_shared(
    serve: Callable[[], Service], tmp_path: Path
) -> None:
    hanging(tmp_path / "log" / "dumps")
    service = serve()
    (hang,) = listed(service, 1)
    report_of(service, hang)
    required = {"gap": {"device": "0", "gap": "0"}, "calls": {"key": "0"}}
    refused = [service.slice(kind, hang.id, required.get(kind, {})) for kind in SLICES]
    refused += [service.job(hang.id), service.compare(hang.id, hang.id)]
    for answer in refused:
        assert isinstance(answer, Pending)
        assert isinstance(answer.error, UsageError)
        assert "no times" in answer.error.what

    def content(format_: str) -> bytes:
        def ask() -> bytes | None:
            made = service.export(hang.id, format_)
            return None if isinstance(made, Pending) else b"".join(made)

        return eventually(ask)

    assert "which rank 1 has not called" in " ".join(content("markdown").decode().split())
    assert b"which rank 1 has not called" in content("html")
    assert json.loads(content("json"))["reports"][0]["hang"]["culprits"] == [1]
    with zipfile.ZipFile(BytesIO(content("tables"))) as archive:
        assert "hang_ranks.csv" in archive.namelist()


@pytest.mark.parametrize("name", [HOSTILE, "x" * 100_000, "\x00\x1b[31m"])
def test_names_in_dumps_are_short_texts(name: str, serve: Callable[[], Service], tmp_path: Path) -> None:
    hanging(tmp_path / "log" / "dumps", name=name)
    service = serve()
    (hang,) = listed(service, 1)
    found = report_of(service, hang)["hang"]
    said = [found["sentence"], *(row["place"]["function"] for row in found["ranks"])]
    assert all(len(text) < 5_000 and text.isprintable() for text in said)


class Runs:
    """What an attack pickles."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("it_ran",)


def test_dumps_of_an_attacker(
    serve: Callable[[], Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run nothing, and lead to no file outside of the log directory."""
    monkeypatch.chdir(tmp_path)
    outside, log = tmp_path / "outside", tmp_path / "log"
    write(outside, 0, [entry("all_reduce", 1)], {WORLD: (0,)})
    for folder in ("pickle", "link", "depth", "two"):
        (log / folder).mkdir(parents=True)
    attack = {"version": "2.10", "comm_lib_version": "", "pg_config": {}, "entries": Runs()}
    (log / "pickle" / "rank_0").write_bytes(pickle.dumps(attack, protocol=2))
    (log / "link" / "rank_0").symlink_to(outside / "nccl_trace_rank_0")
    (log / "depth" / "rank_0").write_bytes(b'{"pg_config": ' + b"[" * 1_000_000)
    for name in ("a_0", "b_0"):
        (log / "two" / name).write_bytes((outside / "nccl_trace_rank_0").read_bytes())
    service = serve()
    found = {each.run: each for each in listed(service, 3)}
    assert set(found) == {"pickle", "depth", "two"}
    for run, what in (("pickle", "plain data"), ("depth", "neither JSON"), ("two", "two dumps of rank 0")):

        def failed(id_: str = found[run].id) -> str:
            answer = service.report(id_)
            assert isinstance(answer, Pending)
            return answer.error.what if answer.error is not None else ""

        assert what in eventually(failed)
    assert not (tmp_path / "it_ran").exists()


def test_ten_thousand_ranks_make_a_short_report(serve: Callable[[], Service], tmp_path: Path) -> None:
    """Each waits somewhere else."""
    ranks = 300
    world = {WORLD: range(10_000)}
    for rank in range(ranks):
        write(tmp_path / "log", rank, [entry("all_reduce", rank + 1, state="started")], world, as_json=True)
    service = serve()
    (hang,) = listed(service, 1)
    text = report_text(service, hang.id)
    assert len(json.loads(text)["report"]["hang"]["ranks"]) == 200
    assert len(gzip.compress(text.encode())) < 1 << 20


def test_a_folder_that_is_gone_is_said(serve: Callable[[], Service], tmp_path: Path) -> None:
    hanging(tmp_path / "log" / "dumps")
    with closing(serve()) as service:
        (hang,) = listed(service, 1)
        for dump in (tmp_path / "log" / "dumps").iterdir():
            dump.unlink()
        answer = eventually(lambda: _failed(service, hang.id))
        assert "no dump" in answer or "no such trace" in answer


def _failed(service: Service, id_: str) -> str:
    try:
        answer = service.report(id_)
    except Exception as error:
        return f"no such trace: {error}"
    return answer.error.what if isinstance(answer, Pending) and answer.error is not None else ""
