"""Counters: events of phase C, metrics of CUPTI's range profiler, and GPU metrics of Nsight Systems.

torch and Kineto write none by default. Tools that add them to a trace (Holistic Trace Analysis, monitors of
power and clocks) name the series by the keys of `args`, which may be anything: all is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.trace.events import Counter
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import Fields
from tb_gpudiag.trace.stray import within

MOST_COUNTERS: Final = 64
"""A trace keeps this many, those with most samples. Monitors write about ten per GPU."""

# More different series than this are not counters.
_MOST_SERIES: Final = 4_096
# Of 20 bytes each in memory.
_MOST_SAMPLES: Final = 2_000_000
# Larger values are errors of the writer. Below, sums are finite.
_LARGEST: Final = 1e30
_LONGEST_NAME: Final = 120
# Keys that repeat what the event's name says.
_PLAIN_KEYS: Final = frozenset({"", " ", "value", "count", "counter"})
# `SMs Active [Throughput %]`, `GPC Clock Frequency [MHz]`, `MemCpy Bandwidth (GB/s)`, `power (W): draw`
_UNIT: Final = re.compile(
    r"[\[(][^\[\]()]*?(%|[kMG]?Hz|m?W|[kKMGT]i?B(?:/s(?:ec)?)?|bytes|B(?:/s(?:ec)?)?|°?C|m?J|[mun]?s|us)"
    r"[\])]\s*(?:\Z|: )"
)
_METRIC: Final = re.compile(r"[a-z]\w*__\w[\w.]*")


class Series(NamedTuple):
    """What tells one counter from the others."""

    name: str
    pid: str  # of the event, if that has to tell whose it is
    device: int = NONE  # if the file says it
    timed: bool = True


@dataclass(frozen=True)
class Samples:
    """Counters of one chunk, shape (v,) each."""

    series: list[Series]
    code: Int32  # index into `series`
    time_ns: Int64
    value: Float64


class Collector:
    """Collects the counters of a trace."""

    def __init__(self) -> None:
        self._series: dict[Series, int] = {}
        self._parts: list[Samples] = []
        self._samples = 0
        self._skipped = False

    def add(self, samples: Samples) -> None:
        """Add those of the next chunk, as long as there are not too many."""
        codes = np.array([self._code(series) for series in samples.series] or [NONE], np.int32)[samples.code]
        kept = codes != NONE
        kept &= np.cumsum(kept) <= _MOST_SAMPLES - self._samples
        self._skipped |= not kept.all()
        self._samples += int(kept.sum())
        self._parts.append(Samples([], codes[kept], samples.time_ns[kept], samples.value[kept]))

    def _code(self, series: Series) -> int:
        if len(self._series) < _MOST_SERIES:
            return self._series.setdefault(series, len(self._series))
        return self._series.get(series, NONE)

    def finish(
        self, first_ns: int, bounds: tuple[int, int], devices: Callable[[], Mapping[str, int]]
    ) -> tuple[list[Counter], list[str]]:
        """Return the counters and notes. first_ns: the earliest event. bounds: see stray.reach. devices:
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
            low, high = np.searchsorted(code, [each, each + 1])
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


def event_samples(fields: Fields, counts: Bool, ranges: Bool, time_ns: Int64) -> Samples | None:
    """Read the counter events (`counts`) and the ranges of CUPTI's range profiler (`ranges`) of a chunk.

    The masks and time_ns have shape (n,), one entry per event.
    """
    rows = np.flatnonzero(counts | ranges)
    if not len(rows):
        return None
    owner, keys, value, numbers = fields.counters(rows)
    pid, name = (_codes(fields.texts(field, rows)) for field in ("pid", "name"))
    number, key = (_codes(pa.array(texts, pa.string()).dictionary_encode()) for texts in (numbers, keys))
    timed = counts[rows]
    good = np.isfinite(value) & (np.abs(np.where(np.isfinite(value), value, 0)) < _LARGEST)
    # Matching takes the square of the length.
    metrics = [len(text) <= _LONGEST_NAME and _METRIC.fullmatch(text) is not None for text in key.texts]
    metric = np.array(metrics or [False], np.bool_)
    good &= timed[owner] | metric[key.code]
    owner, value, entry = owner[good], value[good], key.code[good]
    each = np.stack([pid.code[owner], name.code[owner], number.code[owner], entry, timed[owner]], axis=1)
    different, code = np.unique(each, axis=0, return_inverse=True)
    series = [
        Series(_name(name.texts[n], number.texts[i], key.texts[k]), pid.texts[p])
        if t
        else Series(key.texts[k][:_LONGEST_NAME], "", kineto.number_of(pid.texts[p]), timed=False)
        for p, n, i, k, t in different.tolist()
    ]
    return Samples(series, code.reshape(-1).astype(np.int32), time_ns[rows][owner], value)


def _name(name: str, number: str, key: str) -> str:
    shown = f"{name} #{number}" if number else name
    return (shown if key == name or key.lower() in _PLAIN_KEYS else f"{shown}: {key}")[:_LONGEST_NAME]


class _Texts(NamedTuple):
    code: Int32
    texts: list[str]


def _codes(texts: pa.DictionaryArray) -> _Texts:
    return _Texts(texts.indices.to_numpy(), texts.dictionary.to_pylist())


def devices_by_pid(gpu: Iterable[tuple[str, int]], host: Iterable[str]) -> dict[str, int]:
    """Return the GPU that a pid is, from the pids and devices of GPU work. In a container, a process may have
    the number of a GPU: then nothing says whose its counters are."""
    both = set(host)
    return {pid: device for pid, device in gpu if pid not in both}
