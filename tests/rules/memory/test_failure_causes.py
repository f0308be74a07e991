"""Why an allocation failed decides the advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.memory.memory_peak import RULE
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.rules.memory_stage import MIB, only
from tests.wording.plain import plain

TORCH = "/opt/lib/python3.11/site-packages/torch"
MODULE = f"{TORCH}/nn/modules/linear.py(125): forward"
CALL = f"{TORCH}/nn/modules/module.py(1773): _call_impl"
BACKWARD = f"{TORCH}/_tensor.py(560): backward"


def facts_at(snapshot: SnapshotBuilder, folder: Path) -> Facts:
    return Facts(read_trace(str(snapshot.write(folder))))


def found_in(snapshot: SnapshotBuilder, folder: Path) -> Finding:
    return only(RULE.check(facts_at(snapshot, folder)))


def small_model() -> SnapshotBuilder:
    snapshot = SnapshotBuilder()
    snapshot.segment(40 * MIB, at=0)
    snapshot.allocate(
        30 * MIB, at=1, stack=["train.py(3): main", f"{TORCH}/nn/modules/linear.py(90): __init__"]
    )
    return snapshot


def trained_model() -> SnapshotBuilder:
    """After two steps, the second of which ends at 24 us."""
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    for step in range(2):
        at = 10 + 10 * step
        kept = snapshot.allocate(10 * MIB, at=at, stack=["train.py(5): fit", CALL, "model.py(8): forward"])
        gradient = snapshot.allocate(MIB, at=at + 1, stack=["train.py(6): fit", BACKWARD])
        snapshot.free(kept, at=at + 2)
        snapshot.free(gradient, at=at + 3)
    return snapshot


def test_one_giant_request_is_named_and_nothing_is_sharded(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.allocate(MIB, at=9, stack=["train.py(4): main"])
    snapshot.out_of_memory(64 << 30, at=10, device_free=15 << 30)
    snapshot.traces[0][-1]["frames"] = [{"filename": "loss.py", "line": 12, "name": "pairwise"}]
    found = found_in(snapshot, tmp_path)
    assert "The request itself is the problem: 64 GiB at loss.py:12 in pairwise" in plain(found.summary)
    assert "broadcast" in found.fix.text
    assert "Shard" not in found.fix.text
    assert (found.places[0].file, found.places[0].line) == ("loss.py", 12)


def test_fragments_name_the_line_that_leaves_holes(tmp_path: Path) -> None:
    snapshot, large = SnapshotBuilder(), []
    for i in range(10):
        snapshot.segment(20 * MIB, at=i)
        large.append(snapshot.allocate(18 * MIB, at=20 + 2 * i, stack=["model.py(5): forward"]))
        snapshot.allocate(2 * MIB, at=21 + 2 * i, stack=["log.py(9): keep"])
    for address in large:
        snapshot.free(address, at=60)
    snapshot.out_of_memory(40 * MIB, at=70, device_free=MIB)
    found = found_in(snapshot, tmp_path)
    assert "180 MiB of the free memory is next to 10 allocations at log.py:9 in keep" in plain(found.summary)
    assert "expandable_segments" in found.fix.code
    assert "smaller batch" not in found.fix.text


def test_pools_of_graphs_are_not_called_fragmented(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    snapshot.out_of_memory(100 * MIB, at=10, device_free=MIB)
    document = snapshot.document()
    document["segments"][1]["segment_pool_id"] = (0, 1)
    snapshot.document = lambda shape="new": document  # type: ignore[method-assign]
    found = found_in(snapshot, tmp_path)
    assert "Private pools of CUDA graphs held 200 MiB" in plain(found.summary)
    assert "graph_pool_handle" in found.fix.code
    assert "fragmented" not in found.summary


def test_a_limit_is_no_reason_for_smaller_batches(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.out_of_memory(64 * MIB, at=10, device_free=8 << 30)
    found = found_in(snapshot, tmp_path)
    assert "limited" in found.summary
    assert "mem_get_info" in found.fix.code
    assert "batch" not in found.fix.text


def test_activations_of_the_first_forward_pass_are_known(tmp_path: Path) -> None:
    """The pass that fails has no backward pass behind it."""
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    for i in range(20):
        snapshot.allocate(10 * MIB, at=10 + i, stack=["train.py(5): fit", MODULE, "model.py(8): forward"])
    snapshot.out_of_memory(20 * MIB, at=70, device_free=MIB)
    facts = facts_at(snapshot, tmp_path)
    failure = facts.memory[0].failure
    assert failure is not None
    assert failure.held.kinds == {MemoryKind.ACTIVATION: 200 * MIB, MemoryKind.PARAMETER: 30 * MIB}
    assert "checkpoint" in only(RULE.check(facts)).fix.code


def test_a_forward_pass_whose_results_are_freed_on_the_way_is_inference(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    stack, last = ["serve.py(5): answer", MODULE, "model.py(8): forward"], 0
    for i in range(20):
        result = snapshot.allocate(20 * MIB, at=10 + 2 * i, stack=stack)
        if last:
            snapshot.free(last, at=11 + 2 * i)
        last = result
    for i in range(3):
        snapshot.allocate(40 * MIB, at=60 + i, stack=stack)
    snapshot.out_of_memory(90 * MIB, at=70, device_free=MIB)
    snapshot.traces[0][-1]["frames"] = snapshot.traces[0][-2]["frames"]
    found = found_in(snapshot, tmp_path)
    assert "inference_mode" in found.fix.code
    assert "checkpoint" not in found.fix.code


def test_retries_in_the_backward_pass_count(tmp_path: Path) -> None:
    """The engine's threads have no frames; empty_cache() is called from Python and has some."""
    snapshot = small_model()
    for i in range(12):
        address = snapshot.segment(20 * MIB, at=20 + 10 * i)
        snapshot.give_back(address, at=25 + 10 * i)
    snapshot.out_of_memory(2 << 30, at=200, device_free=1 << 30)
    found = found_in(snapshot, tmp_path)
    assert "freed its cache 11 times" in plain(found.summary)


