"""NumPy columns as Arrow columns: numbers without a copy, names as indices into one dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.vocabulary.marks import module_name

LONGEST = 2_000
"""Names have at most this many characters in a table. C++ and hostile files have longer ones."""

_Numbers = npt.NDArray[Any]


def numbers(values: _Numbers, absent: Bool | None = None) -> pa.Array:
    """Return a column of numbers, without a copy where their type stays. absent: mask of the entries to be
    null; by default those that are NONE."""
    if absent is None:
        absent = values == NONE
    return pa.array(values, mask=absent if absent.any() else None)


def texts(values: Iterable[str]) -> pa.Array:
    """Return texts as Arrow takes them, shortened."""
    # Arrow's text is UTF-8: half a pair of surrogates has no place in it.
    return pa.array(
        [value[:LONGEST].encode("utf-8", "replace").decode("utf-8") for value in values], pa.string()
    )


def coded(index: _Numbers, dictionary: pa.Array) -> pa.DictionaryArray:
    """Return a column of texts: an index into the dictionary for each row, or NONE."""
    codes = index.astype(np.int32, copy=False)
    return pa.DictionaryArray.from_arrays(numbers(codes), dictionary)


def written(values: Sequence[str]) -> pa.DictionaryArray:
    """Return a column of texts; "" is null."""
    found = {value: number for number, value in enumerate(dict.fromkeys(value for value in values if value))}
    index = np.array([found.get(value, NONE) for value in values], np.int32)
    return coded(index, texts(found))


def labels(kinds: Iterable[Any]) -> pa.Array:
    """Return the words of an enumeration whose values count from 0, by value."""
    named = {int(kind): kind.name.lower() for kind in kinds}
    return texts(named.get(number, "") for number in range(max(named) + 1))


class Names:
    """The dictionaries of one trace, each made once, and columns that point into them."""

    def __init__(self, host: Host) -> None:
        self._events, self._host = host.events, host

    def of_events(self, event: Int64) -> pa.DictionaryArray:
        return self._of(self._host.names(event))

    def operators(self, event: Int64) -> pa.DictionaryArray:
        """Operators around host events."""
        return self._of(self._host.names(self._around(event, self._host.operator)))

    def modules(self, event: Int64) -> pa.DictionaryArray:
        """Modules around host events."""
        return self.module_names(self._around(event, self._host.module))

    def work_modules(self, work: Int64, origin: Int64) -> pa.DictionaryArray:
        """Modules of GPU work: those that the annotations of a graph name, else those around host events."""
        modules = self.modules(origin)
        annotated = self._events.annotation[work]
        known = modules.dictionary.to_pylist()
        number = np.where(annotated == NONE, modules.indices.fill_null(NONE), annotated + len(known))
        return coded(number, texts([*known, *self._events.annotations]))

    def module_names(self, module: Int64) -> pa.DictionaryArray:
        index = self._host.names(module)
        known, member = np.unique(index, return_inverse=True)
        words = [module_name(self._events.names[i]) if i != NONE else "" for i in known.tolist()]
        return coded(np.where(index == NONE, NONE, member), texts(words))

    def shapes(self, event: Int64) -> pa.DictionaryArray:
        """Shapes of the inputs of operators around host events."""
        operator = self._around(event, self._host.operator)
        known = np.r_[self._events.shapes, NONE]  # NONE stays NONE
        return coded(known[operator], texts(self._events.input_shapes))

    def lines(self, event: Int64) -> pa.DictionaryArray:
        """Lines of the user's code around host events."""
        return self.frames(self._around(event, self._host.place))

    def frames(self, place: Int64) -> pa.DictionaryArray:
        known, member = np.unique(place, return_inverse=True)
        found = texts(str(self._host.frame(i) or "") for i in known.tolist())
        return coded(np.where(place == NONE, NONE, member), found)

    def places(self, event: Int64) -> dict[str, pa.DictionaryArray]:
        """The columns `operator`, `module` and `line` of host events, or of NONE."""
        return {"operator": self.operators(event), "module": self.modules(event), "line": self.lines(event)}

    def threads(self, event: Int64) -> pa.DictionaryArray:
        return coded(self._events.thread[event], self._threads)

    def _of(self, name: _Numbers) -> pa.DictionaryArray:
        return coded(name, self._names)

    def _around(self, event: Int64, found: _Numbers) -> Int64:
        if not len(found):
            return np.full(len(event), NONE, np.int64)
        return np.where(event == NONE, NONE, found[event])

    @cached_property
    def _names(self) -> pa.Array:
        return texts(self._events.names)

    @cached_property
    def _threads(self) -> pa.Array:
        threads = self._events.threads
        return texts(" ".join(filter(None, (t.pid, t.tid, t.name))) for t in threads)
