"""`gpudiag job`: digests and traces of a job's ranks, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tb_gpudiag.report.views.screen import LINES
from tests.jobs.ranks.stage import job


def write(folder: Path, ranks: int = 4, slow_ms: float = 12.0) -> Path:
    folder.mkdir(exist_ok=True)
    for digest in job(ranks, 5, own_ms=lambda r, s: slow_ms if r == 2 else 10.0, cause="input"):
        (folder / f"rank{digest.about.rank}{SUFFIX}").write_bytes(to_bytes(digest))
    return folder


def test_one_screen_names_the_late_rank_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(write(tmp_path / "log", ranks=40))
    assert main(["job", log, "--quiet"]) == 0
    short = capsys.readouterr().out
    assert "Job run · 40 ranks" in short
    assert "GD602 Rank 2 takes 2 ms longer" in short
    assert len(short.splitlines()) <= LINES
    ranks = [line.split()[:2] for line in short.splitlines() if line.startswith("  rank ")]
    assert ranks[0] == ["rank", "2"]
    assert main(["job", log, "--quiet", "--full"]) == 0
    full = capsys.readouterr().out
    assert "Transfers by size" not in short
    assert "Transfers by size" in full


def test_json_has_the_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", str(write(tmp_path / "log")), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["jobs"]
    assert document["jobs"][0]["verdict"]["limiter"] == "input"


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("GD602", 1),
        ("error", 0),
        pytest.param("warning", 1, marks=pytest.mark.slow),
        pytest.param("GD604", 0, marks=pytest.mark.slow),
    ],
)
def test_fail_on(tmp_path: Path, condition: str, status: int) -> None:
    out = str(tmp_path / "out")
    assert main(["job", "--fail-on", condition, str(write(tmp_path / "log")), "-o", out]) == status


def test_a_digest_that_cannot_be_read_costs_its_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "log")
    (folder / f"rank1{SUFFIX}").write_bytes(b"damaged")
    assert main(["job", str(folder), "--format", "json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["jobs"][0]["missing_ranks"] == [1]
    assert "rank1" in document["jobs"][0]["problems"][0]["where"]
    assert len(document["errors"]) == 1
    assert "rank1" in printed.err


def test_one_rank_is_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "log")
    assert main(["job", str(folder / f"rank0{SUFFIX}")]) == 2
    assert "No two ranks of one job" in capsys.readouterr().err


def test_a_path_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job"]) == 2
    assert "PATH is missing" in capsys.readouterr().err
