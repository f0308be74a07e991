"""What the events of a chunk say, field by field, whichever parser read them; and reading with Python's json
what the compiled scanner does not read, and everything where it is not installed."""

from __future__ import annotations

import functools
import gc
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.structure import has_lone_surrogate
from tb_gpudiag.vocabulary.patterns import lazy_re


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


_NUMERAL: Final = lazy_re(r"[ ]*-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?[ ]*")
_LARGEST: Final = 2**63
_THOUSANDTH: Final = Decimal("0.001")


class _Number(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()
    __repr__ = str.__str__


_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_constant=lambda word: None)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_NOTHING: Final[dict[str, Any]] = {}


def is_json(text: bytes) -> bool:
    return _loaded(text) is not None


def read_plain(text: bytes) -> PlainFields | None:
    """Read a JSON array; return None if it is not JSON."""
    loaded = _loaded(text)
    return None if loaded is None else PlainFields(loaded[0])


def _loaded(text: bytes) -> tuple[Any] | None:
    """Return the value of a text; None if it is not JSON."""
    if has_lone_surrogate(text):
        return None
    collects = gc.isenabled()
    # Nothing here is garbage, and looking for it takes more than half of the time.
    gc.disable()
    try:
        return (_DECODER.decode(text.decode()),)
    except (ValueError, RecursionError):
        return None
    finally:
        if collects:
            gc.enable()


class PlainFields(Fields):
    """Fields of a loaded array."""

    def __init__(self, elements: list[Any]) -> None:
        self._events: list[dict[str, Any]] = [event for event in elements if type(event) is dict]
        super().__init__(len(self._events), len(elements) - len(self._events))
        found = [event.get("args") for event in self._events]
        self._arguments: list[dict[str, Any]] = [a if type(a) is dict else _NOTHING for a in found]

    def known(self, name: str) -> Bool:
        return np.array([value is not None for value in self._values(name)], np.bool_)

    def numbers(self, name: str, rows: Int64, missing: int = NONE) -> Int64:
        values = self._values(name, rows)
        try:
            column = pa.array(values, pa.int64())
        except (pa.ArrowException, TypeError, OverflowError):
            address = kineto.ARGUMENTS[name][1] is kineto.Form.ADDRESS
            column = pa.array([integer_of(value, address) for value in values], pa.int64())
        return np.array(pc.fill_null(column, missing), np.int64)

    def decimals(self, name: str, rows: Int64, where: Bool) -> Float64:
        own = np.flatnonzero(where)
        decimals = np.full(len(rows), np.nan)
        decimals[own] = [_decimal(value) for value in self._values(name, rows[own])]
        return decimals

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        times = [_nanoseconds(value) for value in self._values(name)]
        known = np.array([time is not None for time in times], np.bool_)
        return np.array([time or 0 for time in times], np.int64), known

    def counters(self, rows: Int64) -> Iterable[CounterEvent]:
        for row in rows.tolist():
            pid, name, number = (_text(self._events[row].get(key, ""), {}) for key in ("pid", "name", "id"))
            values = {key: _decimal(value) for key, value in self._arguments[row].items()}
            yield CounterEvent(pid, name, number, values)

    def _encoded(self, name: str, rows: Int64, where: Bool | None) -> pa.DictionaryArray:
        values = self._values(name, rows)
        if where is not None:
            values = [value if read else None for value, read in zip(values, where.tolist(), strict=True)]
        known: dict[str, str] = {}
        texts = [v if type(v) is str else "" if v is None else _text(v, known) for v in values]
        return pa.array(texts, pa.string()).dictionary_encode()

    def _values(self, name: str, rows: Int64 | None = None) -> list[Any]:
        """Return the values at these rows, or of all events."""
        if name in kineto.FIELDS:
            entries, (key, _) = self._events, kineto.FIELDS[name]
        else:
            entries, (key, _) = self._arguments, kineto.ARGUMENTS[name]
        if rows is None:
            return [entry.get(key) for entry in entries]
        return [entries[row].get(key) for row in rows.tolist()]


def _text(value: Any, known: dict[str, str]) -> str:
    """Return a string as it is, and the JSON of other values. known: the JSON by `repr`, which is fast."""
    if isinstance(value, str):
        return value
    try:
        key = repr(value)
        if key not in known:
            known[key] = _json(value)
    except RecursionError:
        return ""  # nothing that is read is nested like this
    return known[key]


def _json(value: Any) -> str:
    """Return JSON without spaces."""
    if type(value) is list:
        return f"[{','.join(map(_json, value))}]"
    if type(value) is dict:
        return f"{{{','.join(f'{_json(key)}:{_json(entry)}' for key, entry in value.items())}}}"
    return str(value) if type(value) in (int, _Number) else _ENCODER.encode(value)


def _decimal(value: Any) -> float:
    """Return a number, also if it is in a string; NaN for anything else."""
    if type(value) is int or (isinstance(value, str) and _NUMERAL.fullmatch(value)):
        try:
            return float(value)
        except OverflowError:
            pass
    return np.nan


def integer_of(value: Any, address: bool = False) -> int | None:
    """Return a number, rounded, also if it is in a string; None if it does not fit 64 bits."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value):
        number = Decimal(value)
        value = int(number.to_integral_value(ROUND_HALF_UP)) if abs(number) < 2 * _LARGEST else None
    if type(value) is int:
        if address and _LARGEST <= value < 2 * _LARGEST:
            return value - 2 * _LARGEST
        if -_LARGEST <= value < _LARGEST:
            return value
    return None


def _nanoseconds(value: Any) -> int | None:
    """Return a time in µs as whole nanoseconds, rounded half up; None if it is not a number that fits."""
    time: int
    if type(value) is int:
        time = 1000 * value
    elif type(value) is _Number and value[-4:-3] == "." and value[-3:].isdigit():
        time = int(value[:-4] + value[-3:])
    elif isinstance(value, str) and _NUMERAL.fullmatch(value):
        number = Decimal(value)
        if abs(number) >= _LARGEST:
            return None
        time = int(number.quantize(_THOUSANDTH, ROUND_HALF_UP).scaleb(3))
    else:
        return None
    return time if -_LARGEST <= time < _LARGEST else None
