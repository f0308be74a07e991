"""Digests as files: gzip of an Arrow stream, one row with a list per table. Contents are untrusted.
In a job of ten thousand ranks, each digest lists all of them: lists of ranks are short texts."""

from __future__ import annotations

import io
import json
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final, get_type_hints

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from tb_gpudiag.digest.digest import TABLES, VERSION, About, Digest, MemoryPeaks
from tb_gpudiag.errors import NotATrace, TooLarge, Unreadable
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import refuse_not_finite
from tb_gpudiag.trace.files.opening import follows_links, is_below
from tb_gpudiag.trace.files.remote import RemoteFile, listed
from tb_gpudiag.trace.files.source import Readable, is_remote, unreadable
from tb_gpudiag.vocabulary.collective_kinds import OPERATIONS
from tb_gpudiag.vocabulary.engines import Server
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import one_line

# A job of ten thousand ranks with a hundred groups that all are in.
MOST_RANKS: Final = 1_000_000
_HIGHEST_RANK: Final = 2**31 - 1


def ranks_to_text(ranks: Sequence[int]) -> str:
    """Return ascending ranks as runs: "0-7 16" is 0 to 7, and 16; "0-24:8" is 0, 8, 16 and 24."""
    numbers = np.asarray(ranks, np.int64)
    gaps = np.diff(numbers)
    # A run ends where the gap before a rank differs from the one after it.
    borders = [0, *(np.flatnonzero(np.diff(gaps)) + 2).tolist(), len(numbers)]
    said = []
    for begin, end in pairwise(borders if len(numbers) else []):
        first, last = int(numbers[begin]), int(numbers[end - 1])
        step = int(gaps[begin]) if end - begin > 1 else 1
        said.append(str(first) if first == last else f"{first}-{last}" + (f":{step}" if step != 1 else ""))
    return " ".join(said)


# The ranks of a job list the same groups: they share one tuple.
@lru_cache(maxsize=4096)
def ranks_from_text(text: str) -> tuple[int, ...]:
    """Return the ranks that `ranks_to_text` wrote, ascending. Raises ValueError: it wrote no such list."""
    found: list[int] = []
    for run in text.split():
        span, _, step = run.partition(":")
        first, _, last = span.partition("-")
        ranks = range(int(first), int(last or first) + 1, int(step or 1))
        if not 0 < len(ranks) <= MOST_RANKS - len(found) or ranks[-1] > _HIGHEST_RANK:
            raise ValueError("ranks")
        found += ranks
    if any(after <= before for before, after in pairwise([-1, *found])):
        raise ValueError("ranks")
    return tuple(found)


# Digests of public traces unpack to 0.1 to 3 MB. The tables are bounded, so no digest needs more than this.
MOST_BYTES: Final = 64 << 20
# A file's path has up to 4,096 characters, a sentence has fewer.
_LONGEST_TEXT: Final = 10_000
_MOST_RANKS: Final = 2**31 - 1
_MOST_NUMBER: Final = 2**63 - 1
# Half as much: the difference of two times has to be a number, too.
_MOST_TIME: Final = 2**62 - 1
_VERSION: Final = b"gpudiag_digest"
_ABOUT: Final = b"about"
_FINDINGS: Final = "findings"

_RULE: Final = lazy_re(r"GD[0-9]{3}")
_PEAK: Final = lazy_re(r"([0-9.,]{1,12}.TFLOP/s \([A-Z0-9]{1,8}(, assumed)?\))?")
_MOST_RULES: Final = 1_000
_DEVICE: Final = lazy_re(r"CPU|GPU [0-9]{1,10}")

# Texts of About that reports have as enums.
_ENUMS: Final = {
    "kind": pb.TraceInfo.Kind.keys(),
    "limiter": pb.Verdict.Limiter.keys(),
    "recorder": pb.TraceInfo.Recorder.keys(),
    "server": {"", *(server.value for server in Server)},
}

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


