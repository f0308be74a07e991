"""The command `gpudiag`: picks the command, and turns what goes wrong into one line and an exit status.

Exit status: 0 done, 1 a --fail-on condition met, 2 bad usage or nothing to read, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.version import __version__

COMMANDS = {
    "diagnose": "say why a job is slow or runs out of memory, from its traces and memory snapshots",
    "explain": "what a rule looks for, and what to do about it",
}
"""Name -> one line of help. The command is the module of that name in tb_gpudiag.cli."""

DONE = 0
UNUSABLE = 2
INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status. Usage errors exit by SystemExit(2), as argparse does."""
    logging.basicConfig(level=logging.ERROR, format="gpudiag: %(message)s", stream=sys.stderr)
    parsed = _parser().parse_args(arguments)
    # Only the command that runs is imported: `explain` needs neither duckdb nor protobuf.
    command = importlib.import_module(f"tb_gpudiag.cli.{parsed.command}")
    try:
        status: int = command.run(parsed.arguments)
        sys.stdout.flush()
    except GpudiagError as error:
        print(f"gpudiag: {error}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("gpudiag: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return status


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:10} {line}" for name, line in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="gpudiag",
        description="Tells why a GPU training job is slow or runs out of memory, from what PyTorch recorded.",
        epilog=f"commands:\n{commands}\n\n`gpudiag COMMAND --help` describes a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpudiag {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS)
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER)
    return parser
