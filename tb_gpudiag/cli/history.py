"""`gpudiag history PATH…`: what changed over the recordings of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tb_gpudiag.cli.digest import read_digests
from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.inputs import add_engine_options
from tb_gpudiag.cli.output import DEFECT, tell, tell_errors
from tb_gpudiag.jobs.history.history_view import history_document
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report.wire import to_dict


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 2 if nothing was read, 3 after a bug.

    Raises NothingToRead.
    """
    parsed = parser().parse_args(arguments)
    digests, errors = read_digests(parsed.paths, parsed, parsed.run)
    met_a_bug = tell_errors(errors)
    found = histories(digests)
    if found:
        write(
            parsed,
            lambda: history_document(found),
            lambda: {"histories": [to_dict(history) for history in found]},
        )
    elif digests:
        tell("there is no trace among the recordings: a history needs traces")
    if met_a_bug:
        return DEFECT
    return 0 if found else 2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag history",
        description="Show what changed over the recordings of a run: the time of a step, where it goes, "
        "findings and memory. It also finds memory that grows too slowly for one recording to show it.",
        epilog="Exit status: 0 success, 2 invalid usage or nothing to read, 3 a bug in gpudiag.",
    )
    made.add_argument("paths", metavar="PATH", nargs="+", help="a log directory, or one of digests")
    made.add_argument("--run", metavar="RUN", help="only the recordings of this run")
    add_options(made)
    add_engine_options(made)
    return made
