"""Turn the parsed columns of a chunk into a Part: compact arrays of the events that are kept.

So memory grows with the number of spans, not with the size of the file. Nothing here loops over events in
Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float32, Int32, Int64, UInt8
from tb_gpudiag.trace.counters import Samples, event_samples
from tb_gpudiag.trace.events import are_among
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import Fields, all_empty
from tb_gpudiag.trace.kineto.grids import blocks_of
from tb_gpudiag.trace.kineto.messages import message_texts
from tb_gpudiag.trace.memory.snapshot_segments import MOST_BYTES
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, Category
from tb_gpudiag.vocabulary.shaped_operators import has_cost, has_settings

# Timestamps outside these are not times: as nanoseconds since 1970, they are the years 1938 and 2096. Between
# them, differences of timestamps and sums of start and duration fit 64 bits.
EARLIEST_NS: Final = -(10**18)
LATEST_NS: Final = 4 * 10**18
# A span that is longer than a month is not a span: recordings take seconds to minutes.
LONGEST_NS: Final = 30 * 24 * 3_600 * 10**9

_NUMBERS: Final = ("correlation", "external_id", "python_id", "python_parent", "sequence", "forward_thread")
# A block has at most 1,024 threads.
_MOST_WARPS: Final = 32
# The shapes and settings of an operator's few inputs are shorter.
_LONGEST_SHAPES: Final = 400
# Names of kernels have up to about 5,000 characters. Of a longer name, this much is kept.
LONGEST_NAME: Final = 8_192
# Old traces have the whole call stack of an operator in one text, some 100 frames.
_LONGEST_STACK: Final = 65_536
# With fewer values than this, a table is faster than sorting.
_MOST_NUMBERED: Final = 1 << 16


@dataclass(frozen=True)
class Spans:
    """Spans of one chunk, in file order. All arrays have shape (n,). Strings are Arrow dictionaries."""

    phase_end: Bool  # an `E` that ends an earlier `B`
    phase_begin: Bool
    category: UInt8
    name: pa.DictionaryArray
    thread: Int32  # index into Part.threads
    start_ns: Int64  # the event's own timestamp
    duration_ns: Int64
    device: Int32
    stream: Int32
    bytes: Int64
    numbers: dict[str, Int64]  # columns that are taken as they are, by name
    blocks_per_sm: Float32
    blocks: Float32
    warps_per_block: UInt8
    registers: UInt8
    shared_bytes: Int32
    call_stack: pa.DictionaryArray
    shapes: pa.DictionaryArray
    types: pa.DictionaryArray
    settings: pa.DictionaryArray
    messages: pa.DictionaryArray  # texts of messages.py


@dataclass(frozen=True)
class Memory:
    """`[memory]` and `[OutOfMemory]` events of one chunk, in file order. All arrays have shape (m,)."""

    time_ns: Int64
    bytes: Int64
    address: npt.NDArray[np.uint64]
    device_type: Int32
    device: Int32
    allocated: Int64
    reserved: Int64
    thread: Int32  # index into Part.threads
    failed: Bool  # out of memory: nothing was allocated


@dataclass(frozen=True)
class Part:
    """What was read from one chunk of events."""

    read: int
    malformed: int
    negative_durations: int
    missing_durations: int
    spans: Spans
    memory: Memory
    threads: list[tuple[str, str]]  # (pid, tid) of this chunk
    thread_names: dict[tuple[str, str], str]
    counters: Samples | None = None


def part_of(fields: Fields) -> Part:
    """Make a Part of a chunk's events."""
    start_ns, start_known = fields.nanoseconds("start_us")
    start_known &= (start_ns >= EARLIEST_NS) & (start_ns <= LATEST_NS)
    phase = fields.texts("phase")
    begin, end = _is(phase, kineto.BEGIN_PHASE), _is(phase, kineto.END_PHASE)
    failed = fields.equal("name", kineto.OUT_OF_MEMORY_NAME)
    memory = _is(phase, *kineto.MEMORY_PHASES) & (fields.equal("name", kineto.MEMORY_NAME) | failed)
    span = (_is(phase, kineto.SPAN_PHASE) | begin | end) & ~memory
    malformed = ~fields.known("phase") | ((span | memory) & ~start_known)
    memory_rows = np.flatnonzero(memory)
    malformed[memory_rows[_implausible(fields, memory_rows)]] = True
    span_rows = np.flatnonzero(span & ~malformed)
    memory_rows = memory_rows[~malformed[memory_rows]]
    name_rows = np.flatnonzero(_is(phase, kineto.METADATA_PHASE) & fields.equal("name", kineto.THREAD_NAME))

    thread, threads = _threads(fields, np.concatenate([span_rows, memory_rows, name_rows]))
    span_thread, memory_thread, name_thread = np.split(thread, np.cumsum([len(span_rows), len(memory_rows)]))
    names = fields.texts("thread_name", name_rows, cut=LONGEST_NAME).to_pylist()
    spans, negative, missing = _spans(fields, span_rows, start_ns, begin, end, span_thread, threads)
    return Part(
        read=fields.count - int(malformed.sum()),
        malformed=fields.others + int(malformed.sum()),
        negative_durations=negative,
        missing_durations=missing,
        spans=spans,
        memory=_memory(fields, memory_rows, start_ns, memory_thread, failed),
        threads=threads,
        thread_names={threads[t]: n for t, n in zip(name_thread.tolist(), names, strict=True) if n},
        counters=event_samples(
            fields,
            _is(phase, kineto.COUNTER_PHASE) & start_known & ~fields.equal("category", kineto.QUEUE_CATEGORY),
            span & start_known & fields.equal("category", kineto.RANGE_CATEGORY),
            start_ns,
        ),
    )


