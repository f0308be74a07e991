"""Results of others: used for the same trace only, under one's own names, and equal to one's own."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.digest.digest_files import to_bytes
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.analyses.diagnoses import (
    DIAGNOSIS,
    ONLY_DIGEST,
    Diagnosis,
    diagnose_trace,
    known,
    obtain,
    share,
)
from tb_gpudiag.service.analyses.task import Task
from tb_gpudiag.service.analyses.worker import analyze
from tb_gpudiag.service.caches.cache_entry import Unpacked
from tb_gpudiag.service.caches.claims import fingerprint
from tb_gpudiag.service.caches.shared_cache import SharedCache, owner
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.builder import SnapshotBuilder
from tests.service.helpers import eventually, hasten, report_text
from tests.simulator import simulate
from tests.simulator.scenarios import SMALL

pytestmark = pytest.mark.slow  # each test analyzes traces

ROOM = 1 << 30
US = owner(os.geteuid())
THEN_S = 1_700_000_000


@pytest.fixture(scope="module")
def recorded() -> bytes:
    return simulate(replace(SMALL, steps=4, blocks=6), seed=3).bytes("C2")


@pytest.fixture
def log(tmp_path: Path, recorded: bytes) -> Path:
    """A log directory with one trace that was written long ago."""
    path = tmp_path / "log" / "run" / "host_1.1000.pt.trace.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(recorded)
    os.utime(path, (THEN_S, THEN_S))
    return tmp_path / "log"


@pytest.fixture
def team(tmp_path: Path) -> SharedCache:
    return SharedCache(tmp_path / "team", ROOM)


def only(root: Path) -> TraceFile:
    (file,) = find_traces(str(root)).files
    return file


def shared(file: TraceFile, cache: SharedCache) -> Diagnosis:
    return obtain(file, DIAGNOSIS, cache)


def marked(file: TraceFile, cache: SharedCache) -> Diagnosis:
    return obtain(file, DIAGNOSIS, cache, share_later=True)


def assert_equal(found: Diagnosis | None, own: Diagnosis) -> None:
    assert found is not None
    assert to_json(found.report) == to_json(own.report)
    assert to_bytes(found.digest) == to_bytes(own.digest)
    assert found.arrays.keys() == own.arrays.keys()
    for name, array in own.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("where", ["log", "elsewhere/deeper/run", "run_only"])
def test_another_users_result_equals_ones_own_wherever_the_trace_is(
    log: Path, tmp_path: Path, team: SharedCache, where: str
) -> None:
    shared(only(log), team)
    shutil.copytree(log, tmp_path / "mounted" / where, copy_function=shutil.copy2)
    file = only(tmp_path / "mounted" / where / "run" if where == "run_only" else tmp_path / "mounted")
    found = known(file, DIAGNOSIS, team)
    assert_equal(found, diagnose_trace(file))
    assert found is not None
    assert found.origin == f"{US} (shared cache)"
    assert found.report.trace.path == file.path


def test_a_memory_snapshot_is_shared_too(tmp_path: Path, team: SharedCache) -> None:
    builder = SnapshotBuilder()
    builder.segment(1 << 21)
    builder.allocate(1 << 20, at=1)
    path = builder.write(tmp_path)
    os.utime(path, (THEN_S, THEN_S))
    (file,) = find_traces(str(path)).files
    assert_equal(known(file, DIAGNOSIS, team) or shared(file, team), diagnose_trace(file))
    assert_equal(known(file, DIAGNOSIS, team), diagnose_trace(file))


def test_a_digest_is_taken_from_a_digest_or_a_diagnosis(log: Path, tmp_path: Path, team: SharedCache) -> None:
    file = only(log)
    own = diagnose_trace(file)
    task = Task(file, kind="digest", shared=str(tmp_path / "team"))
    (tmp_path / "team").mkdir()
    first = analyze(task, lambda share, stage: None)
    assert "origin" not in first.summary
    assert not team.keys()  # TensorBoard shares it
    obtain(file, ONLY_DIGEST, team)
    again = analyze(task, lambda share, stage: None)
    assert again.content == first.content == to_bytes(own.digest)
    assert again.summary["origin"] == f"{US} (shared cache)"
    for entry in (tmp_path / "team").iterdir():
        entry.unlink()
    assert known(file, ONLY_DIGEST, team) is None
    shared(file, team)
    found = known(file, ONLY_DIGEST, team)
    assert found is not None
    assert found.entry.content == to_bytes(own.digest)


def change_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b'"dur": ', len(content) // 2) + 7
    content[at] = ord("1") if content[at] != ord("1") else ord("2")
    path.write_bytes(content)


def change_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    os.utime(path, (THEN_S, THEN_S))


def change_start(path: Path) -> None:
    path.write_bytes(b" " + path.read_bytes()[1:])
    os.utime(path, (THEN_S, THEN_S))


def other_name(path: Path) -> None:
    path.rename(path.with_name("host_2.1000.pt.trace.json"))


@pytest.mark.parametrize("change", [change_middle, change_end, change_start, other_name])
def test_a_trace_that_changed_is_another_trace(
    log: Path, team: SharedCache, change: Callable[[Path], None]
) -> None:
    file = only(log)
    shared(file, team)
    assert known(only(log), DIAGNOSIS, team) is not None
    change(Path(file.path))
    assert known(only(log), DIAGNOSIS, team) is None


def test_a_trace_that_changes_during_the_analysis_is_not_shared(log: Path, team: SharedCache) -> None:
    file = only(log)

    def diagnose(file: TraceFile, progress: Progress) -> Diagnosis:
        found = diagnose_trace(file, progress)
        change_end(Path(file.path))
        return found

    obtain(file, replace(DIAGNOSIS, of_trace=diagnose), team)
    assert team.keys() == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_user_who_cannot_open_the_trace_gets_no_result(log: Path, team: SharedCache) -> None:
    file = only(log)
    shared(file, team)
    os.chmod(file.path, 0)
    assert known(file, DIAGNOSIS, team) is None


def test_a_trace_that_leads_outside_gets_no_result(log: Path, tmp_path: Path, team: SharedCache) -> None:
    file = only(log)
    shared(file, team)
    (log / "run").rename(tmp_path / "moved")
    (log / "run").symlink_to(tmp_path / "moved")
    assert known(file, DIAGNOSIS, team) is None
    assert known(replace(file, folder=""), DIAGNOSIS, team) is not None


def test_an_entry_of_nonsense_is_ignored(log: Path, team: SharedCache) -> None:
    """Its checksums are right: whoever wrote it can write to the directory."""
    file = only(log)
    result = marked(file, team)
    real = result.entry
    nonsense = (b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"report": 1}'))
    for entry in [*(real._replace(content=content) for content in nonsense), real._replace(arrays={})]:
        vars(result)["entry"] = entry
        share(result, file, team)
        assert team.keys()
        assert known(file, DIAGNOSIS, team) is None


def test_an_entry_of_another_version_is_not_looked_at(
    log: Path, team: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = only(log)
    shared(file, team)
    monkeypatch.setattr("tb_gpudiag.service.caches.cache.__version__", "0.0.1")
    assert known(file, DIAGNOSIS, team) is None


def test_an_entry_unpacked_for_its_summary_has_no_content(log: Path, team: SharedCache) -> None:
    shared(only(log), team)
    (key,) = team.keys()
    found = team.find(key, fingerprint(only(log)), summary_only=True)
    assert found is not None
    assert isinstance(found[0], Unpacked)
    assert (found[0].report_gz, found[0].arrays) == (b"", {})


@pytest.fixture
def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None
) -> Iterator[Callable[..., Service]]:
    """Create services of users with caches of their own, and one shared cache."""
    hasten(monkeypatch)
    services = []

    def make(user: str, log: Path) -> Service:
        settings = Settings(tmp_path / f"cache_of_{user}", shared_directory=tmp_path / "team")
        service = Service([Root(str(log))], settings)
        services.append(service)
        eventually(lambda: service.traces().scanned)
        return service

    yield make
    for service in services:
        service.close()


def report_of(service: Service) -> pb.ReportState:
    (entry,) = service.traces().traces
    return from_json(report_text(service, entry.id), pb.ReportState)


@pytest.mark.slow
def test_a_trace_is_analyzed_once_for_the_team(
    serve: Callable[..., Service], log: Path, tmp_path: Path, team: SharedCache
) -> None:
    ana = serve("ana", log)
    own = report_of(ana)
    assert ana.traces().traces[0].origin == ""
    eventually(team.keys)
    shutil.copytree(log, tmp_path / "mounted", copy_function=shutil.copy2)
    ben = serve("ben", tmp_path / "mounted")
    # It is listed before anyone opens it.
    eventually(lambda: ben.traces().traces[0].state == pb.TraceEntry.ready)
    theirs = report_of(ben)
    assert theirs.report.trace.path == str(tmp_path / "mounted" / "run" / "host_1.1000.pt.trace.json")
    theirs.report.trace.path = own.report.trace.path
    assert theirs == own
    eventually(lambda: ben.traces().traces[0].origin == f"{US} (shared cache)")
    assert len(team.keys()) == 1
    assert (tmp_path / "cache_of_ben").stat().st_mode & 0o777 == 0o700


def test_without_the_shared_directory_everything_works_and_one_note_says_so(
    serve: Callable[..., Service], log: Path, tmp_path: Path
) -> None:
    (tmp_path / "team").write_text("in the way")
    service = serve("ana", log)
    assert report_of(service).state == pb.ReportState.ready
    notes = eventually(lambda: [p.what for p in service.traces().problems])
    assert len(notes) == 1
    assert "Results are not shared" in notes[0]
