"""Simulated jobs before and after their fix: the verdict, what the fix gave, and what was promised for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import find_traces
from tests.simulator import simulate
from tests.simulator.job import Job
from tests.simulator.scenarios import FAULTS, HEALTHY, Fault, one_per_rule

pytestmark = pytest.mark.slow

STEPS = 10
ABOUT_MEMORY = "GD4"
ONLY_SOME_STEPS = {"slow_workers", "uneven_steps"}
ONLY_THE_RECORDING = {"warmup_recorded"}
PAIRS = [*one_per_rule(), *(fault for fault in FAULTS if fault.name == "slow_workers")]


@cache
def digest_of(job: Job, seed: int) -> Digest:
    with TemporaryDirectory() as folder:
        simulate(job, seed=seed).write(Path(folder))
        (file,) = find_traces(folder).files
        return digest_file(file)[1]


def compared(fault: Fault) -> pb.Comparison:
    job = replace(fault.planted(1.0), steps=STEPS)
    return compare([digest_of(job, 1)], [digest_of(fault.fixed(job), 1)])


@pytest.mark.parametrize("fault", PAIRS, ids=lambda fault: fault.name)
def test_a_fix_and_what_it_gave(fault: Fault) -> None:
    found = compared(fault)
    assert fault.rule in [finding.rule for finding in found.findings.gone]
    assert not [new for new in found.findings.new if new.severity != pb.Finding.INFO]
    if fault.rule.startswith(ABOUT_MEMORY) or fault.name in ONLY_THE_RECORDING:
        assert found.verdict == pb.Comparison.SAME, found.sentence
    elif fault.name in ONLY_SOME_STEPS:
        assert found.verdict in (pb.Comparison.FASTER, pb.Comparison.CANNOT_TELL), found.sentence
        assert found.mean_step_us.difference < -0.1 * found.mean_step_us.base
        assert " shorter: " in found.sentence
    else:
        assert found.verdict == pb.Comparison.FASTER, found.sentence
    (fixed,) = [row for row in found.verified if row.rule == fault.rule and row.became == pb.Verified.GONE]
    assert fixed.promise != pb.Verified.BELOW, fixed.sentence
    assert sum(row.candidate_us - row.base_us for row in found.causes) == pytest.approx(
        found.mean_step_us.difference, abs=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_two_runs_of_one_job_are_the_same(seed: int) -> None:
    job = replace(HEALTHY, steps=STEPS)
    found = compare([digest_of(job, seed)], [digest_of(job, 100 + seed)])
    assert found.verdict in (pb.Comparison.SAME, pb.Comparison.CANNOT_TELL), found.sentence
    assert not [new for new in found.findings.new if new.severity != pb.Finding.INFO]
