"""The page and the plugin's routes without TensorBoard, for requests to this machine's names only."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from werkzeug import wrappers

from tb_gpudiag.pages.drop_box import DropBox
from tb_gpudiag.plugin import ENTRY_MODULE, GpudiagPlugin

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
