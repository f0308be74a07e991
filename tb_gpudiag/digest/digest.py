"""Digest: what the analysis of many traces needs of each one, as small tables.

Times are int64 ns from the recording's start; add `About.origin_ns` for Unix time. Missing numbers are NONE
(-1), missing strings "". `idle_ns` and `host_ns` have one number per cause, in the order of `About.causes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.vocabulary.recorded import Recorder

VERSION: Final = 14
"""Rises whenever the columns change, or what they mean."""

WORK: Final = ("computing", "copying", "communicating")
"""What a GPU does while it is not idle."""

_IN_OPERATORS: Final = "dispatch"
"""The cause of the host's time that is computing if there is no GPU."""

_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()
_PER_CAUSE: Final = pa.list_(_NUMBER)

# computing + copying + communicating + idle = duration; host: what the main thread did, by cause. Without GPU
# work, a trace has only host_ns.
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
"""Recorded steps, else inferred ones, else the step window as one step; in time order."""

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
        ("stream", _NUMBER),
        ("exposed_ns", _NUMBER),  # nothing computes meanwhile
        ("annotation", _TEXT),  # the nearest user annotation around its launch
        ("caller", _TEXT),  # fsdp, optimizer, functional, gradients: see vocabulary/collective_kinds.py
        ("called_at", _TEXT),  # the user's function that calls it, or ""
        ("unit", _TEXT),  # FSDP's unit or the module that it is for, or ""
        ("number", _NUMBER),  # among those of its step with the same kind and caller, from 1
        ("why", _TEXT),  # why it is exposed: see facts/kernels/exposure_reasons.py
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
"""GPU work of the busiest device in the steady steps, copies and memsets included; most time first."""

MODULES: Final = pa.schema(
    [
        ("module", _TEXT),  # with * for each number: layers of one kind are one row; "" for work outside
        ("count", _NUMBER),
        ("time_ns", _NUMBER),  # sum of durations
    ]
)
"""GPU work of the busiest device in the step window by module, most time first; empty where none is known."""

OPERATORS: Final = pa.schema(
    [
        ("operator", _TEXT),
        ("path", _TEXT),
        ("count", _NUMBER),
        ("host_ns", _NUMBER),  # self time on the host
        ("launches", _NUMBER),
    ]
)
"""Operators of the step window, most host time first. The row without a name holds the launch calls made
outside of any operator."""

MEMORY: Final = pa.schema(
    [("device", _TEXT), ("time_ns", _NUMBER), ("floor_bytes", _NUMBER), ("warm_up", pa.bool_())]
)
"""Lowest allocated memory of each step or time window, by device."""

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

HELD: Final = pa.schema(
    [
        ("device", _TEXT),
        ("kind", _TEXT),  # of MemoryKind
        ("allocator", _TEXT),  # operator, or the module where no operator is known
        ("function", _TEXT),  # of the user
        ("file", _TEXT),  # the end of its path: two checkouts of a project have different folders around it
        ("line", _NUMBER),
        ("ran", pa.bool_()),  # the line allocates; else the function is defined there
        ("bytes", _NUMBER),
        ("count", _NUMBER),  # of allocations; 0 in the row of a kind for what has no row of its own
    ]
)
"""What was allocated at the peak. The rows of a device add up to its peak."""

TABLES: Final = {
    "steps": STEPS,
    "collectives": COLLECTIVES,
    "kernels": KERNELS,
    "modules": MODULES,
    "operators": OPERATORS,
    "memory": MEMORY,
    "sites": SITES,
    "held": HELD,
}

PATH_SEPARATOR: Final = " > "
REST: Final = "(other)"
"""Name of the row that sums what a table has no room for."""


@dataclass(frozen=True)
class MemoryPeaks:
    """Memory of one device over the recording; 0 where the trace does not say."""

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    capacity_bytes: int
    failed_bytes: int = 0  # that the last failed allocation asked for
    failures: int = 0
    failed_at: str = ""  # where that was asked for, as in a sentence: `at train.py:7 in loss`


@dataclass(frozen=True)
class About:
    """The recording that was digested."""

    id: str  # of the trace's content
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
    groups: dict[str, Sequence[int]]  # process group -> its ranks, ascending, as far as recorded
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
    limiter: str
    sentence: str
    busy_share: float
    mfu: float = 0.0  # 0 where it is not known
    mfu_of: str = ""  # the peak it is a share of, such as 989 TFLOP/s (BF16)
    unprofiled_share: float = 1.0  # how much of a step is left without the recorder, estimated
    memory: list[MemoryPeaks] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what the tables have no room for, one line each
    recorder: Recorder = "torch"
    server: str = ""  # the inference server that runs the model (vocabulary/engines.py), "" for none
    unchecked: dict[str, str] = field(default_factory=dict)  # rule that could not check -> why, how to record
    reason: str = ""  # why a step clock recorded it


@dataclass(frozen=True, eq=False)
class Digest:
    """One trace's digest. Tables have the columns of TABLES."""

    about: About
    steps: pa.Table
    collectives: pa.Table
    kernels: pa.Table
    modules: pa.Table
    operators: pa.Table
    memory: pa.Table
    sites: pa.Table
    held: pa.Table
    findings: list[pb.Finding]

    def table(self, name: str) -> pa.Table:
        return getattr(self, name)

    @cached_property
    def steady_steps(self) -> pa.Table:
        """STEPS of the step window."""
        found: pa.Table = self.steps.filter(self.steps.column("steady"))
        return found

    @cached_property
    def step_time(self) -> StepTime:
        """How long a step takes, in ns; zeros if no steps are known."""
        steps = self.steady_steps if self.about.steps_basis != "none" else self.steps[:0]
        return step_time(numbers(steps, "end_ns") - numbers(steps, "start_ns"))


def numbers(table: pa.Table, column: str) -> Int64:
    """Return a column of numbers, shape (rows,)."""
    return table.column(column).to_numpy().astype(np.int64, copy=False)


def texts(table: pa.Table, column: str) -> list[str]:
    return table.column(column).to_pylist()


def per_cause(table: pa.Table, column: str, causes: int) -> Int64:
    """Return a column of times by cause, shape (rows, causes)."""
    lists = table.column(column).combine_chunks()
    return np.asarray(lists.flatten().to_numpy(), np.int64).reshape(len(table), causes)


def time_parts(table: pa.Table, about: About, causes: Sequence[str], *, on_gpu: bool) -> Int64:
    """Return how the time of each row of STEPS or COLLECTIVES was spent: WORK, then the causes, in the order
    given. Shape (rows, 3 + causes). Without a GPU, causes are of the host's time, and operators compute."""
    by_cause = per_cause(table, "idle_ns" if on_gpu else "host_ns", len(about.causes))
    found = np.zeros((len(table), len(WORK) + len(causes)), np.int64)
    for column, part in enumerate(WORK):
        found[:, column] = numbers(table, f"{part}_ns")
    for column, cause in enumerate(about.causes):
        if cause == _IN_OPERATORS and not on_gpu:
            found[:, 0] += by_cause[:, column]
        elif cause in causes:
            found[:, len(WORK) + causes.index(cause)] += by_cause[:, column]
    return found
