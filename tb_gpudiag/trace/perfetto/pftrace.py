"""Read a `.pftrace` file that torch wrote into a Trace, so that all else works as for JSON.

torch's CUPTI backend writes it where `export_chrome_trace` gets a name ending in `.pftrace` (pytorch
#187898). It has no allocations and no properties of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.removing import CredentialSearch
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.files.source import whole_file
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.fields import CounterEvent, Fields, all_empty, integer_of
from tb_gpudiag.trace.perfetto.packets import (
    SYNC_KEY,
    ArgumentColumn,
    Arguments,
    CounterValues,
    Packets,
    PacketSpans,
    Track,
    codes_of,
    replaced,
)
from tb_gpudiag.trace.perfetto.pftrace_events import read_counters, read_slices, read_stages
from tb_gpudiag.trace.trace_parts import encoded
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, HOST_CATEGORIES

NOTE: Final = "a binary trace of Perfetto: torch writes no allocations and no GPU's name into it"
# It is read as a whole, and takes 16 times its size in memory. JSON of the same events is four times as long.
MOST_BYTES: Final = 512 << 20
# The track of what the tracer itself did.
_OVERHEAD: Final = "Overhead"
_OF_TORCH: Final = (*GPU_WORK_CATEGORIES, *HOST_CATEGORIES)
_IN_PIECES: Final = "export it to a name ending in .json.gz, which is read piece by piece"
_REMEDY: Final = (
    "record with torch.profiler and export_chrome_trace, or with rocprofv3 --output-format json: traces of "
    "other programs have no operators and launches"
)


def read_pftrace(blocks: Iterator[bytes], path: str, report: Callable[[float, str], None]) -> Trace:
    """Read the blocks of a file, unpacked. Raises NotATrace, TooLarge."""
    with CredentialSearch() as search:
        text = whole_file(search.through(blocks), MOST_BYTES, path, _IN_PIECES)
        searched = search.finish()
    report(0.3, "reading")
    packets = Packets(text, path)
    fields = _fields(packets)
    broken, status = packets.wire.broken, packets.status
    del text, packets
    assembly = Assembly()
    assembly.add(part_of(fields))
    report(0.9, "sorting")
    damaged = [f"{broken:,} damaged packets read in part"] if broken else []
    trace = assembly.trace(Metadata(), searched, [NOTE, *damaged], status)
    if not trace.events.among(*_OF_TORCH).any():
        raise NotATrace(
            "it is a trace of Perfetto without operators, launches and kernels", where=path, remedy=_REMEDY
        )
    report(1.0, "read")
    return trace


def _fields(packets: Packets) -> PerfettoFields:
    """Return operators, calls and other slices, then GPU work. Raises NotATrace."""
    arguments = Arguments()
    slices = read_slices(packets, arguments)
    spans = slices.followed_by(read_stages(packets, len(slices.start_ns), arguments))
    sync = arguments.pop(SYNC_KEY, ArgumentColumn()).rows()
    category = replaced(spans.category, sync, "cuda_sync")
    tracks = packets.tracks.values()
    overhead = {track.pid for track in tracks if track.name == _OVERHEAD}
    own = np.array([pid in overhead for pid in spans.pid.dictionary.to_pylist()] or [False])
    category = replaced(category, np.flatnonzero(own[codes_of(spans.pid)]), "overhead")
    threads = [track for track in tracks if track.tid]
    return PerfettoFields(spans._replace(category=category), arguments, threads, read_counters(packets))


_NOTHING: Final = ArgumentColumn()


class PerfettoFields(Fields):
    """Rows are spans, then names of threads, then samples of counters."""

    def __init__(
        self, spans: PacketSpans, arguments: Arguments, threads: list[Track], counters: CounterValues
    ) -> None:
        self._spans, self._arguments, self._threads, self._counters = spans, arguments, threads, counters
        self._of_spans = len(spans.start_ns)
        super().__init__(self._of_spans + len(threads) + len(counters.value))

    def known(self, name: str) -> Bool:
        return np.ones(self.count, np.bool_)

    def numbers(self, name: str, rows: Int64, missing: int = NONE) -> Int64:
        column, values = self._column(name), np.full(self.count, missing, np.int64)
        for own, texts in column.texts:
            table = [integer_of(text) for text in texts.dictionary.to_pylist()]
            read = np.array([missing if number is None else number for number in table], np.int64)
            values[own] = read[texts.indices.to_numpy()]
        for own, numbers in column.numbers:
            values[own] = numbers
        return values[rows]

    def decimals(self, name: str, rows: Int64, where: Bool) -> Float64:
        return np.full(len(rows), np.nan)  # none of those that are read is written

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        spans = self._spans.start_ns if name == "start_us" else self._spans.duration_ns
        nowhere = np.full(len(self._threads), NONE, np.int64)
        times = np.concatenate([spans, nowhere, self._counters.time_ns])
        return np.where(times == NONE, 0, times), times != NONE

    def counters(self, rows: Int64) -> Iterable[CounterEvent]:
        series, code, _, value = self._counters
        for row in (rows - self._of_spans - len(self._threads)).tolist():
            gpu, name = series[code[row]]
            yield CounterEvent(str(gpu), name, "", {"": float(value[row])})

    def _encoded(self, name: str, rows: Int64, where: Bool | None) -> pa.DictionaryArray:
        if name in kineto.FIELDS:
            whole = self._of_event(name)
            codes, texts = whole.indices.to_numpy(), whole.dictionary.to_pylist()
        elif name != "thread_name" and self._column(name) is _NOTHING:
            return all_empty(len(rows))
        else:
            codes, texts = self._of_argument(name)
        taken = codes[rows]
        if where is not None:
            taken = np.where(where, taken, len(texts))
        return encoded(taken.astype(np.int32), [*texts, ""]).dictionary_decode().dictionary_encode()

    def _of_event(self, name: str) -> pa.DictionaryArray:
        threads, samples = self._threads, len(self._counters.value)
        if name == "phase":
            parts = [kineto.SPAN_PHASE, kineto.METADATA_PHASE, kineto.COUNTER_PHASE]
            counts = [self._of_spans, len(threads), samples]
            return encoded(np.repeat(np.arange(3), counts).astype(np.int32), parts)
        of_threads = {
            "category": [""] * len(threads),
            "name": [kineto.THREAD_NAME] * len(threads),
            "pid": [thread.pid for thread in threads],
            "tid": [thread.tid for thread in threads],
        }[name]
        spans = getattr(self._spans, name)
        known = [*spans.dictionary.to_pylist(), *of_threads, ""]
        more = np.arange(len(spans.dictionary), len(known) - 1), np.full(samples, len(known) - 1)
        return encoded(np.concatenate([codes_of(spans), *more]).astype(np.int32), known)

    def _of_argument(self, name: str) -> tuple[Int64, list[str]]:
        """Return the code of each row's text, and the texts; the first one is empty."""
        codes, known = np.zeros(self.count, np.int64), [""]
        if name == "thread_name":
            known += [thread.name for thread in self._threads]
            codes[self._of_spans :][: len(self._threads)] = 1 + np.arange(len(self._threads))
            return codes, known
        column = self._column(name)
        for own, texts in column.texts:
            codes[own] = len(known) + texts.indices.to_numpy()
            known += texts.dictionary.to_pylist()
        for own, numbers in column.numbers:
            distinct, at = np.unique(numbers, return_inverse=True)
            codes[own] = len(known) + at
            known += [str(number) for number in distinct.tolist()]
        return codes, known

    def _column(self, name: str) -> ArgumentColumn:
        return self._arguments.get(kineto.ARGUMENTS[name][0], _NOTHING)
