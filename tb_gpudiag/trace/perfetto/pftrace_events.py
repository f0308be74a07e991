"""What a `.pftrace` file says happened: operators and calls, which are slices of tracks with their
arguments, and what GPUs did, which torch writes as stages of rendering.

torch's encoder (`torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` and its Python side) begins all slices of a
group before the first of them ends, and they end in the same order: so the end of each is known by position.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.perfetto.messages import Entries
from tb_gpudiag.trace.perfetto.packets import (
    CATEGORIES,
    COUNTERS,
    LAUNCH_KEYS,
    NAMES,
    SPECIFICATIONS,
    STAGE,
    TRACK_EVENT,
    WANTED,
    Arguments,
    CounterValues,
    Packets,
    PacketSpans,
    Track,
    codes_of,
    fields,
    read_as,
    text_of,
)
from tb_gpudiag.trace.trace_parts import encoded, texts_of
from tb_gpudiag.vocabulary.patterns import lazy_re

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
            key = next((text_of(text) for kind, _, text in fields(inside) if kind == _KEY), "")
            entries[key] = _value(inside, depth + 1)
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


# Fields of a stage, of its further data, of its launch, and of an argument of that.
_DURATION, _EXTRA, _GPU, _QUEUE_IID, _STAGE_IID, _LABEL_IID, _LAUNCH = 2, 6, 11, 13, 14, 20, 21
_EXTRA_KEY, _EXTRA_VALUE = 1, 2
_GRID, _BLOCK, _LAUNCH_ARGUMENT = 1, 2, 3
_LAUNCH_KEY_IID, _LAUNCH_VALUE = 1, 4
_SIDES: Final = (1, 2, 3)
# Fields of counter events and of counters.
_COUNTER, _DESCRIPTOR_IID = 2, 4
_COUNTER_ID, _COUNTER_INT, _COUNTER_DOUBLE = 1, 2, 3

_CATEGORY_OF_STAGE: Final = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
}
# Kineto's names of what is called otherwise here.
_RENAMED: Final = {
    "stream id": "stream",
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "shared memory",
}
# The name of a lane of a stream: `[07] stream 7`. Kineto's thread is then `7`.
_LANE: Final = lazy_re(r"(?:\[\d+\] )?(?:stream )?(.*)", re.DOTALL)


def read_stages(packets: Packets, first: int, arguments: Arguments) -> PacketSpans:
    """Read GPU work, and add its arguments. first: the row of the first of it."""
    found = packets.of(STAGE)
    numbers = (_DURATION, _GPU, _QUEUE_IID, _STAGE_IID, _LABEL_IID)
    entries = packets.wire.entries(found.inside, *numbers, _EXTRA, _LAUNCH)
    count = len(found.message)
    duration, gpu, queue, stage, label = (entries.values(number, count, 0) for number in numbers)
    for extra in entries.of(_EXTRA).pieces():
        _read_extra(packets, extra, first, arguments)
    _read_launches(packets, entries.of(_LAUNCH), first, arguments)
    arguments.add_numbers("device", first + np.arange(count), gpu)
    kind, lane, name = (
        packets.named(table, iids)
        for table, iids in ((SPECIFICATIONS, stage), (SPECIFICATIONS, queue), (NAMES, label))
    )
    kinds, lanes, names = (texts.dictionary.to_pylist() for texts in (kind, lane, name))
    unnamed = np.array([not text for text in names] or [False])
    code = np.where(
        unnamed[codes_of(name)] if count else np.zeros(0, np.bool_),
        len(names) + codes_of(kind),
        codes_of(name),
    )
    return PacketSpans(
        packets.time_ns[found.message],
        duration,
        encoded(codes_of(kind), [_CATEGORY_OF_STAGE.get(text, text) for text in kinds]),
        encoded(code.astype(np.int32), [*names, *kinds]),
        texts_of(gpu, str),
        encoded(codes_of(lane), [_lane(text) for text in lanes]),
    )


def _read_extra(packets: Packets, messages: Entries, first: int, arguments: Arguments) -> None:
    wire = packets.wire
    entries = wire.entries(messages.inside, _EXTRA_KEY, _EXTRA_VALUE)
    keys, values = entries.of(_EXTRA_KEY), entries.of(_EXTRA_VALUE)
    encoded_keys = wire.texts(keys.inside)
    key = np.full(len(messages.message), NONE, np.int32)
    key[keys.message] = codes_of(encoded_keys)
    for code, text in enumerate(map(text_of, encoded_keys.dictionary.to_pylist())):
        name = _RENAMED.get(text, text)
        if name in WANTED:
            own = values.at(np.flatnonzero(key[values.message] == code))
            rows = first + messages.message[own.message]
            arguments.add_texts(name, rows, read_as(text_of, wire.texts(own.inside)))


def _read_launches(packets: Packets, messages: Entries, first: int, arguments: Arguments) -> None:
    wire = packets.wire
    entries = wire.entries(messages.inside, _GRID, _BLOCK, _LAUNCH_ARGUMENT)
    for number, name in ((_GRID, "grid"), (_BLOCK, "block")):
        own = entries.of(number)
        sides = wire.entries(own.inside, *_SIDES)
        sizes = np.stack([sides.values(side, len(own.message), 1) for side in _SIDES], axis=1)
        arguments.add_texts(name, first + messages.message[own.message], texts_of(sizes, json.dumps))
    own = entries.of(_LAUNCH_ARGUMENT)
    said = wire.entries(own.inside, _LAUNCH_KEY_IID, _LAUNCH_VALUE)
    key, value = (said.values(n, len(own.message), 0) for n in (_LAUNCH_KEY_IID, _LAUNCH_VALUE))
    for iid, text in packets.tables[LAUNCH_KEYS].items():
        name = _RENAMED.get(text, text)
        if name in WANTED:
            rows = first + messages.message[own.message[key == iid]]
            arguments.add_numbers(name, rows, value[key == iid])


def _lane(name: str) -> str:
    found = _LANE.fullmatch(name)
    return found[1] if found else name


def read_counters(packets: Packets) -> CounterValues:
    """Read the samples of counters."""
    found = packets.of(COUNTERS)
    events = packets.wire.entries(found.inside, _DESCRIPTOR_IID, _COUNTER)
    descriptor: Int64 = events.values(_DESCRIPTOR_IID, len(found.message), 0)
    counters = events.of(_COUNTER)
    said = packets.wire.entries(counters.inside, _COUNTER_ID, _COUNTER_INT, _COUNTER_DOUBLE)
    identifier = said.values(_COUNTER_ID, len(counters.message), 0)
    value = said.values(_COUNTER_INT, len(counters.message), 0).astype(np.float64)
    doubles = said.of(_COUNTER_DOUBLE)
    value[doubles.message] = doubles.value.view(np.float64)
    pairs = np.stack([descriptor[counters.message], identifier], axis=1)
    known, code = np.unique(pairs, axis=0, return_inverse=True)
    series = []
    for iid, counter in known.tolist():
        gpu, names = packets.counters.get(iid, (NONE, {}))
        series.append((gpu, names.get(counter, f"counter {counter}")))
    time_ns = packets.time_ns[found.message[counters.message]]
    return CounterValues(series, code.reshape(-1).astype(np.int32), time_ns, value)
