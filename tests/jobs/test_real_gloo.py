"""Real jobs of four ranks on the CPU, recorded if torch is installed: the rank with the fault is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import find_traces
from tests.patience import HANGS_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gloo")]

PROGRAM = Path(__file__).with_name("gloo_job.py")
WORLD = 4
# What the first finding is about: its rule and its rank.
FAULTS = {"loader": ("GD602", "Rank 1"), "work": ("GD603", "Rank 2")}


@pytest.fixture(scope="module")
def recorded(gloo: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one recording with each fault, all by one process: importing torch costs more than a job."""
    return record(tmp_path_factory.mktemp("recorded"), *FAULTS)


def record(folder: Path, *faults: str) -> Path:
    """Run and record a job with each of these faults. Gloo's ranks do not always find one another, so a job
    that fails is run once more."""
    for attempt in range(2):
        own = folder / f"attempt{attempt}"
        own.mkdir(parents=True)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(WORLD), str(own), *faults],
            capture_output=True,
            timeout=HANGS_S,
            check=False,
        )
        print(done.stderr.decode(errors="replace"))
        if not done.returncode:
            break
    assert done.returncode == 0
    return own


def first_found(recorded: Path, tmp_path: Path, fault: str) -> pb.JobReport:
    """Record until the first finding is of the fault's rule and rank, at most three times: other programs on
    the machine may disturb a recording more than the fault does."""
    found, folder = [], recorded
    for attempt in range(3):
        if attempt:
            folder = record(tmp_path / str(attempt), fault)
        files = find_traces(str(folder / fault / "log")).files
        (job,) = build_jobs(digest_file(file)[1] for file in files).reports
        found += [(finding.rule, finding.title[:6]) for finding in job.findings[:1]]
        if found[-1:] == [FAULTS[fault]]:
            return job
    pytest.fail(f"found {found}")


def test_a_rank_with_a_slow_loader(recorded: Path, tmp_path: Path) -> None:
    job = first_found(recorded, tmp_path, "loader")
    assert [rank.rank for rank in job.ranks] == list(range(WORLD))
    assert job.clocks.basis == pb.Clocks.ONE_HOST
    assert job.collectives.matched > 0
    assert job.verdict.limiter == pb.Verdict.input
    assert "data loading" in job.findings[0].summary
    waits = {rank.rank: rank.waiting_us for rank in job.ranks}
    assert min(waits, key=lambda rank: waits[rank]) == 1


def test_a_rank_with_more_work(recorded: Path, tmp_path: Path) -> None:
    job = first_found(recorded, tmp_path, "work")
    assert job.verdict.limiter == pb.Verdict.compute
