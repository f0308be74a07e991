"""Serves the page: the plugin's routes without TensorBoard, for requests to this machine's names only;
and files that a user drops on it.

They are as untrusted as all traces, and so is whoever sends them: any page that the user visits can send a
request to this machine. Only the page itself knows the token, because no other page can read it.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import html
import ipaddress
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final

from tensorboard.plugins import base_plugin
from werkzeug import wrappers
from werkzeug.serving import WSGIRequestHandler, make_server

from tb_gpudiag.errors import GpudiagError, LimitReached, UsageError
from tb_gpudiag.plugin import ENTRY_MODULE, GpudiagPlugin
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.source import is_remote

if TYPE_CHECKING:
    from tb_gpudiag.report.arrow.trace_tables import Tables

# Browsers send whole files, and large traces take minutes to read: their users have a path to name.
LARGEST_BYTES: Final = 2 << 30
MOST_BYTES: Final = 8 << 30
LEAST_FREE_BYTES: Final = 1 << 30
"""On the disk, after a file was taken."""
MOST_FILES: Final = 1_000

TOKEN_HEADER: Final = "X-Gpudiag-Drop"  # a header of its own: other pages may not send it

_BLOCK_BYTES: Final = 1 << 20
_HERE: Final = Path(__file__).parent


class DropBox:
    """A log directory that dropped files fill."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gpudiag-dropped-"))
        self._incoming = self._folder / "incoming"
        self.log = self._folder / "log"
        self._incoming.mkdir()
        self.log.mkdir()
        self._token = secrets.token_urlsafe(32)
        self._receiving = threading.Lock()  # one file at a time
        self._bytes = self._files = 0
        self._drops: dict[str, int] = {}  # number by what the page calls it

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_empty(self) -> bool:
        return self._files == 0

    @property
    def head(self) -> str:
        """What a page needs in its head to take dropped files."""
        return (
            f'<meta name="gpudiag-drop" content="{self._token}">\n'
            '<script type="module" src="./drop.js"></script>\n'
        )

    @property
    def page(self) -> str:
        """The page that asks for a file."""
        return (_HERE / "drop.html").read_text(encoding="utf-8").replace("<!-- head -->", self.head)

    @property
    def script(self) -> str:
        return (_HERE / "drop.js").read_text(encoding="utf-8")

    def receive(self, environment: dict[str, Any], start: Callable[..., Any]) -> Any:
        """Take one file: `POST /drop?name=NAME&drop=ID`, with the file as its body.

        Files of one drop are one run.
        """
        request = wrappers.Request(environment)
        sent = request.headers.get(TOKEN_HEADER, "")
        if request.method != "POST" or not hmac.compare_digest(sent.encode(), self._token.encode()):
            return _answer("Only the page itself sends files.", 403)(environment, start)
        try:
            with self._alone():
                self._take(request)
        except LimitReached as error:
            return _answer(str(error), 413)(environment, start)
        except GpudiagError as error:
            return _answer(str(error), 415)(environment, start)
        except OSError as error:
            return _answer(f"The file cannot be kept: {error.strerror}", 507)(environment, start)
        return _answer("taken", 200)(environment, start)

    def _alone(self) -> threading.Lock:
        if self._receiving.locked():
            raise LimitReached("Another file is being sent.", remedy="Try again when it is complete.")
        return self._receiving

    def _take(self, request: wrappers.Request) -> None:
        size = request.content_length
        if size is None or not 0 < size <= LARGEST_BYTES:
            raise LimitReached(
                f"Only files of 1 byte to {LARGEST_BYTES >> 30} GiB are taken here.",
                remedy="For a larger one, run: gpudiag serve PATH",
            )
        free = shutil.disk_usage(self._folder).free
        if self._bytes + size > MOST_BYTES or self._files >= MOST_FILES or free - size < LEAST_FREE_BYTES:
            raise LimitReached(
                "There is no room for more files.", remedy="Start again, or run: gpudiag serve PATH"
            )
        number = self._drops.setdefault(request.args.get("drop", "")[:20], len(self._drops) + 1)
        target = self.log / f"dropped_{number}" / safe_name(request.args.get("name", ""))
        if target.exists():
            raise UsageError("A file with this name was just dropped.")
        arrived = self._incoming / target.name
        try:
            if _written(arrived, request.environ["wsgi.input"], size) != size:
                raise UsageError("The file did not arrive as a whole.", remedy="Drop it again.")
            found = find_traces(str(self._incoming))
            if not found.files:
                problem = found.problems[0] if found.problems else None
                raise problem or UsageError(
                    "This is no trace, memory snapshot or export of Nsight Systems.",
                    remedy="Drop a .pt.trace.json(.gz), .pickle or .sqlite file.",
                )
            target.parent.mkdir(exist_ok=True)
            arrived.replace(target)
        finally:
            arrived.unlink(missing_ok=True)
        self._bytes += size
        self._files += 1


