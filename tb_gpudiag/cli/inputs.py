"""What commands read: the files below the paths that they name, with a progress bar."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from tb_gpudiag.errors import GpudiagError, NothingToRead
from tb_gpudiag.trace.files.find import TraceFile, find_traces

Show = Callable[[float, str], None]
"""Called with the number of files done and the name of the stage."""


def find_files(
    paths: Sequence[str], run: str | None = None, *, may_be_none: Sequence[str] = ()
) -> tuple[list[TraceFile], list[GpudiagError]]:
    """Return the trace files below the paths, each once, in the order of the paths, and what went wrong.

    may_be_none: paths that need not have traces.
    Raises NothingToRead: there are traces, but none of this run.
    """
    errors: list[GpudiagError] = []
    files: dict[str, TraceFile] = {}
    runs: set[str] = set()
    for path in paths:
        try:
            found = find_traces(path, paths)
        except GpudiagError as error:
            errors.append(error)
            continue
        errors += found.problems
        if not found.files and not found.problems and path not in may_be_none:
            errors.append(
                NothingToRead(
                    "no trace found",
                    where=path,
                    remedy="traces are named *.json[.gz], memory snapshots *.pickle[.gz] or *.pkl[.gz], "
                    "exports of Nsight Systems *.sqlite",
                )
            )
        for file in found.files:
            runs.add(file.run)
            if run is None or file.run == run:
                files.setdefault(file.path, file)
    if run is not None and runs and not files:
        names = ", ".join(sorted(runs)[:10])
        raise NothingToRead("this run has no traces", where=run, remedy=f"the runs are: {names}")
    return list(files.values()), errors


def add_sides(parser: argparse.ArgumentParser, base: str, candidate: str, change: str) -> None:
    """Add the two sides to compare: the second is after `change`."""
    side = "a trace, a digest, or a directory with one trace or with one per rank of a job"
    parser.add_argument(base, metavar=base.upper(), help=side)
    parser.add_argument(candidate, metavar=candidate.upper(), help=f"the same, after the {change}")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add --processes, --dask and --quiet."""
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="analyze N traces at once (default: as many as this machine has cores and memory for)",
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="analyze traces on the workers of this Dask scheduler, such as tcp://host:8786",
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


@contextlib.contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Show]:
    """Show a progress bar on standard error if that is a terminal."""
    if quiet or not sys.stderr.isatty() or not total:
        yield lambda _done, _stage: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda done, stage: bar.update(task, completed=done, description=stage)
