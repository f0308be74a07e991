"""Names of the user's own functions say what a stretch is for: all of it is that, with its operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.rules.idle import host_bound
from tb_gpudiag.rules.shared.lost_time import lost_time
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, finding

STEP_US = 10_000.0


def _calls(function: str, *inside: str) -> TraceBuilder:
    """Steps of 10 ms, of which a function of the user's takes 8 ms: Python, and equally long parts in it."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = step * STEP_US
        main.step(step, at=at, us=STEP_US).frame("train.py(12): main", at=at, us=STEP_US)
        main.frame(f"train.py(30): {function}", at=at + 1, us=8_000)
        for i, name in enumerate(inside):
            part = main.op if "::" in name else main.frame
            part(name, at=at + 10 + 1_500 * i, us=1_400)
        main.op("aten::mm", at=at + 8_100, us=1_800)
    return trace


WRITES = (
    "aten::copy_",
    "torch/serialization.py(965): save",
    "<built-in method write of _io.BufferedWriter object at 0x7f>",
)


@pytest.mark.parametrize(
    "function", ["save_checkpoint", "dump_weights", "_save", "checkpoint", "write_model_state"]
)
def test_what_saves_is_saving_with_all_that_it_does(function: str, tmp_path: Path) -> None:
    found = finding(host_bound.RULE.check(facts_of(_calls(function, *WRITES), tmp_path)))
    assert found.title.startswith("Saving files takes 80.0%")
    assert found.places[0].function == function


@pytest.mark.parametrize("function", ["checkpoint", "save_memory_forward"])
def test_a_function_that_runs_a_model_saves_nothing(function: str, tmp_path: Path) -> None:
    facts = facts_of(_calls(function, "nn.Module: Block_0", "aten::mm"), tmp_path)
    assert "Saving" not in str(host_bound.RULE.check(facts))


@pytest.mark.parametrize(
    ("function", "collective", "communicates"),
    [
        ("average_gradients", "c10d::allreduce_", True),
        ("all_reduce_grads", "c10d::allreduce_", True),
        ("average_gradients", "aten::mul_", False),
        ("step", "c10d::allreduce_", False),
    ],
)
def test_averaging_over_ranks_is_communication_with_what_it_flattens_and_divides(
    function: str, collective: str, *, communicates: bool, tmp_path: Path
) -> None:
    facts = facts_of(_calls(function, "aten::cat", collective, "aten::div_"), tmp_path)
    lost = lost_time(facts)
    assert (lost.total_ns(lost.of(Cause.COLLECTIVE)) >= 4 * 7_900_000) == communicates
    assert (find_verdict(facts).limiter == "communication") == communicates
