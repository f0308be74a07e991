"""Find and read dumps of the flight recorder, which torch writes as a pickle or as JSON.

torch.distributed.flight_recorder describes the fields. Only those that say who waits for whom are read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError, NotATrace, NothingToRead, TooLarge, Unreadable, UsageError
from tb_gpudiag.trace.credentials.removing import cleaned
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.other_recorders import DUMP_HEAD_BYTES, is_dump, rank_in
from tb_gpudiag.trace.flight_recorder.dump import FlightDump, Operation, ProcessGroup, Progress, Signature
from tb_gpudiag.trace.flight_recorder.plain_pickle import plain_data
from tb_gpudiag.vocabulary.frames import Frame, LineKind, place_frame

# torch keeps the last 2,000 operations by default, which take 2 to 10 MB with their stacks. A rank's dump is
# read as a whole.
MOST_BYTES: Final = 256 << 20
# Files of a folder that are looked into.
MOST_FILES: Final = 100_000

_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]", re.DOTALL)
_FIELDS: Final = ("entries", "pg_config")
_PEER: Final = re.compile(r"(\d{1,9})(->|<-)(\d{1,9})")
# Ranks may give different sizes to these.
_UNEVEN: Final = re.compile(r"all_to_?all|gather|scatter|coalesced|barrier", re.IGNORECASE)
_EVEN: Final = re.compile(r"_base|into_tensor|scatter_tensor")
_DEFAULT_GROUP: Final = "default_pg"
_REMEDY: Final = (
    "set TORCH_FR_BUFFER_SIZE=2000 before the job starts, so that each rank writes a dump when it hangs"
)


def read_dumps(paths: Sequence[str], folder: str = "") -> tuple[list[FlightDump], list[GpudiagError]]:
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
    return [file for file in files if os.path.isfile(file) and _may_be_dump(file, folder)]


def _rank(path: str) -> int:
    found = rank_in(os.path.basename(path))
    if found is None:
        raise UsageError("its name does not end with the rank", where=path, remedy="rename it to dump_RANK")
    return found


def _may_be_dump(path: str, folder: str) -> bool:
    with open_local(path, folder) as content:
        return is_dump(content.read(DUMP_HEAD_BYTES))


def read_dump(path: str, rank: int, folder: str = "") -> FlightDump:
    """Read the dump of a rank. folder: see open_local. Raises TraceError."""
    try:
        with open_local(path, folder) as content:
            data = content.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(error.strerror or str(error), where=path) from error
    if len(data) > MOST_BYTES:
        raise TooLarge(
            f"it has more than {MOST_BYTES >> 20} MiB", where=path, remedy="record fewer operations"
        )
    try:
        found = plain_data(data, path) if _PICKLE.match(data) else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotATrace("it is neither JSON nor a pickle", where=path, remedy=_REMEDY) from error
    if not isinstance(found, dict) or any(field not in found for field in _FIELDS):
        raise NotATrace("it is not a dump of the flight recorder", where=path, remedy=_REMEDY)
    try:
        configured = {str(name): _ranks(group["ranks"]) for name, group in found["pg_config"].items()}
        operations = [_operation(entry) for entry in found["entries"]]
        groups = {
            name: ProcessGroup(description, _members(configured, name, description))
            for name, description in (map(str, entry["process_group"]) for entry in found["entries"])
        }
    except (AttributeError, KeyError, TypeError, ValueError, LookupError) as error:
        raise NotATrace("the dump is damaged", where=path, remedy="dump it again") from error
    return FlightDump(rank, path, groups, sorted(operations, key=lambda operation: operation.number))


def _ranks(listed: Any) -> tuple[int, ...]:
    return tuple(sorted(int(rank) for rank in re.findall(r"\d{1,9}", str(listed))))


def _members(configured: dict[str, tuple[int, ...]], name: str, description: str) -> tuple[int, ...]:
    if name not in configured and description == _DEFAULT_GROUP:
        return configured.get("", ())  # so gloo names the group of all ranks
    return configured.get(name, ())


def _operation(entry: dict[str, Any]) -> Operation:
    kind, _, peers = str(entry["profiling_name"]).partition(":")[2].partition(" ")
    peer = _PEER.fullmatch(peers)
    sizes = [prod(int(n) for n in size) for size in entry["input_sizes"]]
    same = _EVEN.search(kind) or not _UNEVEN.search(kind)
    return Operation(
        number=int(entry["record_id"]),
        sequence=int(entry["collective_seq_id"]),
        group=str(entry["process_group"][0]),
        signature=Signature(
            kind.removeprefix("_"),
            sum(sizes) if same and peer is None else -1,
            str(entry["input_dtypes"][0]) if entry["input_dtypes"] else "",
        ),
        progress=_progress(entry),
        called_ns=int(entry["time_created_ns"]),
        sends_to=int(peer[3]) if peer and peer[2] == "->" else -1,
        receives_from=int(peer[3]) if peer and peer[2] == "<-" else -1,
        frame=_frame(entry.get("frames") or []),
    )


def _progress(entry: dict[str, Any]) -> Progress:
    if entry["state"] == "completed" or entry["retired"]:
        return Progress.DONE
    return Progress.BEGUN if entry["state"] == "started" else Progress.CALLED


def _frame(frames: list[dict[str, Any]]) -> Frame | None:
    """The innermost frame of the user's code."""
    for frame in frames:
        name = f"{frame['filename']}({frame['line']}): {frame['name']}"
        place = place_frame(name, LineKind.RUNNING)
        if place is not None:
            return place
    return None
