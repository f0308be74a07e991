"""Find and read dumps of the flight recorder, which torch writes as a pickle or as JSON.

torch.distributed.flight_recorder describes the fields. Only those that say who waits for whom are read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from tb_gpudiag.errors import GpudiagError, NotATrace, NothingToRead, TooLarge, Unreadable, UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.credentials.removing import cleaned
from tb_gpudiag.trace.files.file_names import DUMP_HEAD_BYTES, is_dump, rank_in
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.trace.flight_recorder.plain_pickle import (
    LATEST_NS,
    MOST_COUNT,
    MOST_ELEMENTS,
    MOST_LINE,
    WrongField,
    elements,
    listed,
    plain_data,
    record,
    text,
    whole,
)
from tb_gpudiag.vocabulary.frames import Frame, LineKind, place_frame
from tb_gpudiag.vocabulary.patterns import lazy_re


class Progress(IntEnum):
    """How far an operation is.

    NCCL's kernel that has begun may still wait for its peers' kernels: only comparing ranks shows who waits.
    Gloo's operations have never begun: the recorder knows only that they were called and that they ended.
    """

    CALLED = 0
    BEGUN = 1
    DONE = 2


@dataclass(frozen=True)
class Signature:
    """What all ranks have to agree on. elements: of all inputs, or -1 where ranks may differ."""

    kind: str
    elements: int
    data_type: str


@dataclass(frozen=True)
class Operation:
    """A collective, or a send or receive, as one rank called it.

    number: counts the rank's operations. sequence: counts the group's collectives; the same on all ranks if
    they call the same ones. group: name of the process group. signature: elements of the largest input.
    sends_to, receives_from: the other rank's number in the group, or -1. frame: of the user's code that
    called it, or None.
    """

    number: int
    sequence: int
    group: str
    signature: Signature
    progress: Progress
    called_ns: int
    sends_to: int
    receives_from: int
    frame: Frame | None

    @property
    def is_collective(self) -> bool:
        return self.sends_to < 0 and self.receives_from < 0


@dataclass(frozen=True)
class ProcessGroup:
    """ranks: its members, in order; empty where this rank does not say."""

    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class FlightDump:
    """The dump of one rank. groups: those that it used, by name. operations: in the order of their calls."""

    rank: int
    path: str
    groups: dict[str, ProcessGroup]
    operations: list[Operation]


# torch keeps the last 2,000 operations by default, which take 2 to 10 MB with their stacks. A rank's dump is
# read as a whole.
MOST_BYTES: Final = 256 << 20
# Files of a folder that are looked into.
MOST_FILES: Final = 100_000
# Of one dump, and what one of them has.
MOST_OPERATIONS: Final = 1_000_000
_MOST_TENSORS: Final = 1_000_000
_MOST_FRAMES: Final = 1_000_000

T = TypeVar("T")

_PICKLE: Final = lazy_re(rb"\x80[\x02-\x05]", re.DOTALL)
_RANKS: Final = lazy_re(r"\[(\d{1,9}(, ?\d{1,9})*)?\]")
_PEER: Final = lazy_re(r"(\d{1,9})(->|<-)(\d{1,9})")
# Ranks may give different sizes to these.
_UNEVEN: Final = lazy_re(r"all_to_?all|gather|scatter|coalesced|barrier", re.IGNORECASE)
_EVEN: Final = lazy_re(r"_base|into_tensor|scatter_tensor")
_DEFAULT_GROUP: Final = "default_pg"
_REMEDY: Final = (
    "before the job starts, set TORCH_FR_DUMP_TEMP_FILE=FOLDER/rank_ (before torch 2.13 also "
    "TORCH_FR_BUFFER_SIZE=2000), so that each rank writes a dump when it hangs"
)

Guard = Callable[[str], AbstractContextManager[None]]
"""Raises a GpudiagError if reading the file of this path takes too much."""


def unguarded(_path: str) -> AbstractContextManager[None]:
    return nullcontext()


def read_dumps(
    paths: Sequence[str], folder: str = "", guard: Guard = unguarded
) -> tuple[list[FlightDump], list[GpudiagError]]:
    """Read the dumps at these paths: files, and folders of them. Also return what could not be read.

    folder: see open_local.

    Raises:
        NothingToRead: there is no dump.
        UsageError: two files are of one rank.
    """
    dumps: dict[int, FlightDump] = {}
    errors: list[GpudiagError] = []
    for path, rank in _files(paths, folder, errors):
        try:
            with guard(path):
                dump = read_dump(path, rank, folder)
        except GpudiagError as error:
            errors.append(error)
            continue
        if rank in dumps:
            raise UsageError(
                f"there are two dumps of rank {rank}: {dumps[rank].path} and {path}",
                remedy="name the dumps of one job, and of one moment",
            )
        dumps[rank] = dump
    if not dumps and not errors:
        raise NothingToRead(
            "no dump of the flight recorder was found", where=", ".join(paths), remedy=_REMEDY
        )
    return cleaned([dumps[rank] for rank in sorted(dumps)]), errors


def _files(paths: Iterable[str], folder: str, errors: list[GpudiagError]) -> Iterator[tuple[str, int]]:
    """Yield the dumps with their ranks. Other files of a folder are no errors."""
    for path in paths:
        try:
            named = _in_folder(path, folder) if os.path.isdir(path) else [path]
            yield from [(file, _rank(file)) for file in named]
        except OSError as error:
            errors.append(Unreadable(error.strerror or str(error), where=path))
        except GpudiagError as error:
            errors.append(error)


def _in_folder(path: str, folder: str) -> list[str]:
    """The dumps in a folder. Raises OSError, and Unreadable as open_local does."""
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry, _ in zip(entries, range(MOST_FILES), strict=False))
    files = [os.path.join(path, name) for name in names if rank_in(name) is not None]
    heads = {file: first_bytes(file, DUMP_HEAD_BYTES, folder) for file in files if os.path.isfile(file)}
    dumps = {file for file, head in heads.items() if is_dump(head)}
    # Of a rank that ended before it had written anything, if others of its name are dumps.
    stems = {_stem(file) for file in dumps}
    return [file for file, head in heads.items() if file in dumps or (not head and _stem(file) in stems)]


def _rank(path: str) -> int:
    """Raises UsageError, and OSError if there is no such file."""
    found = rank_in(os.path.basename(path))
    if found is None:
        os.stat(path)  # what is not there has no name to change
        raise UsageError("its name does not end with the rank", where=path, remedy="rename it to dump_RANK")
    return found


def _stem(path: str) -> str:
    return os.path.basename(path).rstrip("0123456789")


def read_dump(path: str, rank: int, folder: str = "") -> FlightDump:
    """Read the dump of a rank; of a file without content, one without operations. folder: see open_local.
    Raises TraceError."""
    try:
        data = first_bytes(path, MOST_BYTES + 1, folder)
    except OSError as error:
        raise Unreadable(error.strerror or str(error), where=path) from error
    if not data:
        return FlightDump(rank, path, {}, [])
    if len(data) > MOST_BYTES:
        raise TooLarge(
            f"it has more than {MOST_BYTES >> 20} MiB", where=path, remedy="record fewer operations"
        )
    try:
        found = plain_data(data, path) if _PICKLE.match(data) else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotATrace("it is neither JSON nor a pickle", where=path, remedy=_REMEDY) from error
    if not isinstance(found, dict) or "pg_config" not in found:
        raise NotATrace("it is not a dump of the flight recorder", where=path, remedy=_REMEDY)
    try:
        return _Dump(found).read(path, rank)
    except WrongField as error:
        raise NotATrace(f"{error}", where=path, remedy="dump it again") from error


class _Dump:
    """The parts of one dump. A pickle shares them, so each is read once: otherwise, a small file could take
    for ever."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found
        self._read: dict[tuple[str, int], Any] = {}

    def read(self, path: str, rank: int) -> FlightDump:
        """Raises WrongField."""
        # torch writes no list where nothing was called.
        entries = listed(self._found.get("entries", []), "entries", MOST_OPERATIONS)
        configured = {
            text(name, "pg_config"): _ranks(record(group, "pg_config").get("ranks"))
            for name, group in record(self._found.get("pg_config"), "pg_config").items()
        }
        groups: dict[str, ProcessGroup] = {}
        operations = [self._operation(entry, f"entries[{at}]", groups) for at, entry in enumerate(entries)]
        for name, group in groups.items():
            groups[name] = replace(group, ranks=_members(configured, name, group.description))
        return FlightDump(rank, path, groups, sorted(operations, key=attrgetter("number")))

    def _operation(self, entry: object, place: str, groups: dict[str, ProcessGroup]) -> Operation:
        """Read an operation, and add its group without the members."""
        fields = record(entry, place)

        def once(part: Callable[[object, str], T], name: str) -> T:
            key = name, id(fields.get(name))
            if key not in self._read:
                self._read[key] = part(fields.get(name), f"{place}.{name}")
            found: T = self._read[key]
            return found

        group, description = once(_group, "process_group")
        groups.setdefault(group, ProcessGroup(description, ()))
        name = text(fields.get("profiling_name"), f"{place}.profiling_name")
        kind, _, peers = name.partition(":")[2].partition(" ")
        peer = _PEER.fullmatch(peers)
        same = _EVEN.search(kind) or not _UNEVEN.search(kind)
        size = once(_elements, "input_sizes")
        return Operation(
            number=whole(fields.get("record_id"), f"{place}.record_id"),
            sequence=whole(fields.get("collective_seq_id"), f"{place}.collective_seq_id", -1, MOST_COUNT),
            group=group,
            signature=Signature(
                kind.removeprefix("_"),
                size if same and peer is None else -1,
                once(_data_type, "input_dtypes"),
            ),
            progress=_progress(fields, place),
            called_ns=whole(fields.get("time_created_ns"), f"{place}.time_created_ns", 0, LATEST_NS),
            sends_to=int(peer[3]) if peer and peer[2] == "->" else -1,
            receives_from=int(peer[3]) if peer and peer[2] == "<-" else -1,
            frame=once(_frame, "frames") if "frames" in fields else None,
        )


