"""Inferred steps: the repetition is found, and it is the step and not the layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.stepping.inferred import InferredSteps, StepEvidence
from tb_gpudiag.facts.stepping.repetition import Repetition, find_repetition
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.real_traces import first_in
from tests.simulator import Job, simulate
from tests.with_each import with_each


def found_in(sequence: list[int], *, whole: int = -1, pause: int = -1) -> Repetition | None:
    """Find the repetition. whole: a number that only a whole repetition has. pause: the number after a
    pause."""
    numbers = np.array(sequence, np.int64)
    return find_repetition(numbers, numbers == whole, (numbers == pause).astype(np.int64))


def repetition(sequence: list[int], *, whole: int = -1, pause: int = -1) -> tuple[int, list[int]]:
    found = found_in(sequence, whole=whole, pause=pause)
    assert found is not None
    return found.period, found.start.tolist()


def layer(size: int, first: int = 100) -> list[int]:
    return list(range(first, first + size))


def test_a_loop_between_setup_and_tail() -> None:
    unit = [1, 2, 3, 2, 1, 4, 5, 6, 6, 7]
    assert repetition([91, 92, 93, *unit * 5, 94, 95]) == (10, [3, 13, 23, 33, 43])


@with_each("head", [1, 2, 3, 7, 30, 60])
@with_each("size", [3, 30])
def test_the_step_and_not_its_layers(size: int, head: int) -> None:
    """Even if a step has little else than layers, or its length is a multiple of theirs."""
    step = layer(size) * 12 + layer(head, 1)
    length = 12 * size + head
    assert repetition(step * 10) == (length, [i * length for i in range(10)])


def test_the_step_and_not_the_layers_of_its_two_passes() -> None:
    step = [1, *layer(20, 100) * 24, 2, 3, *layer(40, 200) * 24, *[5, 6] * 100]
    assert repetition(step * 3) == (len(step), [0, len(step), 2 * len(step)])


def test_something_in_some_steps_only_does_not_merge_them() -> None:
    step = [1, *layer(80), 2]
    ten = step * 9 + [1, *layer(80), 2, 50, 51]
    period, start = repetition(ten * 4, whole=1)
    assert period == len(step)
    assert len(start) == 40


def test_a_step_with_another_kernel_is_still_a_step() -> None:
    step = layer(60)
    other = [*step[:30], 7, *step[31:]]
    assert repetition(step * 4 + other + step * 4) == (60, [i * 60 for i in range(9)])
    assert repetition(other + step * 4, pause=100) == (60, [i * 60 for i in range(5)])


def test_two_in_a_row_are_enough_if_there_are_more() -> None:
    """Every third step reads a value in between."""
    step = layer(60)
    other = [*step[:30], 7, *step[30:]]
    period, start = repetition((step * 2 + other) * 4, whole=100)
    assert period == 60
    assert len(start) >= 8


def test_elements_between_repetitions_belong_to_none() -> None:
    step, evaluation = layer(50), layer(40, 500)
    period, start = repetition(step * 4 + evaluation + step * 4)
    assert period == 50
    assert start == [0, 50, 100, 150, 240, 290, 340, 390]


def test_the_repetition_begins_after_the_longest_pause() -> None:
    """Also if the recording began in the middle of a step."""
    step = layer(40)
    assert repetition(step[35:] + step * 4, pause=100) == (40, [5, 45, 85, 125])


@with_each("seed", range(5))
@with_each("kinds", [2, 20, 500])
def test_chance_is_not_a_repetition(kinds: int, seed: int) -> None:
    assert found_in(np.random.default_rng(seed).integers(0, kinds, 5_000).tolist()) is None


def test_two_of_a_kind_are_not_a_repetition() -> None:
    assert found_in(layer(50) * 2) is None


def test_a_repetition_covers_most_of_the_sequence() -> None:
    other = np.random.default_rng(0).integers(200, 900, 200).tolist()
    assert found_in(layer(30) * 5 + other) is None


@with_each("sequence", [[], [1], [1] * 500, [1, 2] * 3])
def test_too_short_a_sequence_has_no_repetition(sequence: list[int]) -> None:
    assert found_in(sequence) is None


def unmarked(trace: Trace) -> Facts:
    """Return the facts of the trace without its step marks."""
    names = [name.replace("ProfilerStep", "Section") for name in trace.events.names]
    return Facts(replace(trace, events=replace(trace.events, names=names)))


def inferred(facts: Facts) -> InferredSteps:
    found = facts.inferred_steps
    assert found is not None
    return found


JOBS = {
    "healthy": Job(),
    "slow loader": Job(workers=0, batch_us=8_000),
    "waits for values": Job(checks=24),
    "allocates": Job(workspace=4),
    "graph": Job(graph=True),
    "no stacks": Job(with_stacks=False),
    "many layers": Job(blocks=60, kernel_us=10, small_us=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_every_simulated_step_is_found(name: str, tmp_path: Path) -> None:
    run = simulate(JOBS[name])
    facts = unmarked(read_trace(str(run.write(tmp_path))))
    assert inferred(facts).are_steps
    steps, borders_ns = run.truth.steps, facts.borders_ns
    assert len(borders_ns) == len(steps) + 1
    # Between a step's last launch and the next mark there is little more than the profiler's own step().
    for i, step in enumerate(steps[:-1]):
        assert borders_ns[i + 1] - borders_ns[i] == pytest.approx(step.duration_ns, rel=0.02, abs=5_000)
        assert borders_ns[i] == pytest.approx(step.start_ns, abs=40_000)


def test_inferred_steps_follow_each_other(tmp_path: Path) -> None:
    steps = inferred(unmarked(read_trace(str(simulate(Job(workers=0)).write(tmp_path))))).steps
    assert (steps.start_ns[1:] == steps.end_ns[:-1]).all()


def test_recorded_steps_are_not_inferred_again(tmp_path: Path) -> None:
    assert Facts(read_trace(str(simulate(Job()).write(tmp_path)))).inferred_steps is None


def test_layers_without_an_enclosing_module_are_not_steps() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(12):
        at = 100.0 * i
        main.frame(f"nn.Module: Block_{i}", at=at, us=90)
        for kernel in range(6):
            main.launch(f"k{kernel}", at=at + 12 * kernel, us=5, runs_at=at + 12 * kernel + 6, runs_us=3)
    assert inferred(facts_of(trace)).evidence is StepEvidence.NONE


def test_calls_of_one_module_are_steps() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(12):
        at = 100.0 * i
        main.frame("nn.Module: Model_0", at=at, us=90)
        for kernel in range(6):
            main.launch(f"k{kernel}", at=at + 12 * kernel, us=5, runs_at=at + 12 * kernel + 6, runs_us=3)
    found = inferred(facts_of(trace))
    assert (found.evidence, len(found)) == (StepEvidence.MODULE, 12)


def _passes(count: int, *, modules: bool) -> TraceBuilder:
    """Build `count` passes of a model of 12 layers of 4 kernels, without copies between host and device."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for _ in range(count):
        if modules:
            main.frame("nn.Module: Model_0", at=at, us=50 * 12)
        for kernel in [f"layer{i}" for i in range(4)] * 12:
            main.launch(kernel, at=at, us=5, runs_at=at + 6, runs_us=3)
            at += 12
        at += 30
    return trace


