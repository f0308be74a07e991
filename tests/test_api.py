"""`import tb_gpudiag` is cheap, and enough to diagnose a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.errors import EmptyFile, NothingToRead, TraceError, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tests.report.reports import slow_loader


def test_diagnose_takes_a_file_or_a_directory_with_one_trace(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path / "run")
    for where in (path, tmp_path):
        report = tb_gpudiag.diagnose(str(where))
        assert report.verdict.limiter == pb.Verdict.input
        assert report.findings[0].rule == "GD101"


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
        "import sys, tb_gpudiag; tb_gpudiag.diagnose(sys.argv[1]);"
        "print(*(set(sys.modules) & {'torch', 'tensorboard', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
