"""State that an optimizer makes late, and what it keeps of each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.shared.leak_pace import MOST_STATES
from tests.builder import TraceBuilder
from tests.rules.memory.test_copies_at_failure import Job
from tests.rules.memory.test_failure_advice import FORWARD, INIT, fail
from tests.rules.memory.test_failure_causes import BACKWARD, found_in
from tests.rules.memory_stage import MIB, only, unsure
from tests.rules.stage import facts_of

TORCH = "/opt/python3.11/site-packages/torch"


def kept_by_optimizer(folder: Path, *, layers: int, each: int) -> RuleAnswer:
    """Build layers of one size, then an optimizer that keeps so many tensors of that size in each step."""
    trace = TraceBuilder()
    maker = trace.thread("builder")
    maker.frame(f"{TORCH}/nn/modules/linear.py(98): __init__", at=0, us=1)
    for _ in range(layers):
        maker.alloc(MIB, at=0.5, device=None)
    maker.frame(f"{TORCH}/optim/optimizer.py(340): __init__", at=1.5, us=1)
    main = trace.thread()
    for step in range(24):
        at = step * 100.0
        main.step(step, at=at, us=98)
        main.frame("train.py(3): train", at=at + 1, us=96)
        main.frame(f"{TORCH}/optim/adam.py(213): step", at=at + 2, us=90)
        main.op("aten::zeros_like", at=at + 10, us=40)
        for number in range(each):
            main.alloc(MIB, at=at + 11 + number, device=None)
    return RULE.check(facts_of(trace, folder))


@pytest.mark.parametrize(("layers", "each"), [(24, 2), (24, 3)])
def test_state_of_a_layer_more_in_each_step_may_end(layers: int, each: int, tmp_path: Path) -> None:
    assert "gradients later" in unsure(kept_by_optimizer(tmp_path, layers=layers, each=each)).reason


def test_more_tensors_than_its_parameters_have_states_are_a_leak(tmp_path: Path) -> None:
    layers = 24 * 2 // (MOST_STATES + 1)
    assert only(kept_by_optimizer(tmp_path, layers=layers, each=2)).sure


@pytest.mark.parametrize(("tables", "leaks"), [(12, False), (1, True)])
def test_state_that_fills_the_memory_is_no_leak(tables: int, leaks: bool, tmp_path: Path) -> None:
    """Each step trains a table that no step before has trained. Of one table, there is no state so often."""
    makes = [
        "train.py(7): fit",
        f"{TORCH}/optim/adam.py(220): step",
        f"{TORCH}/optim/adam.py(150): _init_group",
    ]
    snapshot = Job()
    snapshot.made(["train.py(3): main", INIT], [20] * tables)
    alive = list[int]()
    for _ in range(10):
        for address in alive:
            snapshot.free(address, at=snapshot.at + 5)
        alive = [*snapshot.made(FORWARD, [4]), *snapshot.made(["train.py(6): fit", BACKWARD], [20])]
        snapshot.made(makes, [20, 20])
    text = found_in(fail(snapshot, 20, makes), tmp_path).fix.text
    assert ("fix the leak that filled the memory" in text) is leaks
    assert ("Shard weights" in text) is not leaks
