"""Python functions around calls: from call chains of CUDA's calls, and from samples of the CPU.

CPython names its functions to profilers if it runs with `-X perf` (3.12 and later). Nsight Systems then has
them among the native frames, without lines.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Int64, rows_with
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database

# `py::Trainer.step:/home/me/train.py`
_PREFIX: Final = "py::"
# Deeper frames than this are recursion.
_MOST_LEVELS: Final = 128
# Characters of a stack: as many as of those that torch writes.
_LONGEST: Final = 65_536
# Characters of all stacks. Ten thousand different ones of sixty frames have 50 million.
_MOST_CHARACTERS = 256 << 20


class PythonStacks:
    """Python stacks of a report. `texts` has each once: frames innermost first, as old traces write them."""

    def __init__(self, database: Database) -> None:
        rows = database.whole("StringIds", ("id",), ("value",), f"value LIKE '{_PREFIX}%'")
        names = [_frame(text or "") for text in rows.texts["value"].to_pylist()]
        order = np.argsort(rows.numbers["id"], kind="stable")
        self._symbols = rows.numbers["id"][order]
        self._names = [names[i] for i in order.tolist()]
        self.texts: list[str] = []
        self._index: dict[str, int] = {}
        self._room = _MOST_CHARACTERS
        self._chains = self._read(database, "CUDA_CALLCHAINS")
        samples = database.whole("COMPOSITE_EVENTS", ("id", "start", "globalTid")) if len(names) else None
        found, stack = self._read(database, "SAMPLING_CALLCHAINS")
        if samples is None or not len(found):
            self._samples = (np.zeros(0, np.int64),) * 3
            return
        at = np.minimum(np.searchsorted(found, samples.numbers["id"]), len(found) - 1)
        known = np.flatnonzero(found[at] == samples.numbers["id"])
        thread, start = samples.numbers["globalTid"][known], samples.numbers["start"][known]
        order = np.lexsort((start, thread))
        self._samples = thread[order], start[order], stack[at[known]][order]

    def of(self, thread: Int64, start: Int64, end: Int64, chain: Int64 | None = None) -> pa.DictionaryArray:
        """Return the stack of each span: of its call chain, else of the first sample in it; "" without one.

        thread: global ids. chain: ids of call chains. Shape (n,) each.
        """
        code = np.full(len(thread), NONE, np.int64)
        threads, times, stack = self._samples
        for each in np.unique(thread) if len(times) else ():
            left, right = rows_with(threads, each)
            own = np.flatnonzero(thread == each)
            at = left + np.searchsorted(times[left:right], start[own])
            inside = at < right
            inside[inside] = times[at[inside]] < end[own[inside]]
            code[own[inside]] = stack[at[inside]]
        ids, stacks = self._chains
        if chain is not None and len(ids):
            at = np.minimum(np.searchsorted(ids, chain), len(ids) - 1)
            code = np.where((ids[at] == chain) & (chain != MISSING), stacks[at], code)
        return pa.DictionaryArray.from_arrays((code + 1).astype(np.int32), self._dictionary)

    @cached_property
    def _dictionary(self) -> pa.Array:
        """The texts behind "". All parts of the trace share them."""
        return pa.array(["", *self.texts])

    def _read(self, database: Database, table: str) -> tuple[Int64, Int64]:
        """Return the ids of a table's call chains that have Python frames, sorted, and their stacks."""
        kept: list[tuple[Int64, Int64, Int64]] = []
        if len(self._symbols):
            for rows in database.chunks(table, ("id", "symbol", "stackDepth")):
                at = rows.numbers
                place = np.minimum(np.searchsorted(self._symbols, at["symbol"]), len(self._symbols) - 1)
                python = self._symbols[place] == at["symbol"]
                kept.append((at["id"][python], at["stackDepth"][python], place[python]))
        if not kept:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        chain, depth, symbol = (np.concatenate([part[i] for part in kept]) for i in range(3))
        order = np.lexsort((depth, chain))
        chain, symbol = chain[order], symbol[order]
        ids, first, own = np.unique(chain, return_index=True, return_inverse=True)
        level = np.arange(len(chain)) - first[own]
        # Nodes of a tree: chains with the same innermost frames share them.
        node = np.full(len(ids), NONE, np.int64)
        parents, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        count = 0
        for each in range(min(int(level.max(initial=-1)) + 1, _MOST_LEVELS)):
            rows_of = level == each
            pairs, new = np.unique(
                np.stack([node[own[rows_of]], symbol[rows_of]], axis=1), axis=0, return_inverse=True
            )
            node[own[rows_of]] = count + new.reshape(-1)
            count += len(pairs)
            parents.append(pairs[:, 0])
            names.append(pairs[:, 1])
        tree = np.concatenate(parents), np.concatenate(names)
        last, of = np.unique(node, return_inverse=True)
        numbers: Int64 = np.array([self._number(self._text(tree, each)) for each in last.tolist()], np.int64)
        return ids, numbers[of.reshape(-1)]

    def _text(self, tree: tuple[Int64, Int64], node: int) -> str:
        """Return the frames of a chain, innermost first; "" if the texts have no room for more."""
        parent, name = tree
        path: list[str] = []
        while node != NONE:
            path.append(self._names[int(name[node])])
            node = int(parent[node])
        path.reverse()
        kept, length = 0, 0
        while kept < len(path) and length + len(path[kept]) < _LONGEST:
            length += len(path[kept]) + 1
            kept += 1
        self._room -= length
        return ";".join(path[:kept]) if self._room >= 0 else ""

    def _number(self, text: str) -> int:
        if not text:
            return NONE
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(text)
        return self._index[text]


def _frame(symbol: str) -> str:
    """Return `/home/me/train.py(0): Trainer.step` for `py::Trainer.step:/home/me/train.py`."""
    function, _, file = symbol.removeprefix(_PREFIX).partition(":")
    return f"{file}(0): {function}".replace(";", ",")
