"""Turn the fields of a chunk's events into a part of the trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Float32, Int32, Int64, UInt8, mask_of
from tb_gpudiag.trace.events import are_among
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import CounterEvent, Fields, all_empty, indices
from tb_gpudiag.trace.trace_parts import (
    EARLIEST_NS,
    LATEST_NS,
    LONGEST_COUNTER_NAME,
    LONGEST_NAME,
    LONGEST_NS,
    MESSAGE_SEPARATOR,
    MOST_BYTES,
    NUMBERS,
    CounterSamples,
    CounterSeries,
    MemoryColumns,
    SpanColumns,
    TracePart,
    encoded,
    texts_of,
)
from tb_gpudiag.vocabulary.collective_kinds import BACK_END_MARK, CALL
from tb_gpudiag.vocabulary.kernel_names import communicates
from tb_gpudiag.vocabulary.operators import COLLECTIVE_PARAMETERS
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, lazy_re
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category
from tb_gpudiag.vocabulary.shaped_operators import has_cost, has_settings, streamed_times

# A block has at most 1,024 threads.
_MOST_WARPS: Final = 32
# The shapes and settings of an operator's few inputs are shorter.
_LONGEST_SHAPES: Final = 400
# Old traces have the whole call stack of an operator in one text, some 100 frames.
_LONGEST_STACK: Final = 65_536
# Grids: the fields of kernels, and of ROCm's launch calls; the longest text of one, and the largest side.
_GRIDS: Final = (("grid", "block"), ("launch_grid", "launch_block"))
_LONGEST_GRID: Final = 100
_LARGEST_SIDE: Final = 2**40
# Counters: larger values are errors of the writer. Below, sums are finite.
_LARGEST_COUNT: Final = 1e30
# Keys that repeat what the event's name says.
_PLAIN_KEYS: Final = frozenset({"", " ", "value", "count", "counter"})
_METRIC: Final = lazy_re(r"[a-z]\w*__\w[\w.]*")
_BARE_COPY: Final = "Memcpy"
# Kineto writes at most 30 ranks of a group, and names are shorter.
_LONGEST_MESSAGE: Final = 1_000
# With fewer values than this, a table is faster than sorting.
_MOST_NUMBERED: Final = 1 << 16


def part_of(fields: Fields) -> TracePart:
    """Make a TracePart of a chunk's events."""
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
    spans, untimed = _spans(fields, span_rows, start_ns, (begin, end), (span_thread, threads))
    return TracePart(
        read=fields.count - int(malformed.sum()),
        malformed=fields.others + int(malformed.sum()),
        untimed=untimed,
        spans=spans,
        memory=_memory(fields, memory_rows, start_ns, memory_thread, failed),
        threads=threads,
        thread_names={threads[t]: n for t, n in zip(name_thread.tolist(), names, strict=True) if n},
        counters=_counters(
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
    paired: tuple[Bool, Bool],
    threads: tuple[Int32, list[tuple[str, str]]],
) -> tuple[SpanColumns, Bool]:
    """Return the spans at these rows, and a mask of those with a negative duration, or none.

    paired: masks of the events that begin and end a span. threads: as from _threads.
    """
    begin, end = (mask[rows] for mask in paired)
    thread, pairs = threads
    name = fields.texts("name", rows, cut=LONGEST_NAME)
    category = _categories(fields.texts("category", rows), name)
    name = _copies_named(fields, rows, name)
    duration_ns, duration_known = fields.nanoseconds("duration_us")
    duration_ns, duration_known = duration_ns[rows], duration_known[rows]
    duration_known &= duration_ns <= LONGEST_NS
    timed = duration_known & (duration_ns >= 0)
    duration_ns = np.where(timed, duration_ns, 0)
    work = are_among(category, *GPU_WORK_CATEGORIES)
    # On ROCm, the calls that start copies also have bytes.
    copies = are_among(category, Category.MEMCPY, Category.MEMSET)
    sizes = np.full(len(rows), NONE, np.int64)
    sizes[copies] = fields.numbers("copied_bytes", rows[copies])
    pids = np.array([kineto.number_of(pid) for pid, _ in pairs], np.int32)
    tids = np.array([kineto.number_of(tid) for _, tid in pairs], np.int32)
    tids -= np.where(tids >= kineto.SYNC_TID_OFFSET, np.int32(kineto.SYNC_TID_OFFSET), np.int32(0))
    numbers = {name: fields.numbers(name, rows) for name in NUMBERS}
    syncs = category == Category.CUDA_SYNC
    for column, awaited in (("sequence", "awaited_record"), ("forward_thread", "awaited_stream")):
        numbers[column][syncs] = fields.numbers(awaited, rows[syncs])
    kernels = category == Category.KERNEL
    numbers["sequence"][kernels] = fields.numbers("graph_node", rows[kernels])
    blocks_per_sm = _decimals(fields, "blocks_per_sm", rows, category)
    shared_bytes = _small(fields.numbers("shared_bytes", rows))
    shared_bytes[category != Category.KERNEL] = NONE
    spans = SpanColumns(
        phase_end=end,
        phase_begin=begin,
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
        blocks=_blocks_of(fields, rows, category, name, blocks_per_sm),
        warps_per_block=_per_block(_decimals(fields, "warps_per_sm", rows, category), blocks_per_sm),
        registers=_tiny(fields.numbers("registers", rows), category),
        shared_bytes=shared_bytes,
        call_stack=fields.texts("call_stack", rows, cut=_LONGEST_STACK),
        called_from=fields.texts("called_from", rows, most=_LONGEST_STACK),
        shapes=fields.texts("input_shapes", rows, most=_LONGEST_SHAPES),
        types=_texts_where(_has_types, fields, "input_types", rows, name),
        settings=_settings(fields, rows, name, np.flatnonzero(kernels)),
        strides=_texts_where(_has_strides, fields, "strides", rows, name),
        launched=_launched(fields, rows, name),
        annotation=_annotations(fields, rows, numbers["sequence"] != NONE, category == Category.KERNEL),
        messages=_messages(fields, rows, name),
    )
    return spans, ~timed & ~(begin | end)


def _implausible(fields: Fields, rows: Int64) -> Bool:
    """Mask of the rows with a size that no machine has."""
    beyond = np.zeros(len(rows), np.bool_)
    for name in ("memory_bytes", "memory_allocated", "memory_reserved"):
        sizes = fields.numbers(name, rows, 0)
        beyond |= (sizes < -MOST_BYTES) | (sizes > MOST_BYTES)
    return beyond


def _memory(fields: Fields, rows: Int64, time_ns: Int64, thread: Int32, failed: Bool) -> MemoryColumns:
    return MemoryColumns(
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


def _copies_named(fields: Fields, rows: Int64, name: pa.DictionaryArray) -> pa.DictionaryArray:
    """Name copies as Kineto does. torch's CUPTI backend has direction and memory in `args` alone."""
    names = name.dictionary.to_pylist()
    if _BARE_COPY not in names:
        return name
    codes = name.indices.to_numpy().copy()
    own = np.flatnonzero(codes == names.index(_BARE_COPY))
    said = [
        fields.texts(key, rows[own]).dictionary_decode() for key in ("copy_kind", "copied_from", "copied_to")
    ]
    each = pc.binary_join_element_wise(*said, MESSAGE_SEPARATOR).dictionary_encode()
    full = [_copy_name(*text.split(MESSAGE_SEPARATOR, 2)) for text in each.dictionary.to_pylist()]
    codes[own] = len(names) + each.indices.to_numpy()
    return encoded(codes, [*names, *full])


def _copy_name(kind: str, source: str, target: str) -> str:
    if not kind:
        return _BARE_COPY
    return f"{_BARE_COPY} {kind} ({source.capitalize()} -> {target.capitalize()})"[:LONGEST_NAME]


def _texts_where(
    kept: Callable[[str], bool], fields: Fields, field: str, rows: Int64, name: pa.DictionaryArray
) -> pa.DictionaryArray:
    """Read the texts of events whose names are kept; the others are empty. The texts of all operators would
    take much memory."""
    keeps = np.array([kept(n) for n in name.dictionary.to_pylist()] or [False], np.bool_)
    if not keeps.any():
        return all_empty(len(name))
    return fields.texts(field, rows, where=keeps[name.indices.to_numpy()], most=_LONGEST_SHAPES)


def _settings(fields: Fields, rows: Int64, name: pa.DictionaryArray, kernel: Int64) -> pa.DictionaryArray:
    """Read what layers are given besides tensors, and the grid and block of kernels. kernel: their places in
    `rows`."""
    given = _texts_where(_has_settings, fields, "settings", rows, name)
    grid, block = (fields.texts(key, rows[kernel], most=_LONGEST_GRID) for key in _GRIDS[0])
    grids, blocks = grid.dictionary.to_pylist(), block.dictionary.to_pylist()

    def launch(pair: int) -> str:
        sides = grids[pair // len(blocks)], blocks[pair % len(blocks)]
        return " × ".join(sides) if all(sides) else ""

    launches = texts_of(grid.indices.to_numpy() * np.int64(len(blocks)) + block.indices.to_numpy(), launch)
    code = given.indices.to_numpy().copy()
    code[kernel] = len(given.dictionary) + launches.indices.to_numpy()
    return encoded(code, [*given.dictionary.to_pylist(), *launches.dictionary.to_pylist()])


def _annotations(fields: Fields, rows: Int64, in_graph: Bool, kernel: Bool) -> pa.DictionaryArray:
    """Read what a graph's kernels are for: their module, else the name that the capture gave them."""
    where = in_graph & kernel
    if not where.any():
        return all_empty(len(rows))
    modules = fields.texts("annotated_module", rows, where=where, most=LONGEST_NAME)
    if len(modules.dictionary) > 1:
        return modules
    return fields.texts("thread_name", rows, where=where, most=LONGEST_NAME)


def _launched(fields: Fields, rows: Int64, name: pa.DictionaryArray) -> pa.DictionaryArray:
    """Read the kernel that each of ROCm's launch calls names."""
    calls = np.array([kineto.is_hip_launch(n) for n in name.dictionary.to_pylist()] or [False], np.bool_)
    if not calls.any():
        return all_empty(len(name))
    return fields.texts("launched", rows, where=calls[name.indices.to_numpy()], cut=LONGEST_NAME)


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
    """Device or stream of GPU work and synchronization events: from the arguments, or if they have none, from
    the event's pid or tid."""
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
    used = mask_of(values, bound)
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]


def _is(phases: pa.DictionaryArray, *texts: str) -> Bool:
    known = np.array([phase in texts for phase in phases.dictionary.to_pylist()], np.bool_)
    return known[phases.indices.to_numpy()] if len(known) else np.zeros(0, np.bool_)


def _small(values: Int64) -> Int32:
    """Values as 32 bits; NONE for those that do not fit."""
    return np.where((values >= NONE) & (values < 2**31), values, NONE).astype(np.int32)


def _blocks_of(
    fields: Fields, rows: Int64, category: UInt8, name: pa.DictionaryArray, blocks_per_sm: Float32
) -> Float32:
    """Return the blocks of each event's grid, shape (n,): of kernels without `blocks_per_sm`, and of ROCm's
    launch calls. NaN elsewhere, and where the trace does not say.

    The arguments after `rows` have shape (n,), one entry per row.
    """
    blocks = np.full(len(rows), np.nan, np.float32)
    names = name.dictionary.to_pylist()
    call = np.array([kineto.is_hip_launch(n) for n in names] or [False], np.bool_)
    code = name.indices.to_numpy()
    chosen = (category == Category.KERNEL) & np.isnan(blocks_per_sm)
    if len(rows):
        chosen |= are_among(category, *CALL_CATEGORIES) & call[code]
    own = np.flatnonzero(chosen)
    if not len(own):
        return blocks
    threads = np.array([kineto.grid_in_threads(n) for n in names], np.bool_)[code[own]]
    for grid, block in _GRIDS:
        blocks[own] = np.where(
            np.isnan(blocks[own]),
            _blocks(fields.texts(grid, rows[own]), fields.texts(block, rows[own]), threads),
            blocks[own],
        )
    return blocks


def _blocks(grid: pa.DictionaryArray, block: pa.DictionaryArray, in_threads: Bool) -> Float32:
    """Blocks of each pair; NaN where one of them is not three sizes above 0."""
    grids, blocks = _sizes(grid), _sizes(block)
    per_side = np.where(in_threads[:, None], np.ceil(grids / blocks), grids)
    return np.asarray(per_side.prod(axis=1) * (blocks.prod(axis=1) > 0), np.float32)


def _sizes(texts: pa.DictionaryArray) -> npt.NDArray[np.float64]:
    """Parse texts such as `[64, 1, 1]` to floats, shape (n, 3); NaN for others."""
    table = np.array([_three(text) for text in texts.dictionary.to_pylist()] or [[np.nan] * 3])
    return table[texts.indices.to_numpy()]


def _three(text: str) -> list[float]:
    unknown = [np.nan] * 3
    if len(text) > _LONGEST_GRID:
        return unknown
    try:
        sizes = json.loads(text)
    except (ValueError, RecursionError):
        return unknown
    fits = (
        isinstance(sizes, list)
        and len(sizes) == 3
        and all(type(n) is int and 0 < n < _LARGEST_SIDE for n in sizes)
    )
    return [float(n) for n in sizes] if fits else unknown


def _messages(fields: Fields, rows: Int64, name: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the fields of each event's message, joined to one text; "" for events without one.

    name: of each of `rows`, shape (n,).
    """
    names = name.dictionary.to_pylist()
    has = communicates(names) | np.fromiter((n == COLLECTIVE_PARAMETERS for n in names), np.bool_, len(names))
    if not has.any():
        return all_empty(len(name))
    own = np.flatnonzero(has[name.indices.to_numpy()])
    columns = [fields.texts(key, rows[own]).dictionary_decode() for key in kineto.MESSAGE]
    joined = pc.binary_join_element_wise(*columns, MESSAGE_SEPARATOR)
    # Where all fields are empty, the text consists of separators.
    said = pc.less(pc.binary_length(joined), _LONGEST_MESSAGE)
    said = pc.and_(said, pc.greater(pc.binary_length(joined), len(columns) - 1))
    different = pc.if_else(said, joined, "").dictionary_encode()
    place = np.zeros(len(name), np.int64)
    place[own] = 1 + different.indices.to_numpy()
    texts = pa.concat_arrays([pa.array([""]), different.dictionary])
    return texts.take(indices(place)).dictionary_encode()


def _has_types(name: str) -> bool:
    """Return whether the number formats of an event's inputs are kept: for its cost, a message's size, or
    what a copy changes."""
    return (
        has_cost(name) or has_settings(name) or BACK_END_MARK.fullmatch(name, 0, LONGEST_MATCHED) is not None
    )


def _has_settings(name: str) -> bool:
    """Return whether an event's inputs that are no tensors are kept: of layers, and the ranks of messages."""
    return has_settings(name) or CALL.fullmatch(name, 0, LONGEST_MATCHED) is not None


def _has_strides(name: str) -> bool:
    """Return whether the strides of an operator's inputs are kept: of those whose time depends on them."""
    return streamed_times(name) is not None


def _counters(fields: Fields, counts: Bool, ranges: Bool, time_ns: Int64) -> CounterSamples | None:
    """Read the counter events (`counts`) and the ranges of CUPTI's range profiler (`ranges`) of a chunk.

    The masks and time_ns have shape (n,), one entry per event.
    """
    rows = np.flatnonzero(counts | ranges)
    if not len(rows):
        return None
    series: dict[CounterSeries, int] = {}
    found: list[tuple[int, int, float]] = []
    timed_ns = zip(counts[rows].tolist(), time_ns[rows].tolist(), strict=True)
    for event, (timed, at_ns) in zip(fields.counters(rows), timed_ns, strict=True):
        for key, value in event.values.items():
            one = _series(event, key, timed=timed) if abs(value) < _LARGEST_COUNT else None
            if one is not None:
                found.append((series.setdefault(one, len(series)), at_ns, value))
    code, times_ns, values = zip(*found, strict=True) if found else ((), (), ())
    return CounterSamples(
        list(series), np.array(code, np.int32), np.array(times_ns, np.int64), np.array(values, np.float64)
    )


def _series(event: CounterEvent, key: str, *, timed: bool) -> CounterSeries | None:
    """Return the series of a value; None for an argument of a range that is not a metric."""
    if timed:
        name = f"{event.name} #{event.number}" if event.number else event.name
        name = name if key == event.name or key.lower() in _PLAIN_KEYS else f"{name}: {key}"
        return CounterSeries(name[:LONGEST_COUNTER_NAME], event.pid)
    # Matching takes the square of the length.
    if len(key) > LONGEST_COUNTER_NAME or not _METRIC.fullmatch(key):
        return None
    return CounterSeries(key, "", kineto.number_of(event.pid), timed=False)
