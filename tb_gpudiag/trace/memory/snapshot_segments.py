"""Read the segments and blocks of a memory snapshot into columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int32, Int64
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.trace.kept_rows import MOST_DEVICES
from tb_gpudiag.trace.memory.snapshot_stacks import SnapshotStacks
from tb_gpudiag.trace.trace_parts import MOST_BYTES

MOST_ADDRESSES: Final = 1 << 64
_UNUSED: Final = "inactive"
_SHARED_POOL: Final = (0, 0)


def read_segments(found: list[Any], stacks: SnapshotStacks) -> tuple[Segments, int]:
    """Return the columns, and the number of malformed segments and blocks, which are skipped."""
    good = [segment for segment in found if _is_segment(segment)]
    malformed = len(found) - len(good)
    good.sort(key=lambda segment: (segment.get("device", 0), segment["address"]))
    blocks: list[dict[str, Any]] = []
    addresses: list[int] = []
    owners: list[int] = []
    for number, segment in enumerate(good):
        address = segment["address"]
        for block in segment["blocks"]:
            if not _is_block(block):
                malformed += 1
                continue
            # Older snapshots have no addresses: the blocks follow one another.
            address = block.get("address", address % MOST_ADDRESSES)
            blocks.append(block)
            addresses.append(address)
            owners.append(number)
            address += block["size"]

    def column(of: Callable[[Any], Any], rows: list[Any], kind: Any) -> npt.NDArray[Any]:
        return np.fromiter([of(row) for row in rows], kind, len(rows))

    return (
        Segments(
            device=column(lambda s: s.get("device", 0), good, np.int32),
            address=column(lambda s: s["address"], good, np.uint64),
            bytes=column(lambda s: s["total_size"], good, np.int64),
            stream=column(lambda s: s["stream"] if within(s.get("stream"), 1 << 63) else 0, good, np.int64),
            pool=_pools(good),
            expandable=column(lambda s: s.get("is_expandable") is True, good, np.bool_),
            block_segment=np.array(owners, np.int32),
            block_address=np.array(addresses, np.uint64),
            block_bytes=column(lambda b: b["size"], blocks, np.int64),
            block_requested_bytes=column(_requested, blocks, np.int64),
            block_used=column(_is_used, blocks, np.bool_),
            block_stack=stacks.numbers([_frames(block) for block in blocks]),
        ),
        malformed,
    )


def _pools(segments: list[dict[str, Any]]) -> Int32:
    numbers: dict[tuple[int, ...], int] = {_SHARED_POOL: 0}
    found = []
    for segment in segments:
        pool = segment.get("segment_pool_id")
        if type(pool) is not tuple or not all(type(part) is int for part in pool):
            pool = _SHARED_POOL
        found.append(numbers.setdefault(pool, len(numbers)))
    return np.array(found, np.int32)


def _is_segment(segment: Any) -> bool:
    return (
        type(segment) is dict
        and type(segment.get("blocks")) is list
        and within(segment.get("address"), MOST_ADDRESSES)
        and within(segment.get("total_size"), MOST_BYTES)
        and within(segment.get("device", 0), MOST_DEVICES)
    )


def _is_block(block: Any) -> bool:
    return (
        type(block) is dict
        and within(block.get("size"), MOST_BYTES)
        and within(block.get("address", 0), MOST_ADDRESSES)
        and type(block.get("state")) is str
    )


def within(value: Any, bound: int) -> bool:
    """Return whether the value is a whole number from 0 to below the bound."""
    return isinstance(value, int) and 0 <= value < bound


def within_all(values: Int64, bound: int) -> bool:
    """Return whether all values are from 0 to below the bound."""
    return len(values) == 0 or (int(values.min()) >= 0 and int(values.max()) < bound)


def _is_used(block: dict[str, Any]) -> bool:
    return bool(block["state"] != _UNUSED)


def _requested(block: dict[str, Any]) -> int:
    """Return the size that was requested; 0 for an unused block."""
    if not _is_used(block):
        return 0
    for asked in (_latest(block).get("real_size"), block.get("requested_size")):
        if within(asked, block["size"] + 1) and asked:
            return int(asked)
    return int(block["size"])


def _frames(block: dict[str, Any]) -> Any:
    return (block if "frames" in block else _latest(block)).get("frames")


def _latest(block: dict[str, Any]) -> dict[str, Any]:
    """Return the last allocation of the block, in snapshots of torch 1.13 and 2.0; empty in others."""
    history = block.get("history")
    first = history[0] if type(history) is list and history else None
    return first if type(first) is dict else {}
