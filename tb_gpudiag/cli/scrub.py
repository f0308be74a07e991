"""`gpudiag scrub TRACE -o OUT`: copy a trace without the credentials in it; and what all commands that copy
one trace share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tb_gpudiag.cli.output import tell
from tb_gpudiag.service.processes.gate import limit_here
from tb_gpudiag.trace.credentials.scrubbed_copy import scrub
from tb_gpudiag.wording.format import count, one_line
from tb_gpudiag.wording.vocabulary import credential_words


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


NO_PROMISE = (
    "Look through the copy before you publish it: a password without a name, in free text, is not found, "
    "and names of hosts, users and files stay."
)


def run(arguments: Sequence[str]) -> int:
    """Write the copy and list what was removed. Raises GpudiagError."""
    parsed = parser().parse_args(arguments)
    with limited(parsed.trace):
        found, notes = scrub(parsed.trace, parsed.output)
    for note in notes:
        tell(f"{parsed.trace}: {note}")
    for credential, times in found.items():
        print(f"removed {one_line(credential_words(credential))}: {count(times, 'place')}")
    if not found:
        print("no credentials found: the copy is the same")
    print(NO_PROMISE)
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag scrub",
        description="Copy a trace without the credentials in it: tokens, keys and passwords, in the "
        "environment, command lines, annotations and URLs. Every other byte stays the same.",
        epilog="Exit status: 0 success, 2 invalid usage or nothing to read, 3 a bug in gpudiag.",
    )
    add_copy(made)
    return made
