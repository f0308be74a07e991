"""Make parts of a trace (trace_parts.py) of columns: what Nsight Systems and rocprofv3 recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int32, Int64, UInt8
from tb_gpudiag.trace.counters import CounterSamples
from tb_gpudiag.trace.trace_parts import (
    EARLIEST_NS,
    FIGURES,
    LATEST_NS,
    LONGEST_NS,
    NUMBERS,
    TEXTS,
    MemoryColumns,
    SpanColumns,
    TracePart,
)
from tb_gpudiag.vocabulary.recorded import Category

ID_BITS: Final = 24
_ID_MASK: Final = (1 << ID_BITS) - 1


Threads = tuple[Int32, list[tuple[str, str]]]
"""The thread of each row as an index, and (pid, tid) of each thread."""


def host_threads(global_tid: Int64) -> Threads:
    """Return the thread of each row as an index, and (pid, tid) of each thread.

    global_tid: the lowest bits are the thread's id, the next ones the process's, ID_BITS each."""
    ids, own = np.unique(global_tid, return_inverse=True)
    return own.astype(np.int32), [(str(i >> ID_BITS & _ID_MASK), str(i & _ID_MASK)) for i in ids.tolist()]


def gpu_threads(device: Int32, stream: Int32) -> Threads:
    """Return the stream of each row as an index, and (device, stream) of each, as Kineto names threads."""
    pairs, own = np.unique(np.stack([device, stream], axis=1), axis=0, return_inverse=True)
    return own.reshape(-1).astype(np.int32), [(str(d), str(s)) for d, s in pairs.tolist()]


def encoded(codes: Int32, texts: list[str]) -> pa.DictionaryArray:
    """Return a dictionary array of texts that may be the same."""
    index: dict[str, int] = {}
    new = np.array([index.setdefault(text, len(index)) for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(new[codes] if len(codes) else codes, list(index))


def texts_of(values: npt.NDArray[np.signedinteger[Any]], shown: Callable[[Any], str]) -> pa.DictionaryArray:
    """Return a text for each number, or for each row of numbers. shown: makes it, once for equal ones."""
    distinct, own = np.unique(values, axis=0 if values.ndim > 1 else None, return_inverse=True)
    return encoded(own.reshape(-1).astype(np.int32), [shown(each) for each in distinct.tolist()])


def one_text(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])


def small(values: Int64) -> Int32:
    """Values as 32 bits; NONE for those that are missing or do not fit."""
    return np.where((values >= 0) & (values < 2**31), values, NONE).astype(np.int32)


def part(
    category: Category | UInt8,
    name: pa.DictionaryArray,
    at: Mapping[str, Int64],
    threads: Threads,
    columns: Mapping[str, npt.NDArray[Any]] | None = None,
    texts: Mapping[str, pa.DictionaryArray] | None = None,
) -> TracePart:
    """Make a part of spans.

    at: when they `start` and `end`, in ns; what is no time is unknown. Rows without a start are malformed.
    columns, texts: the fields of SpanColumns that the table has, by name.
    """
    start, end = at["start"], at["end"]
    good = (start >= EARLIEST_NS) & (start <= LATEST_NS)
    ends = (end >= EARLIEST_NS) & (end <= LATEST_NS)
    duration = np.where(ends & good, end - np.where(good, start, 0), 0)
    timed = ends & (duration <= LONGEST_NS)
    negative = timed & (duration < 0)
    rows = len(start)
    given = dict(columns or {})

    def column(key: str, value: float, kind: Any) -> npt.NDArray[Any]:
        return given[key].astype(kind, copy=False)[good] if key in given else np.full(good.sum(), value, kind)

    keep = pa.array(good)
    empty = one_text("", rows)
    texts = {key: (texts or {}).get(key, empty).filter(keep) for key in TEXTS}
    spans = SpanColumns(
        phase_end=np.zeros(good.sum(), np.bool_),
        phase_begin=np.zeros(good.sum(), np.bool_),
        category=category[good]
        if isinstance(category, np.ndarray)
        else np.full(good.sum(), category, np.uint8),
        name=name.filter(keep),
        thread=threads[0][good],
        start_ns=start[good],
        duration_ns=np.where(timed & ~negative, duration, 0)[good],
        numbers={key: column(key, NONE, np.int64) for key in NUMBERS},
        **{key: column(key, missing, kind) for key, (kind, missing) in FIGURES.items()},
        **texts,
    )
    return TracePart(
        read=int(good.sum()),
        malformed=rows - int(good.sum()),
        negative_durations=int(negative[good].sum()),
        missing_durations=int((~timed & good).sum()),
        spans=spans,
        memory=_no_memory(),
        threads=threads[1],
        thread_names={},
    )


def host_part(
    category: Category | UInt8,
    name: pa.DictionaryArray,
    at: Mapping[str, Int64],
    columns: Mapping[str, npt.NDArray[Any]] | None = None,
    texts: Mapping[str, pa.DictionaryArray] | None = None,
    *,
    suffix: str = "",
) -> TracePart:
    """Make a part of spans of host threads. at: also their `globalTid`.

    suffix: of the names of threads that are not the program's own.
    """
    thread, threads = host_threads(at["globalTid"])
    return part(category, name, at, (thread, [(pid, tid + suffix) for pid, tid in threads]), columns, texts)


def _no_memory() -> MemoryColumns:
    none, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    addresses, failed = none.astype(np.uint64), none.astype(np.bool_)
    return MemoryColumns(none, none, addresses, none32, none32, none, none, none32, failed)


def memory_part(memory: MemoryColumns, threads: list[tuple[str, str]]) -> TracePart:
    return replace(_no_spans(), read=len(memory.time_ns), memory=memory, threads=threads)


def counter_part(samples: CounterSamples) -> TracePart:
    return replace(_no_spans(), read=len(samples.value), counters=samples)


def _no_spans() -> TracePart:
    nothing = np.zeros(0, np.int64)
    at = {"start": nothing, "end": nothing}
    return part(Category.OTHER, one_text("", 0), at, (np.zeros(0, np.int32), []))
