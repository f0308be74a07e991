"""An HTTP proxy in front of a server, on this machine only, that fails on command."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Mode = Literal["pass", "stall", "503", "drop"]

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

# A body that is longer than this ends here, if connections drop.
DROP_AFTER_BYTES = 1_000

# Of a connection to the server.
TIMEOUT_S = 60.0

# Headers of one connection, not of the next one.
_OWN = {"connection", "keep-alive", "transfer-encoding"}


class Proxy:
    """Passes requests on to 127.0.0.1:`port`. Each has a connection of its own.

    requests: method, path and range of all of them. stalled: how many waited for `set` to be called again.
    most_listed: files in one answer of S3; 0: as many as S3 likes, 1,000.
    """

    def __init__(self, port: int) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.stalled = 0
        self.most_listed = 0
        self._port = port
        self._mode: Mode = "pass"
        self._times = 0
        self._moved_on = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.close_connection = True
                self.raw_requestline = self.rfile.readline(65_537)
                if self.raw_requestline and self.parse_request():
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        proxy._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def set(self, mode: Mode, times: int = 1 << 30) -> None:
        """Do this from now on, with so many requests, then pass. Requests that stall end."""
        released, self._moved_on = self._moved_on, threading.Event()
        self._mode, self._times = mode, times
        released.set()

    def close(self) -> None:
        self.set("503")
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append((handler.command, handler.path, handler.headers.get("Range", "")))
        mode, moved_on = (self._mode if self._times > 0 else "pass"), self._moved_on
        self._times -= mode != "drop"
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if mode == "stall":
            self.stalled += 1
            moved_on.wait()
            _reset(handler.connection)
            return
        if mode == "503":
            status, headers, content = 503, [("Content-Length", str(len(SLOW_DOWN)))], SLOW_DOWN
        else:
            status, headers, content = self._ask(handler, body)
        handler.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _OWN:
                handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        if mode == "drop" and len(content) > DROP_AFTER_BYTES and handler.command != "HEAD":
            self._times -= 1
            handler.wfile.write(content[:DROP_AFTER_BYTES])
            _reset(handler.connection)
            return
        if handler.command != "HEAD":
            handler.wfile.write(content)

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        with contextlib.closing(server):
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in _OWN}
            listing = self.most_listed and "list-type=2" in handler.path
            path = f"{handler.path}&max-keys={self.most_listed}" if listing else handler.path
            server.request(handler.command, path, body or None, headers)
            answer = server.getresponse()
            content = answer.read()
            found = answer.getheaders()
        if handler.command != "HEAD" and not answer.getheader("Content-Length"):
            found = [*found, ("Content-Length", str(len(content)))]
        return answer.status, found, content


def _reset(connection: socket.socket) -> None:
    """End the connection as a network that fails does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Proxy that is closed at the end."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
