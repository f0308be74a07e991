"""What holds a leak: the container that receives what a line allocates, and whether it drops entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.memory.memory_leak import RULE as GPU_LEAK
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, only, steps_of
from tests.rules.stage import facts_of

STEP_US = 100.0
KEEPER = "train.py(7): keep"
LATE = 1_000
"""A step of a job that has run for a while."""
TORCH = "/opt/lib/python3.11/site-packages/torch"


def _call(method: str, kind: str) -> str:
    return f"<built-in method {method} of {kind} object at 0x7f{abs(hash(method)) % 10**8:08d}>"


def keeping(
    *calls: str,
    steps: int = 8,
    first: int = LATE,
    hook: bool = False,
    begins: bool = False,
    inside: str = "",
) -> TraceBuilder:
    """Build a job on the CPU in whose steps `keep` allocates 1 MiB and makes these calls. begins: the
    trace shows the job's beginning, so nothing was full before. inside: what the first of the calls calls."""
    trace = TraceBuilder()
    for main, at in steps_of(trace, steps, first=first, built=begins):
        if hook:
            main.frame("nn.Module: Linear_0", at=at + 5, us=60)
            main.frame("torch/nn/modules/module.py(1782): _call_impl", at=at + 6, us=58)
            main.frame("torch/nn/modules/linear.py(125): forward", at=at + 8, us=10)
        main.op("aten::addmm" if hook else "aten::clone", at=at + 10, us=5)
        main.alloc(MIB, at=at + 12, device=None)
        if hook:
            main.frame(KEEPER, at=at + 30, us=20)
        for i, call in enumerate(calls):
            main.frame(call, at=at + 32 + 4 * i, us=2)
        if inside:
            main.frame(inside, at=at + 32.5, us=1)
        if not hook:
            main.frame(KEEPER, at=at + 5, us=60)
    return trace


def test_a_list_that_nothing_is_taken_from_is_named(tmp_path: Path) -> None:
    """It may be a full buffer: `del` is no call."""
    call = _call("append", "list")
    assert (
        "in keep (train.py, defined at line 7)"
        in only(RULE.check(facts_of(keeping(call), tmp_path / "open"))).summary
    )
    found = only(RULE.check(facts_of(keeping(call, begins=True), tmp_path / "sure")))
    assert "list.append in keep (train.py, defined at line 7)" in found.summary
    assert "removed nothing" in found.summary
    assert (found.places[0].function, found.places[0].line) == ("keep", 7)


@pytest.mark.parametrize(
    "calls",
    [
        [_call("append", "list"), _call("pop", "list")],
        [_call("append", "collections.deque")],
        [_call("append", "collections.deque"), _call("popleft", "collections.deque")],
    ],
)
def test_a_container_that_may_drop_its_oldest_entries_is_not_called_a_leak(
    calls: list[str], tmp_path: Path
) -> None:
    """torch's CPU profiler does not show frees of what was in a full buffer before the recording."""
    answer = RULE.check(facts_of(keeping(*calls), tmp_path))
    assert isinstance(answer, CannotTell)
    assert "oldest entries" in answer.reason


def test_what_a_hook_keeps_is_at_the_hook(tmp_path: Path) -> None:
    """A hook runs after the forward pass that allocated what it keeps."""
    found = only(RULE.check(facts_of(keeping(_call("append", "list"), hook=True, begins=True), tmp_path)))
    assert found.title.endswith("retained module outputs")
    assert found.places[0].function == "keep"


def test_gradients_without_frames_are_kept_gradients_of_the_line_that_calls_backward(tmp_path: Path) -> None:
    """The engine's own threads run no Python, so a snapshot has no frames of what they allocate."""
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 30, at=0)
    for step in range(8):
        at = 100 * (step + 1)
        forward = snapshot.allocate(2 * MIB, at=at, stack=["train.py(5): fit", "model.py(8): forward"])
        loss = snapshot.allocate(
            512,
            at=at + 10,
            stack=[
                "train.py(6): fit",
                f"{TORCH}/_tensor.py(560): backward",
                f"{TORCH}/autograd/__init__.py(91): _make_grads",
            ],
        )
        snapshot.allocate(MIB, at=at + 20)
        for address in (forward, loss):
            snapshot.free(address, at=at + 30)
    found = only(GPU_LEAK.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.title.endswith("retained gradients")
    assert (found.places[0].file, found.places[0].line) == ("train.py", 6)


def test_another_function_may_empty_the_container(tmp_path: Path) -> None:
    def made(*calls: str) -> TraceBuilder:
        trace = keeping(_call("append", "collections.deque"))
        main = trace.thread()
        for number in range(8):
            main.frame("train.py(20): consume", at=number * STEP_US + 80, us=10)
            for i, call in enumerate(calls):
                main.frame(call, at=number * STEP_US + 81 + 3 * i, us=2)
        return trace

    pop = _call("popleft", "collections.deque")
    assert isinstance(RULE.check(facts_of(made(pop), tmp_path / "one")), CannotTell)


def test_a_method_that_is_called_next_may_be_the_holder(tmp_path: Path) -> None:
    """`meter.update(loss())`: neither of the two calls the other."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("train.py(1): main", at=at + 5, us=80)
        main.frame("train.py(30): loss", at=at + 10, us=10)
        main.op("aten::clone", at=at + 12, us=5)
        main.alloc(MIB, at=at + 14, device=None)
        main.frame("meter.py(7): update", at=at + 30, us=10)
        main.frame(_call("append", "list"), at=at + 32, us=2)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert "update (meter.py, defined at line 7) is called next, and may receive it" in found.summary
    assert found.places[0].function == "update"


@pytest.mark.parametrize(("added", "place"), [(1, "forward"), (2, "mask_of")])
def test_a_module_that_is_called_next_may_fill_a_list_of_its_own(
    added: int, place: str, tmp_path: Path
) -> None:
    """`model(tokens, mask_of(lengths))`: with more entries than masks it is another list."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("train.py(1): main", at=at + 5, us=80)
        main.frame("train.py(30): mask_of", at=at + 10, us=10)
        main.op("aten::tril", at=at + 12, us=5)
        main.alloc(MIB, at=at + 14, device=None)
        main.frame("nn.Module: Model_0", at=at + 30, us=20)
        main.frame("model.py(7): forward", at=at + 31, us=18)
        for entry in range(added):
            main.frame(_call("append", "list"), at=at + 32 + 4 * entry, us=2)
    assert only(RULE.check(facts_of(trace, tmp_path))).places[0].function == place


def test_what_calls_several_functions_is_the_place(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("store.py(7): store", at=at + 5, us=80)
        for i, name in enumerate(("features", "labels")):
            main.frame(f"train.py({30 + i}): {name}", at=at + 10 + 20 * i, us=10)
            main.op("aten::clone", at=at + 12 + 20 * i, us=5)
            main.alloc(MIB, at=at + 14 + 20 * i, device=None)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert [place.function for place in found.places] == ["store", "features", "labels"]
