"""The packets of a `.pftrace` file: which there are, the tables of names that they point into, and what
they say, as columns.

The numbers of fields are those of `protos/perfetto/trace` in Perfetto's repository.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tb_gpudiag.arrays import NONE, Float64, Int32, Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.events import Status
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.perfetto.messages import Entries, Messages, Wire
from tb_gpudiag.trace.trace_parts import encoded, texts_of

_PACKET: Final = 1
# Fields of a packet.
TRACK_EVENT, COUNTERS, STAGE = 11, 52, 53
_TIMESTAMP, _INTERNED, _TRACK = 8, 12, 60
# Tables of interned data, and fields of an entry.
CATEGORIES, NAMES, SPECIFICATIONS, LAUNCH_KEYS = 1, 2, 24, 1001
_TABLES: Final = (CATEGORIES, NAMES, SPECIFICATIONS, LAUNCH_KEYS)
_DESCRIPTORS: Final = 47
_IID, _ENTRY_NAME = 1, 2
# Fields of a descriptor of counters.
_SPECS, _DESCRIPTOR, _DESCRIBED_GPU = 1, 2, 3
# Fields of a track, of its thread or process.
_TRACK_UUID, _TRACK_PROCESS, _TRACK_THREAD = 1, 3, 4
_PID, _TID, _THREAD_NAME = 1, 2, 5

# -1, which is no process and no stream, without its sign.
_MINUS_ONE: Final = 0x7FFFFFFF
_AGAIN: Final = "record again, or export the trace to a name that ends in .json.gz"


class Track(NamedTuple):
    """A thread, or a process, whose tid is ""."""

    pid: str = ""
    tid: str = ""
    name: str = ""


class Packets:
    """The packets of a file, unpacked. Raises NotATrace if several programs wrote it.

    wire: the text that they are read from. time_ns: of each packet; NONE without one.
    tables: names by their numbers, by table.
    counters: GPU and names of its counters, by descriptor.
    """

    def __init__(self, text: bytes, path: str) -> None:
        self._path = path
        self.wire, packets, is_whole = _split(text)
        self.status: Status = "COMPLETE" if is_whole else "PARTIAL"
        self._found = self.wire.entries(packets, _TIMESTAMP, TRACK_EVENT, _INTERNED, COUNTERS, STAGE, _TRACK)
        self.time_ns = self._found.values(_TIMESTAMP, len(packets.start), NONE)
        self.tables: dict[int, dict[int, str]] = {table: {} for table in _TABLES}
        self.counters: dict[int, tuple[int, dict[int, str]]] = {}
        self._read_interned()

    def of(self, kind: int) -> Entries:
        """Return the packets of a kind, such as STAGE."""
        return self._found.of(kind)

    def named(self, table: int, iids: Int64) -> pa.DictionaryArray:
        """Return the name of each row's entry in a table; "" without one."""
        return texts_of(iids, lambda i: self.tables[table].get(i, ""))

    def refused(self, why: str) -> NotATrace:
        """Return the error for a file that torch did not write."""
        return NotATrace(
            f"it is a trace of Perfetto that torch did not write: {why}", where=self._path, remedy=_AGAIN
        )

    @cached_property
    def tracks(self) -> dict[int, Track]:
        found = {}
        for start, end in _places(self.of(_TRACK)):
            said = {number: (value, text) for number, value, text in self.wire.fields(start, end)}
            _, thread = said.get(_TRACK_THREAD, said.get(_TRACK_PROCESS, (0, b"")))
            of = {number: (value, text) for number, value, text in fields(thread)}
            is_thread = _TRACK_THREAD in said
            name = of.get(_THREAD_NAME, (0, b""))[1] if is_thread else b""
            tid = _identifier(of, _TID) if is_thread else ""
            found[said.get(_TRACK_UUID, (0, b""))[0]] = Track(_identifier(of, _PID), tid, text_of(name))
        return found

    def _read_interned(self) -> None:
        for start, end in _places(self.of(_INTERNED)):
            for number, _, text in self.wire.fields(start, end):
                if number in self.tables:
                    iid, name = _entry(text)
                    if self.tables[number].setdefault(iid, name) != name:
                        raise self.refused("it has names of several writers")
                elif number == _DESCRIPTORS:
                    self._describe(text)

    def _describe(self, text: bytes) -> None:
        iid = gpu = 0
        names: dict[int, str] = {}
        for number, value, inside in fields(text):
            if number == _IID:
                iid = value
            elif number == _DESCRIBED_GPU:
                gpu = value
            elif number == _DESCRIPTOR:
                names |= dict(_entry(spec) for field, _, spec in fields(inside) if field == _SPECS)
        self.counters[iid] = (gpu, names)


