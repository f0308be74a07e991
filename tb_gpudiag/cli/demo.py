"""`gpudiag demo`: the page on traces that come with gpudiag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tb_gpudiag.cli.serve import add_port, has_display, serve
from tb_gpudiag.pages.server import PageServer

LOG: Final = Path(__file__).parents[1] / "demo_log"
"""Written by tools/demo_log.py."""


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises UsageError if the port is taken."""
    parsed = parser().parse_args(arguments)
    print(f"The traces: {LOG}")
    with PageServer(str(LOG), port=parsed.port) as server:
        return serve(server, open_page=has_display())


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag demo",
        description="Show the Diagnosis page on traces that come with gpudiag: two small trainings recorded "
        "on a CPU, and simulated GPU jobs, which say so. Opens a browser if there is a display.",
        epilog="Exit status: 0 stopped by Ctrl-C, 2 invalid usage, or the port is taken.",
    )
    add_port(made)
    return made
