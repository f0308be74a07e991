"""Files to download."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.service import exports
from tests.plugin.server import Server
from tests.service.helpers import eventually

pytestmark = pytest.mark.slow


def _download(server: Server, format_: str) -> tuple[bytes, str]:
    server.ready(f"report?id={server.only_id()}")
    answer = server.get(f"export?id={server.only_id()}&format={format_}")
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.content_type == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.data, answer.headers["Content-Disposition"]


def test_every_format(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    trace, disposition = _download(server, "trace")
    events = json.loads(gzip.decompress(trace))["traceEvents"]
    assert any(event.get("cat") == "gpudiag_idle" for event in events)
    assert disposition.startswith("attachment; filename=")
    assert disposition.endswith('.gpudiag.json.gz"')
    assert _download(server, "markdown")[0].startswith(b"#")
    assert _download(server, "html")[0].startswith(b"<!doctype html>")
    assert json.loads(_download(server, "json")[0])["reports"][0]["trace"]["run"] == "run"
    assert zipfile.is_zipfile(io.BytesIO(_download(server, "dispute")[0]))
    refused = server.get(f"export?id={server.only_id()}&format=dispute&rule=GD101")
    assert (refused.status_code, refused.get_json()["remedy"]) == (400, "its findings: none")
    assert sorted(path.name for path in log.rglob("*") if path.is_file()) == [
        path.name for path in (log / "run").iterdir()
    ]


def test_what_is_refused(serve: Callable[..., Server], log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 1)
    server = serve()
    id_ = server.only_id()
    assert server.get(f"export?id={id_}").status_code == 400
    assert server.get(f"export?id={id_}&format=../x").status_code == 400
    assert server.get("export?id=unknown&format=json").status_code == 404
    first = server.get(f"export?id={id_}&format=json")
    assert (first.status_code, first.get_json()["state"]) in {(503, "queued"), (503, "running")}
    server.ready(f"report?id={id_}")
    begun = server.get(f"export?id={id_}&format=trace")
    assert begun.status_code == 200
    assert server.get(f"export?id={id_}&format=json").status_code == 503
    begun.close()  # as werkzeug does when a reader goes away
    assert server.get(f"export?id={id_}&format=json").status_code == 200


def test_a_damaged_result_is_made_again(serve: Callable[..., Server], log: Path, tmp_path: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file() and path.stat().st_size > 4096:
            path.write_bytes(path.read_bytes()[:-1])
    assert server.get(f"export?id={id_}&format=json").status_code == 503
    eventually(lambda: server.get(f"export?id={id_}&format=json").status_code == 200)
