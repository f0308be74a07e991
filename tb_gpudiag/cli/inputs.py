"""What commands read: the files below the paths that they name, with a progress bar."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tb_gpudiag.cli.output import tell_errors
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, find_digests, read_digest
from tb_gpudiag.errors import GpudiagError, NothingToRead
from tb_gpudiag.jobs.compare.side import one_side
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.trace.files.find import TraceFile, find_traces

if TYPE_CHECKING:
    from tb_gpudiag.service.analyses.digests import Digested

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
                    remedy="traces are named *.json[.gz], memory snapshots *.pickle[.gz], exports of Nsight "
                    "Systems *.sqlite",
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


def read_digests(
    paths: Sequence[str],
    options: argparse.Namespace,
    run: str | None = None,
    keep: Callable[[Digest], Digest] = lambda digest: digest,
) -> tuple[list[Digest], list[GpudiagError]]:
    """Return the digests below the paths, read from digest files and made of traces, and what went wrong.

    options: those of add_engine_options. keep: returns the part of a digest to keep in memory.
    Raises NothingToRead: there are traces, but none of this run.
    """
    digests, errors, with_digests = _digest_files(paths, keep)
    traces = [path for path in paths if not path.endswith(SUFFIX)]
    files, problems = find_files(traces, run, may_be_none=with_digests)
    digests = [digest for digest in digests if run is None or digest.about.run == run]
    known = {digest.about.id for digest in digests}
    todo = [file for file in files if file.identity not in known]
    for done in digested(todo, options, keep):
        if done.digest is not None:
            digests.append(keep(done.digest))
        if done.error is not None:
            problems.append(done.error)
    return digests, [*errors, *problems]


def read_sides(paths: Sequence[str], options: argparse.Namespace) -> tuple[list[list[Digest]] | None, bool]:
    """Return the recordings of each side to compare, and whether there was a bug.

    If a part of a side cannot be read, it is not compared: the answer is None, and standard error says why.

    Raises:
        NothingToRead: there is nothing at a path.
        UsageError: a side has recordings of several runs.
    """
    sides = []
    for path in paths:
        digests, errors = read_digests([path], options)
        met_a_bug = tell_errors(errors)
        if errors:
            return None, met_a_bug
        sides.append(one_side(digests, path))
    return sides, False


def add_sides(parser: argparse.ArgumentParser, base: str, candidate: str, change: str) -> None:
    """Add the two sides to compare: the second is after `change`."""
    side = "a trace, a digest, or a directory with one trace or with one per rank of a job"
    parser.add_argument(base, metavar=base.upper(), help=side)
    parser.add_argument(candidate, metavar=candidate.upper(), help=f"the same, after the {change}")


def _digest_files(
    paths: Sequence[str], keep: Callable[[Digest], Digest]
) -> tuple[list[Digest], list[GpudiagError], list[str]]:
    """Read the digest files below the paths. Also return what went wrong, and the paths that have digests."""
    digests: list[Digest] = []
    errors: list[GpudiagError] = []
    having: list[str] = []
    for path in paths:
        try:
            found = find_digests(path)
        except GpudiagError as error:
            errors.append(error)
            continue
        having += [path] * bool(found)
        for name in found:
            try:
                digests.append(keep(read_digest(name)))
            except GpudiagError as error:
                errors.append(error)
    return digests, errors, having


def digested(
    files: Sequence[TraceFile], options: argparse.Namespace, keep: Callable[[Digest], Digest] | None = None
) -> Iterator[Digested]:
    """Digest the files, with a progress bar. Yield them as they are done.

    options: of add_engine_options. keep: as of read_digests. A cluster's workers put together what a job
    keeps."""
    if options.dask is not None:
        from tb_gpudiag.service.analyses.dask_digests import digest_on_cluster, join_on_cluster

        outcomes = (join_on_cluster if keep is slim else digest_on_cluster)(files, options.dask)
    else:
        from tb_gpudiag.service.analyses.digests import digest_all

        outcomes = digest_all(files, options.processes)
    with progress_bar(len(files), quiet=options.quiet) as show:
        for number, done in enumerate(outcomes, 1):
            show(number, "diagnosing")
            yield done


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
