"""What leaks look like in the history of a GPU's allocator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.memory.memory_leak import RULE
from tests.rules.memory.test_leak_judged import BACKWARD, MODULE, Snapshot
from tests.rules.memory_stage import MIB, only, unsure

HELPER = "train.py(30): values"
GRAD = "/opt/lib/python3.11/site-packages/torch/autograd/__init__.py(500): grad"


@pytest.mark.parametrize("shared", [True, False])
def test_the_line_that_keeps_is_not_that_of_a_helper_whose_tensors_others_let_go(
    shared: bool, tmp_path: Path
) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        if shared:
            snapshot.drop(snapshot.take(MIB, "train.py(8): step", HELPER))
        snapshot.take(MIB, "train.py(9): keep", HELPER)
    place = only(RULE.check(snapshot.facts(tmp_path))).places[0]
    assert (place.function, place.line) == (("keep", 9) if shared else ("values", 30))


def test_a_comprehension_is_said_by_the_function_around_it(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(MIB, "train.py(9): keep", "train.py(10): <listcomp>")
    place = only(RULE.check(snapshot.facts(tmp_path))).places[0]
    assert (place.function, place.line) == ("keep", 10)


def test_a_recursion_is_one_site_however_deep_it_is(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for step in range(10):
        snapshot.train()
        snapshot.take(MIB, *["train.py(9): descend"] * (step + 1))
    assert only(RULE.check(snapshot.facts(tmp_path))).cost_bytes_per_step == MIB


@pytest.mark.parametrize("call", [[BACKWARD], [GRAD], []])
def test_what_has_no_frames_is_of_the_engine(call: list[str], tmp_path: Path) -> None:
    """A call of the engine with gradients of the outputs allocates nothing itself. Older memory has no frames
    either, and is no part of it."""
    snapshot = Snapshot()
    snapshot.take(12 * MIB)
    snapshot.traces = [[] for _ in snapshot.traces]
    for _ in range(10):
        snapshot.train()
        for line in (20, 21):
            snapshot.take(MIB, "train.py(9): adapt", MODULE, f"model.py({line}): forward")
        if call:
            snapshot.drop(snapshot.take(512, "train.py(10): adapt", *call))
        snapshot.at += 10
        snapshot.allocate(MIB, at=snapshot.at)
    assert only(RULE.check(snapshot.facts(tmp_path))).title.endswith("retained autograd graph")


@pytest.mark.parametrize("known", [True, False])
def test_what_a_hook_in_the_engines_thread_keeps_is_gradients(known: bool, tmp_path: Path) -> None:
    """Its stack does not begin as the others do, if those show how Python's threads begin."""
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        if known:
            snapshot.at += 10
            address = snapshot.allocate(
                MIB, at=snapshot.at, stack=["train.py(80): <module>", "train.py(3): main"]
            )
            snapshot.drop(address)
        snapshot.at += 10
        snapshot.allocate(MIB, at=snapshot.at, stack=["train.py(9): keep"])
    if known:
        for entry in snapshot.traces[0]:
            if len(entry["frames"]) > 1:
                entry["frames"].append({"filename": "train.py", "line": 80, "name": "<module>"})
    found = only(RULE.check(snapshot.facts(tmp_path)))
    assert found.title.endswith("retained gradients") is known
    assert found.places[0].function == "keep"


@pytest.mark.parametrize(("kept", "cause"), [(4096, "retained small tensors"), (16384, "")])
def test_a_metric_is_small_where_no_operator_says_that_it_sums_up(
    kept: int, cause: str, tmp_path: Path
) -> None:
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(kept, "train.py(9): keep")
    assert only(RULE.check(snapshot.facts(tmp_path))).title.partition(": ")[2] == cause


def test_two_that_come_and_one_that_goes_are_a_leak(tmp_path: Path) -> None:
    """The floor rises to the end: what goes is not for want of room."""
    snapshot, kept = Snapshot(), list[int]()
    for _ in range(20):
        snapshot.train()
        kept += [snapshot.take(MIB, "train.py(9): keep") for _ in range(2)]
        if len(kept) > 24:
            snapshot.drop(kept.pop(0))
        else:
            snapshot.drop(kept.pop())
    assert only(RULE.check(snapshot.facts(tmp_path))).cost_bytes_per_step == pytest.approx(MIB, rel=0.1)


def growing(folder: Path, *more: int, size: int = MIB) -> RuleAnswer:
    """Keep so many more tensors in each step."""
    snapshot = Snapshot()
    for count in more:
        snapshot.train()
        for _ in range(count):
            snapshot.take(size, "train.py(9): keep")
    folder.mkdir(exist_ok=True)
    return RULE.check(snapshot.facts(folder))


def test_a_quick_start_does_not_hide_that_growth_goes_on(tmp_path: Path) -> None:
    """A pool that fills, of which every third entry is never given back."""
    assert only(growing(tmp_path, *[3] * 7, *[0, 0, 3] * 8)).cost_bytes_per_step == pytest.approx(
        MIB, rel=0.2
    )


@pytest.mark.parametrize("more", [True, False])
def test_a_line_whose_callers_take_turns_keeps_what_both_do(more: bool, tmp_path: Path) -> None:
    """A hook keeps each module's last output, in training and in the evaluation of some steps."""
    snapshot, kept, evaluated = Snapshot(), list[int](), {2, 4, 7, 8, 11, 15, 16, 19, 21}
    for step in range(24):
        caller = "train.py(10): evaluate" if step in evaluated else "train.py(9): train"
        snapshot.train()
        for line in range(20, 40):
            snapshot.drop(snapshot.take(512, f"train.py({line}): log"))
        hooks = step // 3 + 1 if more else 10
        now = [snapshot.take(MIB, caller, "hooks.py(7): on_forward") for _ in range(hooks)]
        snapshot.drop(*kept)
        kept = now
    answer = RULE.check(snapshot.facts(tmp_path))
    assert isinstance(answer, list) is more
    if more:
        assert only(answer).places[0].function == "on_forward"


def test_a_history_without_steps_says_how_long_a_longer_one_is(tmp_path: Path) -> None:
    snapshot = Snapshot()
    for _ in range(20):
        snapshot.take(MIB, "train.py(5): predict", MODULE)
    answer = unsure(RULE.check(snapshot.facts(tmp_path)))
    assert "neither marks steps nor shows any" in answer.reason
    assert "more than 64 batches" in answer.how_to_record
    assert "prof.step()" not in answer.how_to_record
