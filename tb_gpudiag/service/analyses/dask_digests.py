"""Digest many traces on the workers of a Dask cluster, which must see the same files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError, ProcessFailed, UsageError
from tb_gpudiag.service.analyses.digests import Digested, digest_content, outcome
from tb_gpudiag.trace.files.find import TraceFile

# A scheduler on the same network answers at once.
CONNECT_S: Final = 15

# Workers may die with their node. A trace that was on this many dead workers has probably killed them.
MOST_TRIES: Final = 2


def digest_on_cluster(files: Sequence[TraceFile], address: str) -> Iterator[Digested]:
    """Diagnose the files on a cluster and yield their digests, in the order in which they are done.

    If the scheduler is lost, each remaining file gets an error.
    Raises UsageError: dask is not installed, or the scheduler does not answer.
    """
    try:
        dask: Any = importlib.import_module("dask.distributed")
    except ImportError as error:
        raise UsageError(
            "--dask needs the package dask.distributed", remedy="pip install 'tb-gpudiag[dask]'"
        ) from error
    try:
        client: Any = dask.Client(address, timeout=CONNECT_S, set_as_default=False)
    except Exception as error:  # TimeoutError, OSError, ValueError for a strange address
        raise UsageError(
            f"the Dask scheduler does not answer: {type(error).__name__}",
            where=address,
            remedy="start one with `dask scheduler`, and workers with `dask worker ADDRESS`",
        ) from error
    waiting = dict(enumerate(files))
    try:
        # Not pure: the cluster would reuse results of another version of gpudiag.
        futures = {
            client.submit(digest_content, file, pure=False, retries=MOST_TRIES): number
            for number, file in waiting.items()
        }
        with client.as_current():
            completed = dask.as_completed(list(futures))
        for future in completed:
            number = futures.pop(future)
            yield _of_future(waiting.pop(number), future)
            future.release()
    except (OSError, TimeoutError, RuntimeError) as error:
        lost = type(error).__name__
    else:
        lost = "it closed the connection"
    finally:
        _close(client)
    for file in waiting.values():
        yield Digested(file, None, _scheduler_lost(file, address, lost))


def _of_future(file: TraceFile, future: Any) -> Digested:
    if future.status == "finished":
        return outcome(file, future.result())
    error = future.exception() if future.status == "error" else None
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


def _close(client: Any) -> None:
    try:
        client.close(timeout=2)
    except Exception:  # it may be gone
        pass
