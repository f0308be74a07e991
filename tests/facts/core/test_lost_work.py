"""Kernels that the tracer lost: whatever is deleted, nothing that the host did is called the cause."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import EMPTY
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.real_traces import real_facts
from tests.rules.stage import healthy
from tests.simulator import simulate
from tests.simulator.diagnosed import simulated_facts
from tests.trace.support import read_bytes

T = TypeVar("T")
Delete = Callable[[Sequence[T]], list[T]]

HOST = (
    *(Cause.INPUT, Cause.COMPILE, Cause.SYNC, Cause.ALLOCATOR, Cause.COLLECTIVE),
    *(Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH, Cause.PROFILER),
)

DELETE: dict[str, Delete[Any]] = {
    "first": lambda work: list(work[len(work) * 3 // 10 :]),
    "last": lambda work: list(work[: -(len(work) * 3 // 10)]),
    "middle": lambda work: [*work[: len(work) * 3 // 10], *work[len(work) * 6 // 10 :]],
    "random": lambda work: [one for i, one in enumerate(work) if random.Random(i).random() >= 0.3],
}
"""Ways to delete 30% of the GPU's work, in order of time."""

# As a share of the window: the gap around a lost kernel is a little longer than the kernel.
TOLERANCE = 0.01


def host_ns(facts: Facts) -> int:
    """The idle time of the recorded steps that something on the host is blamed for."""
    idle = facts.gpu.ledger.by_cause(facts.recorded_window)
    return sum(idle.get(cause, 0) for cause in HOST)


def assert_not_blamed(lost: Facts, whole: Facts) -> None:
    """The host is blamed for no more than before, and the verdict names nothing that the host does unless it
    did before."""
    assert host_ns(lost) <= host_ns(whole) + TOLERANCE * whole.recorded_window.duration_ns
    before, after = (_verdict(facts) for facts in (whole, lost))
    assert after in {before, "compute", "mixed", "unknown", "communication"}


def _verdict(facts: Facts) -> str:
    return find_verdict(facts, run_rules(facts, RULES).findings).limiter


@pytest.mark.slow
@pytest.mark.parametrize("way", DELETE)
@pytest.mark.parametrize(
    "name",
    [
        "healthy",
        "no_steps",
        "input_pipeline",
        "host_bound",
        "host_sync",
        "launch_bound",
        "exposed_communication",
    ],
)
def test_simulated_jobs_whose_records_are_lost(name: str, way: str) -> None:
    run = simulate(name)
    run.recording.gpu[:] = DELETE[way](sorted(run.recording.gpu, key=lambda span: span.start_ns))
    facts, whole = Facts(read_bytes(run.bytes())), simulated_facts(name)
    assert_not_blamed(facts, whole)
    share = len(facts.lost_work.lost) / len(facts.lost_work.launches)
    assert share == pytest.approx(0.3, abs=0.05)
    first = run_rules(facts, RULES).findings[0]
    assert first.rule.id == "GD910"
    assert find_verdict(facts).sentence.startswith("The kernels of ")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["first", "last"])
def test_a_busy_gpu_stays_busy_over_what_is_left(way: str) -> None:
    run = simulate("healthy")
    run.recording.gpu[:] = DELETE[way](sorted(run.recording.gpu, key=lambda span: span.start_ns))
    facts = Facts(read_bytes(run.bytes()))
    verdict = find_verdict(facts)
    assert verdict.limiter == "compute"
    assert verdict.busy_share >= 0.95
    assert len(facts.steps) < len(facts.recorded_steps)


REAL = [
    "v100_ddp_resnet_healthy",
    "h100_nanogpt_before_hook",
    "v100_resnet50_workers0",
    "rtx5080_module_eager",
]
WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("way", DELETE)
@pytest.mark.parametrize("folder", REAL)
def test_real_jobs_whose_records_are_lost(shared_traces: Path, tmp_path: Path, folder: str, way: str) -> None:
    [file] = (shared_traces / folder).rglob("*.json*")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    work = sorted((e for e in trace["traceEvents"] if e.get("cat") in WORK), key=lambda e: float(e["ts"]))
    kept = DELETE[way](work)
    others = [event for event in trace["traceEvents"] if event.get("cat") not in WORK]
    cut = tmp_path / "cut_1.1.pt.trace.json"
    cut.write_text(json.dumps({**trace, "traceEvents": [*others, *kept]}))
    os.utime(cut, (1e9, 1e9))
    assert_not_blamed(Facts(read_trace(str(cut))), real_facts(file))


def test_a_built_job_whose_first_kernels_are_lost() -> None:
    trace = healthy()
    del trace.recording.gpu[1:5]
    facts = facts_of(trace)
    assert len(facts.lost_work.lost) == 4
    assert find_verdict(facts).limiter == "compute"
    assert facts.gpu.ledger.by_cause(facts.recorded_window)[Cause.UNRECORDED] >= 380_000


def test_nothing_is_lost_where_every_launch_has_its_kernel() -> None:
    lost = facts_of(healthy()).lost_work
    assert (len(lost.lost), len(lost.launches), lost.holes) == (0, 11, EMPTY)


def test_after_a_wait_for_the_device_the_lost_kernels_are_done() -> None:
    """What the host does from then on costs the GPU's time."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000).frame("train.py(12): train", at=0, us=1_000)
    main.call("cudaLaunchKernel", at=10, us=5)
    main.sync("cudaDeviceSynchronize", at=20, us=300)
    main.launch("gemm", at=700, us=5, runs_at=706, runs_us=294)
    facts = facts_of(trace)
    idle = facts.gpu.ledger.by_cause(facts.window)
    assert idle[Cause.UNRECORDED] == 305_000
    assert idle[Cause.PYTHON] == 390_000


def test_a_wait_for_another_stream_does_not_show_that_a_lost_kernel_is_done() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=2_000).frame("train.py(12): train", at=0, us=2_000)
    main.call("cudaLaunchKernel", at=10, us=5)
    main.sync(at=20, us=10)
    for i in range(4):  # waits return although the stream of the kernels is not empty
        main.launch("gemm", at=700 + 30 * i, us=5, runs_at=710 + 300 * i, runs_us=300)
        main.sync(at=710 + 30 * i, us=5)
    idle = facts_of(trace).gpu.ledger.by_cause(facts_of(trace).window)
    assert idle[Cause.UNRECORDED] == 695_000
    assert Cause.PYTHON not in {cause for cause, ns in idle.items() if ns > 100_000}


def test_copies_without_work_and_calls_inside_launches_are_not_lost() -> None:
    trace = healthy()
    main = trace.thread("other")
    main.call("cudaMemcpyAsync", at=200, us=5).call("cudaMemsetAsync", at=210, us=5)
    main.call("cudaLaunchKernelExC", at=300, us=10, correlation=900)
    main.call("cuLaunchKernelEx", at=302, us=5, correlation=901)
    trace.kernel("gemm", at=1_090, us=5, correlation=900, stream=20)
    assert not len(facts_of(trace).lost_work.lost)


def test_broken_links_are_not_lost_kernels() -> None:
    """The kernels are there, with other numbers than their launches."""
    trace = healthy()
    for span in trace.recording.gpu[3:]:
        assert span.correlation is not None
        span.correlation += 1_000_000
    assert not len(facts_of(trace).lost_work.lost)
