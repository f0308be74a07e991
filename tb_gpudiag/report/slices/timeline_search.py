"""Search: the events whose name matches a text, in time order.

Names are matched, not events: a trace has few different names. Patterns run in RE2, whose time is linear in
the name, and stop after a while: a pattern comes from anywhere, as names do.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Bool, Int64, mask_of
from tb_gpudiag.errors import LimitReached, UsageError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.parameters import Search
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared
from tb_gpudiag.report.slices.slice_table import LONGEST_SEARCH
from tb_gpudiag.report.slices.timeline_lanes import COLLECTIVE_KIND
from tb_gpudiag.report.slices.timeline_shown import Shown
from tb_gpudiag.vocabulary.marks import MODULE_PREFIX
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category

LONGEST_REASON = 300
PARTS = 800
"""Parts of the recording whose matches are counted."""

# Names that are matched between two looks at the clock.
_BATCH = 2_000
_MATCH_WITHIN_S = 2.0

KINDS = {
    "any": tuple(Category),
    "operator": (Category.CPU_OP,),
    "kernel": (*GPU_WORK_CATEGORIES, COLLECTIVE_KIND),
    "module": tuple(Category),
    "call": CALL_CATEGORIES,
    "range": (Category.USER_ANNOTATION, Category.GPU_USER_ANNOTATION),
    "function": (Category.PYTHON_FUNCTION,),
}
"""What can be searched for: categories of events."""


def find_events(
    prepared: Prepared, search: Search, limit: int, first: int | None = None, near_us: float | None = None
) -> pb.Matches:
    """Return `limit` matches from the one with index `first`, else those around a time.

    Raises:
        UsageError: the text is too long.
        LimitReached: it takes too long.
    """
    shown = Shown(prepared)
    try:
        names = _matching_names(shown, search)
    except pa.ArrowInvalid as error:
        # Usual while somebody types: not a bad request.
        why = str(error).removeprefix("Invalid regular expression: ")
        what = f"Not a valid regular expression: {why}"[:LONGEST_REASON]
        return pb.Matches(state="failed", error=pb.Problem(what=what, where="text"))
    if search.kind == "module":
        names &= _names(shown, MODULE_PREFIX, False)
    levels = shown.levels
    of_kind = mask_of(
        [int(each) for each in KINDS[search.kind]] + [COLLECTIVE_KIND] * (search.kind == "any"), 256
    )
    of_name = np.zeros(len(prepared["text_first"]), np.bool_)
    of_name[len(Cause) : len(Cause) + len(names)] = names
    index = np.flatnonzero(of_name[levels.name] & of_kind[levels.kind] & shown.are_events)
    found = shown.boxes(index)
    order = np.lexsort((found.number, found.start_ns))
    start = found.start_ns[order]
    if first is None:
        at = 0 if near_us is None else int(np.searchsorted(start, round(near_us * NS_PER_US)))
        first = max(0, min(at, len(order) - 1) - limit // 2)
    chosen = order[first : first + limit]
    return pb.Matches(
        total=len(order),
        first=first,
        events=shown.messages(found.take(chosen)),
        per_part=_per_part(start, int(shown.meta["start_ns"]), int(shown.meta["end_ns"])),
    )


def _per_part(start: Int64, low: int, high: int) -> list[int]:
    if not len(start):
        return []
    part = (start - low) * PARTS // max(high - low, 1)
    return np.bincount(np.clip(part, 0, PARTS - 1), minlength=PARTS).tolist()


def _matching_names(shown: Shown, search: Search) -> Bool:
    if len(search.text) > LONGEST_SEARCH:
        raise UsageError(f"The text has more than {LONGEST_SEARCH} characters.", where="text")
    if not search.text:
        return np.ones(int(shown.meta["names"]), np.bool_)
    return _names(shown, search.text, search.regex)


def _names(shown: Shown, text: str, regex: bool) -> Bool:
    """Mask of the names of events that contain a text or match a pattern, in any case."""
    first = np.asarray(shown.prepared["text_first"])[len(Cause) : len(Cause) + int(shown.meta["names"]) + 1]
    content = np.asarray(shown.prepared["text"])
    names = pa.LargeStringArray.from_buffers(len(first) - 1, pa.py_buffer(first), pa.py_buffer(content))
    match = pc.match_substring_regex if regex else pc.match_substring
    found = []
    deadline_s = time.monotonic() + _MATCH_WITHIN_S
    for at in range(0, len(names), _BATCH):
        part = names.slice(at, _BATCH)
        found.append(match(part, text, ignore_case=True).to_numpy(zero_copy_only=False))
        if time.monotonic() > deadline_s:
            raise LimitReached(
                "Matching this expression takes too long.", where="text", remedy="Use a simpler one."
            )
    return np.concatenate([np.zeros(0, np.bool_), *found])
