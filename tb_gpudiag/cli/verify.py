"""`gpudiag verify BEFORE AFTER`: was the fix made, what did it give, and was that promised?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tb_gpudiag.cli.digest_inputs import read_sides
from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.inputs import add_engine_options, add_sides
from tb_gpudiag.cli.output import DEFECT
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import verification_document
from tb_gpudiag.jobs.compare.verification import verify
from tb_gpudiag.jobs.ledger.ledger_file import append, entries_of, read_ledger
from tb_gpudiag.jobs.ledger.past_gains import with_past
from tb_gpudiag.report.wire import to_dict


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 2 if a side was not read, 3 after a bug.

    Raises UsageError, NothingToRead and Unreadable.
    """
    parsed = parser().parse_args(arguments)
    sides, met_a_bug = read_sides([parsed.before, parsed.after], parsed)
    if sides is None:
        return DEFECT if met_a_bug else 2
    comparison = compare(*sides)
    found = verify(comparison, parsed.finding, parsed.before)
    if parsed.ledger is not None:
        append(parsed.ledger, entries_of(comparison))
        with_past(found, read_ledger(parsed.ledger))
    write(parsed, lambda: verification_document(found), lambda: {"verification": to_dict(found)})
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag verify",
        description="Verify a fix: is the finding gone, how much shorter is a step, and was the promised "
        "range right?",
        epilog="Exit status: 0 success, 2 invalid usage or a side cannot be read, 3 a bug in gpudiag.",
    )
    add_sides(made, "before", "after", "fix")
    made.add_argument(
        "--finding",
        metavar="RULE",
        default="",
        help="the finding that was to be fixed, such as GD101 (default: the one that costs most)",
    )
    made.add_argument(
        "--ledger",
        metavar="FILE",
        help="append what the fixes gave to this file, which is created if it is missing, and show what past "
        "fixes of the rule gave",
    )
    add_options(made)
    add_engine_options(made)
    return made
