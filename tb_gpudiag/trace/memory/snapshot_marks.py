"""Read the spans marked in a memory snapshot: `record_function` and the profiler's steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.vocabulary.recorded import Category

# Steps, optimizers, loaders and the user's own marks: about ten per step. Marks have a ring buffer of their
# own, as long as the memory history's.
MARKS_LIMIT: Final = 2_000_000
_NAME_LIMIT: Final = 1_000
# µs since 1970 take 51 bits. With twice as many µs, nanoseconds would not fit 64 bits.
LATEST_US: Final = 1 << 53

Mark = tuple[str, bool, int]
"""Name of a span, True for its start and False for its end, and the time in µs on the history's clock."""


def marks(annotations: Any) -> list[Mark]:
    """Return the marks of a snapshot's `external_annotations`, in their order. Skip malformed ones."""
    found: list[Mark] = []
    shown: dict[str, str] = {}
    for mark in annotations if type(annotations) is list else []:
        if type(mark) is not dict or len(found) == MARKS_LIMIT:
            continue
        name, stage, time_us = mark.get("name"), mark.get("stage"), mark.get("time_us")
        if type(name) is not str or stage not in ("START", "END"):
            continue
        if type(time_us) is int and 0 <= time_us < LATEST_US:
            if name not in shown:
                shown[name] = name[:_NAME_LIMIT].encode("utf-8", "replace").decode()
            found.append((shown[name], stage == "START", time_us))
    return found


def spans(marked: Iterable[Mark], start_us: int) -> Events:
    """Make annotations of one thread, with times since `start_us`.

    A snapshot does not say which thread made a mark. So an end belongs to the last open start of the same
    name. Marks without a start or without an end in the snapshot are skipped.
    """
    open_: dict[str, list[int]] = {}
    codes: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []
    for name, begins, time_us in marked:
        if begins:
            open_.setdefault(name, []).append(time_us)
        elif open_.get(name):
            began_us = open_[name].pop()
            rows.append((began_us - start_us, max(0, time_us - began_us), codes.setdefault(name, len(codes))))
    table = np.array(rows, np.int64).reshape(-1, 3)
    # An enclosing span comes before the spans inside it.
    table = table[np.lexsort((-table[:, 1], table[:, 0]))]
    return replace(
        Events.blank(len(table)),
        category=np.full(len(table), Category.USER_ANNOTATION, np.uint8),
        name=table[:, 2].astype(np.int32),
        start_ns=table[:, 0] * 1000,
        duration_ns=table[:, 1] * 1000,
        thread=np.zeros(len(table), np.int32),
        names=list(codes),
        threads=[Thread("", "", "record_function")] if len(table) else [],
    )
