"""`gpudiag job` keeps its answer, and judges the job again if anything changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.trace.files.find import find_traces
from tests.simulator.jobs import DistributedJob
from tests.simulator.jobs.run import simulate_once

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    simulate_once(DistributedJob("ddp", ranks=2, steps=3)).write(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranks each job had that was judged since the test began."""
    from tb_gpudiag.jobs.report import job_report

    counts: list[int] = []
    build = job_report.build_job_report

    def counted(facts: JobFacts, *rest: object) -> object:
        counts.append(len(facts.set.members))
        return build(facts, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(job_report, "build_job_report", counted)
    return counts


def said(log: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["job", str(log), *options]) == 0
    return capsys.readouterr().out


def test_an_unchanged_job_is_not_judged_again(
    log: Path, judged: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.loads(said(log, capsys, "--format", "json"))
    kept = said(log, capsys)
    assert json.loads(said(log, capsys, "--format", "json")) == data
    assert judged == [2]
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(log.parent / "another cache"))
    assert said(log, capsys) == kept
    assert judged == [2, 2]


def test_a_changed_rank_is_judged(log: Path, judged: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    said(log, capsys)
    trace = next(log.iterdir())
    status = trace.stat()
    os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    said(log, capsys)
    assert judged == [2, 2]


def test_the_same_traces_elsewhere_are_named_as_they_are_there(
    log: Path, judged: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    said(log, capsys)
    log.rename(log.parent / "moved")
    (found,) = json.loads(said(log.parent / "moved", capsys, "--format", "json"))["jobs"]
    ids = {file.identity for file in find_traces(str(log.parent / "moved")).files}
    assert {rank["id"] for rank in found["ranks"]} == ids
    assert judged == [2, 2]


def test_a_damaged_answer_is_made_again(
    log: Path, tmp_path: Path, judged: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    first = said(log, capsys)
    for entry in (tmp_path / "cache").rglob("*.gpudiag"):
        content = bytearray(entry.read_bytes())
        content[-1] ^= 1
        entry.write_bytes(content)
    assert said(log, capsys) == first
    assert judged == [2, 2]


def test_an_answer_without_a_rank_that_cannot_be_read_is_not_kept(
    log: Path, judged: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    (log / "broken.pt.trace.json").write_text("no trace")
    for _ in range(2):
        main(["job", str(log)])
        assert "broken" in capsys.readouterr().err
    assert judged == [2, 2]
