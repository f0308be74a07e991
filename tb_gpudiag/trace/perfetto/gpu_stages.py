"""What GPUs did in a `.pftrace` file: their work, which torch writes as stages of rendering, and counters."""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.made_parts import encoded, texts_of
from tb_gpudiag.trace.perfetto.messages import Entries
from tb_gpudiag.trace.perfetto.packet_columns import (
    WANTED,
    Arguments,
    CounterValues,
    PacketSpans,
    codes_of,
    read_as,
)
from tb_gpudiag.trace.perfetto.packets import (
    COUNTERS,
    LAUNCH_KEYS,
    NAMES,
    SPECIFICATIONS,
    STAGE,
    Packets,
    text_of,
)
from tb_gpudiag.vocabulary.patterns import lazy_re

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
