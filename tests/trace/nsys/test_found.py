"""Exports in a log directory."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import fsspec

from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.builder.nsys import Export


def write(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Export().call("cudaLaunchKernel_v7000", 100, 200, 5).kernel("gemm", 300, 900, 5).write(path)
    return path.read_bytes()


def test_exports_are_found_and_other_databases_are_not(tmp_path: Path) -> None:
    content = write(tmp_path / "run" / "rank1.sqlite")
    (tmp_path / "run" / "rank0.sqlite.gz").write_bytes(gzip.compress(content))
    with sqlite3.connect(tmp_path / "experiments.sqlite") as other:
        other.execute("CREATE TABLE runs (id INTEGER)")
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "text.sqlite").write_text("CREATE TABLE NVTX_EVENTS")
    found = find_traces(str(tmp_path))
    assert [(file.run, file.worker, file.kind) for file in found.files] == [
        ("run", "rank0", "trace"),
        ("run", "rank1", "trace"),
    ]
    assert not found.problems
    assert all(len(read_trace(file.path).events) == 2 for file in found.files)


def test_a_report_without_its_export_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path / "a.sqlite")
    for name in ("a.nsys-rep", "b.nsys-rep"):
        (tmp_path / name).write_bytes(b"NVIDIA Tegra Profiler Report")
    found = find_traces(str(tmp_path))
    assert [file.worker for file in found.files] == ["a"]
    assert [problem.where for problem in found.problems] == [str(tmp_path / "b.nsys-rep")]
    assert "nsys export --type sqlite" in found.problems[0].remedy


def test_on_a_remote_store_the_name_decides(tmp_path: Path) -> None:
    content = write(tmp_path / "x.sqlite")
    store = fsspec.filesystem("memory")
    store.pipe("/nsys-remote/report1.sqlite", content)
    store.pipe("/nsys-remote/mlflow.sqlite", content)
    found = find_traces("memory://nsys-remote")
    assert [file.worker for file in found.files] == ["report1"]
    assert len(read_trace(found.files[0].path).events) == 2
