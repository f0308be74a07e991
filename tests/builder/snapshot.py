"""SnapshotBuilder: CUDA memory snapshots, event by event, in the shapes of several versions of torch."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Shape = Literal["new", "without times", "1.13", "segments only"]
"""`new`: torch 2.1 and later. `without times`: 2.0. `1.13`: blocks have their frames in `history`, and no
addresses. `segments only`: what `torch.cuda.memory_snapshot()` returns."""

ROUNDED_TO = 512
FIRST_ADDRESS = 0x7F00_0000_0000
START_US = 1_700_000_000_000_000
"""Time 0 of the builder on the clock of the file."""


@dataclass
class _Block:
    address: int
    bytes: int
    asked: int = 0
    stack: list[dict[str, Any]] = field(default_factory=list)
    state: str = "inactive"


@dataclass
class _Segment:
    device: int
    address: int
    bytes: int
    expandable: bool
    blocks: list[_Block]


class SnapshotBuilder:
    """Builds one snapshot. Each allocation is a block of its own, cut from the smallest free block with room.

    Times are µs from the start and must not go backwards on one device. Stacks are given outermost first, as
    frames `file(line): function`; torch writes them innermost first.
    """

    def __init__(self, devices: int = 1) -> None:
        self.segments: list[_Segment] = []
        self.traces: list[list[dict[str, Any]]] = [[] for _ in range(devices)]
        self.annotations: list[dict[str, Any]] = []
        self._address = FIRST_ADDRESS
        self._blocks: dict[int, tuple[int, _Block]] = {}

    def segment(
        self,
        size: int,
        *,
        at: float = 0,
        device: int = 0,
        expandable: bool = False,
        stack: Sequence[str] = (),
        address: int = 0,
    ) -> int:
        """Get a segment from the driver; return its address. address: one that was given back."""
        if not address:
            address, self._address = self._address, self._address + size + (1 << 21)
        whole = _Block(address, size)
        self.segments.append(_Segment(device, address, size, expandable, [whole]))
        action = "segment_map" if expandable else "segment_alloc"
        self._entry(device, action, address, size, at, _frames(stack))
        return address

    def give_back(self, address: int, *, at: float, stack: Sequence[str] = ()) -> None:
        """Return a segment to the driver."""
        segment = next(s for s in self.segments if s.address == address)
        self.segments.remove(segment)
        action = "segment_unmap" if segment.expandable else "segment_free"
        self._entry(segment.device, action, address, segment.bytes, at, _frames(stack))

    def allocate(self, size: int, *, at: float, device: int = 0, stack: Sequence[str] = ()) -> int:
        """Allocate; return the address."""
        frames = _frames(stack)
        rounded = -(-size // ROUNDED_TO) * ROUNDED_TO
        fitting = [
            (segment, index)
            for segment in self.segments
            if segment.device == device
            for index, block in enumerate(segment.blocks)
            if block.state == "inactive" and block.bytes >= rounded
        ]
        segment, index = min(fitting, key=lambda at: at[0].blocks[at[1]].bytes)
        room = segment.blocks[index]
        block = _Block(room.address, rounded, size, frames, "active_allocated")
        rest = [_Block(room.address + rounded, room.bytes - rounded)] if room.bytes > rounded else []
        segment.blocks[index : index + 1] = [block, *rest]
        self._blocks[block.address] = device, block
        self._entry(device, "alloc", block.address, size, at, frames)
        return block.address

    def free(self, address: int, *, at: float, completed: bool = True, stack: Sequence[str] = ()) -> None:
        """Free an allocation; without `completed`, another stream still uses it."""
        device, block = self._blocks[address]
        self._entry(device, "free_requested", address, block.asked, at, _frames(stack))
        block.state = "active_pending_free"
        if completed:
            self._entry(device, "free_completed", address, block.asked, at, _frames(stack))
            block.state = "inactive"
            del self._blocks[address]
            self._merge(block)

    def _merge(self, block: _Block) -> None:
        """Join a free block with its free neighbors."""
        segment = next(s for s in self.segments if any(one is block for one in s.blocks))
        index = next(i for i, one in enumerate(segment.blocks) if one is block)
        for i in (index + 1, index):
            pair = segment.blocks[max(0, i - 1) : i + 1]
            if len(pair) == 2 and all(one.state == "inactive" for one in pair):
                segment.blocks[i - 1 : i + 1] = [_Block(pair[0].address, pair[0].bytes + pair[1].bytes)]

    def out_of_memory(
        self, size: int, *, at: float, device: int = 0, device_free: int = 0, stack: Sequence[str] = ()
    ) -> None:
        self._entry(device, "oom", 0, size, at, _frames(stack))
        del self.traces[device][-1]["addr"]
        self.traces[device][-1]["device_free"] = device_free

    def mark(self, name: str, *, at: float, us: float) -> None:
        """Add a span of `record_function`."""
        for stage, when in (("START", at), ("END", at + us)):
            self.annotations.append(
                {"name": name, "stage": stage, "device": 0, "time_us": START_US + int(when)}
            )
        self.annotations.sort(key=lambda mark: mark["time_us"])

    def step(self, number: int, *, at: float, us: float) -> None:
        self.mark(f"ProfilerStep#{number}", at=at, us=us)

    def forget(self, entries: int) -> None:
        """Keep only the last entries of each device, as when the ring buffer is full."""
        self.traces = [trace[-entries:] if entries else [] for trace in self.traces]

    def used(self, device: int = 0) -> int:
        """Return the bytes that are in use, as the allocator rounds them."""
        return sum(
            block.bytes
            for segment in self.segments
            if segment.device == device
            for block in segment.blocks
            if block.state != "inactive"
        )

    def reserved(self, device: int = 0) -> int:
        return sum(segment.bytes for segment in self.segments if segment.device == device)

    def document(self, shape: Shape = "new") -> Any:
        """Return the object that is pickled."""
        segments = [self._segment(segment, shape) for segment in self.segments]
        if shape == "segments only":
            return segments
        traces = [
            [_removing(entry, "time_us") if shape != "new" else entry for entry in trace]
            for trace in self.traces
        ]
        document: dict[str, Any] = {"segments": segments, "device_traces": traces}
        if shape == "new":
            document["allocator_settings"] = {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "garbage_collection_threshold": 0.0,
            }
            document["external_annotations"] = self.annotations
        return document

    def write(self, folder: Path, name: str = "dump_snapshot.pickle", shape: Shape = "new") -> Path:
        """Write a file of this name, gzipped if it ends in .gz."""
        path = folder / name
        data = pickle.dumps(self.document(shape))
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def _segment(self, segment: _Segment, shape: Shape) -> dict[str, Any]:
        return {
            "device": segment.device,
            "address": segment.address,
            "total_size": segment.bytes,
            "allocated_size": sum(b.bytes for b in segment.blocks if b.state == "active_allocated"),
            "active_size": sum(b.bytes for b in segment.blocks if b.state != "inactive"),
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": segment.expandable,
            "frames": [],
            "blocks": [_block(block, shape) for block in segment.blocks],
        }

    def _entry(
        self, device: int, action: str, address: int, size: int, at: float, frames: list[dict[str, Any]]
    ) -> None:
        self.traces[device].append(
            {
                "frames": frames,
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "pool_id": (0, 0),
                "time_us": START_US + int(at),
            }
        )


def _block(block: _Block, shape: Shape) -> dict[str, Any]:
    if shape == "1.13":
        history = [{"addr": block.address, "real_size": block.asked, "frames": block.stack}]
        return {
            "size": block.bytes,
            "state": block.state,
            **({"history": history} if block.state != "inactive" else {}),
        }
    return {
        "address": block.address,
        "size": block.bytes,
        "requested_size": block.asked,
        "state": block.state,
        "frames": block.stack,
    }


def _frames(stack: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for frame in reversed(stack):
        place, _, function = frame.partition("): ")
        file, _, line = place.rpartition("(")
        found.append({"filename": file, "line": int(line), "name": function})
    return found


def _removing(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}
