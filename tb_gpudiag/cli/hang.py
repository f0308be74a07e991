"""`gpudiag hang PATH…`: which ranks hold up a job that hangs, by the dumps of its flight recorder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.output import errors_data, tell_errors
from tb_gpudiag.report.views.compose import hang_document
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.analyses.hangs import hang_at


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 2 if no dump could be read.

    Raises UsageError, NothingToRead, LimitReached and ProcessFailed.
    """
    parsed = parser().parse_args(arguments)
    found, errors = hang_at(parsed.paths)
    tell_errors(errors)
    if found is None:
        return 2
    data: dict[str, object] = {"hang": to_dict(found)}
    if errors:
        data["errors"] = errors_data(errors)
    write(parsed, lambda: hang_document(found, ", ".join(parsed.paths)), lambda: data)
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag hang",
        description="Say which ranks hold up a job that hangs, by the dumps of torch's flight recorder "
        "(TORCH_FR_DUMP_TEMP_FILE): who waits in which collective, and who has not called it.",
        epilog="Exit status: 0 success, 2 invalid usage or no dump can be read.",
    )
    made.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a folder with a dump of each rank, or these files: PREFIX_RANK",
    )
    add_options(made)
    return made
