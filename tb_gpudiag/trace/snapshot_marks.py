"""The spans that a memory snapshot marks: `record_function` and the profiler's steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tb_gpudiag.trace.events import Category, Events, Thread

# Steps, optimizers, loaders and a user's own: some ten a step. The ring buffer that holds them is as long as
# that of the memory's entries.
MARKS_LIMIT: Final = 2_000_000
_NAME_LIMIT: Final = 1_000
# µs since 1970 have 51 bits; twice as many would not fit as nanoseconds.
LATEST_US: Final = 1 << 53

Mark = tuple[str, bool, int]
"""A span's name, whether it begins there, and when: in µs on the entries' clock."""


def marks(annotations: Any) -> list[Mark]:
    """Of a snapshot's `external_annotations`, in their order; what is none is left out."""
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
    """Annotations of one thread, times from `start_us`.

    A snapshot does not say on which thread a mark was made: a mark's end belongs to the last one of its name
    that is open. One whose beginning or end is not in the snapshot is left out.
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
    # What encloses another comes first.
    table = table[np.lexsort((-table[:, 1], table[:, 0]))]
    return Events.of_spans(
        category=np.full(len(table), Category.USER_ANNOTATION, np.uint8),
        name=table[:, 2].astype(np.int32),
        start_ns=table[:, 0] * 1000,
        duration_ns=table[:, 1] * 1000,
        thread=np.zeros(len(table), np.int32),
        names=list(codes),
        threads=[Thread("", "", "record_function")] if len(table) else [],
    )
