"""The one run for a lent GPU, tried without one: every step but the device."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tb_gpudiag.digest.digest_files import SUFFIX, read_digest
from tests.truth.failures import recorded
from tests.truth.gpu.failing import FAILING
from tests.truth.gpu.keep import keep
from tests.truth.gpu.packing import MACHINE, unpack
from tests.truth.gpu.run import SUMMARY, Run, forkserver, in_order
from tests.truth.job import JOBS
from tests.truth.promised import _gain

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def run_of(tmp_path: Path, within_s: float) -> Run:
    return Run(tmp_path / "out", tmp_path / "work", time.monotonic() + within_s, forkserver())


def test_all_that_is_to_be_done_is_in_order() -> None:
    names = in_order(["one_worker", "a job that left"])
    assert names[0] == "one_worker"
    assert len(names) == len(set(names)) == sum(job.gpu for job in JOBS.values()) + len(FAILING)
    assert len(FAILING) == 10
    healthy = [JOBS[name].healthy for name in names if name in JOBS]
    assert healthy == sorted(healthy)


def test_a_run_without_a_gpu_makes_the_files_of_one_with_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3_600)
    lines = list(run.all_of(["one_worker", "no_such_job", "state_of_adam", "features_never_dropped"]))
    assert lines[-2:] == ["3 of 4 done", "not done: no_such_job"]
    said = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert said["no_such_job"].startswith("failed")
    assert "out of memory" in said["state_of_adam"]
    found = tmp_path / "found"
    found.mkdir()
    unpack(tmp_path / "out", found)
    gain, doubt = _gain(json.loads((found / "one_worker" / "times.json").read_text()))
    assert gain < 1  # both variants were timed, however long they took
    assert doubt > 0
    assert {path.parent.name for path in found.glob("one_worker/*/*/*.gz")} == {"plain", "stacks"}
    assert (found / "features_never_dropped" / "before.pickle").exists()
    assert recorded(FAILING["state_of_adam"], found) is not None
    kept = tmp_path / "kept"
    assert len(list(keep(found, kept))) == 2
    for side in ("before", "after"):
        path = kept / "one_worker" / f"{side}{SUFFIX}"
        assert path.stat().st_size <= 300_000
        assert len(read_digest(str(path)).steady_steps) >= 4
    assert (kept / MACHINE).exists()


def test_nothing_begins_when_the_time_is_over_and_that_is_said(tmp_path: Path) -> None:
    lines = list(run_of(tmp_path, 0).all_of(["one_worker", "state_of_adam"]))
    assert lines[-2:] == ["0 of 2 done", "not done: one_worker, state_of_adam"]
    assert not list((tmp_path / "work").glob("*/*.json"))
