"""A trace as columns: what was recorded, without any judgment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Float32, Float64, Int32, Int64, UInt8, mask_of
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.compile_log.log import CompileLog
from tb_gpudiag.vocabulary.name_matcher import NameMatcher
from tb_gpudiag.vocabulary.recorded import Category, Credential, FileKind, Recorder


class Message(NamedTuple):
    """What a collective or point-to-point operation sends, as the trace states it. Missing strings are "",
    missing numbers NONE."""

    collective: str  # such as `allreduce`
    group: str  # name of the process group
    ranks: tuple[int, ...]  # of the group; Kineto writes at most 30
    group_size: int
    sequence: int  # counts the group's operations
    elements_in: int
    elements_out: int
    element_type: str  # such as `Float`
    source: int  # rank that sends, for point-to-point
    destination: int


Status = Literal["COMPLETE", "PARTIAL", "WRITING"]


def is_id(values: Int64) -> Bool:
    """Mask of ids that link events. Those from 2**63 are negative, and 0 and NONE are none."""
    return (values != 0) & (values != NONE)


@dataclass(frozen=True)
class Thread:
    """One (pid, tid) pair of the trace. Both are text: a tid may be a number or "stream 7"."""

    pid: str
    tid: str
    name: str = ""


def are_among(category: UInt8, *categories: Category) -> Bool:
    """Mask of the entries that are one of `categories`, shape of `category`."""
    table = mask_of(list(categories), np.iinfo(np.uint8).max + 1)
    return table[category]


@dataclass(frozen=True, eq=False)
class Events:
    """Spans (phase X, and matched B/E pairs), sorted by start, then in file order.

    All arrays have shape (n,). Instants, flows and metadata count in `Trace.events_read` but have no rows
    here, and counters have none either: see `Trace.counters`.
    """

    category: UInt8
    name: Int32  # index into `names`
    start_ns: Int64  # since the start of the trace
    duration_ns: Int64  # never negative
    thread: Int32  # index into `threads`
    correlation: Int64  # the same for a launch call and its GPU work, or NONE
    external_id: Int64  # the same for an operator, or for a launch call, and its GPU work, or NONE
    device: Int32  # GPU index of GPU work and synchronization events; NONE elsewhere
    stream: Int32  # of GPU work; of a synchronization event, the stream that waits; NONE elsewhere
    bytes: Int64  # of copies and memsets; NONE elsewhere
    python_id: Int64  # `Python id` of a Python frame
    python_parent: Int64  # `Python parent id`
    # `Sequence number` that autograd gives an operator. Of a synchronization event: the correlation of the
    # call that recorded the awaited CUDA event. Of a kernel: its `graph node id`.
    sequence: Int64
    # `Fwd thread id` of a backward operator; 0 or NONE elsewhere. Of a synchronization event: the awaited
    # stream.
    forward_thread: Int64
    blocks_per_sm: Float32  # of a kernel: blocks of its grid / multiprocessors of the GPU; NaN elsewhere
    # Blocks of the grid of kernels without `blocks_per_sm`, and of ROCm's launch calls; NaN elsewhere.
    blocks: Float32
    warps_per_block: UInt8  # of a kernel; 0 if the trace does not say
    registers: UInt8  # per thread of a kernel; 0 if the trace does not say
    shared_bytes: Int32  # shared memory per block of a kernel; NONE if the trace does not say
    call_stack: Int32  # index into `call_stacks` (old traces), or NONE
    called_from: Int32  # of a Python frame of torch 2.14 and later: index into `calling_lines`, or NONE
    shapes: Int32  # of an operator: index into `input_shapes`, or NONE
    types: Int32  # of an operator whose cost follows from its inputs: index into `input_types`, or NONE
    # Of convolutions and attention, and the grid and block of kernels: index into `input_settings`, or NONE
    settings: Int32
    strides: Int32  # of elementwise operators, norms and reductions: index into `input_strides`, or NONE
    annotation: Int32  # of a kernel of a CUDA graph: index into `annotations`, or NONE
    launched: Int32  # of ROCm's launch calls: index into `launched_kernels`, or NONE
    message: Int32  # of `record_param_comms` and communication kernels: index into `messages`, or NONE
    names: list[str]
    threads: list[Thread]
    call_stacks: list[str]
    calling_lines: list[str]  # of the frame around, e.g. `train.py:12`
    input_shapes: list[str]  # JSON, e.g. `[[128, 768], [768, 768]]`
    input_types: list[str]  # JSON, e.g. `["float", "c10::BFloat16"]`
    # JSON of inputs that are not tensors, e.g. `["", "", "[1, 1]", "False"]`; or `[64, 1, 1] × [256, 1, 1]`
    input_settings: list[str]
    input_strides: list[str]  # JSON, in elements, e.g. `[[768, 1], [1, 768]]`
    annotations: list[str]  # modules, or names that the capture gave
    launched_kernels: list[str]
    messages: list[Message]

    @classmethod
    def blank(cls, count: int) -> Events:
        """Make events of which nothing is known. Their columns are filled in with dataclasses.replace."""
        zeros8, zeros64 = np.zeros(count, np.uint8), np.zeros(count, np.int64)
        none32, none64 = np.full(count, NONE, np.int32), np.full(count, NONE, np.int64)
        nan = np.full(count, np.nan, np.float32)
        of_type = {"UInt8": zeros8, "Int32": none32, "Int64": none64, "Float32": nan}
        columns: dict[str, Any] = {each.name: of_type.get(str(each.type), []) for each in fields(cls)}
        return cls(**{**columns, "start_ns": zeros64, "duration_ns": zeros64})

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64:
        """Ends of the spans, shape (n,)."""
        return self.start_ns + self.duration_ns

    def among(self, *categories: Category) -> Bool:
        """Mask of the events of these categories, shape (n,)."""
        return are_among(self.category, *categories)

    def where(self, *categories: Category) -> Int64:
        """Return the indices of the events of these categories, in order of start."""
        found = self._indices.get(categories)
        if found is None:
            found = np.flatnonzero(self.among(*categories)).astype(np.int64, copy=False)
            found.flags.writeable = False
            self._indices[categories] = found
        return found

    @cached_property
    def _indices(self) -> dict[tuple[Category, ...], Int64]:
        return {}

    @cached_property
    def has_name(self) -> Bool:
        """Mask of the names that an event has, shape of `names`."""
        return mask_of(self.name, len(self.names))

    @cached_property
    def matcher(self) -> NameMatcher:
        """Matches `names` with patterns."""
        return NameMatcher(self.names)


@dataclass(frozen=True, eq=False)
class MemoryEvents:
    """What the allocators did, in time order: `[memory]` events, or the history of a memory snapshot.

    All arrays have shape (m,); sizes are in bytes. A snapshot also has the memory that was allocated before
    its history starts and is still live: it comes first, as allocations at time 0 marked as `found`. In a
    memory timeline, memory may change its purpose. Then one row frees it and the next one allocates it again,
    both with the totals after the second.
    """

    time_ns: Int64
    action: UInt8  # MemoryAction
    # Change of `allocated`, or of `reserved` for GROW and SHRINK; for OUT_OF_MEMORY, the size requested. In a
    # snapshot, sizes are as requested; elsewhere, as the allocator rounded them.
    bytes: Int64
    address: npt.NDArray[np.uint64]
    device_type: Int32  # DeviceType
    device: Int32  # NONE for the CPU
    allocated: Int64  # `Total Allocated` after the event; NONE in old traces
    reserved: Int64
    thread: Int32  # index into Events.threads, or NONE
    stack: Int32  # index into `stacks`, or NONE; only snapshots have stacks
    stacks: list[str]  # frames "file(line): function", outermost first, one per line
    found: Bool | None = None  # not an event: allocated before the recording; None if the file does not say
    purpose: UInt8 | None = None  # MemoryPurpose; only memory timelines have it
    stream: Int64 | None = None  # whose blocks it uses; only snapshots say it
    driver_free: Int64 | None = None  # at OUT_OF_MEMORY, what the driver had free, or NONE; only in snapshots

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def before(self) -> Bool:
        """Mask of what was allocated before the recording, as far as the file says."""
        return np.zeros(len(self), np.bool_) if self.found is None else self.found


@dataclass(frozen=True, eq=False)
class Counter:
    """Values of one quantity, shape (v,) each, in time order. A value holds until the next one."""

    name: str
    unit: str  # "" if the name does not say
    device: int  # GPU index; NONE if the file does not say which GPU it measures
    time_ns: Int64  # since the start of the trace
    value: Float64  # finite
    timed: bool = True  # False: the file does not say when. CUPTI's range profiler spreads its ranges evenly


@dataclass(frozen=True, eq=False)
class Segments:
    """The allocator's memory when a snapshot was taken. Sizes are in bytes.

    Segments are what the driver gave the allocator, shape (s,). Blocks are parts of segments, shape (b,),
    sorted by segment and address.
    """

    device: Int32
    address: npt.NDArray[np.uint64]
    bytes: Int64
    stream: Int64
    pool: Int32  # private pools, as of CUDA graphs, are numbered from 1; 0 is the shared one
    expandable: Bool
    block_segment: Int32
    block_address: npt.NDArray[np.uint64]
    block_bytes: Int64
    # Size requested: 0 for an unused block, block_bytes if the snapshot does not say.
    block_requested_bytes: Int64
    block_used: Bool  # allocated, or freed and waiting for a stream
    block_stack: Int32  # index into MemoryEvents.stacks, or NONE


@dataclass(frozen=True)
class Metadata:
    """Top-level values of the file, other than its events."""

    base_time_ns: int = 0
    device_properties: list[dict[str, Any]] = field(default_factory=list)
    distributed: dict[str, Any] = field(default_factory=dict)
    record_shapes: bool = False
    with_flops: bool = False
    simulated: bool = False  # written by a simulator, not recorded (top-level key `simulated`)
    host_name: str = ""  # torch 2.12 and later
    gpu_error: int = 0  # with which CUDA or HIP said that it has no GPU
    tensors: dict[str, Any] = field(default_factory=dict)  # what NotingTensors wrote
    recorded_because: str = ""  # why a StepClock recorded
    recorder: Recorder = "torch"


class CaptureTrace(NamedTuple):
    """The recording of the capture of graphs that the trace replays: the name of its file, and its events."""

    name: str
    events: Events


@dataclass(frozen=True, eq=False)
class Trace:
    """What was read from one trace file."""

    events: Events
    memory: MemoryEvents
    metadata: Metadata
    status: Status
    events_read: int  # whole elements of traceEvents, of all phases
    malformed_events: int  # skipped, or read as 0 ns long
    start_ns: int  # timestamp of the earliest event
    kind: FileKind = "trace"
    segments: Segments | None = None  # of a snapshot
    notes: list[str] = field(default_factory=list)  # what was skipped or repaired, one line each
    credentials: Mapping[Credential, int] = field(default_factory=dict)  # how often each is in the file
    unsearched_bytes: int = 0  # text that was not searched for them
    counters: list[Counter] = field(default_factory=list)  # most samples first; bounded
    compile_log: CompileLog | None = None  # what torch.compile logged in the same process
    captures: list[CaptureTrace] = field(default_factory=list)  # of the graphs that it replays
    # Device -> what was added to its times, because its clock was wrong. See times.py.
    clock_offsets_ns: Mapping[int, int] = field(default_factory=dict)
    cut_work: int = 0  # kernels and copies with impossible durations. See times.py.

    @property
    def origin_ns(self) -> int:
        """Unix time of the earliest event; 0 if it is not within 146 years of 1970, as no clock's is."""
        found = self.metadata.base_time_ns + self.start_ns
        return found if abs(found) < 2**62 else 0

    @property
    def without_history(self) -> bool:
        """Whether it is a snapshot of what was in use at its end, and of nothing that the allocator did."""
        return self.kind == "snapshot" and bool(self.memory.before.all())

    @property
    def time_notes(self) -> list[str]:
        """A sentence about each clock that was wrong, and one about durations that cannot be."""
        outlasted = (
            f"{self.cut_work:,} kernels or copies still ran, by their durations, when later work of their "
            "stream had ended, which cannot be: each is cut where the next one begins."
        )
        return [outlasted] * bool(self.cut_work) + [
            f"The clock of GPU {device} was {abs(ns) / 1e3:.1f} µs {'early' if ns > 0 else 'late'}: "
            "its times are corrected."
            for device, ns in self.clock_offsets_ns.items()
        ]


