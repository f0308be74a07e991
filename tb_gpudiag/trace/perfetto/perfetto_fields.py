"""The fields of the events of a `.pftrace` file, under the names that JSON of Kineto has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import CounterEvent, Fields
from tb_gpudiag.trace.kineto.plain import integer_of
from tb_gpudiag.trace.made_parts import encoded, one_text
from tb_gpudiag.trace.perfetto.packet_columns import ArgumentColumn, Arguments, CounterValues, PacketSpans
from tb_gpudiag.trace.perfetto.packets import Track

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
        joined = pa.chunked_array(
            [
                getattr(self._spans, name).dictionary_decode().cast(pa.string()),
                pa.array(of_threads, pa.string()),
                one_text("", samples).dictionary_decode(),
            ]
        )
        return joined.combine_chunks().dictionary_encode()

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
