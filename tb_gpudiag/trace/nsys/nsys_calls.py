"""What Nsight Systems recorded of the host: calls of CUDA and of the system's libraries, its own overhead,
NVTX ranges, and the Python functions around calls.

CPython names its functions to profilers if it runs with `-X perf` (3.12 and later). Nsight Systems then has
them among the native frames, without lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Int64, rows_with
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database, Processes, named
from tb_gpudiag.trace.ranges import StepRanges, parsed_ranges
from tb_gpudiag.trace.trace_parts import LONGEST_NAME, TracePart, host_part, texts_of
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category

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


_CALL: Final = ("start", "end", "globalTid", "nameId")
# CUPTI appends the version that brought the call in this form, and says which default stream it uses.
_SUFFIX: Final = lazy_re(r"((_ptsz|_ptds)?_v\d{4,5}|_ptsz|_ptds)\Z")
_DRIVER: Final = lazy_re(r"cu(?!da)")
# A thread that is off the CPU for less than this was interrupted, and does not notice.
_LEAST_OFF_NS: Final = 10_000
# States of a thread that leaves the CPU.
_OFF: Final = {1: "preempted (OS)", 2: "waiting (OS)", 3: "page fault or disk (OS)"}
_OFF_UNKNOWN: Final = "off the CPU (OS)"
# Shorter calls are not waits, and the profiler itself makes many of them.
_LEAST_WAIT_NS: Final = 1_000


class Covered:
    """Times that spans of one kind cover, by thread. Spans of a thread are nested or follow one another."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64, Int64, Int64]] = []
        self._joined: tuple[Int64, Int64, Int64] | None = None

    def add(self, thread: Int64, start: Int64, end: Int64) -> None:
        """Add spans, shape (n,) each."""
        self._parts.append((thread, start, end))
        self._joined = None

    @property
    def threads(self) -> Int64:
        """Threads that have spans, each once."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(thread for thread, _, _ in self._parts)]))

    def contains(self, thread: Int64, start: Int64, end: Int64) -> Bool:
        """Mask of the spans [start, end) that lie inside an added one of the same thread."""
        own, first, last = self._sorted()
        inside = np.zeros(len(thread), np.bool_)
        for each in np.unique(thread):
            left, right = rows_with(own, each)
            if left == right:
                continue
            asked = np.flatnonzero(thread == each)
            at = np.searchsorted(first[left:right], start[asked], side="right") - 1
            # The longest reach of all spans that began by then: inner spans end before outer ones.
            reach = np.maximum.accumulate(last[left:right])
            inside[asked] = (at >= 0) & (end[asked] <= reach[np.maximum(at, 0)])
        return inside

    def _sorted(self) -> tuple[Int64, Int64, Int64]:
        if self._joined is None:
            empty = np.zeros(0, np.int64)
            thread, start, end = (
                np.concatenate([empty, *(part[i] for part in self._parts)]) for i in range(3)
            )
            order = np.lexsort((start, thread))
            self._joined = thread[order], start[order], end[order]
        return self._joined


def api_calls(
    database: Database, processes: Processes, covered: Covered, stacks: PythonStacks
) -> Iterator[TracePart]:
    """Read the calls of CUDA's runtime and driver. `covered` learns when each thread was in one."""
    for rows in database.chunks("CUPTI_ACTIVITY_KIND_RUNTIME", (*_CALL, "correlationId", "callchainId")):
        at = rows.numbers
        name = named(database, at["nameId"], lambda text: _SUFFIX.sub("", text))
        drivers = np.array([_DRIVER.match(n) is not None for n in name.dictionary.to_pylist()], np.bool_)
        category = np.where(
            drivers[name.indices.to_numpy()], np.uint8(Category.DRIVER), np.uint8(Category.RUNTIME)
        )
        correlation = processes.correlation(at["globalTid"], at["correlationId"])
        covered.add(at["globalTid"], at["start"], at["end"])
        called = stacks.of(at["globalTid"], at["start"], at["end"], at["callchainId"])
        yield host_part(category, name, at, {"correlation": correlation}, {"call_stack": called})


def overhead(database: Database) -> Iterator[TracePart]:
    """Read the profiler's own work, such as allocating its buffers."""
    for rows in database.chunks("PROFILER_OVERHEAD", _CALL):
        yield host_part(Category.OVERHEAD, named(database, rows.numbers["nameId"]), rows.numbers)


def system_calls(database: Database, threads_kept: Int64, covered: Covered) -> Iterator[TracePart]:
    """Read calls of the system's libraries in which a thread waits, such as `poll (OS)`, as annotations.

    threads_kept: global ids of the threads that call CUDA or have ranges. Only their calls count, and only
    outside of CUDA's calls and of operators, which wait by such calls themselves. `covered` learns of them.
    """
    for rows in database.chunks("OSRT_API", _CALL):
        at = rows.numbers
        chosen = np.isin(at["globalTid"], threads_kept) & (at["end"] - at["start"] >= _LEAST_WAIT_NS)
        chosen &= ~covered.contains(at["globalTid"], at["start"], at["end"])
        if chosen.any():
            own = {key: values[chosen] for key, values in at.items()}
            covered.add(own["globalTid"], own["start"], own["end"])
            name = named(database, own["nameId"], lambda text: f"{text} (OS)")
            yield host_part(Category.USER_ANNOTATION, name, own)


