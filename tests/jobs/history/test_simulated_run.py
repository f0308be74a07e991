"""Simulated recordings of one run, with faults that one recording does not show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import find_traces
from tests.simulator import simulate
from tests.simulator.job import Job
from tests.simulator.scenarios import FAULTS, HEALTHY

pytestmark = pytest.mark.slow

RECORDINGS = 12
HOUR_NS = 3_600 * 10**9
MIB = 1 << 20
LEAK_PER_HOUR = 3 * MIB
INPUT = next(fault for fault in FAULTS if fault.name == "input_pipeline")


def recorded(job: Job, number: int, folder: Path) -> Digest:
    """Digest a recording of the job, made in this hour."""
    content = simulate(job, seed=number).bytes().decode()
    key = '"baseTimeNanoseconds": '
    before, _, after = content.partition(key)
    digits = after[: after.index(",")]
    path = folder / f"worker.{number}.pt.trace.json"
    path.write_text(f"{before}{key}{int(digits) + number * HOUR_NS}{after[len(digits) :]}")
    (file,) = find_traces(str(path)).files
    return digest_file(file)[1]


def test_a_leak_of_hours(tmp_path: Path) -> None:
    """Batches differ by more than an hour leaks, and the GPU is full after ten days."""
    job = replace(HEALTHY, blocks=3, varying=0.3, steps=6, capacity_bytes=1 << 30)
    made = [
        recorded(replace(job, weights_bytes=job.weights_bytes + number * LEAK_PER_HOUR), number, tmp_path)
        for number in range(RECORDINGS)
    ]
    assert not any(finding.rule == "GD401" for digest in made for finding in digest.findings)
    (history,) = histories(made)
    (drift,) = history.drifts
    assert drift.bytes_per_hour == pytest.approx(LEAK_PER_HOUR, rel=0.01)
    assert drift.hours == pytest.approx(RECORDINGS - 1)
    assert 100 < drift.hours_until_full < 240
    assert not history.changes


def test_a_healthy_run(tmp_path: Path) -> None:
    job = replace(HEALTHY, blocks=3, varying=0.3, steps=6)
    (history,) = histories([recorded(job, number, tmp_path) for number in range(RECORDINGS)])
    assert not history.drifts
    assert not history.changes


def test_a_loader_that_becomes_slow(tmp_path: Path) -> None:
    slow = replace(INPUT.planted(1.0), steps=6, blocks=4)
    healthy = INPUT.fixed(slow)
    made = [recorded(healthy if number < 6 else slow, number, tmp_path) for number in range(RECORDINGS)]
    (history,) = histories(made)
    (change,) = history.changes
    assert (change.what, change.point) == (pb.Change.step, 6)
    assert change.causes[0].cause == pb.CauseTime.input
    assert "GD101 input_pipeline" in change.sentence
