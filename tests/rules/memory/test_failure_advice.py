"""What a job did until an allocation failed decides the advice: its pass, its lines, what it had loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.rules.memory.memory_peak import RULE
from tests.builder import SnapshotBuilder
from tests.rules.memory.test_failure_causes import (
    BACKWARD,
    CALL,
    MODULE,
    TORCH,
    facts_at,
    found_in,
    small_model,
)
from tests.rules.memory_stage import MIB, only
from tests.wording.plain import plain

FORWARD = ["train.py(5): fit", CALL, "model.py(8): forward"]


def fail(
    snapshot: SnapshotBuilder, mib: int, stack: Sequence[str] = (), *, free_mib: int = 1
) -> SnapshotBuilder:
    """Fail at the end, for a request from this stack, outermost frame first."""
    snapshot.out_of_memory(mib * MIB, at=900, device_free=free_mib * MIB, stack=stack)
    return snapshot


def test_gradients_of_activations_are_no_model_to_shard(tmp_path: Path) -> None:
    """The weights take 30 MiB: so do their gradients, at most."""
    snapshot = small_model()
    snapshot.segment(300 * MIB, at=2)
    for i in range(5):
        snapshot.allocate(20 * MIB, at=10 + i, stack=FORWARD)
    snapshot.allocate(512, at=20, stack=["train.py(6): fit", BACKWARD])
    for i in range(8):
        snapshot.allocate(20 * MIB, at=30 + i)
    found = found_in(fail(snapshot, 80), tmp_path)
    assert "accumulate their gradients" in found.fix.text
    assert "Shard" not in found.fix.text


@pytest.mark.parametrize("sizes", [(300,), (300, 300, 300), (75,)])
def test_the_steps_of_a_formula_are_one_giant(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """A difference of all pairs is there, and its square does not fit. A mask of all pairs is smaller."""
    snapshot = small_model()
    snapshot.allocate(MIB, at=9, stack=FORWARD)
    for i, size in enumerate(sizes):
        snapshot.segment(size * MIB, at=10 + i)
        snapshot.allocate(size * MIB, at=20 + i, stack=["train.py(5): fit", "loss.py(12): pairwise"])
    found = found_in(fail(snapshot, 300, ["train.py(5): fit", "loss.py(13): pairwise"]), tmp_path)
    assert "The request itself is the problem: 300 MiB at loss.py:13 in pairwise" in plain(found.summary)


def test_a_line_that_has_often_got_as_much_makes_no_giant(tmp_path: Path) -> None:
    """The keys of three layers are copied at every token, with one row more."""
    snapshot, line, old = small_model(), ["serve.py(5): extend"], 0
    snapshot.segment(610 * MIB, at=2)
    snapshot.allocate(MIB, at=9, stack=FORWARD)
    for line_number in (7, 8):
        snapshot.allocate(150 * MIB, at=line_number, stack=[f"serve.py({line_number}): extend"])
    for i in range(6):
        keys = snapshot.allocate(150 * MIB, at=10 + 2 * i, stack=line)
        if old:
            snapshot.free(old, at=11 + 2 * i)
        old = keys
    found = found_in(fail(snapshot, 160, line), tmp_path)
    assert "The request itself" not in found.summary


@pytest.mark.parametrize(
    ("sizes", "requested", "giant"), [((300, 300), 600, False), ((300, 300), 300, True), ((300,), 300, True)]
)
def test_a_request_for_as_much_as_several_tensors_take_joins_them(
    sizes: tuple[int, ...], requested: int, giant: bool, tmp_path: Path
) -> None:
    """A data set and its mirrored copy. A step of a formula asks for as much as one that came before it."""
    snapshot = small_model()
    snapshot.allocate(MIB, at=9, stack=FORWARD)
    for i, size in enumerate(sizes):
        snapshot.segment(size * MIB, at=10 + i)
        snapshot.allocate(size * MIB, at=20 + i, stack=["train.py(5): fit", f"data.py({12 + i}): doubled"])
    found = found_in(fail(snapshot, requested, ["train.py(5): fit", "data.py(14): doubled"]), tmp_path)
    assert ("The request itself is the problem" in found.summary) is giant


@pytest.mark.parametrize("layer", ["upsampling.py(175): forward", "loss.py(600): forward"])
def test_a_layer_asks_for_what_the_batch_makes_and_a_loss_compares(layer: str, tmp_path: Path) -> None:
    stack = [
        "serve.py(7): decode",
        CALL,
        f"{TORCH}/nn/modules/{layer}",
        f"{TORCH}/nn/functional.py(49): work",
    ]
    found = found_in(fail(small_model(), 4000, stack), tmp_path)
    assert ("The request itself" in found.summary) is layer.startswith("loss")


@pytest.mark.parametrize(("made", "more"), [(5, 100), (9, 20), (10, 0)])
def test_what_the_rest_of_a_pass_keeps_does_not_fit_either(made: int, more: int, tmp_path: Path) -> None:
    """The first pass makes ten allocations. Expandable segments join what the request needs, and no more."""
    snapshot, kept = small_model(), []
    for step, (count, mib) in enumerate(((10, 10), (made, 20))):
        for i in range(count):
            at = 20 + 100 * step + 4 * i
            snapshot.segment((mib + 4) * MIB, at=at)
            kept.append(snapshot.allocate(mib * MIB, at=at + 1, stack=FORWARD))
        if not step:
            snapshot.allocate(512, at=90, stack=["train.py(6): fit", BACKWARD])
            for address in kept:
                snapshot.free(address, at=95)
    facts = facts_at(fail(snapshot, 20, FORWARD), tmp_path)
    assert facts.memory[0].to_come_bytes == more * MIB


def test_a_checkpoint_beside_the_model_is_let_go_of(tmp_path: Path) -> None:
    load = f"{TORCH}/serialization.py(1530): load"
    for weights, advised in ((30, True), (0, False)):  # without other weights, it is the model
        snapshot = small_model() if weights else SnapshotBuilder()
        snapshot.segment(90 * MIB, at=2)
        snapshot.allocate(
            90 * MIB, at=3, stack=["train.py(3): main", load, f"{TORCH}/serialization.py(9): _load"]
        )
        found = found_in(
            fail(snapshot, 40, ["train.py(9): fit", f"{TORCH}/optim/adam.py(16): step"]), tmp_path
        )
        assert ('map_location="cpu"' in found.fix.code) is advised
        assert ("fully_shard" in found.fix.code) is not advised


def test_a_model_that_was_called_often_without_a_backward_pass_infers(tmp_path: Path) -> None:
    """A sampler: the decoder is called for the first time, but the job does not train."""
    for calls, kind in ((1, MemoryKind.ACTIVATION), (3, MemoryKind.TEMPORARY)):
        snapshot = small_model()
        snapshot.segment(100 * MIB, at=2)
        for i in range(calls):
            noise = snapshot.allocate(20 * MIB, at=10 + 3 * i, stack=["sample.py(5): sample", CALL, MODULE])
            snapshot.free(noise, at=11 + 3 * i)
        decode = ["sample.py(9): decode", CALL, "model.py(8): forward", MODULE]
        snapshot.allocate(60 * MIB, at=60, stack=decode)
        failure = facts_at(fail(snapshot, 90, decode), tmp_path).memory[0].failure
        assert failure is not None
        assert failure.held.kinds == {kind: 60 * MIB, MemoryKind.PARAMETER: 30 * MIB}


@pytest.mark.parametrize("evaluates", [True, False])
def test_graphs_that_are_never_used_come_before_fragmentation(evaluates: bool, tmp_path: Path) -> None:
    """Four graphs of 40 MiB are kept in segments that leave 10 MiB each."""
    snapshot = small_model()
    snapshot.segment(10 * MIB, at=2)
    trained = snapshot.allocate(5 * MIB, at=10, stack=FORWARD)
    snapshot.allocate(512, at=20, stack=["train.py(6): fit", BACKWARD])
    snapshot.free(trained, at=21)
    stack = ["train.py(15): evaluate", *FORWARD[1:]] if evaluates else FORWARD
    for i in range(4):
        snapshot.segment(50 * MIB, at=30 + 2 * i)
        snapshot.allocate(40 * MIB, at=31 + 2 * i, stack=stack)
    found = found_in(fail(snapshot, 20, stack), tmp_path)
    assert ("inference_mode" in found.fix.code) is evaluates
    assert ("expandable_segments" in found.fix.code) is not evaluates


INIT, STEP = f"{TORCH}/nn/modules/linear.py(96): __init__", f"{TORCH}/optim/adam.py(16): step"


@pytest.mark.parametrize(("second", "moments", "advised"), [(20, 40, True), (12, 24, False), (20, 0, False)])
def test_models_of_earlier_folds_are_let_go_of(
    second: int, moments: int, advised: bool, tmp_path: Path
) -> None:
    """A later model of another size, or a copy without an optimizer, does not replace the first."""
    snapshot = SnapshotBuilder()
    snapshot.segment(125 * MIB, at=1)
    for fold, (weights, state) in enumerate(((20, 40), (second, moments))):
        at = 10 + 10 * fold
        snapshot.allocate(weights * MIB, at=at, stack=["train.py(3): main", INIT])
        snapshot.allocate(512, at=at + 2, stack=["train.py(6): main", BACKWARD])
        if state:
            snapshot.allocate(state * MIB, at=at + 4, stack=["train.py(7): main", STEP])
    found = found_in(fail(snapshot, 50, ["train.py(7): main", STEP]), tmp_path)
    assert ("del model, optimizer" in found.fix.code) is advised
    assert ("fully_shard" in found.fix.code) is not advised
    if advised:
        assert found.cost_bytes == (20 + 40) * MIB


def test_batches_without_a_graph_since_the_last_step_are_an_evaluation(tmp_path: Path) -> None:
    """Each keeps its result alone. The last one has come no further than a training step's first lines."""
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    hidden, result = [*FORWARD, MODULE], [*FORWARD, f"{TORCH}/nn/modules/conv.py(5): forward"]
    for step in range(6):
        at = 10 + 10 * step
        made = [
            snapshot.allocate(10 * MIB, at=at, stack=hidden),
            snapshot.allocate(MIB, at=at + 1, stack=result),
        ]
        if step < 2:
            snapshot.allocate(512, at=at + 2, stack=["train.py(6): fit", BACKWARD])
        for address in made if step < 2 else made[:1]:
            snapshot.free(address, at=at + 3)
    snapshot.allocate(150 * MIB, at=90, stack=hidden)
    found = only(RULE.check(facts_at(fail(snapshot, 100, hidden), tmp_path)))
    assert "inference_mode" in found.fix.code
    assert "accumulate" not in found.fix.text


