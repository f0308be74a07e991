"""Inferred steps set the step window and the step time like marked ones."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.stepping.inferred import StepEvidence
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.real_traces import first_in

MS = 1_000.0
"""In us, the builder's unit."""

STEPS = 19
LAUNCHES = 12


def pass_of(main: HostThread, at: float, *, host_us: float, gpu_us: float, free: float) -> float:
    """Add a step: a loaded batch, its copy and twelve kernels. Return when the GPU is done."""
    main.loader(at=at + 10, us=host_us / 2)
    main.op("aten::to", at=at + host_us / 2 + 20, us=30)
    begins = max(free, at + host_us / 2 + 60)
    main.copy("HtoD", at=at + host_us / 2 + 30, us=10, runs_at=begins, runs_us=20, bytes=2**16, pinned=True)
    free = begins + 20
    for i in range(LAUNCHES):
        called = at + host_us / 2 + 100 + i * 20
        main.op("aten::mm", at=called, us=18)
        begins = max(free + 1, called + 15)
        main.launch(f"gemm{i}", at=called + 4, us=5, runs_at=begins, runs_us=gpu_us / LAUNCHES)
        free = begins + gpu_us / LAUNCHES
    return free


def whole_job(*, host_us: float = 2 * MS, gpu_us: float = 1 * MS) -> tuple[TraceBuilder, float, float]:
    """Build a recording that sets up a model, runs 19 steps and evaluates: (trace, begin, end of steps)."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for _ in range(40):
        main.op("aten::normal_", at=at, us=3 * MS)
        main.launch("fill", at=at + 2 * MS, us=5, runs_at=at + 2 * MS + 20, runs_us=10)
        at += 3 * MS
    begin, free = at, at
    for _ in range(STEPS):
        free = pass_of(main, at, host_us=host_us, gpu_us=gpu_us, free=free)
        at += host_us
    end = max(at, free)
    main.frame("train.py(90): evaluate", at=end, us=100 * MS)
    main.launch("score", at=end + 99 * MS, us=5, runs_at=end + 99 * MS + 10, runs_us=100)
    return trace, begin, end


def cut_to(document: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    """Return the document with the events that lie in [low, high) and the metadata."""
    kept = [e for e in document["traceEvents"] if e["ph"] != "X" or low <= float(e["ts"]) < high]
    return {**document, "traceEvents": kept}


def facts_at(document: dict[str, Any], folder: Path) -> Facts:
    path = folder / "cut_1.1.pt.trace.json"
    path.write_text(json.dumps(document))
    return Facts(read_trace(str(path)))


def said(facts: Facts) -> dict[str, object]:
    """What a user reads first: the verdict, and the findings about the job."""
    found = run_rules(facts, RULES).findings
    return {
        "limiter": find_verdict(facts).limiter,
        "findings": [one.rule.id for one in found if one.finding.cost_ns],
    }


@pytest.mark.slow
def test_a_recording_cut_to_its_inferred_steps_gets_the_same_verdict(tmp_path: Path) -> None:
    trace, begin, end = whole_job()
    whole, document = facts_of(trace), trace.document()
    shift = min(float(e["ts"]) for e in document["traceEvents"] if e["ph"] == "X")
    cut = facts_at(cut_to(document, shift + begin, shift + end), tmp_path)
    assert len(whole.steps) == len(cut.steps) == STEPS
    assert said(whole) == said(cut)
    assert said(whole)["limiter"] == "input"
    assert cut.step_time.median == pytest.approx(whole.step_time.median, rel=0.01)
    assert find_verdict(cut).busy_share == pytest.approx(find_verdict(whole).busy_share, abs=0.01)


@pytest.mark.parametrize("folder", ["mi300_ddp_resnet18_no_pool", "rtx5070_toy_ten_iterations"])
def test_a_real_recording_cut_to_its_steady_steps_gets_the_same_verdict(
    shared_traces: Path, tmp_path: Path, folder: str
) -> None:
    (path,) = (shared_traces / folder).rglob("*.json.gz")
    document, whole = json.loads(gzip.decompress(path.read_bytes())), Facts(read_trace(str(path)))
    shift = min(float(e["ts"]) for e in document["traceEvents"] if e["ph"] == "X")
    low, high = (ns / 1_000 for ns in (whole.host_window.start_ns, whole.window.end_ns))
    late = max((-ns / 1_000 for ns in whole.trace.clock_offsets_ns.values()), default=0.0)  # as recorded
    cut = facts_at(cut_to(document, shift + low, shift + high + late + 1), tmp_path)
    assert find_verdict(cut).limiter == find_verdict(whole).limiter
    assert len(cut.steps) >= len(whole.steps) - 1
    assert cut.step_time.median == pytest.approx(whole.step_time.median, rel=0.05)


@pytest.mark.parametrize(
    "folder",
    [
        *("v100_resnet50_workers0", "v100_resnet50_workers4", "v100_ddp_memory", "diff_control", "diff_test"),
        *("a100_recsys_queued", "a100_ddp_resnet_flags", "mi300_resnet_checkpoint", "rtx5080_module_graphed"),
    ],
)
def test_a_real_recording_without_its_marks_gets_the_same_verdict(shared_traces: Path, folder: str) -> None:
    marked = first_in(folder)
    names = [name.replace("ProfilerStep", "Section") for name in marked.events.names]
    events = replace(marked.trace.events, names=names)
    unmarked = Facts(replace(marked.trace, events=events))
    assert said(unmarked) == said(marked)
    assert len(unmarked.steps) == len(marked.steps)
    assert unmarked.step_time.median == pytest.approx(marked.step_time.median, rel=0.01)
    assert find_verdict(unmarked).busy_share == pytest.approx(find_verdict(marked).busy_share, abs=0.002)


def test_what_is_left_out_is_said_with_its_length() -> None:
    sentence = find_verdict(facts_of(whole_job()[0])).sentence
    assert sentence.startswith("The first 119\xa0ms and the last 100\xa0ms of the recording are left out")
    assert "they are outside of the inferred steps" in sentence


def test_steps_of_a_gpu_that_lags_take_as_long_as_its_work() -> None:
    """The host launches a step every 6 ms, and the GPU takes 16 ms."""
    facts = facts_of(whole_job(host_us=6 * MS, gpu_us=16 * MS)[0])
    assert len(facts.steps) == STEPS
    assert facts.step_time.median == pytest.approx(16e6, rel=0.01)


def test_steps_of_a_host_that_does_more_than_launch_take_as_long_as_the_host() -> None:
    """Kernels of a log line follow most steps, never the same: 7 ms of a step repeat, and it takes 68 ms."""
    trace = TraceBuilder()
    main = trace.thread()
    at, free = 0.0, 0.0
    for step in range(8):
        free = pass_of(main, at, host_us=7 * MS, gpu_us=2 * MS, free=free)
        for extra in range(step % 3):
            called = at + 7 * MS + extra * 100
            main.launch(f"log{step}_{extra}", at=called, us=5, runs_at=max(free, called + 10), runs_us=4)
        main.frame("train.py(40): save_image", at=at + 8 * MS, us=60 * MS)
        at += 68 * MS
    facts = facts_of(trace)
    assert len(facts.steps) >= 6
    assert facts.step_time.median == pytest.approx(68e6, rel=0.01)


def test_steps_of_graphs_are_as_long_as_the_gpu_replays_them() -> None:
    """Graphs start 26 ms apart; the calls that launch them are 7 and 45 ms apart, in turn."""
    trace = TraceBuilder()
    main = trace.thread()
    called = 0.0
    for step in range(8):
        begins = 100.0 + step * 26 * MS
        main.op("aten::copy_", at=called, us=30)
        main.copy("HtoD", at=called + 5, us=10, runs_at=begins, runs_us=20, bytes=2**10, pinned=True)
        main.launch("embed", at=called + 20, us=5, runs_at=begins + 30, runs_us=50)
        nodes = [(f"node{i}", begins + 100 + i * 400, 390.0) for i in range(64)]
        main.graph_launch(nodes, at=called + 40, us=3.7 * MS)
        called += (7 if step % 2 else 45) * MS if called < begins - 60 * MS else 5 * MS
    facts = facts_of(trace)
    lengths = np.diff(facts.steady.borders_ns)
    assert len(lengths) >= 6
    assert lengths[1:] == pytest.approx(26e6, rel=0.1)


def test_parts_with_little_of_the_gpus_work_are_no_steps() -> None:
    """Eight batches of points for one image, whose encoder takes most of the time."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("encoder", at=0, us=5, runs_at=10, runs_us=200 * MS)
    free = at = 200 * MS
    for _ in range(8):
        free = pass_of(main, at, host_us=2 * MS, gpu_us=1 * MS, free=free)
        at += 2 * MS
    facts = facts_of(trace)
    assert facts.inferred_steps is not None
    assert facts.inferred_steps.evidence is StepEvidence.PART
    assert not len(facts.steps)
    assert facts.window.start_ns == 10_000  # where the GPU begins to work


def test_copies_alone_are_no_steps(tmp_path: Path) -> None:
    """A model or constants are loaded in many copies, each with its own wait."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(24):
        at = i * MS
        main.copy("HtoD", at=at, us=10, runs_at=at + 20, runs_us=2, bytes=2**10, pinned=True)
        main.copy("DtoD", at=at + 100, us=10, runs_at=at + 120, runs_us=2, bytes=2**10)
    main.launch("gemm", at=24 * MS, us=5, runs_at=24 * MS + 10, runs_us=10)
    facts = facts_of(trace)
    assert facts.inferred_steps is None
    assert not len(facts.steps)
