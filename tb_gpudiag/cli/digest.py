"""`gpudiag digest PATH… -o DIR`: write what a job, a history or a comparison needs of each trace; and the
digests that these read: from files, or made of traces."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tb_gpudiag.cli.formats import write_file
from tb_gpudiag.cli.inputs import add_engine_options, find_files, progress_bar
from tb_gpudiag.cli.output import DEFECT, tell_errors
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, find_digests, read_digest, to_bytes
from tb_gpudiag.errors import GpudiagError, Unreadable
from tb_gpudiag.jobs.compare.side import one_side
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re

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


_NOT_IN_NAMES = lazy_re(r"[^A-Za-z0-9_.-]+")
_LONGEST_PART = 60
_ID_DIGITS = 8


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 2 if no digest was written, 3 after a bug.

    Raises UsageError.
    """
    parsed = parser().parse_args(arguments)
    folder = Path(parsed.output)
    files, errors = find_files(parsed.paths, parsed.run)
    known = _already_there(folder)
    written = sum(file.identity[:_ID_DIGITS] in known for file in files)
    todo = [file for file in files if file.identity[:_ID_DIGITS] not in known]
    for done in digested(todo, parsed):
        if done.digest is not None:
            _write(done.file, done.digest, folder)
            written += 1
        if done.error is not None:
            errors.append(done.error)
    if tell_errors(errors):
        return DEFECT
    return 0 if written else 2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag digest",
        description="Diagnose traces, and write a small file for each. `gpudiag job`, `history` and "
        "`compare` read these in place of the traces. On a cluster, run it once per rank, with one directory "
        "for all.",
        epilog="Exit status: 0 success, 2 no digest was written, 3 a bug in gpudiag.",
    )
    made.add_argument("paths", metavar="PATH", nargs="+", help="a trace file or a log directory")
    made.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="write the digests to this directory"
    )
    made.add_argument("--run", metavar="RUN", help="only the traces of this run")
    add_engine_options(made)
    return made


def _already_there(folder: Path) -> set[str]:
    """Return the ends of the names of the digests in the directory, which identify their traces."""
    try:
        return {path.name.removesuffix(SUFFIX).rpartition(".")[2] for path in folder.glob(f"*{SUFFIX}")}
    except OSError:
        return set()


def _write(file: TraceFile, digest: Digest, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unreadable(
            f"cannot be created: {error.strerror or error}",
            where=str(folder),
            remedy="name a directory that can be written",
        ) from error
    parts = (_NOT_IN_NAMES.sub("_", part)[:_LONGEST_PART] for part in (file.run, file.worker, file.span))
    name = ".".join([*filter(None, parts), file.identity[:_ID_DIGITS]]).lstrip(".")
    write_file(folder / f"{name}{SUFFIX}", to_bytes(digest))
