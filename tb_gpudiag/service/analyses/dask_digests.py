"""Digest many traces on the workers of a Dask cluster, which must see the same files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from tb_gpudiag.errors import GpudiagError, ProcessFailed, UsageError
from tb_gpudiag.jobs.ranks.members import JoinedDigests, join, joined, slim
from tb_gpudiag.service.analyses.digests import Digested, digest_apart, outcome
from tb_gpudiag.trace.files.find import TraceFile

# A scheduler on the same network answers at once.
CONNECT_S: Final = 15

# Workers may die with their node. A trace that was on this many dead workers has probably killed them.
MOST_TRIES: Final = 2

# Thousands of digests take two or three levels. A worker joins as many in milliseconds.
FAN_IN: Final = 32


class Joined(NamedTuple):
    """What some files gave, in order: errors, and the digests of those that have none."""

    errors: list[GpudiagError | None]
    digests: list[JoinedDigests]  # one, or none if all files have errors


def digest_on_cluster(files: Sequence[TraceFile], address: str) -> Iterator[Digested]:
    """Diagnose the files on a cluster and yield their digests, in the order in which they are done.

    If the scheduler is lost, each remaining file gets an error.
    Raises UsageError: dask is not installed, or the scheduler does not answer.
    """
    yield from _on_cluster(files, address, digest_apart, fan_in=max(1, len(files)))


def join_on_cluster(files: Sequence[TraceFile], address: str) -> Iterator[Digested]:
    """Like digest_on_cluster, with what the analysis of a job's ranks reads. Workers put their digests
    together, by a tree: this process takes few and large pieces from them."""
    yield from _on_cluster(files, address, _slim_content, fan_in=FAN_IN)


def _slim_content(file: TraceFile) -> Joined:
    """Digest a file on a worker."""
    found = outcome(file, digest_apart(file))
    return Joined([found.error], [joined(slim(found.digest))] if found.digest is not None else [])


def _join(*parts: Joined) -> Joined:
    """Put neighbors together, on a worker."""
    digests = [one for part in parts for one in part.digests]
    errors = [error for part in parts for error in part.errors]
    return Joined(errors, [join(digests)] if digests else [])


class _Piece(NamedTuple):
    """A future of the tree, and those of the files below it, by number."""

    root: Any
    leaves: dict[int, Any]


def _tree(client: Any, files: Sequence[TraceFile], task: Callable[..., Any], fan_in: int) -> list[_Piece]:
    """Submit a task for each file, and what puts the results together, until `fan_in` pieces are left."""
    # Not pure: the cluster would reuse results of another version of gpudiag.
    again: Any = {"pure": False, "retries": MOST_TRIES}
    pieces = []
    for number, file in enumerate(files):
        leaf = client.submit(task, file, **again)
        pieces.append(_Piece(leaf, {number: leaf}))
    while len(pieces) > fan_in:
        groups = [pieces[i : i + fan_in] for i in range(0, len(pieces), fan_in)]
        pieces = [
            _Piece(
                client.submit(_join, *(one.root for one in group), **again),
                {number: leaf for one in group for number, leaf in one.leaves.items()},
            )
            for group in groups
        ]
    return pieces


def _on_cluster(
    files: Sequence[TraceFile], address: str, task: Callable[..., Any], *, fan_in: int
) -> Iterator[Digested]:
    dask, client = _connected(address)
    waiting = dict(enumerate(files))
    try:
        pieces = {one.root: one for one in _tree(client, files, task, fan_in)}
        with client.as_current():
            completed = dask.as_completed(list(pieces))
        for root in completed:
            for number, done in _of_piece(files, pieces.pop(root)):
                del waiting[number]
                yield done
    except (OSError, TimeoutError, RuntimeError) as error:
        lost = type(error).__name__
    else:
        lost = "it closed the connection"
    finally:
        try:
            client.close(timeout=2)
        except Exception:  # it may be gone
            pass
    for file in waiting.values():
        yield Digested(file, None, _scheduler_lost(file, address, lost))


def _of_piece(files: Sequence[TraceFile], piece: _Piece) -> Iterator[tuple[int, Digested]]:
    """The outcomes of a piece that is done. If it failed, each file's own task says whether it did."""
    own = [files[number] for number in piece.leaves]
    if piece.root.status == "finished":
        yield from zip(piece.leaves, _outcomes(own, piece.root.result()), strict=True)
    else:
        found = (_of_future(file, leaf) for file, leaf in zip(own, piece.leaves.values(), strict=True))
        yield from zip(piece.leaves, found, strict=True)
    for future in (piece.root, *piece.leaves.values()):
        future.release()


def _connected(address: str) -> tuple[Any, Any]:
    """Return dask.distributed and a client."""
    try:
        dask: Any = importlib.import_module("dask.distributed")
    except ImportError as error:
        raise UsageError(
            "--dask needs the package dask.distributed", remedy="pip install 'tb-gpudiag[dask]'"
        ) from error
    try:
        return dask, dask.Client(address, timeout=CONNECT_S, set_as_default=False)
    except Exception as error:  # TimeoutError, OSError, ValueError for a strange address
        raise UsageError(
            f"the Dask scheduler does not answer: {type(error).__name__}",
            where=address,
            remedy="start one with `dask scheduler`, and workers with `dask worker ADDRESS`",
        ) from error


def _outcomes(files: Sequence[TraceFile], result: Any) -> Iterator[Digested]:
    """What a task returned for its files: the content of one, or many together."""
    if not isinstance(result, Joined):
        yield outcome(files[0], result)
        return
    digests = chain.from_iterable(result.digests)
    for file, error in zip(files, result.errors, strict=True):
        yield Digested(file, next(digests) if error is None else None, error)


def _of_future(file: TraceFile, future: Any) -> Digested:
    """Wait for the file's own task."""
    error = future.exception() if future.status != "cancelled" else None
    if error is None and future.status == "finished":
        return next(_outcomes([file], future.result()))
    if isinstance(error, GpudiagError):
        return Digested(file, None, error)
    reason = type(error).__name__ if error is not None else "cancelled"
    return Digested(
        file,
        None,
        ProcessFailed(
            f"the Dask worker that read it failed: {reason}",
            where=file.path,
            remedy="see the worker's log; run the command again to try the traces that are missing",
        ),
    )


def _scheduler_lost(file: TraceFile, address: str, reason: str) -> ProcessFailed:
    return ProcessFailed(
        f"the Dask scheduler {address} was lost before this trace was done: {reason}",
        where=file.path,
        remedy="start it again and run the command again",
    )
