"""What the packets of a `.pftrace` file say, as columns.

torch's encoder (`torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` and its Python side) writes operators and calls
as slices of tracks, and GPU work as stages of rendering, which have a duration. All slices of a group begin
before the first of them ends, and they end in the same order: so the end of each is known by position. The
numbers of fields are those of `protos/perfetto/trace` in Perfetto's repository.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tb_gpudiag.arrays import NONE, Float64, Int32, Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.made_parts import encoded
from tb_gpudiag.trace.perfetto.messages import Entries, Messages, Wire

_PACKET: Final = 1
# Fields of a packet.
_TIMESTAMP, _TRACK_EVENT, _INTERNED, _COUNTERS, _STAGE, _TRACK = 8, 11, 12, 52, 53, 60
# Fields of a track event, and its types.
_CATEGORY_IID, _ARGUMENT, _TYPE, _NAME_IID, _TRACK_ID = 3, 4, 9, 10, 11
_BEGIN, _END = 1, 2
# Fields of an argument.
_UINT, _INT, _DOUBLE, _TEXT, _KEY, _DICT, _LIST, _BOOL = 3, 4, 5, 6, 10, 11, 12, 2
# Fields of a stage, of its further data, of its launch, and of an argument of that.
_DURATION, _EXTRA, _GPU, _QUEUE_IID, _STAGE_IID, _LABEL_IID, _LAUNCH = 2, 6, 11, 13, 14, 20, 21
_EXTRA_KEY, _EXTRA_VALUE = 1, 2
_GRID, _BLOCK, _LAUNCH_ARGUMENT = 1, 2, 3
_LAUNCH_KEY_IID, _LAUNCH_VALUE = 1, 4
_SIDES: Final = (1, 2, 3)
# Tables of interned data, and fields of an entry.
_CATEGORIES, _NAMES, _SPECIFICATIONS, _DESCRIPTORS, _LAUNCH_KEYS = 1, 2, 24, 47, 1001
_IID, _ENTRY_NAME = 1, 2
# Fields of a descriptor of counters, of counter events and of counters.
_SPECS, _DESCRIPTOR, _DESCRIBED_GPU = 1, 2, 3
_COUNTER, _DESCRIPTOR_IID = 2, 4
_COUNTER_ID, _COUNTER_INT, _COUNTER_DOUBLE = 1, 2, 3
# Fields of a track, of its thread or process.
_TRACK_UUID, _TRACK_PROCESS, _TRACK_THREAD = 1, 3, 4
_PID, _TID, _THREAD_NAME = 1, 2, 5

_CATEGORY_OF_STAGE: Final = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
}
_OVERHEAD: Final = "Overhead"
# The argument that only synchronization events have; their category is not written.
_SYNC_KEY: Final = "cuda_sync_kind"
# Kineto's names of what is called otherwise here.
_RENAMED: Final = {
    "stream id": "stream",
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "shared memory",
}
_WANTED: Final = frozenset(key for key, _ in kineto.ARGUMENTS.values()) | {_SYNC_KEY}
# The name of a lane of a stream: `[07] stream 7`. Kineto's thread is then `7`.
_LANE: Final = re.compile(r"(?:\[\d+\] )?(?:stream )?(.*)", re.DOTALL)
# -1, which is no process and no stream, without its sign.
_MINUS_ONE: Final = 0x7FFFFFFF
# Arguments are lists of lists of sizes. No text nests deeper.
_DEEPEST: Final = 8
_AGAIN: Final = "record again, or export the trace to a name that ends in .json.gz"


@dataclass
class ArgumentColumn:
    """One argument of the rows that have it. Rows are sorted, and in one of the two."""

    numbers: list[tuple[Int64, Int64]] = field(default_factory=list)
    texts: list[tuple[Int64, pa.DictionaryArray]] = field(default_factory=list)

    def rows(self) -> Int64:
        """Return all rows that have it."""
        found = [rows for rows, _ in (*self.numbers, *self.texts)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


class CounterValues(NamedTuple):
    """Samples of counters, shape (v,) each. series: (GPU, name), which `code` points into."""

    series: list[tuple[int, str]]
    code: Int32
    time_ns: Int64
    value: Float64


@dataclass
class PacketContents:
    """What a file says. Arrays have shape (n,): operators, calls and other slices, then GPU work."""

    start_ns: Int64
    duration_ns: Int64  # NONE for a slice that does not end within the file
    category: pa.DictionaryArray
    name: pa.DictionaryArray
    pid: pa.DictionaryArray
    tid: pa.DictionaryArray
    arguments: dict[str, ArgumentColumn]  # by Kineto's name
    threads: list[tuple[str, str, str]]  # pid, tid and name
    counters: CounterValues
    broken: int  # messages that are damaged


def read_packets(text: bytes, path: str) -> tuple[PacketContents, bool]:
    """Read a file, unpacked. Return what it says, and whether it is whole. Raises NotATrace if it was not
    written as torch writes it."""
    wire, packets, is_whole = _split(text)
    return _File(wire, packets, path).recorded(), is_whole


def _split(text: bytes) -> tuple[Wire, Messages, bool]:
    """Return the packets of a file, and whether it is whole."""
    try:
        found = _packet_list().FromString(text).packet
    except DecodeError:  # it ends in the middle
        wire = Wire(text)
        places = [(start, stop) for number, _, start, stop in wire.walk(0, len(text)) if number == _PACKET]
        start, end = np.array(places or np.zeros((0, 2)), np.int64).T
        return wire, Messages(start, end), False
    end = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
    return Wire(b"".join(found)), Messages(np.concatenate([[0], end[:-1]]), end), True


@cache
def _packet_list() -> Any:
    """Return the class of a message that is a list of packets, which are not parsed."""
    file = descriptor_pb2.FileDescriptorProto(name="gpudiag_packets.proto", package="gpudiag_packets")
    of = descriptor_pb2.FieldDescriptorProto
    packet = of(name="packet", number=_PACKET, label=of.LABEL_REPEATED, type=of.TYPE_BYTES)
    file.message_type.add(name="Packets").field.append(packet)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gpudiag_packets.Packets"))


class _File:
    def __init__(self, wire: Wire, packets: Messages, path: str) -> None:
        self._wire = wire
        self._path = path
        wanted = (_TIMESTAMP, _TRACK_EVENT, _INTERNED, _COUNTERS, _STAGE, _TRACK)
        self._packets = wire.entries(packets, *wanted)
        self._time_ns = self._packets.values(_TIMESTAMP, len(packets.start), NONE)
        self._tables = self._interned()
        self._arguments: dict[str, ArgumentColumn] = {}

    def recorded(self) -> PacketContents:
        tracks = self._tracks()
        slices = self._slices(tracks)
        stages = self._stages(first=len(slices[0]))
        start, duration, category, name, pid, tid = (_both(a, b) for a, b in zip(slices, stages, strict=True))
        sync = self._arguments.pop(_SYNC_KEY, ArgumentColumn()).rows()
        category = _replaced(category, sync, "cuda_sync")
        overhead = {pid for pid, tid, name in tracks.values() if name == _OVERHEAD}
        own = np.array([text in overhead for text in pid.dictionary.to_pylist()] or [False])
        category = _replaced(category, np.flatnonzero(own[pid.indices.to_numpy()]), "overhead")
        return PacketContents(
            start,
            duration,
            category,
            name,
            pid,
            tid,
            self._arguments,
            [track for track in tracks.values() if track[1]],
            self._counters(),
            self._wire.broken,
        )

    # Tables

    def _interned(self) -> dict[int, dict[int, str]]:
        tables: dict[int, dict[int, str]] = {
            _CATEGORIES: {},
            _NAMES: {},
            _SPECIFICATIONS: {},
            _LAUNCH_KEYS: {},
        }
        self._descriptors: dict[int, tuple[int, dict[int, str]]] = {}
        for start, end in zip(*(each.tolist() for each in self._packets.of(_INTERNED).inside), strict=True):
            for number, _, text in self._wire.fields(start, end):
                if number in tables:
                    iid, name = _entry(text)
                    if tables[number].setdefault(iid, name) != name:
                        raise self._refused("it has names of several writers")
                elif number == _DESCRIPTORS:
                    self._describe(text)
        return tables

    def _describe(self, text: bytes) -> None:
        iid = gpu = 0
        names: dict[int, str] = {}
        for number, value, inside in _fields(text):
            if number == _IID:
                iid = value
            elif number == _DESCRIBED_GPU:
                gpu = value
            elif number == _DESCRIPTOR:
                names |= dict(_entry(spec) for field, _, spec in _fields(inside) if field == _SPECS)
        self._descriptors[iid] = (gpu, names)

    def _tracks(self) -> dict[int, tuple[str, str, str]]:
        """Return pid, tid and name of each track; tid is "" for a process."""
        found = {}
        for start, end in zip(*(each.tolist() for each in self._packets.of(_TRACK).inside), strict=True):
            said = {number: (value, text) for number, value, text in self._wire.fields(start, end)}
            _, thread = said.get(_TRACK_THREAD, said.get(_TRACK_PROCESS, (0, b"")))
            of = {number: (value, text) for number, value, text in _fields(thread)}
            is_thread = _TRACK_THREAD in said
            name = of.get(_THREAD_NAME, (0, b""))[1] if is_thread else b""
            tid = _identifier(of, _TID) if is_thread else ""
            found[said.get(_TRACK_UUID, (0, b""))[0]] = (_identifier(of, _PID), tid, _text(name))
        return found

    def _named(self, table: int, iids: Int64) -> pa.DictionaryArray:
        """Return the name of each row's entry in a table; "" without one."""
        known, own = np.unique(iids, return_inverse=True)
        return encoded(own.astype(np.int32), [self._tables[table].get(i, "") for i in known.tolist()])

    # Slices of tracks

    def _slices(self, tracks: dict[int, tuple[str, str, str]]) -> _Spans:
        packets = self._packets.of(_TRACK_EVENT)
        entries = self._wire.entries(packets.inside, _CATEGORY_IID, _ARGUMENT, _TYPE, _NAME_IID, _TRACK_ID)
        kind, track, name, category = (
            entries.values(number, len(packets.message), NONE)
            for number in (_TYPE, _TRACK_ID, _NAME_IID, _CATEGORY_IID)
        )
        begins, ends = self._paired(kind, track)
        time_ns = self._time_ns[packets.message]
        end_ns = np.where(ends == NONE, NONE, time_ns[ends])
        row = np.full(len(kind), NONE, np.int64)
        row[begins] = np.arange(len(begins))
        for arguments in entries.of(_ARGUMENT).pieces():
            self._read_arguments(arguments, row)
        known, own = np.unique(track[begins], return_inverse=True)
        threads = [tracks.get(uuid, ("", "", "")) for uuid in known.tolist()]
        thread = own.astype(np.int32)
        return _Spans(
            time_ns[begins],
            np.where(end_ns == NONE, NONE, end_ns - time_ns[begins]),
            self._named(_CATEGORIES, category[begins]),
            self._named(_NAMES, name[begins]),
            encoded(thread, [pid for pid, _, _ in threads]),
            encoded(thread, [tid for _, tid, _ in threads]),
        )

    def _paired(self, kind: Int64, track: Int64) -> tuple[Int64, Int64]:
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
            raise self._refused("its slices do not end as those of torch do")
        end_of = np.full(len(kind), NONE, np.int64)
        end_of[begin] = events[ends]
        begins = np.flatnonzero(kind == _BEGIN)
        return events[begins], end_of[begins]

    def _read_arguments(self, messages: Entries, row_of_event: Int64) -> None:
        row = row_of_event[messages.message]
        messages, row = messages.at(np.flatnonzero(row != NONE)), row[row != NONE]
        wire, kinds = self._wire, (_KEY, _BOOL, _UINT, _INT, _DOUBLE, _TEXT, _DICT, _LIST)
        entries = wire.entries(messages.inside, *kinds)
        keys = entries.of(_KEY)
        encoded_keys = wire.texts(keys.inside)
        key = np.full(len(row), NONE, np.int32)
        key[keys.message] = encoded_keys.indices.to_numpy()
        numbers = np.isin(entries.number, (_UINT, _INT))
        texts, others = entries.number == _TEXT, np.isin(entries.number, (_BOOL, _DOUBLE, _DICT, _LIST))
        for code, name in enumerate(map(_text, encoded_keys.dictionary.to_pylist())):
            if name not in _WANTED:
                continue
            own = key[entries.message] == code
            found = entries.at(np.flatnonzero(own & numbers))
            self._add_numbers(name, row[found.message], found.value)
            found = entries.at(np.flatnonzero(own & texts))
            self._add_texts(name, row[found.message], wire.texts(found.inside), _text)
            nested = np.unique(entries.message[own & others])
            self._add_texts(name, row[nested], wire.texts(messages.inside.at(nested)), _as_json)

    def _add_numbers(self, name: str, rows: Int64, values: Int64) -> None:
        if len(rows):
            self._arguments.setdefault(name, ArgumentColumn()).numbers.append((rows, values))

    def _add_texts(self, name: str, rows: Int64, texts: pa.DictionaryArray, read: Any) -> None:
        """Add texts. read: makes a text of the bytes of each distinct one."""
        if len(rows):
            made = encoded(texts.indices.to_numpy(), [read(each) for each in texts.dictionary.to_pylist()])
            self._arguments.setdefault(name, ArgumentColumn()).texts.append((rows, made))

    # GPU work

    def _stages(self, first: int) -> _Spans:
        """Read GPU work. first: the row of the first of it."""
        packets = self._packets.of(_STAGE)
        numbers = (_DURATION, _GPU, _QUEUE_IID, _STAGE_IID, _LABEL_IID)
        entries = self._wire.entries(packets.inside, *numbers, _EXTRA, _LAUNCH)
        count = len(packets.message)
        duration, gpu, queue, stage, label = (entries.values(number, count, 0) for number in numbers)
        for extra in entries.of(_EXTRA).pieces():
            self._read_extra(extra, first)
        self._read_launches(entries.of(_LAUNCH), first)
        self._add_numbers("device", first + np.arange(count), gpu)
        kind, lane, name = (
            self._named(table, iids)
            for table, iids in ((_SPECIFICATIONS, stage), (_SPECIFICATIONS, queue), (_NAMES, label))
        )
        kinds, lanes = kind.dictionary.to_pylist(), lane.dictionary.to_pylist()
        devices, own = np.unique(gpu, return_inverse=True)
        unnamed = np.array([not text for text in name.dictionary.to_pylist()] or [False])
        code = np.where(
            unnamed[name.indices.to_numpy()] if count else np.zeros(0, np.bool_),
            len(name.dictionary) + kind.indices.to_numpy(),
            name.indices.to_numpy(),
        )
        return _Spans(
            self._time_ns[packets.message],
            duration,
            encoded(_codes(kind), [_CATEGORY_OF_STAGE.get(text, text) for text in kinds]),
            encoded(code.astype(np.int32), [*name.dictionary.to_pylist(), *kinds]),
            encoded(own.astype(np.int32), [str(device) for device in devices.tolist()]),
            encoded(_codes(lane), [_lane(text) for text in lanes]),
        )

    def _read_extra(self, messages: Entries, first: int) -> None:
        wire = self._wire
        entries = wire.entries(messages.inside, _EXTRA_KEY, _EXTRA_VALUE)
        keys, values = entries.of(_EXTRA_KEY), entries.of(_EXTRA_VALUE)
        encoded_keys = wire.texts(keys.inside)
        key = np.full(len(messages.message), NONE, np.int32)
        key[keys.message] = encoded_keys.indices.to_numpy()
        for code, text in enumerate(map(_text, encoded_keys.dictionary.to_pylist())):
            name = _RENAMED.get(text, text)
            if name in _WANTED:
                own = values.at(np.flatnonzero(key[values.message] == code))
                self._add_texts(name, first + messages.message[own.message], wire.texts(own.inside), _text)

    def _read_launches(self, messages: Entries, first: int) -> None:
        entries = self._wire.entries(messages.inside, _GRID, _BLOCK, _LAUNCH_ARGUMENT)
        for number, name in ((_GRID, "grid"), (_BLOCK, "block")):
            own = entries.of(number)
            sides = self._wire.entries(own.inside, *_SIDES)
            sizes = np.stack([sides.values(side, len(own.message), 1) for side in _SIDES], axis=1)
            known, code = np.unique(sizes, axis=0, return_inverse=True)
            texts = encoded(code.reshape(-1).astype(np.int32), [json.dumps(size) for size in known.tolist()])
            rows = first + messages.message[own.message]
            if len(rows):
                self._arguments.setdefault(name, ArgumentColumn()).texts.append((rows, texts))
        own = entries.of(_LAUNCH_ARGUMENT)
        said = self._wire.entries(own.inside, _LAUNCH_KEY_IID, _LAUNCH_VALUE)
        key, value = (said.values(n, len(own.message), 0) for n in (_LAUNCH_KEY_IID, _LAUNCH_VALUE))
        for iid, text in self._tables[_LAUNCH_KEYS].items():
            rows = first + messages.message[own.message[key == iid]]
            if _RENAMED.get(text, text) in _WANTED:
                self._add_numbers(_RENAMED.get(text, text), rows, value[key == iid])

    def _counters(self) -> CounterValues:
        packets = self._packets.of(_COUNTERS)
        events = self._wire.entries(packets.inside, _DESCRIPTOR_IID, _COUNTER)
        descriptor = events.values(_DESCRIPTOR_IID, len(packets.message), 0)
        counters = events.of(_COUNTER)
        said = self._wire.entries(counters.inside, _COUNTER_ID, _COUNTER_INT, _COUNTER_DOUBLE)
        identifier = said.values(_COUNTER_ID, len(counters.message), 0)
        value = said.values(_COUNTER_INT, len(counters.message), 0).astype(np.float64)
        doubles = said.of(_COUNTER_DOUBLE)
        value[doubles.message] = doubles.value.view(np.float64)
        pairs = np.stack([descriptor[counters.message], identifier], axis=1)
        known, code = np.unique(pairs, axis=0, return_inverse=True)
        series = []
        for iid, counter in known.tolist():
            gpu, names = self._descriptors.get(iid, (NONE, {}))
            series.append((gpu, names.get(counter, f"counter {counter}")))
        time_ns = self._time_ns[packets.message[counters.message]]
        return CounterValues(series, code.reshape(-1).astype(np.int32), time_ns, value)

    def _refused(self, why: str) -> NotATrace:
        return NotATrace(
            f"it is a trace of Perfetto that torch did not write: {why}", where=self._path, remedy=_AGAIN
        )


