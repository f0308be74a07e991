"""The command `gpudiag`: run a subcommand, and turn errors into one line and an exit status.

Exit status: 0 success, 1 a --fail-on condition is met, 2 invalid usage or nothing to read,
3 a bug in gpudiag, 130 interrupted.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import importlib
import logging
import math
import os
import signal
import sys
from collections.abc import Sequence

from tb_gpudiag.cli.output import DEFECT, UNUSABLE, LineFormatter, have_output, report_bug, tell
from tb_gpudiag.errors import GpudiagError, used_up
from tb_gpudiag.service.processes.process_setup import (
    do_without_pandas,
    ended_by_interrupts,
    handle_requests_to_end,
    use_environment,
    without_collecting,
)
from tb_gpudiag.version import __version__

FIRST = {
    "diagnose": "find out why a job is slow or runs out of memory, from traces and memory snapshots",
    "job": "show the ranks of a job together: which one the others wait for, and why",
    "compare": "compare two traces or jobs: which is faster, and where the difference went",
    "history": "show what changed over the recordings of a run, and memory that grows",
    "explain": "show what a rule checks, and how to fix what it finds",
}
MORE = {
    "annotate": "copy a trace with idle time by cause, findings and launch queues as tracks for Perfetto",
    "demo": "show the page on traces that come with gpudiag",
    "digest": "save small per-trace summaries, to compare many ranks",
    "dispute": "report a wrong diagnosis (makes a small attachment)",
    "hang": "say which ranks hold up a job that hangs, by the dumps of its flight recorder",
    "mcp": "answer a coding assistant's questions about traces (Model Context Protocol)",
    "schema": "print the JSON Schema of what a command prints with `--format json`",
    "scrub": "copy a trace without the tokens and passwords in it",
    "serve": "show the page in a browser, without TensorBoard, for a path or dropped files",
    "sql": "run SQL over the tables of a trace, or of a folder of traces",
}
COMMANDS = FIRST | MORE
"""One line of help by name of the subcommand, which is a module in tb_gpudiag.cli. Most people need only the
first ones."""

# With less address space, libraries end the process as soon as they cannot start a thread. A trace of a few
# events takes 1.15 GB of it, a large one up to 3 GB.
LEAST_ADDRESS_SPACE_MB = 1400
# These commands do not load such libraries.
LIGHT = ("explain", "scrub")

# Modules and results are no garbage: a short command, which makes 600,000 objects, would look for it in vain
# for 3% of its time. So many would take some 100 MB, if all of them were garbage.
OBJECTS_BETWEEN_COLLECTIONS = 1_000_000

DONE = 0
INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status. argparse raises SystemExit(2) for invalid usage."""
    is_own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    if is_own_process:
        have_output()
    log_output = logging.StreamHandler(sys.stderr)
    log_output.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.ERROR, handlers=[log_output])
    first = arguments[0] if arguments else ""
    if first not in COMMANDS and ("://" in first or os.path.exists(first)):
        tell("The command is missing. (`gpudiag diagnose PATH` says why a job is slow.)")
        return UNUSABLE
    parsed = _parser().parse_args(arguments)
    if parsed.command not in LIGHT and (limit_mb := _address_space_mb()) < LEAST_ADDRESS_SPACE_MB:
        tell(
            f"This process may use {limit_mb:.0f} MB of address space, which is not enough memory. "
            f"(Raise the limit to {LEAST_ADDRESS_SPACE_MB} MB or more: `ulimit -v`.)"
        )
        return UNUSABLE
    use_environment()
    if is_own_process:
        do_without_pandas()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    # Import only the subcommand that runs: `explain` needs no protobuf.
    with without_collecting(), ended_by_interrupts(is_own_process):
        command = importlib.import_module(f"tb_gpudiag.cli.{parsed.command}")
    if is_own_process:
        handle_requests_to_end(signal.SIG_DFL, signal.default_int_handler)
    # Before it ends, Python would search all modules for garbage: 7% of a short command.
    atexit.register(gc.freeze)
    try:
        status: int = command.run(parsed.arguments)
        sys.stdout.flush()
    except GpudiagError as error:
        tell(str(error))
        return UNUSABLE
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has exited. Without this, Python would fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # one line: a traceback has exit status 1, which means that --fail-on is met
        # Say what went wrong, and return the exit status: a full disk or too little memory is not a bug.
        if reached := used_up(error, where=""):
            tell(str(reached))
            return UNUSABLE
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            # Without this, Python would fail again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            tell(f"The output cannot be written: {error.strerror} (free space on that disk)")
            return UNUSABLE
        if isinstance(error, FileNotFoundError) and error.filename is None:  # os.getcwd()
            tell("The working directory does not exist any more. (Change to another one.)")
            return UNUSABLE
        tell(str(report_bug(error)))
        return DEFECT
    return status


def _address_space_mb() -> float:
    """Return how much memory this process may map; infinity if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit in (resource.RLIM_INFINITY, -1) else limit / 1e6


def _parser() -> argparse.ArgumentParser:
    first, more = (
        "\n".join(f"  {name:10} {line}" for name, line in group.items()) for group in (FIRST, MORE)
    )
    parser = argparse.ArgumentParser(
        prog="gpudiag",
        description="Find out why a PyTorch GPU job is slow or runs out of memory.",
        epilog=f"commands:\n{first}\n\nmore:\n{more}\n\n"
        "Run `gpudiag COMMAND --help` for the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpudiag {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS)
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER)
    return parser
