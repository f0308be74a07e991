"""CUDA graphs with missing kernels: simulated ones, whose kernels are dropped from the trace, and real
ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.real_traces import first_in
from tests.simulator import Job, Simulated, simulate
from tests.simulator.scenarios import SMALL
from tests.some_values import slow

GRAPHS = replace(SMALL, graph=True, blocks=200, steps=6)

HOST = (Cause.PYTHON, Cause.HOST, Cause.DISPATCH, Cause.LAUNCH, Cause.SYNC, Cause.INPUT)


def _facts(run: Simulated, folder: Path) -> Facts:
    return Facts(read_trace(str(run.write(folder, gzipped=False))))


def _drop(run: Simulated, lost: Callable[[int, int], bool]) -> int:
    """Drop kernels: lost(number of the graph launch, number in the graph). Return for how long they ran."""
    graphs = sorted({c.correlation for c in run.recording.host if "GraphLaunch" in c.name if c.correlation})
    kept, lost_ns = [], 0
    seen = dict.fromkeys(graphs, 0)
    for span in run.recording.gpu:
        if span.correlation in seen:
            seen[span.correlation] += 1
            if lost(graphs.index(span.correlation), seen[span.correlation] - 1):
                lost_ns += span.end_ns - span.start_ns
                continue
        kept.append(span)
    run.recording.gpu[:] = kept
    return lost_ns


def _idle(facts: Facts) -> dict[Cause, int]:
    assert facts.device is not None
    return facts.device.ledger.by_cause(facts.recorded_window)


@cache
def _whole_idle() -> dict[Cause, int]:
    """Idle time by cause with all kernels."""
    with TemporaryDirectory() as folder:
        return _idle(_facts(simulate(GRAPHS, seed=1), Path(folder)))


def _assert_unrecorded(facts: Facts, lost_ns: int, launches: int) -> None:
    """Check that the lost time is unrecorded, with the turnarounds between the kernels, and has no other
    cause."""
    assert facts.unrecorded_graphs.launches == launches
    found, whole = _idle(facts), _whole_idle()
    assert lost_ns <= found[Cause.UNRECORDED] <= lost_ns + launches * 500_000
    for cause in HOST:
        assert found.get(cause, 0) <= whole.get(cause, 0) + 30_000
    costly = {one.rule.id for one in run_rules(facts, RULES).findings if one.finding.cost_ns}
    assert {id for id in costly if "GD9" not in id} <= {"GD203"}  # between the kernels that are left


@pytest.mark.slow
@pytest.mark.parametrize("launches", [{2}, {1, 3, 4}])
@pytest.mark.parametrize("kept", [0, 100, 700])
def test_dropped_kernels_are_unrecorded_time(launches: set[int], kept: int, tmp_path: Path) -> None:
    run = simulate(GRAPHS, seed=1)
    lost_ns = _drop(run, lambda launch, kernel: launch in launches and kernel >= kept)
    _assert_unrecorded(_facts(run, tmp_path / "lost"), lost_ns, len(launches))


@pytest.mark.slow
def test_kernels_dropped_at_random_are_unrecorded_time(tmp_path: Path) -> None:
    draw, run = random.Random(4), simulate(GRAPHS, seed=1)
    lost_ns = _drop(run, lambda launch, _: launch in (1, 3) and draw.random() < 0.3)
    _assert_unrecorded(_facts(run, tmp_path / "lost"), lost_ns, 2)


def test_graphs_without_any_kernel_are_unrecorded_until_later_work(tmp_path: Path) -> None:
    run = simulate(GRAPHS, seed=1)
    lost_ns = _drop(run, lambda *_: True)
    facts = _facts(run, tmp_path)
    assert facts.unrecorded_graphs.launches == facts.unrecorded_graphs.of == GRAPHS.steps
    assert _idle(facts)[Cause.UNRECORDED] >= 0.9 * lost_ns


@pytest.mark.parametrize("kept", [100, *slow(700)])
def test_graphs_that_all_lack_the_same_kernels_leave_waits(kept: int, tmp_path: Path) -> None:
    """Only the times show it: the host waits for the last step's graph, and the next one is queued behind
    it."""
    run = simulate(GRAPHS, seed=1)
    lost_ns = _drop(run, lambda _, kernel: kernel >= kept)
    facts = _facts(run, tmp_path)
    assert facts.unrecorded_graphs.launches >= GRAPHS.steps - 1
    assert _idle(facts)[Cause.UNRECORDED] >= 0.75 * lost_ns
    assert Cause.SYNC not in _idle(facts)


@pytest.mark.slow
def test_complete_graphs_lack_nothing(tmp_path: Path) -> None:
    graphs = _facts(simulate(GRAPHS, seed=1), tmp_path).unrecorded_graphs
    assert (graphs.launches, graphs.of) == (0, GRAPHS.steps)
    assert not graphs.holes.total
    assert not _facts(simulate(Job(steps=3)), tmp_path / "eager").unrecorded_graphs.of


@pytest.mark.parametrize(("waited_us", "launches"), [(20, 0), (400, 1)])
def test_a_synchronization_goes_on_while_an_unrecorded_kernel_runs(waited_us: float, launches: int) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.graph_launch([("a", 20, 50), ("b", 70, 50)], at=0, us=10)
    main.sync(at=15, us=105 + waited_us)
    main.launch("next", at=800, us=5, runs_at=810, runs_us=50)
    facts = facts_of(trace)
    assert facts.unrecorded_graphs.launches == launches
    assert (Cause.UNRECORDED in _idle(facts)) == bool(launches)
    assert _idle(facts)[Cause.HOST] >= 200_000  # after the synchronization


@pytest.mark.parametrize(
    "folder",
    [
        "a100_recsys_queued",
        "a100_segment_anything",
        "b300_sglang_decode",
        "diff_test",
        "mi300_vllm_graph",
        "rtx5080_module_graphed",
        "rtx5080_module_partly_graphed",
        "rtx5080_with_cuda_graph",
    ],
)
def test_real_graphs_are_complete(shared_traces: Path, folder: str) -> None:
    graphs = first_in(folder).unrecorded_graphs
    assert graphs.of
    assert not graphs.launches
