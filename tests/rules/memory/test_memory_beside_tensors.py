"""GD405: what grows on the host that the trace does not show, or that no tensor of Python's holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.rules.answer import CannotTell, Clear, RuleAnswer
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.training.noting_tensors import KEY
from tb_gpudiag.wording.quantity import size
from tests.builder import TraceBuilder
from tests.rules.memory_stage import MIB, STEP_US, job, only, unsure
from tests.rules.noted_stage import check_noted, held_by, noted
from tests.rules.stage import cannot_tell, facts_of, is_clear


@pytest.mark.parametrize(
    ("came", "went", "older", "grows"),
    [
        (8, 0, 12, True),
        (8, 8, 12, False),  # a buffer
        (4, 0, 12, False),  # not one in each step
        (8, 0, 0, False),  # a cache that is filled at once
    ],
)
def test_tensors_that_the_trace_does_not_show_are_told(
    came: int, went: int, older: int, grows: bool, tmp_path: Path
) -> None:
    """The profiler does not see what threads allocate that the job starts itself."""
    notes = noted({MIB: came}, {MIB: went}, older=older, steps=20)
    answer = check_noted([0] * 8, notes, tmp_path)
    assert isinstance(answer, CannotTell if grows else Clear)
    if isinstance(answer, CannotTell):
        assert f"holds {size(MIB, 'per step')} more" in answer.reason
        assert "a thread" in answer.hint


def test_what_a_thread_keeps_since_the_job_began_is_a_leak_of_its_holder(tmp_path: Path) -> None:
    history = [[step, MIB * step] for step in (4, 8, 16, 24, 32)]
    written = noted({MIB: 8}, {}, older=24, steps=32)
    written |= {"history": history, "holders": held_by(["/home/me/train.py(3): workspace"])}
    found = only(check_noted([0] * 8, written, tmp_path))
    assert found.title == f"Host memory grows by {size(MIB, 'per step')}"
    assert "A thread" in found.summary
    assert found.places[0].function == "workspace"
    fell = written | {"history": [[4, 9 * MIB], [8, 9 * MIB], [16, 0], [24, 24 * MIB], [32, 32 * MIB]]}
    assert cannot_tell(check_noted([0] * 8, fell, tmp_path))
    full = written | {"holders": held_by([], type="deque", entries=32, limit=40)}
    assert cannot_tell(check_noted([0] * 8, full, tmp_path))


def _malloc(*mebibytes: int) -> list[list[int]]:
    return [[step, MIB * each] for step, each in zip((4, 8, 16, 24), mebibytes, strict=True)]


OTHERS = noted({512: 6}, {512: 6}, steps=32) | {"history": [[step, 3_072] for step in (4, 8, 16, 24, 32)]}


def test_what_no_tensor_of_pythons_holds_is_a_leak_if_malloc_gave_out_as_much(tmp_path: Path) -> None:
    found = only(check_noted([MIB] * 6, OTHERS | {"malloc": _malloc(4, 8, 16, 24)}, tmp_path))
    assert found.sure
    assert "C++" in found.summary


@pytest.mark.parametrize(("per_step", "cause"), [(10, ": retained autograd graph"), (0, "")])
def test_what_python_does_not_hold_may_be_in_a_graph(per_step: int, cause: str, tmp_path: Path) -> None:
    nodes = [[step, 40 + per_step * step] for step, _ in OTHERS["history"]]
    notes = OTHERS | {"malloc": _malloc(4, 8, 16, 24), "nodes": nodes}
    found = only(check_noted([MIB] * 6, notes, tmp_path))
    assert found.title == f"Host memory grows by {size(MIB, 'per step')}{cause}"
    assert ("C++" in found.summary) != bool(cause)


def _check_nodes(folder: Path, *, updates: int = 8, **more: Any) -> RuleAnswer:
    """What is said of losses that are listed after their backward pass: the trace shows nothing of it."""
    roots = [{"bytes": 4, "functions": [["/home/me/train.py(7): collect"]], "graph": 0.0}]
    nodes = {"nodes": [[step, 40 * step] for step, _ in OTHERS["history"]], "roots": roots}
    trace = TraceBuilder(top_level={KEY: OTHERS | nodes | {"malloc": _malloc(4, 8, 16, 24)} | more})
    main = trace.thread()
    for step in range(8):
        main.step(step, at=step * STEP_US, us=STEP_US - 2)
        main.op("aten::mm", at=step * STEP_US + 10, us=20)
        main.free(main.alloc(MIB, at=step * STEP_US + 15, device=None), at=step * STEP_US + 40)
        if step < updates:
            main.annotation("Optimizer.step#SGD.step", at=step * STEP_US + 50, us=10)
    return RULE.check(facts_of(trace, folder))


def test_graphs_are_kept_though_a_backward_pass_has_freed_what_is_in_them(tmp_path: Path) -> None:
    found = only(_check_nodes(tmp_path))
    assert found.title == f"Host memory grows by {size(MIB, 'per step')}: retained autograd graph"
    assert found.places[0].function == "collect"


@pytest.mark.parametrize(
    "more",
    [
        {"updates": 2},  # inner steps
        {"nodes": [[step, 40 * min(step, 20)] for step in (4, 8, 16, 24, 32)]},
        {"nodes": [[step, 40] for step in (4, 8, 16, 24, 32)]},
        {"malloc": [[step, MIB] for step in (4, 8, 16, 24)]},
        {"roots": [{"bytes": 4, "functions": [], "type": "deque", "entries": 32, "limit": 64}]},
    ],
)
def test_graphs_that_may_go_are_no_leak(more: dict[str, Any], tmp_path: Path) -> None:
    assert not isinstance(_check_nodes(tmp_path, **more), list)


def test_nodes_may_be_larger_than_the_tensors_of_which_few_have_a_graph(tmp_path: Path) -> None:
    held = [[step, 3 * MIB * step] for step in (4, 8, 16, 24, 32)]
    notes = noted({2 * MIB: 6, MIB: 6}, {}, older=24, steps=32) | {"attached": {str(MIB): 6}, "history": held}
    notes |= {"nodes": [[at, at * 10] for at, _ in held], "malloc": _malloc(32, 64, 128, 192)}
    trace = job([2 * MIB] * 6, device=None, operator="aten::log", top_level={KEY: notes})
    thread = trace.thread()
    for step in range(6):
        thread.op("aten::exp", at=step * STEP_US + 75, us=10)
        thread.alloc(MIB, at=step * STEP_US + 77, device=None)
    assert only(RULE.check(facts_of(trace, tmp_path))).title.endswith("per step: retained autograd graph")


def test_what_is_held_when_the_profiler_warms_up_is_not_malloc_alone(tmp_path: Path) -> None:
    """History then is too close to the recording's beginning to be steady."""
    written = OTHERS | {"history": OTHERS["history"][:3] + OTHERS["history"][4:]}
    malloc = {"malloc": _malloc(4, 8, 16, 24)}
    assert only(check_noted([MIB] * 6, written | malloc | {"warm_up": [[24, 3_072]]}, tmp_path / "known"))
    assert unsure(check_noted([MIB] * 6, written | malloc, tmp_path / "unknown"))