class _Spans(NamedTuple):
    """Columns of spans, as in PacketContents."""

    start_ns: Int64
    duration_ns: Int64
    category: pa.DictionaryArray
    name: pa.DictionaryArray
    pid: pa.DictionaryArray
    tid: pa.DictionaryArray


def _codes(texts: pa.DictionaryArray) -> Int32:
    codes: Int32 = texts.indices.to_numpy()
    return codes


def _both(first: Any, second: Any) -> Any:
    """Return two columns one after the other."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    shift = len(first.dictionary)
    codes = np.concatenate([first.indices.to_numpy(), second.indices.to_numpy() + shift]).astype(np.int32)
    return encoded(codes, [*first.dictionary.to_pylist(), *second.dictionary.to_pylist()])


def _replaced(texts: pa.DictionaryArray, rows: Int64, text: str) -> pa.DictionaryArray:
    codes = texts.indices.to_numpy().copy()
    codes[rows] = len(texts.dictionary)
    return encoded(codes, [*texts.dictionary.to_pylist(), text])


def _fields(text: bytes) -> list[tuple[int, int, bytes]]:
    return Wire(text).fields(0, len(text))


def _entry(text: bytes) -> tuple[int, str]:
    """Return the number and the name of an entry of a table."""
    said = {number: (value, inside) for number, value, inside in _fields(text)}
    return said.get(_IID, (0, b""))[0], _text(said.get(_ENTRY_NAME, (0, b""))[1])


def _text(read: bytes) -> str:
    return read.decode("utf-8", "replace")


def _identifier(said: dict[int, tuple[int, bytes]], number: int) -> str:
    value = said.get(number, (0, b""))[0]
    return str(-1 if value == _MINUS_ONE else value)


def _lane(name: str) -> str:
    found = _LANE.fullmatch(name)
    return found[1] if found else name


def _as_json(argument: bytes) -> str:
    """Return the value of an argument as JSON without spaces."""
    return json.dumps(_value(argument, 0), ensure_ascii=False, separators=(",", ":"))


def _value(argument: bytes, depth: int) -> Any:
    entries: dict[str, Any] = {}
    elements: list[Any] = []
    value: Any = elements
    for number, found, inside in _fields(argument) if depth <= _DEEPEST else ():
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
            value = _text(inside)
    return value


def _key(argument: bytes) -> str:
    return next((_text(inside) for number, _, inside in _fields(argument) if number == _KEY), "")
