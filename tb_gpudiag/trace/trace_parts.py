"""What was read from one piece of a file, as columns: a trace is assembled of such parts. And parts made of
spans and of counters.

torch and Kineto write none by default. Tools that add them to a trace (Holistic Trace Analysis, monitors of
power and clocks) name the series by the keys of `args`, which may be anything: their number and length are
bounded.

Only the events that are kept are in them, so memory grows with the number of spans, not with the size of the
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float32, Float64, Int32, Int64, UInt8, rows_with
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Counter
from tb_gpudiag.trace.times import within
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category

MOST_COUNTERS: Final = 64
"""A trace keeps this many, those with most samples. Monitors write about ten per GPU."""

# A file with more different series than this has something else in its counter events.
_MOST_SERIES: Final = 4_096
# Of 20 bytes each in memory.
_MOST_SAMPLES: Final = 2_000_000
LONGEST_COUNTER_NAME: Final = 120
# `SMs Active [Throughput %]`, `GPC Clock Frequency [MHz]`, `MemCpy Bandwidth (GB/s)`, `power (W): draw`
_UNIT: Final = lazy_re(
    r"[\[(][^\[\]()]*?(%|[kMG]?Hz|m?W|[kKMGT]i?B(?:/s(?:ec)?)?|bytes|B(?:/s(?:ec)?)?|°?C|m?J|[mun]?s|us)"
    r"[\])]\s*(?:\Z|: )"
)


class CounterSeries(NamedTuple):
    """What tells one counter from the others."""

    name: str
    pid: str  # of the event, if that has to tell whose it is
    device: int = NONE  # if the file says it
    timed: bool = True


@dataclass(frozen=True, eq=False)
class CounterSamples:
    """Counters of one chunk, shape (v,) each."""

    series: list[CounterSeries]
    code: Int32  # index into `series`
    time_ns: Int64
    value: Float64


class CounterCollector:
    """Collects the counters of a trace."""

    def __init__(self) -> None:
        self._series: dict[CounterSeries, int] = {}
        self._parts: list[CounterSamples] = []
        self._samples = 0
        self._skipped = False

    def add(self, samples: CounterSamples) -> None:
        """Add the counters of the next chunk, up to the limits."""
        codes = np.array([self._code(series) for series in samples.series] or [NONE], np.int32)[samples.code]
        kept = codes != NONE
        kept &= np.cumsum(kept) <= _MOST_SAMPLES - self._samples
        self._skipped |= not kept.all()
        self._samples += int(kept.sum())
        self._parts.append(CounterSamples([], codes[kept], samples.time_ns[kept], samples.value[kept]))

    def _code(self, series: CounterSeries) -> int:
        if len(self._series) < _MOST_SERIES:
            return self._series.setdefault(series, len(self._series))
        return self._series.get(series, NONE)

    def finish(
        self, first_ns: int, bounds: tuple[int, int], devices: Callable[[], Mapping[str, int]]
    ) -> tuple[list[Counter], list[str]]:
        """Return the counters and notes. first_ns: the earliest event. bounds: see times.reach. devices:
        returns the GPU by pid."""
        if not self._parts:
            return [], []
        code, time_ns, value = (
            np.concatenate([getattr(part, column) for part in self._parts])
            for column in ("code", "time_ns", "value")
        )
        near = within(time_ns, *bounds)
        order = np.lexsort((time_ns, code))
        order = order[near[order]]
        code, time_ns, value = code[order], time_ns[order] - first_ns, value[order]
        count = np.bincount(code, minlength=len(self._series))
        chosen = np.argsort(-count, kind="stable")[:MOST_COUNTERS]
        self._skipped |= int((count > 0).sum()) > MOST_COUNTERS
        known, device_of = list(self._series), devices()
        found = []
        for each in chosen[count[chosen] > 0].tolist():
            low, high = rows_with(code, each)
            series = known[each]
            device = series.device if series.device != NONE else device_of.get(series.pid, NONE)
            unit = _UNIT.search(series.name)
            found.append(
                Counter(
                    series.name,
                    unit[1] if unit else "",
                    device,
                    time_ns[low:high],
                    value[low:high],
                    series.timed,
                )
            )
        if not self._skipped:
            return found, []
        return found, [f"the file has more counters or samples of them than are read ({MOST_COUNTERS})"]


def devices_by_pid(gpu: Iterable[tuple[str, int]], host: Iterable[str]) -> dict[str, int]:
    """Return the GPU that a pid is, from the pids and devices of GPU work. In a container, a process may have
    the number of a GPU: then nothing says whose its counters are."""
    both = set(host)
    return {pid: device for pid, device in gpu if pid not in both}


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
    untimed: Bool  # of spans: read as 0 ns long
    spans: SpanColumns
    memory: MemoryColumns
    threads: list[tuple[str, str]]  # (pid, tid) of this chunk
    thread_names: dict[tuple[str, str], str]
    counters: CounterSamples | None = None


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
        untimed=(negative | ~timed)[good],
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