def read_digest(path: str) -> Digest:
    """Read a digest file: a local path or an fsspec URL.

    Raises:
        Unreadable: it cannot be read.
        NotATrace, TooLarge: it is not a digest.
    """
    try:
        if not is_remote(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("it is not a regular file", where=path, remedy="name a digest file")
        with RemoteFile(path) if is_remote(path) else open(path, "rb") as file:
            content = b"".join(_pieces(file))
    except Unreadable:
        raise
    except Exception as error:
        raise unreadable(error, path) from error
    if len(content) > MOST_BYTES:
        raise TooLarge("this file is too large to be a digest", where=path)
    return from_bytes(content, path)


def _pieces(file: Readable) -> Iterator[bytes]:
    """Yield the content, at most one byte more than a digest may have."""
    rest = MOST_BYTES + 1
    while rest and (piece := file.read(rest)):
        rest -= len(piece)
        yield piece


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
    groups = {name: ranks_to_text(ranks) for name, ranks in digest.about.groups.items()}
    about = json.dumps(asdict(digest.about) | {"groups": groups})
    metadata = {_VERSION: str(VERSION).encode(), _ABOUT: about.encode()}
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
        with pa.ipc.open_stream(_unpacked(content, where)) as stream:
            metadata = stream.schema.metadata
            if metadata[_VERSION] == str(VERSION).encode():
                if not stream.schema.equals(_schema(), check_metadata=False):
                    raise ValueError("other columns")
                batch = stream.read_next_batch()
                batch.validate(full=True)
                if batch.num_rows != 1:
                    raise ValueError("not one row")
                about = json.loads(metadata[_ABOUT])
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
                _check_words(digest)
                return digest
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


def _finding(content: bytes) -> pb.Finding:
    """Return a finding. Raises ValueError if no rule makes such a finding."""
    finding = pb.Finding.FromString(content)
    if finding.severity not in pb.Finding.Severity.values():
        raise ValueError("severity")
    refuse_not_finite(finding)
    return finding


def _check_parts(digest: Digest) -> None:
    """Raise ValueError unless each row has one time per cause."""
    for table in (digest.steps, digest.collectives):
        for column in ("idle_ns", "host_ns"):
            lengths = table.column(column).combine_chunks().value_lengths()
            if any(length != len(digest.about.causes) for length in lengths.unique().to_pylist()):
                raise ValueError(column)


def _check_words(digest: Digest) -> None:
    """Raise ValueError for a device or a kind of collective with another name than digests give it: sentences
    have these names without quotes."""
    tables: list[pa.Table] = [getattr(digest, name) for name in TABLES]
    devices = {peaks.device for peaks in digest.about.memory}
    for table in tables:
        if "device" in table.column_names:
            devices.update(table["device"].unique().to_pylist())
    kinds = digest.collectives["kind"].unique().to_pylist()
    if not all(map(_DEVICE.fullmatch, devices)) or not OPERATIONS.issuperset(kinds):
        raise ValueError("names")


# Evaluating hints takes half a millisecond, for each of thousands of digests.
_hints = cache(get_type_hints)


def _about(values: dict[str, Any]) -> About:
    """Return About with values of the right types. Raises ValueError, TypeError and KeyError."""
    hints = _hints(About)
    plain = {
        field.name: _checked(field.name, values[field.name], hints[field.name]) for field in fields(About)
    }
    for name, known in _ENUMS.items():
        if plain[name] not in known:
            raise ValueError(name)
    if not _PEAK.fullmatch(plain["mfu_of"]) or not 0 <= plain["mfu"] <= 1 + 1e-9:
        raise ValueError("mfu")
    if not 0 <= plain["unprofiled_share"] <= 1 + 1e-9:
        raise ValueError("unprofiled_share")
    plain["groups"] = {str(name): ranks_from_text(text) for name, text in dict(plain["groups"]).items()}
    if sum(map(len, plain["groups"].values())) > MOST_RANKS:
        raise ValueError("groups")
    for name in ("causes", "left_out"):
        plain[name] = [str(text) for text in plain[name]]
    if not set(plain["causes"]) <= set(pb.CauseTime.Cause.keys()):
        raise ValueError("causes")
    # Why rules could not check. Raises ValueError for what no digest has.
    texts = dict(plain["unchecked"])
    if len(texts) > _MOST_RULES or not all(map(_RULE.fullmatch, texts)):
        raise ValueError("unchecked")
    plain["unchecked"] = {rule: one_line(str(text), _LONGEST_TEXT) for rule, text in texts.items()}
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
    """Raise ValueError for a number that no trace has."""
    if isinstance(value, float) and not abs(value) <= _MOST_NUMBER:  # true for NaN, too
        raise ValueError(name)
    rank = name in ("rank", "world_size", "devices")
    number = _MOST_TIME if name.endswith("_ns") else _MOST_NUMBER
    least, most = (-1, _MOST_RANKS) if rank else (-number, number)
    if isinstance(value, int) and not least <= value <= most:
        raise ValueError(name)


def _memory(row: dict[str, Any]) -> MemoryPeaks:
    values = {name: kind(row[name]) for name, kind in _hints(MemoryPeaks).items()}
    for name, value in values.items():
        _check_range(name, value)
    return MemoryPeaks(**values)


@cache
def _schema() -> pa.Schema:
    lists = [(name, pa.list_(pa.struct(list(schema)))) for name, schema in TABLES.items()]
    return pa.schema([*lists, (_FINDINGS, pa.list_(pa.binary()))])


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole: Any = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


SUFFIX: Final = ".gpudiag-digest"
# A directory of digests has one file per rank, or per rank and recording.
_MOST_FILES: Final = 1 << 20


def find_digests(root: str) -> list[str]:
    """Return the paths of the digest files below a directory, sorted; of a digest file, its own path.

    Links that lead outside are left out, as by find_traces.
    Raises Unreadable: a remote store cannot be listed.
    """
    if root.endswith(SUFFIX):
        return [root]
    if is_remote(root):
        try:
            files = listed(root)
        except Exception as error:  # back ends raise anything
            raise unreadable(error, root) from error
        return sorted(file.url for file in files if file.url.endswith(SUFFIX))
    found: list[str] = []
    inside = "" if follows_links() else os.path.realpath(root)
    for folder, _, names in os.walk(root):
        paths = [os.path.join(folder, name) for name in names if name.endswith(SUFFIX)]
        found += [path for path in paths if not inside or is_below(os.path.realpath(path), inside)]
        if len(found) > _MOST_FILES:
            break
    return sorted(found)
