"""`gpudiag serve [PATH]`: the page without TensorBoard, for this machine only without --host."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import webbrowser
from collections.abc import Sequence
from typing import Final

from tb_gpudiag.pages.server import PageServer

DEFAULT_PORT: Final = 6060


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises UsageError if the path does not exist or the port is taken."""
    parsed = parser().parse_args(arguments)
    with PageServer(parsed.path, parsed.host, parsed.port) as server:
        return serve(server, open_page=parsed.open)


def serve(server: PageServer, *, open_page: bool) -> int:
    """Say the address, and serve until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        print(f"{server.url} (Ctrl-C stops it)", flush=True)
        if open_page:
            webbrowser.open(server.url)
        server.run()
    return 0


def has_display() -> bool:
    """Return whether a browser would show up."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="N",
        help=f"default: {DEFAULT_PORT}; 0: any free one",
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag serve",
        description="Serve the Diagnosis page without TensorBoard.",
        epilog="Exit status: 0 stopped by Ctrl-C, 2 invalid usage, or the port is taken.",
    )
    made.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        help="a log directory, a trace file or a memory snapshot; without it, the page takes files that you "
        "drop on it, and deletes its copies at the end",
    )
    add_port(made)
    made.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on (default: 127.0.0.1, which only this machine reaches). The page has no "
        "password: whoever reaches it can read the traces",
    )
    made.add_argument("--open", action="store_true", help="open the page in a browser")
    return made