def test_layers_of_one_pass_are_not_steps() -> None:
    found = inferred(facts_of(_passes(1, modules=True)))
    assert (found.evidence, found.inside, found.are_steps) == (
        StepEvidence.ONE_CALL,
        "nn.Module: Model_0",
        False,
    )


def test_without_evidence_a_repetition_is_not_a_step() -> None:
    found = inferred(facts_of(_passes(1, modules=False)))
    assert (found.evidence, found.inside, found.are_steps) == (StepEvidence.NONE, "", False)


WITH_STEPS = {
    "a100_recsys_queued": 5,
    "h100_transformer_two_windows": 3,
    "mi300_resnet_checkpoint": 3,
    "rtx5080_with_cuda_graph": 7,
    "rtx5080_without_cuda_graph": 7,
    "v100_ddp_memory": 5,
    "v100_ddp_resnet_healthy": 5,
    "v100_resnet50_workers0": 6,
    "v100_resnet50_workers4": 6,
}


@pytest.mark.parametrize("folder", WITH_STEPS)
def test_inferred_steps_are_the_recorded_ones_on_real_traces(shared_traces: Path, folder: str) -> None:
    trace = first_in(folder).trace
    marked = Facts(trace)
    found = inferred(unmarked(trace))
    assert len(found) == len(marked.recorded_steps) == WITH_STEPS[folder]
    assert found.are_steps == (folder != "rtx5080_with_cuda_graph")
    steps, recorded = found.steps, marked.recorded_steps.in_a_row()
    # The last one ends with its launches, and the beginning of the first one is an estimate.
    for i in range(1, len(found) - 1):
        length = recorded.end_ns[i] - recorded.start_ns[i]
        # The time between two launches limits how exactly a step of a tenth of a millisecond is found.
        assert steps.end_ns[i] - steps.start_ns[i] == pytest.approx(length, rel=0.01, abs=100_000)


@pytest.mark.parametrize(
    ("folder", "repetitions", "launches", "evidence"),
    [
        # Batches of points, eight after each of two passes of the image encoder, which take most of the time.
        ("a100_segment_anything", 8, 104, StepEvidence.PART),
        # Five batches in one recorded step.
        ("h100_owlv2", 5, 1_033, StepEvidence.MODULE),
        # Layers: 12, 12, 4, and 36 in which every second one has another attention.
        ("h100_timesformer", 12, 43, StepEvidence.ONE_CALL),
        ("mi300_falconsai", 12, 12, StepEvidence.ONE_CALL),
        ("h100_bert_small", 4, 12, StepEvidence.ONE_CALL),
        # Eight particle attention blocks; the trace has neither stacks nor modules.
        ("a100_particle_transformer", 8, 43, StepEvidence.NONE),
    ],
)
def test_what_repeats_in_real_traces_without_steps(
    shared_traces: Path, folder: str, repetitions: int, launches: int, evidence: StepEvidence
) -> None:
    found = inferred(unmarked(first_in(folder).trace))
    assert (len(found), found.period_launches, found.evidence) == (repetitions, launches, evidence)


@pytest.mark.parametrize("folder", ["v100_dlrm_8ranks", "mi300_vllm_graph", "b200_vllm_eager"])
def test_real_traces_without_a_repetition(shared_traces: Path, folder: str) -> None:
    assert unmarked(first_in(folder).trace).inferred_steps is None
