"""`gpudiag digest PATH… -o DIR`: write what a job, a history or a comparison needs of each trace."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.cli.digest_inputs import digested
from tb_gpudiag.cli.formats import write_file
from tb_gpudiag.cli.inputs import add_engine_options, find_files
from tb_gpudiag.cli.output import DEFECT, tell_errors
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tb_gpudiag.errors import Unreadable
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re

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
