"""How the pass that failed differs from those before: it calls a model more often, or its text is longer."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from tests.facts.memory.failing import BACKWARD, CALL, MIB, TORCH, Job

CELL = ["train.py(5): fit", CALL, f"{TORCH}/nn/modules/rnn.py(1757): forward"]
LOSS = ["train.py(5): fit", "loss.py(3): error"]
ACT = ["train.py(4): play", *CELL[1:]]


def test_a_longer_loop_of_calls_keeps_nothing_of_earlier_steps(tmp_path: Path) -> None:
    """Each step calls a cell at one line, with a loss in between, and a backward pass uses all of it."""
    job = Job()
    for calls in (2, 3, 6):
        made = [job.make(stack, 10) for _ in range(calls) for stack in (CELL, CELL, LOSS)]
        if calls < 6:
            made.append(job.make(BACKWARD, 1))
            job.drop(made)
    job.make(CELL, 10)
    since = job.fail(CELL, 10, tmp_path).memory[0].shortage.since
    assert since is not None
    assert (since.growth, len(since.kept)) == (inf, 0)


def test_of_calls_that_train_nothing_each_one_is_compared(tmp_path: Path) -> None:
    """Those that a job plays between its steps leave their results."""
    job = Job()
    for calls in (2, 3, 6):
        for _ in range(calls):
            job.drop([job.make(ACT, 10)])
            job.make(ACT, 10)
            job.make(["train.py(4): play"], 1)
        if calls < 6:
            job.drop([job.make(CELL, 10), job.make(BACKWARD, 1)])
    job.drop([job.make(ACT, 10)])
    memory = job.fail(ACT, 10, tmp_path).memory[0]
    since = memory.shortage.since
    assert since is not None
    assert since.growth == 1
    assert memory.allocations.bytes[since.kept].sum() >= 10 * 10 * MIB


@pytest.mark.parametrize("trains", [True, False])
def test_the_first_request_of_a_backward_pass_or_call_is_compared_with_others(
    trains: bool, tmp_path: Path
) -> None:
    """Each step keeps a note."""
    job = Job()
    for _ in range(5):
        made = [job.make(CELL, 20)]
        job.make(["train.py(5): fit", "log.py(3): note"], 2)
        if trains:
            made += [job.make(BACKWARD, 4), job.make(BACKWARD, 8)]
        job.drop(made)
    if trains:
        job.make(CELL, 20)
    memory = job.fail(BACKWARD if trains else CELL, 4 if trains else 20, tmp_path).memory[0]
    since = memory.shortage.since
    assert since is not None
    assert since.growth == 1
    assert memory.allocations.bytes[since.kept].sum() >= 8 * MIB


TEXT = ["train.py(5): fit", CALL, "model.py(8): forward"]


@pytest.mark.parametrize(
    ("grown", "quadratic"),
    [((4, 16, 16, 16, 16, 16), 5 * 16), ((4, 4, 4, 4, 4, 16), 16), ((1.5, 4, 4, 4, 4, 4, 4, 4), 0)],
)
def test_attention_is_seen_in_the_first_layer_of_a_text_that_is_too_long(
    grown: tuple[float, ...], quadratic: int, tmp_path: Path
) -> None:
    """Words are four times as many, and pairs of them sixteen times. One result that has grown less, of a
    part of the text, says nothing."""
    job = Job()
    lines = [[*TEXT, f"model.py({20 + i}): layer"] for i in range(len(grown))]
    made = [job.make(line, 1) for line in lines]
    made.append(job.make(BACKWARD, 1))
    job.drop(made)
    for line, times in zip(lines, grown, strict=True):
        job.make(line, times)
    assert job.fail(lines[-1], 990, tmp_path).memory[0].shortage.quadratic_bytes == quadratic * MIB
