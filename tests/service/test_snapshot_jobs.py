"""Memory snapshots of the ranks of one job, as the page asks for them."""

from __future__ import annotations

import gzip
import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tests.jobs.rules.test_rank_out_of_memory import snapshot


@pytest.mark.slow
def test_snapshots_of_the_ranks_are_a_job(tmp_path: Path, in_process: None) -> None:
    """Two of them have the same content: the name alone says the rank."""
    for rank in range(3):
        snapshot(tmp_path / "log", rank, failed_mib=30_000 * (rank == 2))
    snapshot(tmp_path / "log", 7, name="before_{}.pickle")
    for path in (tmp_path / "log").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    with closing(Service([Root(str(tmp_path / "log"))], Settings(tmp_path / "cache"))) as service:
        service.has_traces(60)
        entries = {entry.worker: entry for entry in service.traces().traces}
        assert [entry.of_rank for entry in entries.values()] == [False, True, True, True]
        found = service.job(entries["rank0_memory_snapshot"].id)
        until = time.monotonic() + 60
        while not isinstance(found, bytes):
            assert found.error is None
            assert time.monotonic() < until
            found = service.job(entries["rank0_memory_snapshot"].id)
    job = json.loads(gzip.decompress(found))["job"]
    assert [(rank["rank"], rank["worker"]) for rank in job["ranks"]] == [
        (rank, f"rank{rank}_memory_snapshot") for rank in range(3)
    ]
    assert [finding["rule"] for finding in job["findings"]] == ["GD611"]
