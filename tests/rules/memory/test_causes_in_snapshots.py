"""Causes and lines of leaks in the history of a GPU's allocator, which has stacks and an order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.memory.memory_leak import RULE
from tests.rules.memory.test_leak_judged import BACKWARD, OPTIMIZER, TORCH, Snapshot
from tests.rules.memory_stage import MIB, only

CALL = f"{TORCH}/nn/modules/module.py(1782): _call_impl"
LINEAR = [CALL, f"{TORCH}/nn/modules/linear.py(125): forward"]
TANH = [CALL, f"{TORCH}/nn/modules/activation.py(432): forward"]
APPLY = f"{TORCH}/autograd/function.py(625): apply"
KIB = 1024


def _found(snapshot: Snapshot, folder: Path) -> Finding:
    return only(RULE.check(snapshot.facts(folder)))


def _cause(snapshot: Snapshot, folder: Path) -> str:
    return _found(snapshot, folder).title.partition(": ")[2]


def _function(snapshot: Snapshot, folder: Path) -> str:
    return _found(snapshot, folder).places[0].function


@pytest.mark.parametrize("state", [True, False])
def test_parameters_that_are_made_anew_are_no_graph(state: bool, tmp_path: Path) -> None:
    """They stay with their gradients and what an optimizer has of them."""
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        for line in (8, 9):
            snapshot.take(MIB, f"train.py({line}): make")
        snapshot.take(MIB, "train.py(10): step", BACKWARD)
        if state:
            snapshot.take(MIB, "train.py(11): step", *OPTIMIZER)
    assert _cause(snapshot, tmp_path) == ("" if state else "retained autograd graph")


def test_a_graph_may_have_more_of_its_inputs_than_of_its_results(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(8 * MIB, "train.py(8): step", "data.py(3): batch")
        snapshot.take(MIB, "train.py(9): step", *LINEAR)
        snapshot.take(MIB, "train.py(9): step", *TANH)
        snapshot.take(512, "train.py(9): step")
    found = _found(snapshot, tmp_path)
    assert found.title.endswith("retained autograd graph")
    assert found.places[0].function == "step"


def test_what_a_function_with_its_own_backward_saves_is_a_graph(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(MIB, "train.py(9): step", *TANH)
        snapshot.take(MIB, "train.py(9): step", APPLY, "ops.py(5): forward")
        snapshot.take(MIB, "train.py(8): step", "data.py(3): batch")
        snapshot.take(512, "train.py(9): step")
    assert _cause(snapshot, tmp_path) == "retained autograd graph"


def test_outputs_of_a_model_that_two_functions_call_are_no_graph(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        for caller in ("train.py(9): judge_real", "train.py(19): judge_fake"):
            snapshot.take(MIB, "train.py(30): both", caller, *LINEAR)
    found = _found(snapshot, tmp_path)
    assert found.title.endswith("retained module outputs")
    assert found.places[0].function == "both"


@pytest.mark.parametrize(("others", "cause"), [(0, "module outputs"), (3, "autograd graph")])
def test_a_recurrent_layer_leaves_more_than_its_results_in_a_graph(
    others: int, cause: str, tmp_path: Path
) -> None:
    snapshot = Snapshot()
    cell = [CALL, f"{TORCH}/nn/modules/rnn.py(1757): forward"]
    for _ in range(10):
        snapshot.train()
        snapshot.take(4 * MIB, "train.py(9): act", *cell)
        for _ in range(others):
            snapshot.take(MIB, "train.py(9): act", *cell)
    assert _cause(snapshot, tmp_path) == f"retained {cause}"


@pytest.mark.parametrize(("each", "cause"), [(1, "retained small tensors"), (3, "")])
def test_a_line_that_keeps_several_small_tensors_may_keep_states(
    each: int, cause: str, tmp_path: Path
) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        for _ in range(each):
            snapshot.take(4 * KIB, "train.py(9): play")
    assert _cause(snapshot, tmp_path) == cause


def test_a_number_whose_graph_outlives_the_pass_is_kept_by_its_function(
    tmp_path: Path,
) -> None:
    """The graph of what is handed to backward() goes."""
    snapshot = Snapshot()
    caller = "train.py(10): step"
    for _ in range(10):
        snapshot.train()
        hidden = snapshot.take(MIB, caller, "train.py(25): loss", *LINEAR)
        snapshot.take(MIB, caller, "train.py(20): entropy", *LINEAR)
        snapshot.take(MIB, caller, "train.py(20): entropy", *TANH)
        snapshot.take(512, caller, "train.py(21): entropy")
        call = snapshot.take(512, "train.py(11): step", BACKWARD)
        snapshot.drop(hidden, call)
    assert _function(snapshot, tmp_path) == "entropy"


def test_what_stays_beside_is_called_by_one_function_at_different_lines(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for step in range(10):
        snapshot.train()
        snapshot.take(MIB, "train.py(8): step", "data.py(3): batch")
        if step:
            snapshot.take(MIB, "train.py(9): step", "model.py(4): predict")
    place = _found(snapshot, tmp_path).places[0]
    assert (place.function, place.line) == ("step", 9)


def test_a_function_that_other_callers_let_go_of_decides_nothing(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(4):
        snapshot.drop(snapshot.take(MIB, "train.py(4): warm_up", "data.py(3): batch"))
    for _ in range(10):
        snapshot.train()
        snapshot.take(MIB, "train.py(8): step", "data.py(3): batch")
    assert _function(snapshot, tmp_path) == "step"


def test_what_a_call_lets_go_itself_says_nothing_about_its_callers(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for step in range(10):
        snapshot.train()
        stack = [f"train.py({8 if step else 7}): step", "data.py(3): batch"]
        for _ in range(9):
            snapshot.drop(snapshot.take(MIB, *stack))
        snapshot.take(MIB, *stack)
    assert _function(snapshot, tmp_path) == "batch"


@pytest.mark.parametrize(
    ("helper", "others", "name"),
    [
        ("data.py(3): batch", (), "step"),
        ("train.py(30): batch", (), "batch"),
        ("/opt/lib/python3.11/site-packages/torchmetrics/metric.py(3): update", (), "update"),
        ("data.py(3): batch", ("data.py(4): batch",), "batch"),
        ("data.py(3): batch", ("data.py(3): batch", "data.py(9): noise"), "batch"),
    ],
)
def test_a_helper_of_another_file_that_makes_nothing_else_returns_it(
    helper: str, others: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        if others:
            snapshot.drop(snapshot.take(MIB, "train.py(8): step", *others))
        snapshot.take(MIB, "train.py(8): step", helper)
    assert _function(snapshot, tmp_path) == name


def test_what_stays_for_two_causes_is_kept_by_who_calls_both(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(200 * KIB, "train.py(8): keep", "train.py(20): labels")
        snapshot.take(MIB, "train.py(9): keep", "train.py(24): predict", *LINEAR)
    found = _found(snapshot, tmp_path)
    assert [place.function for place in found.places] == ["keep", "predict", "labels"]
