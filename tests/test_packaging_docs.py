"""What README and demo say exists: the rules by their ids and names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tests.conftest import REPOSITORY

NAME_OF = {rule.id: rule.name for rule in RULES}
SHARED = {"common", "cpu", "record", "serve"}  # of demo/, not about one fault
DEMOS = sorted(path for path in (REPOSITORY / "demo").glob("*.py") if path.stem not in SHARED)


@pytest.mark.parametrize("script", DEMOS, ids=lambda path: path.stem)
def test_a_demo_is_named_after_the_rule_that_it_must_trigger(script: Path) -> None:
    told = re.match(r"(GD\d{3}) (\w+): ", ast.get_docstring(ast.parse(script.read_text())) or "")
    assert told is not None
    assert NAME_OF[told[1]] == told[2] == script.stem


def test_the_readme_lists_every_rule() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (GD\d{3}) \| (\w+) \|", readme, re.MULTILINE))
    assert listed == {id: name for id, name in NAME_OF.items() if not id.startswith("GD9")}


def test_the_recording_script_knows_every_demo() -> None:
    tree = ast.parse((REPOSITORY / "demo" / "record.py").read_text(encoding="utf-8"))
    (faults,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FAULTS"
    )
    assert sorted(faults) == [script.stem for script in DEMOS]
