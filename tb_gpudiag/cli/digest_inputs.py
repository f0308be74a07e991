"""The digests that commands read: files of digests, and those made of traces."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tb_gpudiag.cli.inputs import find_files, progress_bar
from tb_gpudiag.cli.output import tell_errors
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, find_digests, read_digest
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.jobs.compare.side import one_side
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.trace.files.find import TraceFile

if TYPE_CHECKING:
    from tb_gpudiag.service.analyses.digests import Digested


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
