"""Commands read a database in a process of its own, with the same result, and end it at the time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.errors import LimitReached, NotATrace, ProcessFailed
from tb_gpudiag.service.analyses import diagnoses
from tb_gpudiag.service.analyses.diagnoses import DIAGNOSIS, ONLY_DIGEST, databases_apart
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.builder.nsys import export_of
from tests.report.reports import slow_loader
from tests.service.helpers import FAKE_WORKER

pytestmark = pytest.mark.slow


def _file(path: Path) -> TraceFile:
    return find_traces(str(path)).files[0]


def _ignored(_share: float, _stage: str) -> None:
    """Take progress."""


@pytest.fixture
def database(tmp_path: Path) -> TraceFile:
    return _file(export_of(slow_loader().recording).write(tmp_path / "report.sqlite"))


def test_a_database_that_never_ends_is_ended(database: TraceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnoses, "MODULE", FAKE_WORKER)
    Path(database.path).write_text("stuck")
    limit = AnalysisLimit(2**40, 1)
    with pytest.raises(LimitReached, match="time limit of 1 s"), limit.watched(database.path):
        databases_apart(DIAGNOSIS).of_trace(database, _ignored)


def test_a_process_that_crashes_costs_this_file_only(
    database: TraceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnoses, "MODULE", FAKE_WORKER)
    Path(database.path).write_text("crash")
    with pytest.raises(ProcessFailed, match="signal 11"):
        databases_apart(DIAGNOSIS).of_trace(database, _ignored)


def test_the_result_of_a_process_is_that_of_this_one(
    database: TraceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(database.path).parent)
    file = _file(Path("report.sqlite"))  # the process runs in another directory
    stages: list[str] = []
    there = databases_apart(DIAGNOSIS).of_trace(file, lambda _, stage: stages.append(stage))
    here = DIAGNOSIS.of_trace(file, _ignored)
    assert there.report == here.report
    assert there.digest.about == here.digest.about
    assert databases_apart(ONLY_DIGEST).of_trace(file, _ignored).digest.about == here.digest.about
    assert stages


def test_an_error_of_a_process_is_raised_here(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(NotATrace) as error:
        databases_apart(DIAGNOSIS).of_trace(TraceFile(str(path), ".", "report", "", 116, 0, "1"), _ignored)
    assert error.value.where == str(path)
