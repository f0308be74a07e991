"""The built page: what the browser may cache, and no name leads out of its directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag import plugin as plugin_module
from tests.plugin.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built frontend, next to files that are not part of it."""
    folder = tmp_path / "package" / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.js").write_text("export function render() {}")
    (folder / "chart-Ab3_-x9Z.js").write_text("chunk")
    (folder / "assets" / "style-12345678.css").write_text("style")
    (tmp_path / "package" / "secret.py").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "package" / "secret.py")
    (folder / "outside").symlink_to(tmp_path)
    monkeypatch.setattr(plugin_module, "STATIC", folder)
    return folder


def test_chunks_are_kept_by_the_browser_and_the_entry_is_not(
    serve: Callable[..., Server], log: Path, static: Path
) -> None:
    server = serve()
    entry, chunk, style = (
        server.get(f"static/{name}")
        for name in ("index.js", "chart-Ab3_-x9Z.js", "assets/style-12345678.css")
    )
    assert entry.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert entry.headers["Cache-Control"] == "no-cache, must-revalidate"
    assert chunk.get_data(as_text=True) == "chunk"
    assert "max-age=31536000" in chunk.headers["Cache-Control"]
    assert style.headers["Content-Type"] == "text/css; charset=utf-8"
    assert {answer.headers["X-Content-Type-Options"] for answer in (entry, chunk, style)} == {"nosniff"}


@pytest.mark.parametrize(
    "name",
    [
        "../secret.py",
        "..%2fsecret.py",
        "%2e%2e/secret.py",
        "%2e%2e%2fsecret.py",
        "assets/../../secret.py",
        "..\\secret.py",
        "..%5csecret.py",
        "//etc/passwd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "....//secret.py",
        "index.js%00.css",
        "index.js/",
        "./index.js/../../secret.py",
        "link.js",
        "outside/package/secret.py",
        "assets",
        "assets/",
        "",
        "static/index.js",
        "INDEX.JS",
        "file:///etc/passwd",
        "C:\\Windows\\win.ini",
        "a" * 10_000,
    ],
)
def test_no_name_leads_out_of_the_frontend(
    serve: Callable[..., Server], log: Path, static: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = serve().get(f"static/{name}")
    assert "secret" not in answer.get_data(as_text=True).replace("secret.py", "")
    assert "root:" not in answer.get_data(as_text=True)
    assert answer.status_code == 404
    # If the name leads out of our route, TensorBoard logs that there is no such route.
    caplog.records[:] = [record for record in caplog.records if "not found, sending 404" not in record.msg]


def test_a_frontend_that_is_not_built_says_how_to_build_it(
    serve: Callable[..., Server], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "STATIC", tmp_path / "nothing")
    server = serve()
    entry = server.get("static/index.js")
    assert entry.status_code == 200
    assert "export function render()" in entry.get_data(as_text=True)
    assert "npm run build" in entry.get_data(as_text=True)
    assert any("npm run build" in note for note in server.json("status")["notes"])
