"""`gpudiag serve PATH`: the page without TensorBoard, for this machine only unless --host says otherwise."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tensorboard.plugins import base_plugin
from werkzeug import wrappers
from werkzeug.serving import WSGIRequestHandler, make_server

from tb_gpudiag.errors import UsageError
from tb_gpudiag.plugin import ENTRY_MODULE, GpudiagPlugin
from tb_gpudiag.trace.files.source import is_remote

DEFAULT_PORT: Final = 6060

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Diagnosis</title>
</head>
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


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises UsageError if the path does not exist or the port is taken."""
    parsed = _parser().parse_args(arguments)
    if not is_remote(parsed.path) and not os.path.exists(parsed.path):
        raise UsageError("there is no such file or directory", where=parsed.path, remedy="check the path")
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(parsed.host, parsed.port))
        plugin = GpudiagPlugin(base_plugin.TBContext(logdir=parsed.path, flags=argparse.Namespace()))
        stack.callback(plugin.close)
        host, port = listening.getsockname()[:2]
        server = make_server(
            host,
            port,
            Site(plugin, _names(parsed.host)),
            threaded=True,
            request_handler=_Quiet,
            fd=listening.fileno(),
        )
        stack.callback(server.server_close)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{'localhost' if _is_any(host) else shown}:{port}/"
        print(f"{address} (Ctrl-C stops it)", flush=True)
        # A service manager stops it as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if parsed.open:
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpudiag serve",
        description="Serve the Diagnosis page without TensorBoard.",
        epilog="Exit status: 0 stopped by Ctrl-C, 2 invalid usage, or the port is taken.",
    )
    parser.add_argument("path", metavar="PATH", help="a log directory, a trace file or a memory snapshot")
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="N",
        help=f"default: {DEFAULT_PORT}; 0: any free one",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on (default: 127.0.0.1, which only this machine reaches). The page has no "
        "password: whoever reaches it can read the traces",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser


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


class Site:
    """The page and the plugin's routes, for requests to one of these host names only.

    Another page that the user visits could point a name of its own at this machine (DNS rebinding), and then
    read the traces. Its requests carry that name.
    """

    def __init__(self, plugin: GpudiagPlugin, names: frozenset[str]) -> None:
        self._names = names
        self._routes = dict(plugin.get_plugin_apps())

    def __call__(self, environment: Environment, start: Start) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "/")
        if not self._may_ask(environment.get("HTTP_HOST", "")):
            application: Application = _text(
                "This page does not answer requests for this host name.", "text/plain", 403
            )
        elif path in ("/", "/start.js"):
            application = _text(_PAGE, "text/html") if path == "/" else _text(_START, "text/javascript")
        else:
            route = self._routes.get("/static/*" if path.startswith("/static/") else path)
            application = route or _text("There is no such page.", "text/plain", 404)

        def begin(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, [*headers, ("Content-Security-Policy", _POLICY)], *more)

        return application(environment, begin)

    def _may_ask(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower().rstrip(".")
        return name in self._names or _is_address(name)


def _names(host: str) -> frozenset[str]:
    """Names under which a browser on this machine, or one that --host lets in, asks for the page."""
    names = {"localhost", host.lower()}
    if host not in ("127.0.0.1", "::1", "localhost"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def _is_address(name: str) -> bool:
    """Return whether it is an IP address, which needs no name that someone could point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")


def _text(text: str, content_type: str, code: int = 200) -> Application:
    headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return wrappers.Response(text, code, headers, content_type=f"{content_type}; charset=utf-8")


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    protocol_version = "HTTP/1.1"  # so that a download that breaks off is seen to

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            print(f"gpudiag: {message % args}", file=sys.stderr)
