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
from tb_gpudiag.trace.perfetto.packets import ArgumentColumn, PacketContents

_NOTHING: Final = ArgumentColumn()


class PerfettoFields(Fields):
    """Rows are spans, then names of threads, then samples of counters."""

    def __init__(self, recorded: PacketContents) -> None:
        self._recorded = recorded
        self._spans = len(recorded.start_ns)
        self._threads = len(recorded.threads)
        super().__init__(self._spans + self._threads + len(recorded.counters.value))

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
        spans = self._recorded.start_ns if name == "start_us" else self._recorded.duration_ns
        samples = self._recorded.counters.time_ns
        times = np.concatenate([spans, np.full(self._threads, NONE, np.int64), samples])
        return np.where(times == NONE, 0, times), times != NONE

    def counters(self, rows: Int64) -> Iterable[CounterEvent]:
        series, code, _, value = self._recorded.counters
        for row in (rows - self._spans - self._threads).tolist():
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
        recorded, threads = self._recorded, self._recorded.threads
        samples = self.count - self._spans - self._threads
        if name == "phase":
            parts = [kineto.SPAN_PHASE, kineto.METADATA_PHASE, kineto.COUNTER_PHASE]
            counts = [self._spans, self._threads, samples]
            return encoded(np.repeat(np.arange(3), counts).astype(np.int32), parts)
        spans = {
            "category": recorded.category,
            "name": recorded.name,
            "pid": recorded.pid,
            "tid": recorded.tid,
        }[name]
        of_threads = {
            "category": [""] * self._threads,
            "name": [kineto.THREAD_NAME] * self._threads,
            "pid": [pid for pid, _, _ in threads],
            "tid": [tid for _, tid, _ in threads],
        }[name]
        joined = pa.chunked_array(
            [
                spans.dictionary_decode().cast(pa.string()),
                pa.array(of_threads, pa.string()),
                one_text("", samples).dictionary_decode(),
            ]
        )
        return joined.combine_chunks().dictionary_encode()

    def _of_argument(self, name: str) -> tuple[Int64, list[str]]:
        """Return the code of each row's text, and the texts; the first one is empty."""
        codes, known = np.zeros(self.count, np.int64), [""]
        if name == "thread_name":
            known += [text for _, _, text in self._recorded.threads]
            codes[self._spans : self._spans + self._threads] = 1 + np.arange(self._threads)
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
        return self._recorded.arguments.get(kineto.ARGUMENTS[name][0], _NOTHING)
