"""No value of a credential leaves a trace, whatever is made of it, and what is made says so."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.training.diagnosing import record_of
from tests.trace.credentials.planted_files import FILES, SECRET

pytestmark = pytest.mark.slow

WITHHELD = "The trace has credentials, in "


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A job that keeps the GPU waiting, with a token in every kind of name."""
    (tmp_path / "log").mkdir()
    return FILES["trace"](tmp_path / "log")


def assert_kept(content: bytes | str) -> None:
    text = content if isinstance(content, str) else content.decode("latin-1")
    assert text
    assert SECRET not in text


@pytest.mark.parametrize("format_", ["text", "json", "markdown", "html", "brief", "github"])
def test_reports(format_: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report"
    assert main(["diagnose", str(trace), "--format", format_, "-o", str(output)]) == 0
    assert_kept(output.read_bytes())
    assert "GD907" in output.read_text()
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    if format_ == "json":
        assert WITHHELD in json.loads(output.read_text())["reports"][0]["trace"]["withheld"]


def test_copies_digests_and_records(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", str(trace), "-o", str(tmp_path / "copy.json")]) == 0
    shown = capsys.readouterr().err
    assert WITHHELD in shown
    assert "The copy is without" in shown
    assert SECRET not in shown
    assert_kept((tmp_path / "copy.json").read_bytes())
    assert main(["digest", str(trace), "-o", str(tmp_path / "digests")]) == 0
    (digest,) = (tmp_path / "digests").iterdir()
    assert_kept(gzip.decompress(digest.read_bytes()))
    report = diagnose_path(str(trace))
    assert WITHHELD in report.trace.withheld
    assert_kept(record_of(report, report.steps))
