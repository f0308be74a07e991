"""Digests made on a real Dask cluster: what is done is kept, whatever is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.digest.digest import texts
from tb_gpudiag.errors import NotATrace, ProcessFailed, UsageError
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.service.analyses.dask_digests import digest_on_cluster, join_on_cluster
from tb_gpudiag.service.analyses.digests import Digested
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tests.builder import TraceBuilder
from tests.simulator.jobs import DistributedJob, JobFault
from tests.simulator.jobs.run import simulate_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed is not installed"),
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Any]]:
    """Clusters that were started. All but the last one are closed."""
    started: list[Any] = []
    yield started
    for one in started[-1:]:
        one.close()


@pytest.fixture
def cluster(clusters: list[Any]) -> Any:
    """A cluster that runs. Importing dask takes half a second: only the process that has these tests does."""
    distributed: Any = import_module("dask.distributed")
    if not clusters or clusters[-1].status is not distributed.Status.running:
        clusters.append(
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            )
        )
    return clusters[-1]


def write(folder: Path, *names: str) -> list[TraceFile]:
    for name in names:
        trace = TraceBuilder()
        main = trace.thread()
        main.step(0, at=0, us=1000)
        main.launch(name, at=5, us=5, runs_at=20, runs_us=900)
        trace.write(folder / name)
    return find_traces(str(folder)).files


def test_a_cluster_digests_each_trace(cluster: Any, tmp_path: Path) -> None:
    files = write(tmp_path, "a", "b", "c")
    (tmp_path / "bad.1.pt.trace.json").write_text("not a trace")
    done = list(digest_on_cluster(find_traces(str(tmp_path)).files, cluster.scheduler_address))
    kernels = {d.file.run: texts(d.digest.kernels, "name") for d in done if d.digest is not None}
    assert kernels == {"a": ["a"], "b": ["b"], "c": ["c"]}
    (error,) = [d.error for d in done if d.error is not None]
    assert isinstance(error, NotATrace)
    assert len(files) == 3


def test_the_workers_of_a_job_put_digests_together(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time: the same answer as from one digest after the other."""
    monkeypatch.setattr("tb_gpudiag.service.analyses.dask_digests.FAN_IN", 2)
    run = simulate_job(DistributedJob("ddp", ranks=8, layers=2, fault=JobFault("slow_gpu", (3,), 1.3)))
    run.write(tmp_path / "job")
    (tmp_path / "job" / "bad.1.pt.trace.json").write_text("not a trace")
    files = find_traces(str(tmp_path / "job")).files
    one_by_one, together = (
        list(each(files, cluster.scheduler_address)) for each in (digest_on_cluster, join_on_cluster)
    )
    assert len(together) == len(files) == 9
    assert [type(done.error) for done in together if done.error is not None] == [NotATrace]
    reports = [
        build_jobs([done.digest for done in outcomes if done.digest is not None]).reports
        for outcomes in (one_by_one, together)
    ]
    assert [len(found) for found in reports] == [1, 1]
    assert reports[0] == reports[1]
    assert len(reports[0][0].ranks) == 8


@pytest.mark.parametrize("each", [digest_on_cluster, join_on_cluster])
def test_a_lost_worker_costs_time_and_no_trace(
    each: Callable[[list[TraceFile], str], Iterator[Digested]],
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tb_gpudiag.service.analyses.dask_digests.FAN_IN", 2)
    files = write(tmp_path, *"abcdefgh")
    outcomes = each(files, cluster.scheduler_address)
    first = next(outcomes)
    worker = next(iter(cluster.workers.values()))
    os.kill(worker.pid, signal.SIGKILL)
    done = [first, *outcomes]
    assert sorted(d.file.run for d in done) == list("abcdefgh")
    assert [d.error for d in done if d.error is not None] == []


def test_a_lost_scheduler_keeps_what_is_done(cluster: Any, tmp_path: Path) -> None:
    files = write(tmp_path, *"abcdefgh")
    outcomes = digest_on_cluster(files, cluster.scheduler_address)
    done = [next(outcomes)]
    cluster.close()
    done += outcomes
    assert sorted(d.file.run for d in done) == list("abcdefgh")
    assert done[0].digest is not None
    lost = [d for d in done if d.digest is None]
    assert all(isinstance(d.error, ProcessFailed) for d in lost)


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tb_gpudiag.service.analyses.dask_digests.CONNECT_S", 1)
    with pytest.raises(UsageError, match="does not answer"):
        list(digest_on_cluster(write(tmp_path, "a"), "tcp://127.0.0.1:9"))