def safe_name(name: str) -> str:
    """Return a name for a file that is a name on every system, and keeps what says which file it is."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return re.sub(r"[^A-Za-z0-9._-]+", "_", last)[-120:].lstrip(".-") or "dropped.json"


def _written(path: Path, stream: IO[bytes], size: int) -> int:
    """Write at most so many bytes of a stream, and return how many there were."""
    written = 0
    with path.open("xb") as file:
        while written < size and (block := stream.read(min(_BLOCK_BYTES, size - written))):
            written += file.write(block)
    return written


def _answer(text: str, code: int) -> wrappers.Response:
    # An unread body would be taken for the next request: close the connection.
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    if code != 200:
        headers["Connection"] = "close"
    return wrappers.Response(text, code, headers, content_type="text/plain; charset=utf-8")


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Diagnosis</title>
{head}</head>
<body><script type="module" src="./start.js"></script></body>
</html>
"""
_START: Final = f'import {{ render }} from "./static/{ENTRY_MODULE}";\nrender();\n'

# As strict as the page allows. TensorBoard's own policy is looser.
_POLICY: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Start = Callable[..., Any]
Environment = dict[str, Any]
Application = Callable[[Environment, Start], Iterable[bytes]]


class Site:
    """The page and the plugin's routes, for requests to one of these host names only.

    Another page that the user visits could point a name of its own at this machine (DNS rebinding), and then
    read the traces. Its requests carry that name.

    box: takes files that are dropped on the page.
    """

    def __init__(self, plugin: GpudiagPlugin, names: frozenset[str], box: DropBox | None = None) -> None:
        self._names = names
        self._routes = dict(plugin.get_plugin_apps())
        self._box = box

    def __call__(self, environment: Environment, start: Start) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "/")
        if not self._may_ask(environment.get("HTTP_HOST", "")):
            application: Application = _text(
                "This page does not answer requests for this host name.", "text/plain", 403
            )
        else:
            application = self._application(path)

        def begin(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, [*headers, ("Content-Security-Policy", _POLICY)], *more)

        return application(environment, begin)

    def _application(self, path: str) -> Application:
        if path == "/":
            return _text(self._page(), "text/html")
        if path == "/start.js":
            return _text(_START, "text/javascript")
        if self._box is not None and path == "/drop.js":
            return _text(self._box.script, "text/javascript")
        if self._box is not None and path == "/drop":
            return self._box.receive
        route: Application | None = self._routes.get("/static/*" if path.startswith("/static/") else path)
        return route or _text("There is no such page.", "text/plain", 404)

    def _page(self) -> str:
        if self._box is None:
            return _PAGE.format(head="")
        return self._box.page if self._box.is_empty else _PAGE.format(head=self._box.head)

    def _may_ask(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower().rstrip(".")
        return name in self._names or _is_address(name)


def names_of(host: str) -> frozenset[str]:
    """Names under which a browser on this machine, or one that --host lets in, asks for the page."""
    names = {"localhost", host.lower()}
    if not is_this_machine_only(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def is_this_machine_only(host: str) -> bool:
    """Return whether no other machine reaches a server that listens on this address."""
    return host in ("127.0.0.1", "::1", "localhost")


def _is_address(name: str) -> bool:
    """Return whether it is an IP address, which needs no name that someone could point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _text(text: str, content_type: str, code: int = 200) -> Application:
    headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return wrappers.Response(text, code, headers, content_type=f"{content_type}; charset=utf-8")


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
            listening = stack.enter_context(listening)
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


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    protocol_version = "HTTP/1.1"  # so that a download that breaks off is seen to

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            print(f"gpudiag: {message % args}", file=sys.stderr)
