"""A shared cache has an entry that another user forged: only its checksums, key and trace are right.

Whoever can write to a shared cache decides what others see (SECURITY.md). But nothing of it runs, nothing
breaks, and every answer is JSON with a state, or a refusal.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.service.caches.cache_entry import Arrays, Unpacked, unpack, write_to
from tests.builder import TraceBuilder
from tests.plugin.server import Server
from tests.service.helpers import eventually

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>alert(1)</script>"
PARTS = (
    *("report?id=ID", "timeline?id=ID", "memory?id=ID", "gap?id=ID&device=0&gap=0", "find?id=ID&text=a"),
    *("event?id=ID&event=0", "range?id=ID", "operators?id=ID&group=stack", "kernels?id=ID", "callTree?id=ID"),
    *("roofline?id=ID", "compare?base=ID&candidate=ID", "job?id=ID", "traces", "status"),
)
Forgery = Callable[[Unpacked], tuple[bytes, Arrays]]


def _with_report(content: bytes) -> Forgery:
    return lambda entry: (content, entry.arrays)


def _with_arrays(change: Callable[[Any], Any]) -> Forgery:
    return lambda entry: (entry.report_gz, {name: change(array) for name, array in entry.arrays.items()})


def _told(entry: Unpacked) -> tuple[bytes, Arrays]:
    report = json.loads(gzip.decompress(entry.report_gz))
    report["report"]["verdict"]["sentence"] = HOSTILE
    return gzip.compress(json.dumps(report).encode()), entry.arrays


FORGERIES: dict[str, Forgery] = {
    "told": _told,
    "no_gzip": _with_report(b"not packed"),
    "other_json": _with_report(gzip.compress(b'[{"report": 7}]')),
    "other_types": _with_report(gzip.compress(b'{"state": 7, "report": {"devices": "x", "findings": {}}}')),
    "no_arrays": lambda entry: (entry.report_gz, {}),
    "ones_of_bits": _with_arrays(lambda array: np.frombuffer(b"\xff" * array.nbytes, array.dtype)),
    "shuffled": _with_arrays(lambda array: np.ascontiguousarray(array[::-1])),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory, with its results in a shared cache."""
    folder = tmp_path_factory.mktemp("honest")
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(3):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.frame("train.py(12): train", at=at, us=900)
        main.op("aten::mm", at=at + 10, us=40)
        main.launch("gemm", at=at + 20, us=5, runs_at=at + 30, runs_us=100)
    path = trace.write(folder / "log" / "run")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


@pytest.mark.parametrize("name", FORGERIES)
def test_what_others_forged_is_data_or_counts_as_absent(
    name: str,
    honest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[..., Server],
) -> None:
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(honest / "team"))
    if not list((honest / "team").glob("*.gpudiag")):
        monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "ana"))
        server = serve(logdir=str(honest / "log"))
        server.ready(f"report?id={server.only_id()}")
        eventually(lambda: list((honest / "team").glob("*.gpudiag")))
    team = tmp_path / "team"
    team.mkdir()
    for path in (honest / "team").glob("*.gpudiag"):
        with open(path, "rb") as file:
            entry = unpack(file, path)
        report, arrays = FORGERIES[name](entry)
        with open(team / path.name, "wb") as file:
            write_to(file, report, arrays, entry.summary)
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(team))
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "ben"))
    server = serve(logdir=str(honest / "log"))
    id_ = server.only_id()
    for part in PARTS:
        settled(server, part.replace("ID", id_))
    report = server.ready(f"report?id={id_}")["report"]  # a broken one counts as absent
    assert report["trace"]["events"] > 0
    assert (report["verdict"]["sentence"] == HOSTILE) is (name == "told")


def settled(server: Server, route: str) -> str:
    """Ask until the answer is a result or a refusal, and return it."""

    def ask() -> str:
        answer = server.get(route)
        assert answer.status_code in {200, 400, 404}, (route, answer.text)
        assert answer.mimetype in {"application/json", "text/plain"}, route
        if answer.status_code != 200:
            return answer.text
        return "" if json.loads(answer.data).get("state") in {"queued", "running"} else answer.text

    return eventually(ask, route)
