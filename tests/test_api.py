"""`import tb_gpudiag` is cheap, and enough to diagnose a trace."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tb_gpudiag
from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tb_gpudiag.errors import EmptyFile, NothingToRead, TraceError, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.ranks.stage import job as ranks_of_a_job
from tests.report.reports import slow_loader
from tools.docs.pages import API_EXAMPLE, api_page

pytestmark = pytest.mark.usefixtures("in_process")


def test_diagnose_takes_a_file_or_a_directory_with_one_trace(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path / "run")
    for where in (str(path), tmp_path):
        report = tb_gpudiag.diagnose(where)
        assert report.verdict.limiter == pb.Verdict.input
        assert report.findings[0].rule == "GD101"


def test_everything_public_is_there_and_on_its_page() -> None:
    page = api_page()
    for name in tb_gpudiag.__all__:
        assert getattr(tb_gpudiag, name)
        assert name == "__version__" or f"`{name}" in page or f"tb_gpudiag.{name}" in page


def test_diagnose_says_what_is_wrong_with_a_path(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead):
        tb_gpudiag.diagnose(str(tmp_path))
    with pytest.raises(TraceError):
        tb_gpudiag.diagnose(str(tmp_path / "missing"))
    (tmp_path / "a.pt.trace.json").touch()
    with pytest.raises(EmptyFile):
        tb_gpudiag.diagnose(str(tmp_path))
    slow_loader().write(tmp_path)
    with pytest.raises(UsageError):
        tb_gpudiag.diagnose(str(tmp_path))


@pytest.mark.slow
def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, tb_gpudiag;print(*(set(sys.modules) & {'numpy', 'pyarrow', 'google.protobuf', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_diagnosing_does_not_import_torch_or_tensorboard(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    code = (
        "import sys; from tb_gpudiag.report.diagnosis import diagnose_path; diagnose_path(sys.argv[1]);"
        "print(*(set(sys.modules) & {'torch', 'tensorboard', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_the_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("my_run", "before", "after"):
        slow_loader().write(tmp_path / "log" / name)
    (tmp_path / "log" / "my_job").mkdir()
    for digest in ranks_of_a_job(2, 3):
        path = tmp_path / "log" / "my_job" / f"rank{digest.about.rank}{SUFFIX}"
        path.write_bytes(to_bytes(digest))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.chdir(tmp_path)
    exec(compile(API_EXAMPLE, "example", "exec"), {})
    said = capsys.readouterr().out
    assert "The data pipeline limits this job." in said
    assert "GD101" in said
    assert "It waits for data.\n" in said
    assert "\ninput\n" in said
    assert opened == [said.splitlines()[-1]]


def test_job_says_what_is_wrong_with_a_path(tmp_path: Path) -> None:
    slow_loader().write(tmp_path / "log" / "my_run")
    with pytest.raises(NothingToRead, match="two ranks"):
        tb_gpudiag.job(str(tmp_path))


def test_history_says_what_is_wrong_with_a_path(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead):
        tb_gpudiag.history(str(tmp_path))


@pytest.mark.slow
def test_what_it_returns_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    trace = slow_loader("x.py(1): <script>alert(1)</script>").write(tmp_path / "run")
    report = tb_gpudiag.diagnose(str(trace))
    comparison = tb_gpudiag.compare(str(trace), str(trace))
    (history,) = tb_gpudiag.history(str(tmp_path))
    shown_by: list[Any] = [report, comparison, history]  # Any: tb_gpudiag.notebook adds the method
    for message in shown_by:
        shown = message._repr_html_()
        assert shown.startswith("<iframe sandbox srcdoc=")
        assert shown.count("<") == 2, "the page is an attribute: its marks are escaped"
        assert "<main>" in html.unescape(shown)
    assert "GD101" in html.unescape(shown_by[0]._repr_html_())
