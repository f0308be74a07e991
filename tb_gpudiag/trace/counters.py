"""Counters: events of phase C, metrics of CUPTI's range profiler, and GPU metrics of Nsight Systems.

torch and Kineto write none by default. Tools that add them to a trace (Holistic Trace Analysis, monitors of
power and clocks) name the series by the keys of `args`, which may be anything: their number and length are
bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int32, Int64, rows_with
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Counter
from tb_gpudiag.trace.kept_rows import within
from tb_gpudiag.vocabulary.patterns import lazy_re

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
        """Return the counters and notes. first_ns: the earliest event. bounds: see kept_rows.reach. devices:
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
