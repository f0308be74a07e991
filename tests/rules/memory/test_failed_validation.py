"""A validation with larger batches that fails: its results are for a while only, and settings do not help."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.rules.memory.memory_fragmentation import RULE
from tb_gpudiag.trace.read import read_trace
from tests.rules.stage import is_clear

torch = pytest.importorskip("torch")
from tests.truth.failing import text  # noqa: E402, F401
from tests.truth.failing.job import FAILING  # noqa: E402
from tests.truth.gpu_snapshot import record, write_snapshot  # noqa: E402

pytestmark = pytest.mark.torch


def test_all_that_is_said_of_it_agrees(tmp_path: Path) -> None:
    job, trace, snapshot = (
        FAILING["larger_batches_in_validation"],
        tmp_path / "job.pt.trace.json",
        tmp_path / "job.pickle",
    )
    torch.manual_seed(0)
    record(job.job, trace)
    assert write_snapshot(trace, job.gpu, snapshot)
    facts = Facts(read_trace(str(snapshot)))
    (memory,) = facts.memory
    assert memory.failure is not None
    assert memory.peak.kinds == memory.failure.held.kinds
    assert max(memory.peak.kinds, key=lambda kind: memory.peak.kinds[kind]) is MemoryKind.TEMPORARY
    # Enough is free, but expandable segments need more than there is, replayed.
    assert memory.reserve.unused_at_failure_bytes >= memory.failure.requested_bytes
    assert is_clear(RULE.check(facts))
