"""What the events of a chunk say, field by field, whichever parser read them. Fields have our names (see
kineto.py)."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64


class CounterEvent(NamedTuple):
    """What a counter event says. Missing strings are ""."""

    pid: str
    name: str
    number: str  # its `id`
    values: dict[str, float]  # by key of `args`; NaN for what is not a number


class Fields(ABC):
    """Fields of the events of a chunk."""

    def __init__(self, count: int, others: int = 0) -> None:
        self.count = count  # events in the chunk
        self.others = others  # elements that are not objects, and so not counted
        self._whole: dict[str, pa.DictionaryArray] = {}

    @abstractmethod
    def known(self, name: str) -> Bool:
        """Mask of the events that have this field, shape (count,)."""

    @abstractmethod
    def numbers(self, name: str, rows: Int64, missing: int = NONE) -> Int64:
        """Return the integers at these rows."""

    @abstractmethod
    def decimals(self, name: str, rows: Int64, where: Bool) -> Float64:
        """Return the numbers at those rows that are `where`, NaN for the others and for missing ones."""

    @abstractmethod
    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        """Return the times of all events in ns, and a mask of those that are known."""

    @abstractmethod
    def counters(self, rows: Int64) -> Iterable[CounterEvent]:
        """Return what these events say as counters."""

    @abstractmethod
    def _encoded(self, name: str, rows: Int64, where: Bool | None) -> pa.DictionaryArray:
        """Return the texts at those rows that are `where`, "" elsewhere and for missing ones. The dictionary
        has exactly these texts, in order of first appearance."""

    def texts(
        self, name: str, rows: Int64 | None = None, *, where: Bool | None = None, cut: int = 0, most: int = 0
    ) -> pa.DictionaryArray:
        """Return the texts at these rows, or of all events, with "" for missing ones. The dictionary has
        exactly these texts, in order of first appearance.

        where: mask of the rows that are read; the others have "". cut: keep this many characters of a longer
        text. most: replace a text that has more bytes by "".
        """
        if rows is None:
            encoded = self._of_all(name)
        elif name in self._whole and where is None:
            whole = self._whole[name]
            encoded = _compacted(whole.indices.to_numpy()[rows], whole.dictionary)
        else:
            encoded = self._encoded(name, rows, where)
        if most:
            encoded = _without_longer(encoded, most)
        return _shortened(encoded, cut) if cut else encoded

    def equal(self, name: str, text: str) -> Bool:
        """Mask of the events whose field is this text, shape (count,)."""
        encoded = self._of_all(name)
        place = pc.index(encoded.dictionary, _scalar(text)).as_py()
        return encoded.indices.to_numpy() == place

    def _of_all(self, name: str) -> pa.DictionaryArray:
        if name not in self._whole:
            self._whole[name] = self._encoded(name, np.arange(self.count), None)
        return self._whole[name]


def _shortened(texts: pa.DictionaryArray, longest: int) -> pa.DictionaryArray:
    """Cut the texts that have more characters."""
    if (pc.max(pc.binary_length(texts.dictionary)).as_py() or 0) <= longest:
        return texts
    short = pc.utf8_slice_codeunits(texts.dictionary, 0, longest)
    return short.take(texts.indices).dictionary_encode()


def _without_longer(texts: pa.DictionaryArray, most: int) -> pa.DictionaryArray:
    """Replace the texts with more bytes by ""."""
    if (pc.max(pc.binary_length(texts.dictionary)).as_py() or 0) <= most:
        return texts
    short = pc.if_else(pc.less_equal(pc.binary_length(texts.dictionary), most), texts.dictionary, "")
    encoded = short.dictionary_encode()
    codes: Int32 = encoded.indices.to_numpy()[texts.indices.to_numpy()]
    return _compacted(codes, encoded.dictionary)


def _compacted(codes: Int32, dictionary: pa.Array) -> pa.DictionaryArray:
    """Make a dictionary of the texts in use, in order of first appearance. codes: into `dictionary`."""
    count, bound = len(codes), len(dictionary)
    first = np.full(bound, count, np.int64)
    first[codes[::-1]] = np.arange(count - 1, -1, -1)
    used = np.flatnonzero(first < count)
    order = used[np.argsort(first[used])]
    new = np.zeros(bound, np.int32)
    new[order] = np.arange(len(order))
    return pa.DictionaryArray.from_arrays(indices32(new[codes]), dictionary.take(indices(order)))


def indices(rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return rows for `take`. Not `pa.array`: for each new array, that looks for pandas, which is slow if
    pandas is not installed."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])


def indices32(codes: Int32) -> pa.Array:
    """Same as `indices`, for 32-bit dictionary codes."""
    return pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(np.ascontiguousarray(codes))])


@functools.cache
def _scalar(text: str) -> pa.Scalar:
    """Return a text for Arrow. Cached: pyarrow also looks for pandas here."""
    return pa.scalar(text)


def all_empty(count: int) -> pa.DictionaryArray:
    """Return `count` empty strings."""
    return pa.DictionaryArray.from_arrays(indices32(np.zeros(count, np.int32)), _one_empty())


@functools.cache
def _one_empty() -> Any:
    return pa.array([""])
