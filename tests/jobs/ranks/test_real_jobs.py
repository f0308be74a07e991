"""Eight public DLRM ranks, checked against their raw JSON; and two Gloo ranks on the CPU."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.conftest import SHARED_TRACES

pytestmark = pytest.mark.real

DLRM = SHARED_TRACES / "v100_dlrm_8ranks"
GLOO = SHARED_TRACES / "cpu_torch213" / "gloo2"


@cache
def facts_of_folder(folder: Path) -> JobFacts:
    digests = []
    for file in find_traces(str(folder)).files:
        facts = Facts(read_trace(file.path))
        digests.append(build_digest(facts, build_report(facts, file), file))
    (found,) = find_sets(digests).sets
    return JobFacts(found)


def raw_kernels() -> np.ndarray[tuple[int, int, int], np.dtype[np.float64]]:
    """Start and end in µs of the k-th NCCL kernel on each rank: shape (ranks, 8, 2)."""
    found = []
    for rank in range(8):
        (path,) = DLRM.glob(f"worker{rank}.*")
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        kernels = [e for e in events if e.get("name", "").startswith("ncclKernel") and "dur" in e]
        found.append(sorted((e["ts"], e["ts"] + e["dur"]) for e in kernels))
    return np.array(found, np.float64)


@pytest.mark.skipif(not DLRM.is_dir(), reason="needs the public DLRM traces")
def test_dlrm_agrees_with_its_raw_kernels() -> None:
    facts, raw = facts_of_folder(DLRM), raw_kernels()
    waits = facts.waits
    start, end = raw[:, :, 0], raw[:, :, 1]
    assert (len(facts.matching), len(waits)) == (8, 8)
    assert (waits.size == 8).all()
    assert waits.skew_ns / 1e3 == pytest.approx(start.max(axis=0) - start.min(axis=0))
    assert waits.transfer_ns / 1e3 == pytest.approx(end.max(axis=0) - start.max(axis=0))
    assert waits.transfer_ns.sum() / 1e3 == pytest.approx(225)
    assert waits.last_member.tolist() == start.argmax(axis=0).tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    waiting = (start.max(axis=0) - start).sum(axis=1)
    assert waits.waiting_by(waits.member.astype(np.int64), 8) / 1e3 == pytest.approx(waiting)


@pytest.mark.skipif(not DLRM.is_dir(), reason="needs the public DLRM traces")
def test_dlrm_has_one_clock_and_its_recordings_start_at_different_times() -> None:
    facts = facts_of_folder(DLRM)
    assert facts.clocks.basis == "ONE_HOST"
    assert 1_000 <= facts.clocks.residual_ns <= 7_000
    starts, waits = facts.starts, facts.waits
    assert starts.explained(waits, 0.5) == 0
    assert waits.skew_ns[0] == 7_624_000
    # 3.0 to 3.9 ms from each rank's own start.
    since = waits.arrival_ns[:8] - starts.start_ns[waits.member[:8]]
    assert 3.0e6 <= since.min() <= since.max() <= 4.1e6


@pytest.mark.skipif(not GLOO.is_dir(), reason="needs the recorded Gloo traces")
def test_ranks_on_the_cpu_are_matched() -> None:
    facts = facts_of_folder(GLOO)
    assert (len(facts.waits), facts.clocks.basis, facts.parallelism) == (2, "ONE_HOST", ["DDP"])
    assert facts.waits.last_member.tolist() == [1, 0]