def _spans(
    fields: Fields,
    rows: Int64,
    start_ns: Int64,
    begin: Bool,
    end: Bool,
    thread: Int32,
    threads: list[tuple[str, str]],
) -> tuple[Spans, int, int]:
    name = fields.texts("name", rows, cut=LONGEST_NAME)
    category = _categories(fields.texts("category", rows), name)
    duration_ns, duration_known = fields.nanoseconds("duration_us")
    duration_ns, duration_known = duration_ns[rows], duration_known[rows]
    duration_known &= duration_ns <= LONGEST_NS
    negative = duration_known & (duration_ns < 0)
    duration_ns = np.where(duration_known & ~negative, duration_ns, 0)
    paired = (begin | end)[rows]
    work = are_among(category, *GPU_WORK_CATEGORIES)
    # On ROCm, the calls that start copies have bytes, too.
    copies = are_among(category, Category.MEMCPY, Category.MEMSET)
    sizes = np.full(len(rows), NONE, np.int64)
    sizes[copies] = fields.numbers("copied_bytes", rows[copies])
    pids = np.array([kineto.number_of(pid) for pid, _ in threads], np.int32)
    tids = np.array([kineto.number_of(tid) for _, tid in threads], np.int32)
    tids -= np.where(tids >= kineto.SYNC_TID_OFFSET, np.int32(kineto.SYNC_TID_OFFSET), np.int32(0))
    numbers = {name: fields.numbers(name, rows) for name in _NUMBERS}
    syncs = category == Category.CUDA_SYNC
    for column, awaited in (("sequence", "awaited_record"), ("forward_thread", "awaited_stream")):
        numbers[column][syncs] = fields.numbers(awaited, rows[syncs])
    blocks_per_sm = _decimals(fields, "blocks_per_sm", rows, category)
    shared_bytes = _small(fields.numbers("shared_bytes", rows))
    shared_bytes[category != Category.KERNEL] = NONE
    spans = Spans(
        phase_end=end[rows],
        phase_begin=begin[rows],
        category=category,
        name=name,
        thread=thread,
        start_ns=start_ns[rows],
        duration_ns=duration_ns,
        device=_place(fields.numbers("device", rows), work | syncs, pids, thread),
        stream=_place(fields.numbers("stream", rows), work | syncs, tids, thread),
        bytes=sizes,
        numbers=numbers,
        blocks_per_sm=blocks_per_sm,
        blocks=blocks_of(fields, rows, category, name, blocks_per_sm),
        warps_per_block=_per_block(_decimals(fields, "warps_per_sm", rows, category), blocks_per_sm),
        registers=_tiny(fields.numbers("registers", rows), category),
        shared_bytes=shared_bytes,
        call_stack=fields.texts("call_stack", rows, cut=_LONGEST_STACK),
        shapes=fields.texts("input_shapes", rows, most=_LONGEST_SHAPES),
        types=_texts_where(has_cost, fields, "input_types", rows, name),
        settings=_texts_where(has_settings, fields, "settings", rows, name),
        messages=message_texts(fields, rows, name),
    )
    return spans, int(negative.sum()), int((~duration_known & ~paired).sum())


def _implausible(fields: Fields, rows: Int64) -> Bool:
    """Mask of these events: those with a size that no machine has."""
    beyond = np.zeros(len(rows), np.bool_)
    for name in ("memory_bytes", "memory_allocated", "memory_reserved"):
        sizes = fields.numbers(name, rows, 0)
        beyond |= (sizes < -MOST_BYTES) | (sizes > MOST_BYTES)
    return beyond


