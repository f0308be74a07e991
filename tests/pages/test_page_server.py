"""The page of a server, asked as a browser does."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tb_gpudiag.cli.demo import LOG
from tb_gpudiag.pages.server import TOKEN_HEADER, PageServer
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.service.helpers import eventually
from tools.try_install import EXPECTED

pytestmark = pytest.mark.slow  # each starts a server


def ask(url: str, content: bytes | None = None, **headers: str) -> str:
    request = urllib.request.Request(url, content, {**headers, "Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=HANGS_S) as answer:
        text: str = answer.read().decode()
        return text


def runs(url: str) -> set[str]:
    return {trace["run"] for trace in json.loads(ask(f"{url}traces"))["traces"]}


def test_a_dropped_trace_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    trace = Path(slow_loader().write(tmp_path)).read_bytes()
    with PageServer(None) as server:
        server.start()
        page = ask(server.url)
        assert "Drop a trace here" in page
        token = page.partition('<meta name="gpudiag-drop" content="')[2].partition('"')[0]
        ask(f"{server.url}drop?name=a.1.pt.trace.json&drop=1", trace, **{TOKEN_HEADER: token})
        assert "start.js" in ask(server.url)
        eventually(lambda: runs(server.url) == {"dropped_1"})


def test_the_demo_says_which_are_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    with PageServer(str(LOG)) as server:
        server.start()
        eventually(lambda: set(EXPECTED) < runs(server.url))
    for path in LOG.rglob("*.gz"):
        assert path.name.startswith("simulated_") == ("simulated" in path.parts)
