"""Snapshots of jobs that fail, allocation by allocation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder

MIB = 1 << 20
TORCH = "/opt/lib/python3.11/site-packages/torch"
CALL = f"{TORCH}/nn/modules/module.py(1773): _call_impl"
INIT = ["train.py(3): main", f"{TORCH}/nn/modules/linear.py(90): __init__"]
BACKWARD = ["train.py(6): fit", f"{TORCH}/_tensor.py(560): backward"]


class Job(SnapshotBuilder):
    """A model of 30 MiB, in segments such as the allocator asks for. now: µs of the last event."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.make(INIT, 30)

    def make(self, stack: Sequence[str], mib: float) -> int:
        """Allocate; return the address."""
        size = int(mib * MIB)
        self.now += 2
        blocks = [block for segment in self.segments for block in segment.blocks]
        if not any(block.state == "inactive" and block.bytes >= size for block in blocks):
            self.segment(size if mib >= 10 else 20 * MIB, at=self.now - 1)
        return self.allocate(size, at=self.now, stack=stack)

    def drop(self, addresses: Sequence[int]) -> None:
        """Free, the last one first."""
        for address in reversed(addresses):
            self.now += 1
            self.free(address, at=self.now)

    def fail(self, stack: Sequence[str], mib: int, folder: Path) -> Facts:
        """Fail at the end, for a request from this stack."""
        self.out_of_memory(mib * MIB, at=self.now + 1, device_free=MIB, stack=stack)
        return Facts(read_trace(str(self.write(folder))))
