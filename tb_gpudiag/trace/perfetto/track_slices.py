"""Operators and calls of a `.pftrace` file: slices of tracks, with their arguments.

torch's encoder (`torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` and its Python side) begins all slices of a
group before the first of them ends, and they end in the same order: so the end of each is known by position.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.made_parts import encoded
from tb_gpudiag.trace.perfetto.messages import Entries
from tb_gpudiag.trace.perfetto.packet_columns import WANTED, Arguments, PacketSpans, codes_of, read_as
from tb_gpudiag.trace.perfetto.packets import (
    CATEGORIES,
    NAMES,
    TRACK_EVENT,
    Packets,
    Track,
    fields,
    text_of,
)

# Fields of a track event, and its types.
_CATEGORY_IID, _ARGUMENT, _TYPE, _NAME_IID, _TRACK_ID = 3, 4, 9, 10, 11
_BEGIN, _END = 1, 2
# Fields of an argument.
_UINT, _INT, _DOUBLE, _TEXT, _KEY, _DICT, _LIST, _BOOL = 3, 4, 5, 6, 10, 11, 12, 2

# Arguments are lists of lists of sizes. No text nests deeper.
_DEEPEST: Final = 8


def read_slices(packets: Packets, arguments: Arguments) -> PacketSpans:
    """Read slices, and add their arguments. Raises NotATrace: they do not end as those of torch do."""
    found = packets.of(TRACK_EVENT)
    numbers = (_CATEGORY_IID, _TYPE, _NAME_IID, _TRACK_ID)
    entries = packets.wire.entries(found.inside, _ARGUMENT, *numbers)
    category, kind, name, track = (entries.values(number, len(found.message), NONE) for number in numbers)
    begins, ends = _paired(packets, kind, track)
    time_ns = packets.time_ns[found.message]
    end_ns = np.where(ends == NONE, NONE, time_ns[ends])
    row = np.full(len(kind), NONE, np.int64)
    row[begins] = np.arange(len(begins))
    for some in entries.of(_ARGUMENT).pieces():
        _read_arguments(packets, some, row, arguments)
    known, own = np.unique(track[begins], return_inverse=True)
    threads = [packets.tracks.get(uuid, Track()) for uuid in known.tolist()]
    thread = own.astype(np.int32)
    return PacketSpans(
        time_ns[begins],
        np.where(end_ns == NONE, NONE, end_ns - time_ns[begins]),
        packets.named(CATEGORIES, category[begins]),
        packets.named(NAMES, name[begins]),
        encoded(thread, [each.pid for each in threads]),
        encoded(thread, [each.tid for each in threads]),
    )


def _paired(packets: Packets, kind: Int64, track: Int64) -> tuple[Int64, Int64]:
    """Return the events that begin a slice, and for each the one that ends it, or NONE."""
    events = np.flatnonzero((kind == _BEGIN) | (kind == _END))
    kind, track = kind[events], track[events]
    first = np.flatnonzero(np.r_[True, kind[1:] != kind[:-1]]) if len(kind) else events
    run = np.cumsum(np.r_[False, kind[1:] != kind[:-1]]) if len(kind) else events
    ends = np.flatnonzero(kind == _END)
    # The runs take turns: the slices that end in one began in the one before it.
    begin = np.where(run[ends] > 0, first[run[ends] - 1], 0) + ends - first[run[ends]]
    fits = (run[ends] > 0) & (kind[begin] == _BEGIN) & (track[begin] == track[ends])
    if not fits.all():
        raise packets.refused("its slices do not end as those of torch do")
    end_of = np.full(len(kind), NONE, np.int64)
    end_of[begin] = events[ends]
    begins = np.flatnonzero(kind == _BEGIN)
    return events[begins], end_of[begins]


def _read_arguments(packets: Packets, messages: Entries, row_of_event: Int64, arguments: Arguments) -> None:
    row = row_of_event[messages.message]
    messages, row = messages.at(np.flatnonzero(row != NONE)), row[row != NONE]
    wire, kinds = packets.wire, (_KEY, _BOOL, _UINT, _INT, _DOUBLE, _TEXT, _DICT, _LIST)
    entries = wire.entries(messages.inside, *kinds)
    keys = entries.of(_KEY)
    encoded_keys = wire.texts(keys.inside)
    key = np.full(len(row), NONE, np.int32)
    key[keys.message] = codes_of(encoded_keys)
    numbers = np.isin(entries.number, (_UINT, _INT))
    texts, others = entries.number == _TEXT, np.isin(entries.number, (_BOOL, _DOUBLE, _DICT, _LIST))
    for code, name in enumerate(map(text_of, encoded_keys.dictionary.to_pylist())):
        if name not in WANTED:
            continue
        own = key[entries.message] == code
        found = entries.at(np.flatnonzero(own & numbers))
        arguments.add_numbers(name, row[found.message], found.value)
        found = entries.at(np.flatnonzero(own & texts))
        arguments.add_texts(name, row[found.message], read_as(text_of, wire.texts(found.inside)))
        nested = np.unique(entries.message[own & others])
        as_json = read_as(_as_json, wire.texts(messages.inside.at(nested)))
        arguments.add_texts(name, row[nested], as_json)


def _as_json(argument: bytes) -> str:
    """Return the value of an argument as JSON without spaces."""
    return json.dumps(_value(argument, 0), ensure_ascii=False, separators=(",", ":"))


def _value(argument: bytes, depth: int) -> Any:
    entries: dict[str, Any] = {}
    elements: list[Any] = []
    value: Any = elements
    for number, found, inside in fields(argument) if depth <= _DEEPEST else ():
        if number == _LIST:
            elements.append(_value(inside, depth + 1))
        elif number == _DICT:
            entries[_key(inside)] = _value(inside, depth + 1)
            value = entries
        elif number in (_UINT, _INT):
            value = found
        elif number == _BOOL:
            value = bool(found)
        elif number == _DOUBLE:
            value = float(np.int64(found).view(np.float64))
        elif number == _TEXT:
            value = text_of(inside)
    return value


def _key(argument: bytes) -> str:
    return next((text_of(inside) for number, _, inside in fields(argument) if number == _KEY), "")