def off_cpu(database: Database, threads_kept: Int64, covered: Covered) -> Iterator[TracePart]:
    """Read when a thread was not running and nothing else says why: another process took its CPU, or it
    waited for memory, a disk or a lock. Nothing begins or ends on the thread meanwhile.
    """
    at = database.whole("SCHED_EVENTS", ("start", "isSchedIn", "globalTid", "threadState")).numbers
    order = np.lexsort((at["start"], at["globalTid"]))
    start, thread, running, state = (
        at[key][order] for key in ("start", "globalTid", "isSchedIn", "threadState")
    )
    out = np.flatnonzero((running[:-1] == 0) & (running[1:] == 1) & (thread[:-1] == thread[1:]))
    thread, begin, end, state = thread[out], start[out], start[out + 1], state[out]
    chosen = np.isin(thread, threads_kept) & (end - begin >= _LEAST_OFF_NS)
    chosen &= ~covered.contains(thread, begin, end)
    if chosen.any():
        name = texts_of(state[chosen], lambda kind: _OFF.get(kind, _OFF_UNKNOWN))
        own = {"globalTid": thread[chosen], "start": begin[chosen], "end": end[chosen]}
        yield host_part(Category.USER_ANNOTATION, name, own)


_TABLE: Final = "NVTX_EVENTS"
_COLUMNS: Final = ("start", "end", "eventType", "globalTid", "textId", "domainId")

# Types of events. Both kinds come from the program (nvtx) or from a text file (nvtxt).
_PUSH_POP: Final = (59, 70)
_START_END: Final = (60, 71)
_DOMAIN: Final = 75

# Domains in which torch writes its own ranges.
_TORCH_DOMAIN: Final = lazy_re(r"(?i)(py)?torch.*")


class Ranges:
    """Reads the ranges."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._steps = StepRanges("NVTX")

    @property
    def note(self) -> str:
        """Which ranges are steps."""
        return self._steps.note

    def parts(self, covered: Covered, stacks: PythonStacks) -> Iterator[TracePart]:
        """Yield the ranges, then the steps. `covered` learns which threads have ranges, and when they
        were in operators."""
        if not self._database.has(_TABLE, "start", "end", "eventType"):
            return
        domains = self._domains()
        for types in (_PUSH_POP, _START_END):
            where = f"eventType IN {types}"
            for rows in self._database.chunks(_TABLE, _COLUMNS, ("text",), where):
                at = rows.numbers
                found = parsed_ranges(self._texts(at["textId"], rows.texts["text"]))
                name = _with_domains(found.name, at["domainId"], domains)
                mark = (found.category == Category.USER_ANNOTATION) & (at["end"] != MISSING)
                self._steps.collect(at["globalTid"], at["start"], at["end"], name, mark)
                # A wait or a sample in the range of a whole step says nothing about the step.
                last = np.where(found.category == Category.CPU_OP, at["end"], at["start"])
                category, suffix = found.category, ""
                if types == _START_END:
                    # These ranges need not be nested, so they do not say what a thread was doing.
                    category, suffix = np.full(len(rows), Category.OTHER, np.uint8), " ranges"
                else:
                    covered.add(at["globalTid"], at["start"], last)
                called = stacks.of(at["globalTid"], at["start"], last)
                texts = {"shapes": found.shapes, "call_stack": called}
                yield host_part(category, name, at, {"sequence": found.sequence}, texts, suffix=suffix)
        yield from self._steps.parts()

    def _domains(self) -> dict[int, str]:
        rows = self._database.whole(_TABLE, ("domainId", "textId"), ("text",), f"eventType = {_DOMAIN}")
        texts = self._texts(rows.numbers["textId"], rows.texts["text"]).to_pylist()
        named = dict(zip(rows.numbers["domainId"].tolist(), texts, strict=True))
        return {
            key: text for key, text in named.items() if key and text and not _TORCH_DOMAIN.fullmatch(text)
        }

    def _texts(self, ids: Int64, texts: pa.Array) -> pa.Array:
        """Return the text of each range: registered, or its own."""
        distinct, own = np.unique(ids, return_inverse=True)
        known = self._database.strings(distinct)
        registered = pa.array([known.get(i) for i in distinct.tolist()], pa.string()).take(pa.array(own))
        return pc.fill_null(pc.coalesce(registered, texts), "")


def _with_domains(name: pa.DictionaryArray, domain: Int64, domains: dict[int, str]) -> pa.DictionaryArray:
    """Put the name of the domain in front of ranges that a library writes."""
    ids = np.unique(domain)
    if not any(i in domains for i in ids.tolist()):
        return name
    prefix = np.array([f"{domains[i]}: " if i in domains else "" for i in ids.tolist()])
    shown = pa.array(prefix[np.searchsorted(ids, domain)], pa.string())
    return pc.utf8_slice_codeunits(
        pc.binary_join_element_wise(shown, name.cast(pa.string()), ""), 0, LONGEST_NAME
    ).dictionary_encode()
