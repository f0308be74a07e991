"""`gpudiag history`: formats and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tests.conftest import SHARED_TRACES
from tests.jobs.history.runs import recording

pytestmark = pytest.mark.slow  # each test runs commands on whole traces


@pytest.fixture
def run(tmp_path: Path) -> str:
    for number in range(20):
        made = recording(number, 1000 if number < 10 else 1500, floors=[1000, 1000])
        (tmp_path / f"{number}{SUFFIX}").write_bytes(to_bytes(made))
    return str(tmp_path)


def test_json(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", run, "--format", "json"]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    assert len(history["points"]) == 20
    assert [change["point"] for change in history["changes"]] == [10]


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_other_formats(run: str, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["history", run, "--format", format, "-o", str(out)]) == 0
    assert "Since recording 11" in out.read_text()


def test_one_run(run: str) -> None:
    assert main(["history", run, "--run", "run"]) == 0
    assert main(["history", run, "--run", "other"]) == 2


def test_nothing_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["history", str(tmp_path / "empty")]) == 2
    assert "no trace found" in capsys.readouterr().err


def test_a_bad_digest_costs_only_its_own_point(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(run) / f"bad{SUFFIX}").write_bytes(b"")
    assert main(["history", run, "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["histories"][0]["points"]) == 20
    assert "bad" in shown.err


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.usefixtures("shared_traces")
@pytest.mark.parametrize(
    ("folder", "per_step"),
    [("leaky", 6464), ("dl_workers0", None), ("dl_workers2", None), ("python_export", None)],
)
def test_real_recordings(folder: str, per_step: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Each pair is of one process. Only one leaks, by tensors of exactly this size in each step."""
    path = str(SHARED_TRACES / "cpu_torch213" / folder)
    assert main(["history", path, "--processes", "1", "--format", "json"]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    assert len(history["points"]) == 2
    assert not history["changes"]
    found = [round(drift["bytes_per_step"], 6) for drift in history["drifts"]]
    assert found == ([per_step] if per_step else [])
