"""Commands that copy one trace: their arguments, and their limits on memory and time."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager

from tb_gpudiag.service.processes.gate import limit_here


def add_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a trace file, plain or gzip")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="the copy, compressed if its name ends in .gz; never the trace itself",
    )


def limited(where: str) -> AbstractContextManager[None]:
    """Raise LimitReached if the code inside takes too long or too much memory. where: the file."""
    return limit_here().within(where)
