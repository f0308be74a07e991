"""Put the events of one file behind those of another, with one dictionary for the names of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int32, Int64
from tb_gpudiag.trace.events import Events

_DICTIONARIES: Final[Mapping[str, str]] = {
    "name": "names",
    "thread": "threads",
    "call_stack": "call_stacks",
    "called_from": "calling_lines",
    "shapes": "input_shapes",
    "types": "input_types",
    "settings": "input_settings",
    "strides": "input_strides",
    "launched": "launched_kernels",
    "annotation": "annotations",
    "message": "messages",
}
"""Columns that are indices, and what they point into."""

_OF_ONE_FILE: Final = ("correlation", "external_id", "python_id", "python_parent", "sequence")
"""Numbers that mean nothing beside those of another file."""


def join_events(events: Events, others: Events, chosen: Int64) -> Events:
    """Return the events, and after their end the chosen others. Threads with one number are apart, too."""
    shift_ns = int(events.end_ns.max(initial=0)) - int(others.start_ns[chosen].min(initial=0)) + 1
    joined: dict[str, Any] = {}
    for column, values in _DICTIONARIES.items():
        known, found = getattr(events, values), getattr(others, values)
        code: Int32 = getattr(others, column)[chosen]
        if column == "thread":
            index, both = np.arange(len(found), dtype=np.int32) + len(known), [*known, *found]
        else:
            index, both = _unified(known, found)
        index = np.r_[index, np.int32(NONE)]  # NONE stays NONE
        joined[column] = np.r_[getattr(events, column), index[code]].astype(np.int32)
        joined[values] = both
    for field in fields(events):
        if field.name not in joined:
            more = getattr(others, field.name)[chosen]
            if field.name == "start_ns":
                more = more + shift_ns
            elif field.name in _OF_ONE_FILE:
                more = np.full_like(more, NONE)
            joined[field.name] = np.r_[getattr(events, field.name), more].astype(more.dtype)
    return Events(**joined)


def _unified(known: list[Any], others: list[Any]) -> tuple[Int32, list[Any]]:
    """Return the place of each of the others in one list of all, and that list."""
    places = {value: place for place, value in enumerate(known)}
    index = np.array([places.setdefault(value, len(places)) for value in others], np.int32)
    if len(places) < len(known):  # a value is in the list twice
        return np.arange(len(others), dtype=np.int32) + len(known), [*known, *others]
    return index, list(places)
