"""The replay's error: one half of a recording predicts the other, and random delays make it fail."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.slowed_recording import WORST_ERROR, trusted_replay, why_not_replayed
from tb_gpudiag.trace.read import read_trace
from tests.builder import GpuSpan, TraceBuilder
from tests.facts import facts_of
from tests.real_traces import first_in
from tests.simulator import Simulated, simulate
from tests.simulator.scenarios import one_per_rule

# Public traces whose waits the model explains, and how far it is off.
EXPLAINED = {
    "v100_resnet50_workers0": 0.002,
    "v100_resnet50_workers4": 0.002,
    "v100_resnet50_second_workers0": 0.002,
    "v100_resnet50_second_workers4": 0.006,
    "v100_ddp_resnet_healthy": 0.003,
    "a100_ddp_resnet_flags": 0.015,
    "a100_segment_anything": 0.004,
    "b300_sglang_decode": 0.002,
    "h100_bert_small": 0.002,
    "h100_owlv2": 0.003,
    "h100_timesformer": 0.010,
    "h100_transformer_two_windows": 0.002,
    "mi300_falconsai": 0.006,
    "mi300_xdit_compiled": 0.002,
    "rtx5080_with_cuda_graph": 0.007,
}

# Others, and why: ranks wait for each other, or launches reach the GPU late for no recorded reason.
UNEXPLAINED = {
    "a100_recsys_queued": "collectives, and queued work that waits for something unrecorded",
    "diff_control": "collectives of uneven length",
    "diff_test": "collectives of uneven length",
    "mi300_resnet_checkpoint": "collectives of uneven length",
    "v100_ddp_memory": "collectives of uneven length",
    "v100_dlrm_8ranks": "collectives of a single step",
    "b200_vllm_eager": "collectives without steps",
    "rtx5080_without_cuda_graph": "launches arrive up to 0.3 ms late",
    "rtx5080_module_eager": "launches arrive up to 0.3 ms late",
}

SCENARIOS = [
    *("healthy", "launch_bound_fixed", "host_sync_fixed"),
    *(f.name for f in one_per_rule() if not f.rule.startswith(("GD4", "GD6")) and f.rule != "GD105"),
]
"""Without those in which the GPU itself waits for something that is not in the trace."""


@cache
def _simulated(name: str) -> Simulated:
    return simulate(name, seed=3, noise=0.1)


def _facts(run: Simulated, folder: Path) -> Facts:
    return Facts(read_trace(str(run.write(folder, gzipped=False))))


def _delayed(gpu: list[GpuSpan], share: float, seed: int) -> list[GpuSpan]:
    """Put random delays of 0 to 3 ms on this share of the starts. Streams keep their order."""
    draw, free = random.Random(seed), dict[int, int]()
    moved = []
    for span in gpu:
        delay = round(draw.uniform(0, 3e6)) if draw.random() < share else 0
        start = max(span.start_ns + delay, free.get(span.stream, 0))
        free[span.stream] = end = start + span.end_ns - span.start_ns
        moved.append(replace(span, start_ns=start, end_ns=end))
    return moved


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_simulated_job_is_predicted(name: str, tmp_path: Path) -> None:
    facts = _facts(_simulated(name), tmp_path)
    assert facts.replay.error < WORST_ERROR
    assert not why_not_replayed(facts)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("name", ["input_pipeline", "host_bound", "host_sync", "launch_bound"])
def test_random_delays_on_starts_fail_the_gate(name: str, share: float, tmp_path: Path) -> None:
    run = _simulated(name)
    late = replace(run.recording, gpu=_delayed(run.recording.gpu, share, seed=1))
    facts = _facts(replace(run, recording=late), tmp_path)
    assert facts.replay.unchanged.window_ns == pytest.approx(facts.replay.measured.window_ns, rel=0.01)
    assert trusted_replay(facts) is None
    for found in run_rules(facts, RULES).findings:
        assert found.finding.saving is None or found.finding.saving.basis != "replayed"
        if found.finding.removable is not None:
            [why] = [e for e in found.finding.evidence if e.label == "Saving not replayed"]
            assert "this trace does not explain" in why.text or "predicts the other" in why.text


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 20])
def test_random_delays_on_starts_of_a_real_trace_fail_the_gate(
    shared_traces: Path, tmp_path: Path, every: int
) -> None:
    [file] = (shared_traces / "h100_bert_small").rglob("*.json*")
    raw = file.read_bytes()
    trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    draw = random.Random(1)
    for event in trace["traceEvents"]:
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"} and draw.randrange(every) == 0:
            event["ts"] += draw.uniform(0, 3_000)
    moved = tmp_path / "moved_1.1.pt.trace.json"
    moved.write_text(json.dumps(trace))
    assert trusted_replay(Facts(read_trace(str(moved)))) is None


@pytest.mark.parametrize("folder", EXPLAINED)
def test_real_traces_that_the_model_explains(shared_traces: Path, folder: str) -> None:
    facts = first_in(folder)
    assert facts.replay.error <= EXPLAINED[folder]
    assert not why_not_replayed(facts)


@pytest.mark.parametrize("folder", UNEXPLAINED)
def test_real_traces_that_it_does_not_explain(shared_traces: Path, folder: str) -> None:
    assert re.search("does not explain", why_not_replayed(first_in(folder)))


def _collectives(length_us: Callable[[int, int], float]) -> TraceBuilder:
    """Build four steps with two exposed collectives each. length_us: of the step and the number in it."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for step in range(4):
        lengths = [length_us(step, number) for number in range(2)]
        main.step(step, at=at, us=700 + sum(lengths))
        main.frame("train.py(3): slow", at=at, us=300)
        begun = at + 300
        main.launch("gemm", at=begun, us=5, runs_at=begun + 8, runs_us=100)
        free = begun + 108
        for number, length in enumerate(lengths):
            issued = begun + 10 * (number + 1)
            main.launch("ncclDevKernel_AllReduce", at=issued, us=5, runs_at=free + 1, runs_us=length)
            free += length + 1
        main.sync(at=begun + 50, us=free + 4 - begun - 50)
        at += 700 + sum(lengths)
    return trace


def test_collectives_that_always_take_as_long_are_explained() -> None:
    assert not why_not_replayed(facts_of(_collectives(lambda _, number: 50 + 200 * number)))


@pytest.mark.parametrize(
    ("length_us", "basis", "said"),
    [
        (lambda step, _: 50 + 100 * (step % 3), "replayed", "Saving less sure"),
        (lambda step, number: 50 if number else 300 * step, "at most", "Saving not replayed"),
    ],
)
def test_waits_for_other_ranks_are_not_explained(
    length_us: Callable[[int, int], float], basis: str, said: str
) -> None:
    facts = facts_of(_collectives(length_us))
    assert "does not explain" in why_not_replayed(facts)
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD102"]
    assert found.saving is not None
    assert found.saving.basis == basis
    assert said in [evidence.label for evidence in found.evidence]


def test_collectives_of_a_single_step_are_not_explained() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.launch("gemm", at=0, us=5, runs_at=8, runs_us=300)
    main.launch("ncclDevKernel_AllReduce", at=10, us=5, runs_at=310, runs_us=600)
    main.sync(at=20, us=900)
    assert "does not explain" in why_not_replayed(facts_of(trace))
