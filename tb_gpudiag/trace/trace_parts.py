"""What was read from one piece of a file, as columns. A trace is assembled of such parts.

Only the events that are kept are in them, so memory grows with the number of spans, not with the size of the
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float32, Int32, Int64, UInt8
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.counters import CounterSamples

# Timestamps outside these are not times: as nanoseconds since 1970, they are the years 1938 and 2096. Between
# them, differences of timestamps and sums of start and duration fit 64 bits.
EARLIEST_NS: Final = -(10**18)
LATEST_NS: Final = 4 * 10**18
# A span that is longer than a month is not a span: recordings take seconds to minutes.
LONGEST_NS: Final = 30 * 24 * 3_600 * 10**9

# Names of kernels have up to about 5,000 characters. Of a longer name, this much is kept.
LONGEST_NAME: Final = 8_192
# Sizes: a petabyte. Sums of many of these still fit 64 bits.
MOST_BYTES: Final = 1 << 50

MESSAGE_SEPARATOR: Final = "\x1f"

NUMBERS: Final = ("correlation", "external_id", "python_id", "python_parent", "sequence", "forward_thread")
"""Columns of Events that are taken as they are in the file."""

FIGURES: Final[Mapping[str, tuple[Any, float]]] = {
    "device": (np.int32, NONE),
    "stream": (np.int32, NONE),
    "bytes": (np.int64, NONE),
    "blocks_per_sm": (np.float32, np.nan),
    "blocks": (np.float32, np.nan),
    "warps_per_block": (np.uint8, 0),
    "registers": (np.uint8, 0),
    "shared_bytes": (np.int32, NONE),
}
"""Other columns of numbers: the type of each, and what stands for a missing number."""

TEXTS: Final = (
    "call_stack",
    "called_from",
    "shapes",
    "types",
    "settings",
    "strides",
    "launched",
    "annotation",
    "messages",
)
"""Columns of texts that most events do not have."""


@dataclass(frozen=True, eq=False)
class SpanColumns:
    """Spans of one chunk, in file order. All arrays have shape (n,). Strings are Arrow dictionaries."""

    phase_end: Bool  # an `E` that ends an earlier `B`
    phase_begin: Bool
    category: UInt8
    name: pa.DictionaryArray
    thread: Int32  # index into TracePart.threads
    start_ns: Int64  # the event's own timestamp
    duration_ns: Int64
    device: Int32
    stream: Int32
    bytes: Int64
    numbers: dict[str, Int64]  # by the names of NUMBERS
    blocks_per_sm: Float32
    blocks: Float32
    warps_per_block: UInt8
    registers: UInt8
    shared_bytes: Int32
    call_stack: pa.DictionaryArray
    called_from: pa.DictionaryArray
    shapes: pa.DictionaryArray
    types: pa.DictionaryArray
    settings: pa.DictionaryArray
    strides: pa.DictionaryArray
    launched: pa.DictionaryArray
    annotation: pa.DictionaryArray
    messages: pa.DictionaryArray  # fields of events.Message in order, with MESSAGE_SEPARATOR between them


@dataclass(frozen=True, eq=False)
class MemoryColumns:
    """`[memory]` and `[OutOfMemory]` events of one chunk, in file order. All arrays have shape (m,)."""

    time_ns: Int64
    bytes: Int64
    address: npt.NDArray[np.uint64]
    device_type: Int32
    device: Int32
    allocated: Int64
    reserved: Int64
    thread: Int32  # index into TracePart.threads
    failed: Bool  # out of memory: nothing was allocated


@dataclass(frozen=True, eq=False)
class TracePart:
    """What was read from one chunk of events."""

    read: int
    malformed: int
    negative_durations: int
    missing_durations: int
    spans: SpanColumns
    memory: MemoryColumns
    threads: list[tuple[str, str]]  # (pid, tid) of this chunk
    thread_names: dict[tuple[str, str], str]
    counters: CounterSamples | None = None
