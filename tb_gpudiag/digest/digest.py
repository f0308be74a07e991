"""Digest: what the analysis of many traces needs of one, as small tables.

Times are int64 ns from the recording's start; add `About.origin_ns` for Unix time. NONE (-1) is a number that
the trace does not say, "" such a text. Columns of parts (`idle_ns`, `host_ns`) have one number per cause, in
the order of `About.causes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import Int64
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.vocabulary.recorded import Recorder

VERSION: Final = 1
"""Rises when a column changes its meaning."""

_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()
_PER_CAUSE: Final = pa.list_(_NUMBER)

# computing + copying + communicating + idle = duration; host: what the main thread did, by cause. A trace
# without GPU work has only the host's part.
_PARTS: Final = [
    ("computing_ns", _NUMBER),
    ("copying_ns", _NUMBER),  # exposed: nothing computes meanwhile
    ("communicating_ns", _NUMBER),  # exposed
    ("idle_ns", _PER_CAUSE),
    ("host_ns", _PER_CAUSE),
]

STEPS: Final = pa.schema(
    [
        ("name", _TEXT),
        ("start_ns", _NUMBER),
        ("end_ns", _NUMBER),  # the next one's start; of the last one, the end of the GPU work it launched
        ("steady", pa.bool_()),  # in the step window: not a slow start
        *_PARTS,
    ]
)
"""Recorded steps, else inferred ones, else the step window as one; in order of time."""

COLLECTIVES: Final = pa.schema(
    [
        ("kind", _TEXT),  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, …, other
        ("name", _TEXT),  # the kernel, or the operation on the CPU
        ("group", _TEXT),  # process group: see About.groups
        ("sequence", _NUMBER),  # of the operation in its group
        ("source", _NUMBER),  # ranks, for point-to-point operations
        ("destination", _NUMBER),
        ("bytes", _NUMBER),  # the larger of what goes in and what comes out
        ("host_start_ns", _NUMBER),  # when the host called it
        ("start_ns", _NUMBER),  # the rank arrives
        ("end_ns", _NUMBER),
        ("device", _NUMBER),  # NONE on the CPU
        ("stream", _NUMBER),
        ("exposed_ns", _NUMBER),  # nothing computes meanwhile
        ("annotation", _TEXT),  # the nearest user annotation around its launch
        ("step", _NUMBER),  # row of STEPS that it starts in, or NONE
        # Since the previous row's start, or since the step window began: [since_ns, start_ns).
        ("since_ns", _NUMBER),
        *_PARTS,
        ("kernels", _NUMBER),  # kernels that compute and start meanwhile
        ("work", _NUMBER),  # hash of their names in order: equal on ranks that run the same kernels
        ("work_sizes", _NUMBER),  # hash of their names and grids: equal if the shapes are, too
        ("place", _TEXT),  # where the host spent most of the idle time: function, else operator
        ("place_ns", _NUMBER),
    ]
)
"""Collectives and point-to-point operations in the step window, in order of start."""

KERNELS: Final = pa.schema(
    [
        ("name", _TEXT),
        ("family", _TEXT),
        ("operator", _TEXT),  # that launched it
        ("path", _TEXT),  # operators and modules around it, outermost first, joined by PATH_SEPARATOR
        ("shapes", _TEXT),  # of the operator's inputs, JSON
        ("count", _NUMBER),
        ("time_ns", _NUMBER),  # sum of durations
    ]
)
"""GPU work of the busiest device in the steady steps, most time first. Copies and memsets are among it."""

OPERATORS: Final = pa.schema(
    [
        ("operator", _TEXT),
        ("path", _TEXT),
        ("count", _NUMBER),
        ("host_ns", _NUMBER),  # self time on the host
        ("launches", _NUMBER),
        ("launch_ns", _NUMBER),  # of host_ns: in launch calls
    ]
)
"""Operators of the step window, most host time first. A row without a name has the launch calls that no
operator made."""

MEMORY: Final = pa.schema(
    [
        ("device", _TEXT),
        ("name", _TEXT),  # of the step or time window
        ("time_ns", _NUMBER),
        ("floor_bytes", _NUMBER),
        ("warm_up", pa.bool_()),
    ]
)
"""Lowest allocated memory of each step, by device."""

SITES: Final = pa.schema(
    [
        ("device", _TEXT),
        ("operator", _TEXT),
        ("place", _TEXT),
        ("bytes_per_step", _NUMBER),
        ("bytes", _NUMBER),
    ]
)
"""Growing allocation sites."""

TABLES: Final = {
    "steps": STEPS,
    "collectives": COLLECTIVES,
    "kernels": KERNELS,
    "operators": OPERATORS,
    "memory": MEMORY,
    "sites": SITES,
}

PATH_SEPARATOR: Final = " > "
REST: Final = "(other)"
"""Name of the row with the sum of what a table has no room for."""


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of one device over the recording; 0 where the trace does not say."""

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    capacity_bytes: int
    slope_bytes_per_step: float
    slope_state: str  # FloorTrend.state
    slope_unit: str


@dataclass(frozen=True)
class About:
    """What the digest is of."""

    id: str  # of the trace's content
    generator: str
    kind: str  # trace, snapshot, memory_timeline
    run: str
    worker: str
    span: str
    path: str
    status: str
    simulated: bool
    host: str  # "" if neither the trace nor the worker's name says
    pid: int  # of the main thread's process, or NONE
    rank: int  # or NONE
    world_size: int  # 0 if the trace does not say
    groups: dict[str, list[int]]  # process group -> its ranks, as far as they were recorded
    origin_ns: int  # Unix time of the recording's start
    recording_ns: int
    window_start_ns: int  # step window
    window_end_ns: int
    steps_basis: str  # recorded, inferred, none
    device_name: str  # of the busiest GPU, "" without one
    compute_capability: str  # such as 8.0, or an AMD architecture
    devices: int
    causes: list[str]
    stacks: bool
    shapes: bool
    limiter: str
    sentence: str
    busy_share: float
    first_run_ns: int  # idle time that is first-run work
    memory: list[DeviceMemory] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what the tables have no room for, one line each
    notes: list[str] = field(default_factory=list)
    recorder: Recorder = "torch"


@dataclass(frozen=True)
class Digest:
    """One trace's digest. Tables have the columns of TABLES."""

    about: About
    steps: pa.Table
    collectives: pa.Table
    kernels: pa.Table
    operators: pa.Table
    memory: pa.Table
    sites: pa.Table
    findings: list[pb.Finding]

    def table(self, name: str) -> pa.Table:
        """Return a table by its name in TABLES."""
        found: pa.Table = getattr(self, name)
        return found


def numbers(table: pa.Table, column: str) -> Int64:
    """Return a column of numbers, shape (rows,)."""
    found: Int64 = table.column(column).to_numpy().astype(np.int64, copy=False)
    return found


def texts(table: pa.Table, column: str) -> list[str]:
    """Return a column of texts."""
    found: list[str] = table.column(column).to_pylist()
    return found


def per_cause(table: pa.Table, column: str, causes: int) -> npt.NDArray[np.int64]:
    """Return a column of parts, shape (rows, causes)."""
    lists = table.column(column).combine_chunks()
    return np.asarray(lists.flatten().to_numpy(), np.int64).reshape(len(table), causes)
