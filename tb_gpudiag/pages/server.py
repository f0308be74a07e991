"""The server of the page."""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import socket
import sys
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin
from werkzeug.serving import WSGIRequestHandler, make_server

from tb_gpudiag.errors import UsageError
from tb_gpudiag.pages.drop_box import DropBox
from tb_gpudiag.pages.site import Site, is_this_machine_only, names_of
from tb_gpudiag.plugin import GpudiagPlugin
from tb_gpudiag.trace.files.source import is_remote

if TYPE_CHECKING:
    from tb_gpudiag.report.arrow.trace_tables import Tables


class PageServer:
    """Serves the page for a log directory or a file until it is closed. `url` is its address.

    Without a path, the page takes files that are dropped on it.
    """

    def __init__(self, path: str | None, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises UsageError if there is nothing at the path, or the port is taken."""
        if path is not None and not is_remote(path) and not os.path.exists(path):
            raise UsageError("there is no such file or directory", where=path, remedy="check the path")
        if path is None and not is_this_machine_only(host):
            raise UsageError(
                "files can be dropped from this machine only",
                where=host,
                remedy="name a PATH, or leave out --host",
            )
        self._path = path
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(_listen(host, port))
            box = None
            if path is None:
                box = DropBox()
                stack.callback(box.close)
                path = str(box.log)
            plugin = GpudiagPlugin(base_plugin.TBContext(logdir=path, flags=argparse.Namespace()))
            stack.callback(plugin.close)
            address, number = listening.getsockname()[:2]
            self._server = make_server(
                address,
                number,
                Site(plugin, names_of(host), box),
                threaded=True,
                request_handler=_Quiet,
                fd=listening.fileno(),
            )
            stack.callback(self._server.server_close)
            self._open = stack.pop_all()
        shown = f"[{address}]" if ":" in address else address
        self.url = f"http://{'localhost' if address in ('0.0.0.0', '::') else shown}:{number}/"
        self._thread: threading.Thread | None = None

    @cached_property
    def tables(self) -> Tables:
        """Arrow tables of the traces at the path: see `tb_gpudiag.tables`."""
        if self._path is None:
            raise UsageError("this page has no path", remedy="name a file or a log directory")
        from tb_gpudiag.report.arrow.trace_tables import (
            tables_at,  # with the rules, which a page does without
        )

        return tables_at(self._path)

    def run(self) -> None:
        """Serve in this thread until it is interrupted."""
        self._server.serve_forever()

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="gpudiag-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._open.close()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """A link, in a notebook."""
        return f'<a href="{html.escape(self.url)}" target="_blank" rel="noopener">Diagnosis</a>'


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        what = getattr(error, "strerror", None) or str(error)
        remedy = "name another one with --port; --port 0 takes any free one"
        raise UsageError(f"cannot listen: {what}", where=f"{host}:{port}", remedy=remedy) from error
    return listening


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    protocol_version = "HTTP/1.1"  # so that a download that breaks off is seen to

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            print(f"gpudiag: {message % args}", file=sys.stderr)
