"""No value of a credential leaves a trace, whatever is made of it, and what is made says so."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.training.diagnosing import record_of
from tests.builder import TraceBuilder

pytestmark = pytest.mark.slow

SECRET = "a1B2" * 8
TOKEN = f"hf_{SECRET}"
WITHHELD = "The trace has credentials, in "


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A job that keeps the GPU waiting, with a token in every kind of name."""
    made = TraceBuilder(devices=(f"GPU {TOKEN}",))
    main_thread = made.thread(f"main {TOKEN}")
    for step in range(4):
        at = 100_000.0 * step
        main_thread.step(step, at=at, us=100_000)
        main_thread.frame(f"train.py(12): {TOKEN}", at=at, us=90_000)
        main_thread.op(f"aten::{TOKEN}", at=at + 60_000, us=20_000)
        main_thread.launch(f"kernel {TOKEN}", at=at + 60_010, us=5, runs_at=at + 60_020, runs_us=1_000)
    made.raw({"ph": "M", "name": "env", "pid": 1, "tid": 1, "args": {"HF_TOKEN": TOKEN, "PASS": SECRET}})
    path = made.write(tmp_path / "log" / "run")
    assert SECRET in path.read_text()
    os.utime(path, (1_700_000_000, 1_700_000_000))  # a new file might still grow
    return path


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
    assert WITHHELD in capsys.readouterr().err
    assert_kept((tmp_path / "copy.json").read_bytes())
    assert main(["digest", str(trace), "-o", str(tmp_path / "digests")]) == 0
    (digest,) = (tmp_path / "digests").iterdir()
    assert_kept(gzip.decompress(digest.read_bytes()))
    report = diagnose_path(str(trace))
    assert WITHHELD in report.trace.withheld
    assert_kept(record_of(report, report.steps))
