"""The HTML file with the interactive page: what readers without scripts see, and that nothing breaks out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report.views import html
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.html import document_html
from tests.report.reports import hostile, slow_loader

SCRIPT = 'const a = "</script><script>alert(1)</script><!--";'


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "offline.js"
    script.write_text(SCRIPT)
    monkeypatch.setattr(html, "SCRIPT", script)


@pytest.mark.usefixtures("built")
def test_data_and_script_cannot_end_their_elements(tmp_path: Path) -> None:
    content = {"a": "</script><script>alert(2)</script><!-- <b>"}
    page = document_html(compose([hostile(tmp_path)]), content)
    elements = re.findall(r"<script([^>]*)>(.*?)</script", page, re.DOTALL)
    assert len(elements) == 2
    (data_attributes, data), (_, script) = elements
    assert 'type="application/json"' in data_attributes
    assert json.loads(data) == content
    assert "<!--" not in data + script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page
    assert "<img" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_readers_without_scripts_see_the_report(tmp_path: Path) -> None:
    path, output = slow_loader().write(tmp_path / "run"), tmp_path / "out.html"
    assert main(["diagnose", str(path), "--format", "html", "-o", str(output)]) == 0
    page = output.read_text()
    assert 'id="gpudiag-data"' in page
    visible = "".join(re.findall(r"<noscript>(.*?)</noscript>", page, re.DOTALL))
    assert "Data loading keeps the GPU idle" in visible


@pytest.mark.slow
@pytest.mark.parametrize("traces", [1, 2])
def test_several_traces_or_a_page_that_is_not_built_give_a_page_without_scripts(
    traces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if traces == 1:
        monkeypatch.setattr(html, "SCRIPT", tmp_path / "missing.js")
    for run in range(traces):
        slow_loader().write(tmp_path / "log" / str(run))
    output = tmp_path / "out.html"
    assert main(["diagnose", str(tmp_path / "log"), "--format", "html", "-o", str(output)]) == 0
    assert "script" not in output.read_text()
