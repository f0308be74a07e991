"""`make rule` in a copy of the checkout."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tests.conftest import REPOSITORY
from tests.with_each import with_each
from tools.new_rule.__main__ import Refused, check_id_and_name, listed, write_rule

SOME_TESTS = ("tests/rules/test_rules.py", "tests/rules/launches/test_quite_new.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package and of the tests of rules, with their __pycache__: compiling takes seconds."""
    ignore = shutil.ignore_patterns("static")
    shutil.copytree(REPOSITORY / "tb_gpudiag", tmp_path / "tb_gpudiag", ignore=ignore)
    (tmp_path / "tests").mkdir()
    for name in ("__init__.py", "conftest.py"):
        shutil.copy(REPOSITORY / "tests" / name, tmp_path / "tests")
    for name in ("builder", "rules"):
        shutil.copytree(REPOSITORY / "tests" / name, tmp_path / "tests" / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, tmp_path)
    return tmp_path


def _run(checkout: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_what_it_writes_is_listed_formatted_and_refused_until_it_is_finished(checkout: Path) -> None:
    written = write_rule(checkout, "GD299", "quite_new")
    assert [path.relative_to(checkout).as_posix() for path in written] == [
        "tb_gpudiag/rules/launches/quite_new.py",
        "tb_gpudiag/rules/launches/quite_new.md",
        "tests/rules/launches/test_quite_new.py",
    ]
    assert not any("@" in path.read_text() for path in written)
    assert "All checks passed" in _run(
        checkout, "ruff", "check", "--no-cache", "tb_gpudiag/rules", "tests/rules"
    )
    assert "reformat" not in _run(
        checkout, "ruff", "format", "--no-cache", "--check", "tb_gpudiag/rules", "tests/rules"
    )
    shown = _run(
        checkout, "pytest", "-q", "-p", "no:cacheprovider", *SOME_TESTS, "-k", "quite_new or every or ids"
    )
    assert "tb_gpudiag/rules/launches/quite_new.py:1 is still to be written" in shown
    assert "FAILED tests/rules/launches/test_quite_new.py::test_it_fires_with_its_cost" in shown
    assert "2 failed" in shown


def test_a_rule_goes_behind_the_last_one_of_its_family() -> None:
    text = (REPOSITORY / "tb_gpudiag" / "rules" / "all.py").read_text()
    lines = listed(text, "launches", "quite_new").splitlines()
    listed_rules = [line.strip() for line in lines if line.startswith("    ") and line.endswith(".RULE,")]
    family = [f"{rule.name}.RULE," for rule in RULES if rule.family == "launches"]
    last = max(family, key=listed_rules.index)
    assert listed_rules[listed_rules.index(last) + 1] == "quite_new.RULE,"
    imports = [node for node in ast.parse("\n".join(lines)).body if isinstance(node, ast.ImportFrom)]
    (names,) = (
        [one.name for one in node.names] for node in imports if node.module == "tb_gpudiag.rules.launches"
    )
    assert "quite_new" in names
    assert names == sorted(names)


@with_each(
    ("id", "name", "why"),
    [
        ("GD101", "quite_new", "GD101 is or was input_pipeline"),
        ("GD199", "input_pipeline", "is or was the name of a rule"),
        ("GD799", "quite_new", "no family"),
        ("GD9999", "quite_new", "three digits"),
        ("GD199", "QuiteNew", "lower case"),
        ("GD199", "lost_time", "lost_time.py has this name"),
    ],
)
def test_what_cannot_be_used_is_refused(id: str, name: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_id_and_name(REPOSITORY, id, name)


@pytest.mark.slow
def test_a_removed_rules_id_and_name_are_never_used_again(checkout: Path) -> None:
    with (checkout / "tests" / "rules" / "ids.txt").open("a") as ids:
        ids.write("GD298 removed_rule\n")
    for id, name in (("GD298", "quite_new"), ("GD297", "removed_rule")):
        with pytest.raises(Refused, match="is or was"):
            write_rule(checkout, id, name)