def test_hardly_any_room_is_not_fragmented(tmp_path: Path) -> None:
    """Joined, the last 30 MiB would be used up by the next request."""
    snapshot = small_model()
    for i in range(20):
        snapshot.segment(50 * MIB, at=2 + i)
        snapshot.allocate(49 * MIB, at=30 + i, stack=["train.py(5): fit", MODULE, "model.py(8): forward"])
    snapshot.out_of_memory(24 * MIB, at=70, device_free=10 * MIB)
    found = found_in(snapshot, tmp_path)
    assert "fragmented" not in found.summary
    assert "of what this process could have would be in use" in found.summary
    assert "expandable_segments" not in found.fix.code


def test_state_of_a_first_optimizer_step_that_fails_is_known(tmp_path: Path) -> None:
    snapshot = small_model()
    snapshot.segment(200 * MIB, at=2)
    backward = ["train.py(6): fit", f"{TORCH}/autograd/__init__.py(354): backward"]
    snapshot.allocate(512, at=10, stack=backward)
    snapshot.allocate(30 * MIB, at=11)
    for i in range(5):
        stack = ["train.py(7): fit", f"{TORCH}/optim/adam.py(160): step"]
        snapshot.allocate(30 * MIB, at=20 + i, stack=stack)
    snapshot.out_of_memory(90 * MIB, at=70, device_free=MIB)
    facts = facts_at(snapshot, tmp_path)
    failure = facts.memory[0].failure
    assert failure is not None
    assert failure.held.kinds[MemoryKind.OPTIMIZER_STATE] == 150 * MIB
    assert "Shard" in only(RULE.check(facts)).fix.text


