from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report.annotate import PROCESS
from tests.report.reports import slow_loader


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_copy_has_our_tracks(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = slow_loader().write(tmp_path / "run"), tmp_path / f"out.json{suffix}"
    assert main(["annotate", str(path), "-o", str(output)]) == 0
    content = output.read_bytes()
    events = json.loads(gzip.decompress(content) if suffix else content)["traceEvents"]
    assert any(event.get("pid") == PROCESS for event in events)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "ui.perfetto.dev" in shown.err


def test_the_trace_itself_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = slow_loader().write(tmp_path)
    before = path.read_bytes()
    assert main(["annotate", str(path), "-o", str(path)]) == 2
    assert path.read_bytes() == before
    assert "never overwritten" in capsys.readouterr().err


def test_a_directory_of_several_traces_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow_loader().write(tmp_path / "a")
    slow_loader().write(tmp_path / "b")
    assert main(["annotate", str(tmp_path), "-o", str(tmp_path / "out.json")]) == 2
    assert "name one trace file" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
