"""Lines that can be meant: only from source that really has the function there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report import source_lines
from tb_gpudiag.report.essentials import full_place

SOURCE = """\
import torch


@torch.no_grad()
def evaluate(batch):
    small = resize(batch)
    def inner():
        resize(1)
    if small.sum().item() > 0:
        small = small + 1
    return [image.resize(2) for image in batch], small


def other():
    resize(3)
"""


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    for kept in (source_lines._calls, source_lines._tree, source_lines._source):
        kept.cache_clear()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


def place(**fields: object) -> pb.Place:
    known: dict[str, object] = {
        "file": "train.py",
        "line": 4,
        "function": "evaluate",
        "line_kind": "DEFINITION",
    }
    return pb.Place(**known | fields)  # type: ignore[arg-type]


def added(where: pb.Place, root: str = "") -> pb.Place:
    report = pb.Report(findings=[pb.Finding(places=[where])])
    source_lines.add_source_lines(report, root)
    found: pb.Place = report.findings[0].places[0]
    return found


def lines(where: pb.Place) -> list[int]:
    return [one.line for one in where.candidates]


@pytest.mark.parametrize("line", [4, 5])
def test_an_operator_in_a_function_of_the_user(line: int, source: Path) -> None:
    item = added(place(operator="aten::_local_scalar_dense", line=line))
    assert [(one.line, one.text) for one in item.candidates] == [(9, "if small.sum().item() > 0:")]
    assert full_place(item).endswith(", probably line 9: if small.sum().item() > 0:")
    assert lines(added(place(operator="aten::add"))) == [10]


def test_a_function_of_a_package_in_its_caller(source: Path) -> None:
    found = added(place(file="lib/a.py", function="resize", caller=place()))
    assert lines(found.caller) == [6, 11]
    assert "one of line 6: small = resize(batch); line 11:" in full_place(found)
    assert not found.candidates


def test_an_absolute_path(source: Path) -> None:
    assert lines(added(place(file=str(source), operator="aten::item"))) == [9]


@pytest.mark.parametrize(
    "fields",
    [
        {"line": 6},  # the file has changed: the function is not there
        {"function": "other"},
        {"line": 0},
        {"line_kind": "RUNNING"},
        {"operator": "aten::conv2d"},
        {"operator": ""},
        {"file": "missing.py"},
        {"file": ""},
        {"file": "train.txt"},
        {"file": "folder.py"},
        {"file": "pipe.py"},
        {"file": "large.py"},
        {"file": "broken.py"},
        {"file": "binary.py"},
        {"file": "nul\0.py"},
    ],
)
def test_nothing_from_anything_else(fields: dict[str, object], source: Path) -> None:
    folder = source.parent
    (folder / "train.txt").write_text(SOURCE)
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "large.py").write_text(SOURCE + "#" * source_lines.MOST_BYTES)
    (folder / "broken.py").write_text(SOURCE + "def (")
    (folder / "binary.py").write_bytes(SOURCE.encode() + b"\xff\xfe")
    assert not added(place(**{"operator": "aten::item", **fields})).candidates


@pytest.mark.parametrize("start", ["//", "\\\\", "/\\"])
def test_nothing_from_a_path_that_names_a_machine(start: str, source: Path) -> None:
    file = start + str(source).lstrip("/")  # without the guard, Linux opens the first of them
    assert not added(place(file=file, operator="aten::item")).candidates


def test_deeply_nested_source_is_not_an_error(source: Path) -> None:
    source.write_text(SOURCE + "x = " + "(" * 50_000 + ")" * 50_000)
    assert not added(place(operator="aten::item")).candidates


def test_below_a_folder_only_what_is_in_it(source: Path, tmp_path: Path) -> None:
    """A trace names any file that the user of TensorBoard can read, and others see the page."""
    root = tmp_path / "code"
    (root / "jobs").mkdir(parents=True)
    source.rename(root / "jobs" / "train.py")
    (tmp_path / "secret.py").write_text(SOURCE)
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    (tmp_path / "code_of_others").mkdir()
    (tmp_path / "code_of_others" / "train.py").write_text(SOURCE)

    def said(file: str) -> bool:
        return bool(added(place(file=file, operator="aten::item"), str(root)).candidates)

    assert said("jobs/train.py")
    assert said(str(root / "jobs" / "train.py"))
    outside = (
        "../secret.py",
        str(tmp_path / "secret.py"),
        "link.py",
        "../code_of_others/train.py",
        "",
        "nul\0.py",
    )
    assert not any(said(file) for file in outside)
