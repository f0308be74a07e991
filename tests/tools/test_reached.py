"""Modules that only tests import are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reached import unreached

FILES = {
    "__init__.py": "def use():\n    from package.room.lazy import f",
    "room/__init__.py": "",
    "room/lazy.py": "import package.direct\nfrom package import _fast\nWORKER = ('-m', 'package.worker')",
    "direct.py": "from __future__ import annotations",
    "_fast.pyx": "",
    "worker/__init__.py": "",
    "worker/__main__.py": "from importlib import import_module\nimport_module('package.served')",
    "served.py": "",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "package"


def test_what_is_imported_anywhere_or_started_by_name_is_reached(tmp_path: Path) -> None:
    assert unreached(write(tmp_path, FILES), ["package"]) == []


def test_modules_that_only_name_one_another_are_found(tmp_path: Path) -> None:
    dead = {"dead.py": "import package.room.deader", "room/deader.py": "import package.dead", "_dead.pyx": ""}
    package = write(tmp_path, FILES | dead)
    assert {path.relative_to(package).as_posix() for path in unreached(package, ["package"])} == set(dead)


def test_an_entry_point_exists(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"package\.gone"):
        unreached(write(tmp_path, FILES), ["package", "package.gone"])