def _ranks(said: object) -> tuple[int, ...]:
    """The members of a group, in order, which torch writes as a text: `[0, 1]`."""
    return _ranks_in(text(said, "pg_config.ranks", MOST_BYTES))


@lru_cache(maxsize=1_024)  # all dumps of a job name the same groups
def _ranks_in(said: str) -> tuple[int, ...]:
    if not _RANKS.fullmatch(said):
        raise WrongField("pg_config.ranks is no list of ranks")
    return tuple(sorted({int(rank) for rank in said[1:-1].split(",") if rank}))


def _members(configured: dict[str, tuple[int, ...]], name: str, description: str) -> tuple[int, ...]:
    if name not in configured and description == _DEFAULT_GROUP:
        return configured.get("", ())  # so gloo names the group of all ranks
    return configured.get(name, ())


def _group(said: object, field: str) -> tuple[str, str]:
    found = listed(said, field, 2)
    if len(found) < 2:
        raise WrongField(f"{field} has no name and description")
    return text(found[0], field), text(found[1], field)


def _elements(sizes: object, field: str) -> int:
    total = sum(elements(size, field) for size in listed(sizes, field, _MOST_TENSORS))
    return whole(total, field, 0, MOST_ELEMENTS)


def _data_type(types: object, field: str) -> str:
    found = listed(types, field, _MOST_TENSORS)
    return text(found[0], field) if found else ""


def _progress(fields: dict[str, Any], place: str) -> Progress:
    state = text(fields.get("state"), f"{place}.state")
    if state == "completed" or fields.get("retired") is True:
        return Progress.DONE
    return Progress.BEGUN if state == "started" else Progress.CALLED


def _frame(frames: object, field: str) -> Frame | None:
    """The innermost frame of the user's code."""
    for frame in listed(frames, field, _MOST_FRAMES):
        said = record(frame, field)
        file, function = (text(said.get(key), f"{field}.{key}") for key in ("filename", "name"))
        line = whole(said.get("line"), f"{field}.line", -1, MOST_LINE)
        place = place_frame(f"{file}({max(line, 0)}): {function}", LineKind.RUNNING)
        if place is not None:
            return place
    return None