def test_passes_that_keep_everything_until_memory_is_full_are_a_leak(tmp_path: Path) -> None:
    """Evaluation that records a graph: the function that calls the model is its place."""
    snapshot = small_model()
    snapshot.segment(1000 * MIB, at=2)
    call = f"{TORCH}/nn/modules/module.py(1773): _call_impl"
    for i in range(20):
        at = 10 + 10 * i
        snapshot.allocate(MIB, at=at, stack=["train.py(5): main", "train.py(19): validate"])
        for line in (8, 9):
            stack = [
                "train.py(5): main",
                "train.py(20): validate",
                call,
                f"model.py({line}): part_{line}",
                MODULE,
            ]
            snapshot.allocate(20 * MIB, at=at + line - 7, stack=stack)
    snapshot.out_of_memory(300 * MIB, at=900, device_free=MIB)
    found = found_in(snapshot, tmp_path)
    assert "First fix the leak that filled the memory at train.py:20 in validate" in plain(found.fix.text)
    assert "no_grad" in found.fix.text


def test_an_evaluation_that_records_a_graph_is_no_reason_for_checkpointing(tmp_path: Path) -> None:
    """Its forward passes are called at a line of their own, and no backward pass follows."""
    snapshot = trained_model()
    for i in range(9):
        snapshot.allocate(20 * MIB, at=40 + i, stack=["train.py(20): check", CALL, "model.py(8): forward"])
    snapshot.out_of_memory(30 * MIB, at=70, device_free=MIB)
    snapshot.traces[0][-1]["frames"] = snapshot.traces[0][-2]["frames"]
    found = found_in(snapshot, tmp_path)
    assert "called at train.py:20 in check keeps 180 MiB" in plain(found.fix.text)
    assert "checkpoint" not in found.fix.code


@pytest.mark.parametrize(("function", "records"), [("_evaluate", True), ("fit_longer", False)])
def test_one_pass_in_a_function_that_evaluates_is_an_evaluation(
    function: str, records: bool, tmp_path: Path
) -> None:
    """One pass at a new line may be a step's, unless a function says what it is for."""
    snapshot = trained_model()
    for i in range(9):
        stack = [f"train.py(20): {function}", CALL, f"model.py({8 + i}): forward"]
        snapshot.allocate(20 * MIB, at=40 + i, stack=stack)
    snapshot.out_of_memory(30 * MIB, at=70, device_free=MIB)
    snapshot.traces[0][-1]["frames"] = snapshot.traces[0][-2]["frames"]
    found = found_in(snapshot, tmp_path)
    assert ("called at train.py:20 in _evaluate keeps 180 MiB" in plain(found.fix.text)) is records
    assert ("accumulate" in found.fix.text) is not records


def test_of_a_line_with_several_results_a_graph_keeps_some_of_each_call(tmp_path: Path) -> None:
    """The first forward pass of layers of one line each: most of what it makes is freed, and yet it waits."""
    snapshot = small_model()
    snapshot.segment(400 * MIB, at=2)
    stack, at = ["train.py(5): fit", CALL, "model.py(8): forward"], 10
    for _ in range(8):
        passing = [snapshot.allocate(20 * MIB, at=at + i, stack=stack) for i in range(2)]
        snapshot.allocate(20 * MIB, at=at + 2, stack=stack)
        for i, address in enumerate(passing):
            snapshot.free(address, at=at + 3 + i)
        at += 10
    snapshot.out_of_memory(200 * MIB, at=at, device_free=MIB)
    snapshot.traces[0][-1]["frames"] = snapshot.traces[0][-2]["frames"]
    failure = facts_at(snapshot, tmp_path).memory[0].failure
    assert failure is not None
    assert failure.held.kinds[MemoryKind.ACTIVATION] == 160 * MIB


def test_a_small_request_cannot_use_a_large_free_block(tmp_path: Path) -> None:
    """Requests up to 1 MiB have segments of their own."""
    snapshot = small_model()
    snapshot.segment(2 * MIB, at=2)
    snapshot.allocate(2 * MIB - 512, at=3, stack=["train.py(4): main"])
    snapshot.out_of_memory(MIB, at=10, device_free=0)
    failure = facts_at(snapshot, tmp_path).memory[0].failure
    assert failure is not None
    assert failure.largest_free_bytes == 512
    assert "each stream" not in found_in(snapshot, tmp_path).summary