def fields(message: bytes) -> list[tuple[int, int, bytes]]:
    """Return number, value and text of each field of a message."""
    return Wire(message).fields(0, len(message))


def text_of(read: bytes) -> str:
    return read.decode("utf-8", "replace")


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


def _places(packets: Entries) -> zip[tuple[int, int]]:
    return zip(*(each.tolist() for each in packets.inside), strict=True)


def _entry(text: bytes) -> tuple[int, str]:
    """Return the number and the name of an entry of a table."""
    said = {number: (value, inside) for number, value, inside in fields(text)}
    return said.get(_IID, (0, b""))[0], text_of(said.get(_ENTRY_NAME, (0, b""))[1])


def _identifier(said: dict[int, tuple[int, bytes]], number: int) -> str:
    value = said.get(number, (0, b""))[0]
    return str(-1 if value == _MINUS_ONE else value)


SYNC_KEY: Final = "cuda_sync_kind"
"""The argument that only synchronization events have; their category is not written."""

WANTED: Final = frozenset(key for key, _ in kineto.ARGUMENTS.values()) | {SYNC_KEY}
"""Names of the arguments that are read."""


@dataclass
class ArgumentColumn:
    """One argument of the rows that have it. Rows are sorted, and in one of the two."""

    numbers: list[tuple[Int64, Int64]] = field(default_factory=list)
    texts: list[tuple[Int64, pa.DictionaryArray]] = field(default_factory=list)

    def rows(self) -> Int64:
        """Return all rows that have it."""
        found = [rows for rows, _ in (*self.numbers, *self.texts)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


class Arguments(dict[str, ArgumentColumn]):
    """Arguments of spans, by Kineto's name."""

    def add_numbers(self, name: str, rows: Int64, values: Int64) -> None:
        if len(rows):
            self.setdefault(name, ArgumentColumn()).numbers.append((rows, values))

    def add_texts(self, name: str, rows: Int64, texts: pa.DictionaryArray) -> None:
        if len(rows):
            self.setdefault(name, ArgumentColumn()).texts.append((rows, texts))


class PacketSpans(NamedTuple):
    """Columns of spans, shape (n,) each."""

    start_ns: Int64
    duration_ns: Int64  # NONE for a slice that does not end within the file
    category: pa.DictionaryArray
    name: pa.DictionaryArray
    pid: pa.DictionaryArray
    tid: pa.DictionaryArray

    def followed_by(self, others: PacketSpans) -> PacketSpans:
        return PacketSpans(*map(_both, self, others))


class CounterValues(NamedTuple):
    """Samples of counters, shape (v,) each. series: (GPU, name), which `code` points into."""

    series: list[tuple[int, str]]
    code: Int32
    time_ns: Int64
    value: Float64


def codes_of(texts: pa.DictionaryArray) -> Int32:
    codes: Int32 = texts.indices.to_numpy()
    return codes


def read_as(read: Callable[[bytes], str], texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return what `read` makes of texts in bytes: of each distinct one once."""
    return encoded(codes_of(texts), [read(each) for each in texts.dictionary.to_pylist()])


def replaced(texts: pa.DictionaryArray, rows: Int64, text: str) -> pa.DictionaryArray:
    """Return the texts, with this one in some rows."""
    codes = codes_of(texts).copy()
    codes[rows] = len(texts.dictionary)
    return encoded(codes, [*texts.dictionary.to_pylist(), text])


def _both(first: Any, second: Any) -> Any:
    """Return two columns one after the other."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    codes = np.concatenate([codes_of(first), codes_of(second) + len(first.dictionary)]).astype(np.int32)
    return encoded(codes, [*first.dictionary.to_pylist(), *second.dictionary.to_pylist()])
