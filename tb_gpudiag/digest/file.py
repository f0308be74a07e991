"""Digests as files: gzip of an Arrow stream, one row with a list per table. Contents are untrusted."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import asdict, fields
from typing import Any, Final, get_args, get_type_hints

import pyarrow as pa
from google.protobuf.message import DecodeError

from tb_gpudiag.digest.digest import TABLES, VERSION, About, DeviceMemory, Digest
from tb_gpudiag.errors import NotATrace, TooLarge
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import refuse_not_finite
from tb_gpudiag.vocabulary.recorded import Recorder
from tb_gpudiag.wording.format import one_line

SUFFIX: Final = ".gpudiag-digest"

# Digests of public traces unpack to 0.1 to 3 MB. The tables are bounded, so no digest needs more than this.
MOST_BYTES: Final = 64 << 20
# A file's path has up to 4,096 characters, a sentence has fewer.
_LONGEST_TEXT: Final = 10_000
_MOST_RANKS: Final = 2**31 - 1
_MOST_NUMBER: Final = 2**63 - 1
# The difference of two times is a number, too.
_MOST_TIME: Final = 2**62 - 1
_VERSION: Final = b"gpudiag_digest"
_ABOUT: Final = b"about"
_FINDINGS: Final = "findings"

# What reading bytes that are not a digest raises. Arrow raises OSError for them, though no file is open.
_DAMAGED: Final = (
    pa.ArrowException,
    zlib.error,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OSError,
    RecursionError,
    StopIteration,
    DecodeError,
)


def to_bytes(digest: Digest) -> bytes:
    """Return the content of the digest's file; the same for the same digest."""
    columns: dict[str, pa.Array] = {}
    for name, schema in TABLES.items():
        table = digest.table(name).combine_chunks()
        arrays = [_one(column) for column in table.columns]
        rows = pa.StructArray.from_arrays(arrays, fields=list(schema))
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(table)], pa.int32()), rows)
    found = [finding.SerializeToString(deterministic=True) for finding in digest.findings]
    columns[_FINDINGS] = pa.array([found], pa.list_(pa.binary()))
    metadata = {_VERSION: str(VERSION).encode(), _ABOUT: json.dumps(asdict(digest.about)).encode()}
    batch = pa.record_batch(list(columns.values()), schema=_schema().with_metadata(metadata))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    packer = zlib.compressobj(6, wbits=31)  # gzip, without a time
    return packer.compress(out.getvalue()) + packer.flush()


def from_bytes(content: bytes, where: str = "") -> Digest:
    """Read what `to_bytes` wrote.

    Raises:
        NotATrace: it is not a digest, or one of another version.
        TooLarge: it unpacks to more than any digest has.
    """
    try:
        batch, metadata = _batch(_unpacked(content, where))
        version = metadata.get(_VERSION, b"")
        if version == str(VERSION).encode():
            return _digest(batch, json.loads(metadata[_ABOUT]))
    except _DAMAGED as error:
        raise NotATrace("this is not a digest of gpudiag, or it is damaged", where=where) from error
    raise NotATrace(
        "this digest was written by another version of gpudiag",
        where=where,
        remedy="run `gpudiag digest` again with this version",
    )


def _unpacked(content: bytes, where: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(content, MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise TooLarge(f"a digest has at most {MOST_BYTES >> 20} MB, and this one has more", where=where)
    if not unpacker.eof:
        raise ValueError("cut off")
    return unpacked


def _batch(unpacked: bytes) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    with pa.ipc.open_stream(unpacked) as stream:
        if not stream.schema.equals(_schema(), check_metadata=False):
            # Another version has other columns: its number says so.
            return pa.record_batch([], schema=pa.schema([])), _without_ours(stream.schema.metadata)
        batch = stream.read_next_batch()
        batch.validate(full=True)
        if batch.num_rows != 1:
            raise ValueError("not one row")
        return batch, stream.schema.metadata or {}


def _without_ours(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes]:
    if not metadata or _VERSION not in metadata or metadata[_VERSION] == str(VERSION).encode():
        raise ValueError("columns of no version")
    return metadata


def _digest(batch: pa.RecordBatch, about: dict[str, Any]) -> Digest:
    tables = {}
    for name, schema in TABLES.items():
        rows = batch.column(name)[0].values
        if rows is None or rows.null_count:
            raise ValueError(name)
        table = pa.Table.from_arrays(rows.flatten(), schema=schema)
        if any(column.null_count for column in table.columns):
            raise ValueError(name)
        tables[name] = table
    found = batch.column(_FINDINGS)[0].as_py()
    read = _about(about)
    digest = Digest(about=read, findings=[_finding(content) for content in found], **tables)
    _check_parts(digest)
    return digest


def _finding(content: bytes) -> pb.Finding:
    """Return a finding. Raises ValueError if it is not one that a rule makes."""
    finding = pb.Finding.FromString(content)
    if finding.severity not in pb.Finding.Severity.values():
        raise ValueError("severity")
    refuse_not_finite(finding)
    return finding


def _check_parts(digest: Digest) -> None:
    """Raise ValueError if a row has not one part per cause."""
    for table in (digest.steps, digest.collectives):
        for column in ("idle_ns", "host_ns"):
            lengths = table.column(column).combine_chunks().value_lengths()
            if any(length != len(digest.about.causes) for length in lengths.unique().to_pylist()):
                raise ValueError(column)


def _about(values: dict[str, Any]) -> About:
    """Return About with values of the right types. Raises ValueError, TypeError and KeyError."""
    hints = get_type_hints(About)
    # Digests of earlier versions do not say what recorded the trace.
    given = {"recorder": "torch", **values}
    plain = {
        field.name: _checked(field.name, given[field.name], hints[field.name]) for field in fields(About)
    }
    if plain["recorder"] not in get_args(Recorder):
        raise ValueError("recorder")
    plain["groups"] = {str(k): [int(rank) for rank in v] for k, v in dict(plain["groups"]).items()}
    for name in ("causes", "left_out", "notes"):
        plain[name] = [str(text) for text in plain[name]]
    plain["memory"] = [_memory(row) for row in plain["memory"]]
    return About(**plain)


def _checked(name: str, value: Any, expected: Any) -> Any:
    """Return the value of a field. Raises ValueError and TypeError."""
    if expected is float:
        value = float(value)
    elif expected in (str, int, bool) and type(value) is not expected:
        raise TypeError(name)
    _check_range(name, value)
    return one_line(value, _LONGEST_TEXT) if isinstance(value, str) else value


def _check_range(name: str, value: Any) -> None:
    """Raise ValueError for a number that a trace cannot have."""
    if isinstance(value, float) and not abs(value) <= _MOST_NUMBER:  # NaN is neither
        raise ValueError(name)
    rank = name in ("rank", "world_size", "devices")
    number = _MOST_TIME if name.endswith("_ns") else _MOST_NUMBER
    least, most = (-1, _MOST_RANKS) if rank else (-number, number)
    if isinstance(value, int) and not least <= value <= most:
        raise ValueError(name)


def _memory(row: dict[str, Any]) -> DeviceMemory:
    hints = get_type_hints(DeviceMemory)
    values = {name: kind(row[name]) for name, kind in hints.items()}
    for name, value in values.items():
        _check_range(name, value)
    return DeviceMemory(**values)


def _schema() -> pa.Schema:
    lists = [(name, pa.list_(pa.struct(list(schema)))) for name, schema in TABLES.items()]
    return pa.schema([*lists, (_FINDINGS, pa.list_(pa.binary()))])


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole: Any = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
