"""NVTX ranges, with the domains that libraries write theirs in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Int64
from tb_gpudiag.trace.made_parts import host_part
from tb_gpudiag.trace.nsys.nsys_calls import Covered
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database
from tb_gpudiag.trace.nsys.nsys_stacks import PythonStacks
from tb_gpudiag.trace.ranges import StepRanges, parsed_ranges
from tb_gpudiag.trace.trace_parts import LONGEST_NAME, TracePart
from tb_gpudiag.vocabulary.recorded import Category

_TABLE: Final = "NVTX_EVENTS"
_COLUMNS: Final = ("start", "end", "eventType", "globalTid", "textId", "domainId")

# Types of events. Both kinds come from the program (nvtx) or from a text file (nvtxt).
_PUSH_POP: Final = (59, 70)
_START_END: Final = (60, 71)
_DOMAIN: Final = 75

# Domains in which torch writes its own ranges.
_TORCH_DOMAIN: Final = re.compile(r"(?i)(py)?torch.*")


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
