"""How sure a leak is, how fast it grows where the floor is noisy, and leaks with more than one cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell
from tb_gpudiag.rules.memory.host_memory_leak import RULE as HOST_LEAK
from tb_gpudiag.rules.memory.memory_leak import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import size
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, only, steps_of
from tests.rules.stage import facts_of, is_clear

TORCH = "/opt/lib/python3.11/site-packages/torch"
MODULE = f"{TORCH}/nn/modules/linear.py(125): forward"
BACKWARD = f"{TORCH}/_tensor.py(560): backward"
OPTIMIZER = [f"{TORCH}/optim/optimizer.py(500): wrapper", f"{TORCH}/optim/adam.py(220): step"]


class Snapshot(SnapshotBuilder):
    """A training job's history. Events are 10 µs apart."""

    def __init__(self, *, running: bool = True, empty: bool = False, frees: bool = True) -> None:
        """running: gradients from before the history are freed in it. empty: nothing was allocated before.
        frees: the history has them."""
        super().__init__()
        self.frees = frees
        self.segment(1 << 40, at=0)
        self.at = 10
        if not empty:
            self.take(MIB, "old.py(1): weights")
        self._old = self.take(3 * MIB, "old.py(1): before") if running else 0
        self.traces = [[] for _ in self.traces]  # the history begins here

    def take(self, size: int, *stack: str) -> int:
        self.at += 10
        return self.allocate(size, at=self.at, stack=["train.py(3): main", *stack])

    def drop(self, *addresses: int) -> None:
        for address in addresses:
            self.at += 1
            self.free(address, at=self.at)

    def train(self, size: int = MIB) -> None:
        """Run one step, which frees what it allocates. The first one frees gradients from before, if any."""
        if self._old:
            self.drop(self._old)
            self._old = 0
        kept = [self.take(size, "train.py(5): fit", MODULE) for _ in range(3)]
        gradient = self.take(MIB, "train.py(6): fit", BACKWARD)
        self.drop(*kept)
        self.drop(self.take(MIB, "train.py(7): fit", *OPTIMIZER), gradient)

    def facts(self, folder: Path) -> Facts:
        if not self.frees:
            self.traces = [[e for e in entries if "free" not in e["action"]] for entries in self.traces]
        return Facts(read_trace(str(self.write(folder))))


@pytest.mark.parametrize("kept", [MIB, 48 * MIB, 256 * MIB, 1024 * MIB])
@pytest.mark.parametrize("cut", [0, 100])
def test_a_leak_of_any_size_is_found_in_a_snapshot(kept: int, cut: int, tmp_path: Path) -> None:
    """Next to a leak of 256 MiB per step, what a step itself allocates hardly shows in the curve."""
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(kept, "train.py(9): keep")
    if cut:
        snapshot.forget(cut)
    found = only(RULE.check(snapshot.facts(tmp_path)))
    assert found.cost_bytes_per_step == kept
    assert found.sure or cut  # few steps are left
    assert (found.places[0].file, found.places[0].line) == ("train.py", 9)


@pytest.mark.parametrize("entries", [4, 64])
def test_a_full_buffer_that_frees_its_oldest_entry_is_not_a_leak(entries: int, tmp_path: Path) -> None:
    """A GPU's allocator reports frees of memory that is older than the history."""
    snapshot = Snapshot()
    buffer = [snapshot.take(MIB, "train.py(9): keep") for _ in range(entries)]
    snapshot.traces = [[] for _ in snapshot.traces]
    for _ in range(10):
        snapshot.train()
        snapshot.drop(buffer.pop(0))
        buffer.append(snapshot.take(MIB, "train.py(9): keep"))
    assert is_clear(RULE.check(snapshot.facts(tmp_path)))


def test_too_few_steps_do_not_hide_what_a_line_holds(tmp_path: Path) -> None:
    snapshot = Snapshot(running=False)
    for _ in range(2):
        for _ in range(8):
            snapshot.drop(snapshot.take(MIB, "train.py(5): fit"))
            snapshot.take(64 * MIB, "train.py(9): keep")
        snapshot.train()
    answer = RULE.check(snapshot.facts(tmp_path))
    assert isinstance(answer, CannotTell)
    assert "train.py" in answer.reason
    assert str(size(1024 * MIB)) in answer.reason


def test_a_history_that_begins_with_empty_memory_has_no_older_buffer(tmp_path: Path) -> None:
    snapshot = Snapshot(running=False, empty=True)
    for _ in range(10):
        snapshot.train()
        snapshot.take(MIB, "train.py(9): keep")
    assert only(RULE.check(snapshot.facts(tmp_path)))


def test_outputs_that_a_closure_keeps_are_not_optimizer_state(tmp_path: Path) -> None:
    """Lightning runs the training step inside optimizer.step()."""
    snapshot = Snapshot()
    for _ in range(10):
        snapshot.train()
        snapshot.take(
            MIB, *OPTIMIZER, "lightning/loops/closure.py(130): closure", "model.py(9): training_step"
        )
    found = only(RULE.check(snapshot.facts(tmp_path)))
    assert found.places[0].line == 9


def test_two_leaks_have_a_fix_each(tmp_path: Path) -> None:
    snapshot, cache = Snapshot(), 0
    for step in range(10):
        snapshot.train()
        for line in (20, 21):
            snapshot.take(MIB, "train.py(9): evaluate", MODULE, f"model.py({line}): forward")
        larger = snapshot.take((step + 8) * MIB, "train.py(12): extend")
        if cache:
            snapshot.drop(cache)
        cache = larger
    found = only(RULE.check(snapshot.facts(tmp_path)))
    assert found.cost_bytes_per_step == 3 * MIB
    assert found.title.endswith("retained autograd graph and growing cache")
    assert "losses.append" in found.fix.code
    assert "torch.cat" in found.fix.code
    assert {place.line for place in found.places[:2]} == {20, 12} or {21, 12}


def test_a_few_large_tensors_matter_more_than_many_small_ones(tmp_path: Path) -> None:
    """A line that keeps a model's state: most tensors are tiny, most bytes are not."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("train.py(7): keep", at=at + 40, us=50)
        for part in range(20):
            main.op("aten::clone", at=at + 42 + part, us=0.5)
            main.alloc(64 if part % 10 else 200_000, at=at + 42.2 + part, device=None)
    found = only(HOST_LEAK.check(facts_of(trace, tmp_path)))
    assert ": " not in found.title  # no metric has 200 kB


@pytest.mark.parametrize(("copies", "cause"), [(4, ""), (1, "retained small tensors")])
def test_deep_copies_of_several_tensors_are_no_metric(copies: int, cause: str, tmp_path: Path) -> None:
    """deepcopy() copies the storage of a tensor, which is no operator's."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.op("aten::mm", at=at + 2, us=5)
        main.frame("train.py(7): keep", at=at + 40, us=50)
        for part in range(copies):
            main.alloc(16 * 2**10, at=at + 42 + part, device=None)
    found = only(HOST_LEAK.check(facts_of(trace, tmp_path)))
    assert found.title.partition(": ")[2] == cause
