from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.patience import HANGS_S
from tests.report.reports import slow_loader

HOSTS = [
    ("localhost", 200),
    ("127.0.0.1", 200),
    ("[::1]", 200),
    ("LOCALHOST.", 200),
    ("evil.example", 403),
    ("localhost.evil.example", 403),
    ("127.0.0.1.evil.example", 403),
    ("", 403),
]


# A shell that runs the tests in the background lets all of their processes ignore Ctrl-C, `nohup` SIGHUP.
PROGRAM = """
import signal, sys
from tb_gpudiag.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.exit(main())
"""


class Serve:
    """A `gpudiag serve` process."""

    def __init__(self, log: Path | None, cache: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "serve", *([str(log)] if log else []), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**worker_environment(), "GPUDIAG_CACHE_DIR": str(cache), "TMPDIR": str(cache.parent)},
        )
        assert self.process.stdout is not None
        found = re.match(r"http://127\.0\.0\.1:(\d+)/ ", self.process.stdout.readline())
        assert found, self.stop(signal.SIGKILL)
        self.port = int(found[1])

    def get(self, path: str, host: str = "localhost") -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_S)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", f"{host}:{self.port}" if host else "")
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def stop(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=HANGS_S)
        return self.process.returncode, errors


pytestmark = pytest.mark.slow  # each test starts a server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    slow_loader().write(tmp_path / "log" / "run")
    started = Serve(tmp_path / "log", tmp_path / "cache")
    yield started
    started.process.kill()
    started.process.communicate()


def test_the_page_its_routes_and_who_may_ask(serve: Serve) -> None:
    page, text = serve.get("/")
    assert page.headers["Content-Type"].startswith("text/html")
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert "<script type=" in text
    for path in ("/start.js", "/static/index.js"):
        assert serve.get(path)[0].headers["Content-Type"].startswith("text/javascript")
    for host, status in HOSTS:
        assert serve.get("/status", host)[0].status == status, host
    traces, text = serve.get("/traces")
    assert "default-src" in traces.headers["Content-Security-Policy"]
    assert "traces" in json.loads(text)
    for path in ("/etc/passwd", "/static/../plugin.py", "/static/%2e%2e/plugin.py", "/nothing"):
        assert serve.get(path)[0].status == 404
    assert serve.stop(signal.SIGINT) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_dropped_files_are_deleted_however_it_is_asked_to_end(number: int, tmp_path: Path) -> None:
    """SIGHUP: its terminal is closed."""
    started = Serve(None, tmp_path / "cache")
    assert [path.name[:15] for path in tmp_path.iterdir()] == ["gpudiag-dropped"]
    assert started.stop(number) == (0, "")
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path), "--port", str(port)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "--port" in shown.err


def test_a_path_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "missing")]) == 2
    assert "no such file" in capsys.readouterr().err