def test_before_any_model_a_data_set_stays_on_the_host(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(200 * MIB, at=0)
    for line, function in ((3, "main"), (4, "standardized")):
        snapshot.allocate(100 * MIB, at=line, stack=[f"data.py({line}): {function}"])
    found = found_in(fail(snapshot, 100, ["data.py(5): standardized"]), tmp_path)
    assert "Leave the data set in the host's memory" in found.fix.text
    assert "inference_mode" not in found.fix.code


def test_a_data_set_that_is_being_made_needs_more_than_expandable_segments(tmp_path: Path) -> None:
    """Entries leave holes: the request would fit into them, and those to come would not."""
    snapshot, stack = SnapshotBuilder(), ["data.py(3): main", "data.py(7): load"]
    for i in range(30):
        if i % 3 == 0:
            snapshot.segment(20 * MIB, at=2 * i)
        snapshot.allocate(6 * MIB, at=2 * i + 1, stack=stack)
    found = found_in(fail(snapshot, 6, stack), tmp_path)
    assert "fragmented" in found.summary
    assert "Leave the data set in the host's memory" in found.fix.text
    assert "expandable" not in found.fix.code


def test_all_batches_that_are_there_when_the_model_is_first_called_are_inputs(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.segment(400 * MIB, at=2)
    for i in range(8):
        snapshot.allocate(40 * MIB, at=10 + i, stack=["train.py(4): main", "data.py(9): collect"])
    snapshot.allocate(10 * MIB, at=30, stack=FORWARD)
    snapshot.allocate(512, at=40, stack=["train.py(6): fit", BACKWARD])
    found = found_in(fail(snapshot, 120), tmp_path)
    assert "Leave the data set in the host's memory" in found.fix.text
    assert "accumulate" not in found.fix.text


def test_blocks_that_are_checkpointed_are_not_advised_to_be(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.segment(300 * MIB, at=2)
    block = [*FORWARD, f"{TORCH}/utils/checkpoint.py(503): checkpoint", MODULE]
    for i in range(6):
        snapshot.allocate(40 * MIB, at=10 + i, stack=block)
    found = found_in(fail(snapshot, 90, block), tmp_path)
    assert "accumulate their gradients" in found.fix.text
    assert "checkpoint(" not in found.fix.code


def test_a_large_request_of_a_backward_pass_is_no_mistaken_shape(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.allocate(512, at=20, stack=["train.py(6): fit", BACKWARD])
    assert "The request itself" not in found_in(fail(snapshot, 4000), tmp_path).summary


@pytest.mark.parametrize("size", [300, 30])
def test_a_backward_pass_needs_what_a_mean_has_let_go_of(size: int, tmp_path: Path) -> None:
    """The mean of a product of all pairs keeps the factors alone; the gradient of the product is as large."""
    snapshot = small_model()
    snapshot.allocate(MIB, at=9, stack=FORWARD)
    snapshot.segment(300 * MIB, at=10)
    pairs = snapshot.allocate(size * MIB, at=11, stack=["train.py(5): fit", "loss.py(12): weighted"])
    snapshot.free(pairs, at=12)
    snapshot.allocate(300 * MIB, at=20, stack=["train.py(6): fit", BACKWARD])
    found = found_in(fail(snapshot, 300, ["train.py(6): fit", BACKWARD]), tmp_path)
    assert ("at loss.py:12 in weighted" in plain(found.summary)) is (size == 300)
    assert found.places[0].line == (12 if size == 300 else 6)