def test_what_no_tensor_of_pythons_holds_is_a_full_buffer_if_malloc_gave_out_no_more(tmp_path: Path) -> None:
    answer = check_noted([MIB] * 6, OTHERS | {"malloc": _malloc(4, 8, 12, 12)}, tmp_path)
    assert isinstance(answer, Clear)
    assert "got no more" in answer.reason


@pytest.mark.parametrize(
    ("kept", "malloc"),
    [
        ([MIB] * 6, _malloc(0, 0, 12, 16)),  # half as much
        ([MIB] * 6, _malloc(4, 8, 16, 24)[1:]),  # too few to be steady
        ([MIB] * 6, [[4, "1"]]),
        ([MIB, 0] * 6, _malloc(4, 8, 12, 12)),  # now and then: it may in the next step
    ],
)
def test_what_no_tensor_of_pythons_holds_is_open_if_malloc_does_not_decide(
    kept: list[int], malloc: object, tmp_path: Path
) -> None:
    assert cannot_tell(check_noted(kept, OTHERS | {"malloc": malloc}, tmp_path))


def test_malloc_says_nothing_of_what_python_holds(tmp_path: Path) -> None:
    """A list that has begun late may be one that is dropped now and then."""
    written = noted({MIB: 6}, {}, steps=32) | {"malloc": _malloc(4, 4, 4, 4), "history": OTHERS["history"]}
    assert "now and then" in unsure(check_noted([MIB] * 6, written, tmp_path)).reason


@pytest.mark.parametrize(("malloc", "told"), [((4, 8, 16, 24), True), ((4, 8, 8, 8), False)])
def test_memory_that_is_not_for_tensors_is_told(malloc: tuple[int, ...], told: bool, tmp_path: Path) -> None:
    answer = check_noted([0] * 8, OTHERS | {"malloc": _malloc(*malloc)}, tmp_path)
    assert isinstance(answer, CannotTell if told else Clear)
    if isinstance(answer, CannotTell):
        assert f"{size(MIB, 'per step')} more memory" in answer.reason
        assert "NumPy" in answer.reason


@pytest.mark.parametrize(
    ("kept", "goes_on"),
    [
        ([0, 0, MIB, 0, 0, 0, 0, MIB, 0, 0, 0], True),  # each fifth step
        ([0, MIB, 0, MIB, 0, 0, 0, 0, 0, 0, 0], False),  # it has stopped
        ([0, 0, 0, 0, 0, MIB, 0, 0, 0, 0, 0], False),  # once
        ([0, 0, 900, 0, 0, 0, 0, 900, 0, 0, 0], False),  # numbers
    ],
)
def test_memory_that_rises_now_and_then_and_never_falls_is_open(
    kept: list[int], goes_on: bool, tmp_path: Path
) -> None:
    answer = RULE.check(facts_of(job(kept, device=None), tmp_path))
    assert isinstance(answer, CannotTell if goes_on else Clear)
    if isinstance(answer, CannotTell):
        assert "never fell" in answer.reason
    assert is_clear(check_noted(kept, noted({MIB: 2}, {MIB: 2}), tmp_path / "noted"))


def test_memory_that_tensors_have_grown_by_is_not_told_again(tmp_path: Path) -> None:
    history = [*_malloc(4, 8, 16, 24), [32, 32 * MIB]]
    written = OTHERS | {"malloc": _malloc(4, 8, 16, 24), "history": history}
    assert isinstance(check_noted([0] * 8, written, tmp_path), Clear)
