"""How a request that failed might have fit: the recorded allocations, replayed with changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.allocator_changes import AllocatorChanges, fits
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.ways import WayKind
from tb_gpudiag.rules.memory.memory_peak import RULE
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.rules.memory_stage import only
from tests.wording.plain import plain

MIB = 1 << 20
TORCH = "/opt/lib/python3.11/site-packages/torch"
CALL = [
    f"{TORCH}/nn/modules/module.py({line}): {name}"
    for line, name in ((1736, "_wrapped_call_impl"), (1747, "_call_impl"))
]
BUILDING = ["train.py(1): main", f"{TORCH}/nn/modules/linear.py(90): __init__"]
LAYERS = ((40, 6), (41, 22), (42, 18))
"""Line and MiB of what each block allocates: 46 MiB."""


class Job:
    """A model of 12 blocks with 30 MiB of weights each. One forward pass takes 552 MiB of activations.

    data: so many MiB are allocated before it.
    """

    def __init__(self, *, data: int = 0) -> None:
        self.snapshot, self.now = SnapshotBuilder(), 0
        if data:
            self.allocate(data, ["train.py(1): main"])
        for _ in range(12):
            self.allocate(30, BUILDING)

    def allocate(self, mib: int, stack: list[str]) -> int:
        self.now += 2
        try:
            return self.snapshot.allocate(mib * MIB, at=self.now, stack=stack)
        except ValueError:  # nothing free is large enough
            own = -(-mib // 2) * 2 if mib >= 10 else 20
            self.snapshot.segment(own * MIB, at=self.now - 1, stack=stack)
            return self.snapshot.allocate(mib * MIB, at=self.now, stack=stack)

    def forward(self, blocks: float) -> list[int]:
        layers = [named for _ in range(12) for named in LAYERS][: round(3 * blocks)]
        return [self.allocate(mib, layer(line)) for line, mib in layers]

    def backward(self, held: list[int]) -> None:
        self.allocate(2, ["train.py(6): step", f"{TORCH}/_tensor.py(500): backward"])
        for address in reversed(held):
            self.now += 2
            self.snapshot.free(address, at=self.now)

    def fail(self, mib: int, folder: Path, stack: list[str] | None = None) -> DeviceMemory:
        self.snapshot.out_of_memory(mib * MIB, at=self.now + 1, device_free=MIB, stack=stack or layer(41))
        (memory,) = Facts(read_trace(str(self.snapshot.write(folder)))).memory
        return memory


def layer(line: int) -> list[str]:
    """The stack of a layer of a block: model.py:80 calls the block, and its lines the layers."""
    inner = f"{TORCH}/nn/modules/linear.py(125): forward"
    return [
        "train.py(5): step",
        *CALL,
        "model.py(80): forward",
        *CALL,
        f"model.py({line}): forward",
        *CALL,
        inner,
    ]


def test_the_request_that_failed_fails_in_the_replay_and_no_other(tmp_path: Path) -> None:
    job = Job()
    job.backward(job.forward(12))
    job.forward(12)
    memory = job.fail(22, tmp_path)
    fit, capacity = memory.fit, memory.capacity_bytes
    assert fit is not None
    assert fit.error_bytes == fit.misplaced == 0
    assert not fits(fit.start, fit.changes, capacity)
    before = AllocatorChanges(*(column[:-1] for column in fit.changes))
    assert fits(fit.start, before, capacity)


def test_a_pass_that_fails_fits_with_half_of_the_batch_or_checkpointing(tmp_path: Path) -> None:
    job = Job()
    job.forward(9 + 1 / 3)
    memory = job.fail(22, tmp_path)
    ways = {way.kind: way for way in memory.ways}
    assert not ways[WayKind.EXPANDABLE].may_fit
    assert ways[WayKind.HALF_BATCH].fits
    assert ways[WayKind.HALF_BATCH].high_bytes == (360 + (9 * 46 + 6 + 22) // 2) * MIB
    dropped = ways[WayKind.CHECKPOINT]
    assert dropped.fits
    assert dropped.blocks is not None
    assert (str(dropped.blocks.frame), len(dropped.blocks.calls)) == ("model.py:80 in forward", 9)
    # Of nine blocks the last allocation, or the largest one too; the tenth block is whole.
    assert (
        dropped.low_bytes == (360 + 8 * 18 + 46 + 0) * MIB or dropped.low_bytes == (360 + 9 * 18 + 28) * MIB
    )
    assert dropped.high_bytes == (360 + 9 * 40 + 28) * MIB


def test_checkpointed_blocks_are_computed_again_in_the_backward_pass(tmp_path: Path) -> None:
    """One block at a time: at the peak there are the results of all blocks, and one whole block."""
    job = Job()
    job.backward(job.forward(12))
    memory = job.fail(20, tmp_path)
    way = next(way for way in memory.ways if way.kind is WayKind.CHECKPOINT)
    assert way.low_bytes == (360 + 11 * 18 + 46) * MIB  # the last block's forward pass
    assert way.high_bytes == (360 + 11 * 40 + 46) * MIB
    assert way.fits


def test_the_finding_says_what_would_fit(tmp_path: Path) -> None:
    job = Job()
    job.forward(9 + 1 / 3)
    job.fail(22, tmp_path)
    found = only(RULE.check(Facts(read_trace(str(tmp_path / "dump_snapshot.pickle")))))
    said = {one.label: plain(one.text) for one in found.evidence}
    assert said["Half of the batch, replayed"].startswith("it fits")
    assert said["Checkpointing, replayed"].startswith("it fits")
    assert said["Checkpointing, replayed"].endswith("of the blocks called at model.py:80 in forward")


@pytest.mark.parametrize("retries", [True, False])
def test_an_emptied_cache_is_emptied_in_the_replay(retries: bool, tmp_path: Path) -> None:
    """Segments that came back for another request in the same call are those of a retry: with other memory
    there is none."""
    job = Job()
    addresses = job.forward(2)
    job.backward(addresses)
    stack = layer(40) if retries else ["train.py(9): main", f"{TORCH}/cuda/memory.py(170): empty_cache"]
    free = [
        segment for segment in job.snapshot.segments if all(b.state == "inactive" for b in segment.blocks)
    ]
    for segment in free:
        job.snapshot.give_back(segment.address, at=job.now + 1, stack=stack)
    job.now += 2
    job.allocate(60, layer(40))
    memory = job.fail(2000, tmp_path)
    assert memory.fit is not None
    assert memory.fit.error_bytes == memory.fit.misplaced == 0


def test_checkpointing_that_does_not_fit_is_no_advice(tmp_path: Path) -> None:
    """The request is larger than all that could be computed again."""
    job = Job()
    job.forward(9 + 1 / 3)
    memory = job.fail(360, tmp_path)
    ways = {way.kind: way for way in memory.ways}
    assert ways[WayKind.HALF_BATCH].fits
    assert not ways[WayKind.CHECKPOINT].may_fit
    found = only(RULE.check(Facts(read_trace(str(tmp_path / "dump_snapshot.pickle")))))
    assert "Use smaller batches" in found.fix.text
    assert "checkpoint" not in found.fix.code


def test_a_data_set_on_the_gpu_is_no_batch(tmp_path: Path) -> None:
    """What is older than the model may be all of the data: half of a batch does not halve it."""
    job = Job(data=900)
    job.forward(2)
    memory = job.fail(400, tmp_path)
    half = next(way for way in memory.ways if way.kind is WayKind.HALF_BATCH)
    assert half.may_fit
    assert not half.fits
    found = only(RULE.check(Facts(read_trace(str(next(tmp_path.iterdir()))))))
    assert "Leave the data set" in found.fix.text
    assert "accumulate" not in found.fix.text


@pytest.mark.parametrize(("graph", "statistics"), [(True, 0), (True, 4), (False, 0)])
def test_a_validation_without_a_graph_is_no_reason_for_checkpointing(
    graph: bool, statistics: int, tmp_path: Path
) -> None:
    """statistics: so many small tensors of each block are saved in a training alone, as by batch norm."""
    job, small = Job(), layer(50)
    for _ in range(2):
        job.backward(job.forward(12) + [job.allocate(1, small) for _ in range(12 * statistics)])
    last = 0
    for _ in range(6):
        for line, mib in LAYERS:
            made = job.allocate(4 * mib, layer(line))
            if last and not graph:
                job.now += 2
                job.snapshot.free(last, at=job.now)
            last = made
        for address in [job.allocate(1, small) for _ in range(statistics)]:
            job.now += 2
            job.snapshot.free(address, at=job.now)
    memory = job.fail(700, tmp_path)
    assert memory.failure is not None
    assert (MemoryKind.ACTIVATION in memory.failure.held.kinds) == graph
