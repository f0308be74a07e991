"""What the packets of a `.pftrace` file say, as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Float64, Int32, Int64
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.made_parts import encoded

SYNC_KEY: Final = "cuda_sync_kind"
"""The argument that only synchronization events have; their category is not written."""

WANTED: Final = frozenset(key for key, _ in kineto.ARGUMENTS.values()) | {SYNC_KEY}
"""Names of the arguments that are read."""


@dataclass
class ArgumentColumn:
    """One argument of the rows that have it. Rows are sorted, and in one of the two."""

    numbers: list[tuple[Int64, Int64]] = field(default_factory=list)
    texts: list[tuple[Int64, pa.DictionaryArray]] = field(default_factory=list)

    def rows(self) -> Int64:
        """Return all rows that have it."""
        found = [rows for rows, _ in (*self.numbers, *self.texts)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


class Arguments(dict[str, ArgumentColumn]):
    """Arguments of spans, by Kineto's name."""

    def add_numbers(self, name: str, rows: Int64, values: Int64) -> None:
        if len(rows):
            self.setdefault(name, ArgumentColumn()).numbers.append((rows, values))

    def add_texts(self, name: str, rows: Int64, texts: pa.DictionaryArray) -> None:
        if len(rows):
            self.setdefault(name, ArgumentColumn()).texts.append((rows, texts))


class PacketSpans(NamedTuple):
    """Columns of spans, shape (n,) each."""

    start_ns: Int64
    duration_ns: Int64  # NONE for a slice that does not end within the file
    category: pa.DictionaryArray
    name: pa.DictionaryArray
    pid: pa.DictionaryArray
    tid: pa.DictionaryArray

    def followed_by(self, others: PacketSpans) -> PacketSpans:
        return PacketSpans(*map(_both, self, others))


class CounterValues(NamedTuple):
    """Samples of counters, shape (v,) each. series: (GPU, name), which `code` points into."""

    series: list[tuple[int, str]]
    code: Int32
    time_ns: Int64
    value: Float64


def codes_of(texts: pa.DictionaryArray) -> Int32:
    codes: Int32 = texts.indices.to_numpy()
    return codes


def read_as(read: Callable[[bytes], str], texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return what `read` makes of texts in bytes: of each distinct one once."""
    return encoded(codes_of(texts), [read(each) for each in texts.dictionary.to_pylist()])


def replaced(texts: pa.DictionaryArray, rows: Int64, text: str) -> pa.DictionaryArray:
    """Return the texts, with this one in some rows."""
    codes = codes_of(texts).copy()
    codes[rows] = len(texts.dictionary)
    return encoded(codes, [*texts.dictionary.to_pylist(), text])


def _both(first: Any, second: Any) -> Any:
    """Return two columns one after the other."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    codes = np.concatenate([codes_of(first), codes_of(second) + len(first.dictionary)]).astype(np.int32)
    return encoded(codes, [*first.dictionary.to_pylist(), *second.dictionary.to_pylist()])