_DICTIONARIES: Final[Mapping[str, str]] = {
    "name": "names",
    "thread": "threads",
    "call_stack": "call_stacks",
    "called_from": "calling_lines",
    "shapes": "input_shapes",
    "types": "input_types",
    "settings": "input_settings",
    "strides": "input_strides",
    "launched": "launched_kernels",
    "annotation": "annotations",
    "message": "messages",
}
"""Columns that are indices, and what they point into."""

_OF_ONE_FILE: Final = ("correlation", "external_id", "python_id", "python_parent", "sequence")
"""Numbers that mean nothing beside those of another file."""


def join_events(events: Events, others: Events, chosen: Int64) -> Events:
    """Return the events, and after their end the chosen others. Threads with one number are apart, too."""
    shift_ns = int(events.end_ns.max(initial=0)) - int(others.start_ns[chosen].min(initial=0)) + 1
    joined: dict[str, Any] = {}
    for column, values in _DICTIONARIES.items():
        known, found = getattr(events, values), getattr(others, values)
        code: Int32 = getattr(others, column)[chosen]
        if column == "thread":
            index, both = np.arange(len(found), dtype=np.int32) + len(known), [*known, *found]
        else:
            index, both = _unified(known, found)
        index = np.r_[index, np.int32(NONE)]  # NONE stays NONE
        joined[column] = np.r_[getattr(events, column), index[code]].astype(np.int32)
        joined[values] = both
    for one in fields(events):
        if one.name not in joined:
            more = getattr(others, one.name)[chosen]
            if one.name == "start_ns":
                more = more + shift_ns
            elif one.name in _OF_ONE_FILE:
                more = np.full_like(more, NONE)
            joined[one.name] = np.r_[getattr(events, one.name), more].astype(more.dtype)
    return Events(**joined)


def _unified(known: list[Any], others: list[Any]) -> tuple[Int32, list[Any]]:
    """Return the place of each of the others in one list of all, and that list."""
    places = {value: place for place, value in enumerate(known)}
    index = np.array([places.setdefault(value, len(places)) for value in others], np.int32)
    if len(places) < len(known):  # a value is in the list twice
        return np.arange(len(others), dtype=np.int32) + len(known), [*known, *others]
    return index, list(places)