def _memory(fields: Fields, rows: Int64, time_ns: Int64, thread: Int32, failed: Bool) -> Memory:
    return Memory(
        time_ns=time_ns[rows],
        bytes=fields.numbers("memory_bytes", rows, 0),
        address=fields.numbers("memory_address", rows, 0).astype(np.uint64),
        device_type=_small(fields.numbers("memory_device_type", rows)),
        device=_small(fields.numbers("memory_device", rows)),
        allocated=fields.numbers("memory_allocated", rows),
        reserved=fields.numbers("memory_reserved", rows),
        thread=thread,
        failed=failed[rows],
    )


def _categories(cats: pa.DictionaryArray, name: pa.DictionaryArray) -> UInt8:
    texts = cats.dictionary.to_pylist()
    table = np.array([kineto.category(text) for text in texts] or [Category.OTHER], np.uint8)
    codes = cats.indices.to_numpy()
    category = table[codes] if len(codes) else np.zeros(0, np.uint8)
    old = np.array([kineto.is_old_operator(text) for text in texts], np.bool_)
    if old.any():
        annotation = np.array([kineto.is_annotation(text) for text in name.dictionary.to_pylist()], np.bool_)
        category[old[codes] & annotation[name.indices.to_numpy()]] = Category.USER_ANNOTATION
    return category


def _texts_where(
    kept: Callable[[str], bool], fields: Fields, field: str, rows: Int64, name: pa.DictionaryArray
) -> pa.DictionaryArray:
    """Read the texts of events of the names that are kept; the others are empty. For all operators, they
    take much memory."""
    keeps = np.array([kept(n) for n in name.dictionary.to_pylist()] or [False], np.bool_)
    if not keeps.any():
        return all_empty(len(name))
    return fields.texts(field, rows, where=keeps[name.indices.to_numpy()], most=_LONGEST_SHAPES)


def _decimals(fields: Fields, name: str, rows: Int64, category: UInt8) -> Float32:
    """Return a field of kernels; NaN for other events and for values that are not a number."""
    values = fields.decimals(name, rows, category == Category.KERNEL)
    known = (values >= 0) & (values < 1e9)
    return np.where(known, values, np.nan).astype(np.float32)


def _per_block(per_sm: Float32, blocks_per_sm: Float32) -> UInt8:
    """Warps per block; 0 if one of the two is not known, or if no GPU can run that many."""
    known = (blocks_per_sm > 0) & (per_sm > 0)
    ratio = np.rint(np.where(known, per_sm, 0) / np.where(known, blocks_per_sm, 1))
    return np.where(ratio <= _MOST_WARPS, ratio, 0).astype(np.uint8)


def _tiny(values: Int64, category: UInt8) -> UInt8:
    """Values of kernels as 8 bits; 0 for other events and for values that do not fit."""
    known = (category == Category.KERNEL) & (values >= 0) & (values < 256)
    return np.where(known, values, 0).astype(np.uint8)


def _place(numbers: Int64, work: Bool, by_thread: Int32, thread: Int32) -> Int32:
    """Device or stream of GPU work and synchronization events: from the arguments, or else from the event's
    pid or tid."""
    given = _small(numbers)
    if len(thread):
        given = np.where(given == NONE, by_thread[thread], given)
    return np.where(work, given, NONE).astype(np.int32)


def _threads(fields: Fields, rows: Int64) -> tuple[Int32, list[tuple[str, str]]]:
    """Return the (pid, tid) pair of each of `rows` as an index, and the list of pairs that it points into."""
    pids, tids = (fields.texts(name, rows, cut=LONGEST_NAME) for name in ("pid", "tid"))
    pair = pids.indices.to_numpy().astype(np.int64) * max(len(tids.dictionary), 1) + tids.indices.to_numpy()
    pairs, thread = _numbered(pair, max(len(pids.dictionary), 1) * max(len(tids.dictionary), 1))
    left, right = np.divmod(pairs, max(len(tids.dictionary), 1))
    pid_text, tid_text = pids.dictionary.to_pylist(), tids.dictionary.to_pylist()
    texts = [(pid_text[a], tid_text[b]) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    return thread.astype(np.int32), texts


def _numbered(values: Int64, bound: int) -> tuple[Int64, Int64]:
    """Return the different values (0 to bound - 1), ascending, and the number of each value among them."""
    if bound > _MOST_NUMBERED:
        return np.unique(values, return_inverse=True)
    used = np.zeros(bound, np.bool_)
    used[values] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]


def _is(phases: pa.DictionaryArray, *texts: str) -> Bool:
    """Mask of the phases that are among `texts`."""
    known = np.array([phase in texts for phase in phases.dictionary.to_pylist()], np.bool_)
    return known[phases.indices.to_numpy()] if len(known) else np.zeros(0, np.bool_)


def _small(values: Int64) -> Int32:
    """Values as 32 bits; NONE for those that do not fit."""
    return np.where((values >= NONE) & (values < 2**31), values, NONE).astype(np.int32)
