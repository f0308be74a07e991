"""README, CONTRIBUTING and demo name rules and files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE
from tests.conftest import REPOSITORY
from tests.with_each import with_each

NAME_OF = {rule.id: rule.name for rule in EVERY_RULE}
SHARED = {"common", "cpu", "record", "serve"}  # scripts of demo/ that are not about one fault
DEMOS = sorted(path for path in (REPOSITORY / "demo").glob("*.py") if path.stem not in SHARED)


@with_each("script", DEMOS)
def test_a_demo_is_named_after_the_rule_that_it_must_trigger(script: Path) -> None:
    named = re.match(r"(GD\d{3}) (\w+): ", ast.get_docstring(ast.parse(script.read_text())) or "")
    assert named is not None
    assert NAME_OF[named[1]] == named[2] == script.stem


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_its_links_lead_to_files(page: str) -> None:
    for target in re.findall(r"\]\((?!https://)([^)#]+)", (REPOSITORY / page).read_text(encoding="utf-8")):
        assert (REPOSITORY / target).is_file(), f"{page} links to {target}"


def test_the_recording_script_knows_every_demo() -> None:
    tree = ast.parse((REPOSITORY / "demo" / "record.py").read_text(encoding="utf-8"))
    (faults,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FAULTS"
    )
    assert sorted(faults) == [script.stem for script in DEMOS]


def test_every_route_is_documented_and_known_to_the_development_server() -> None:
    plugin = (REPOSITORY / "tb_gpudiag" / "plugin.py").read_text(encoding="utf-8")
    routes = re.findall(r'^ +"/(\w+)": self\._', plugin, re.MULTILINE)
    assert "traces" in routes
    page = (REPOSITORY / "docs" / "http.md").read_text(encoding="utf-8")
    server = (REPOSITORY / "frontend" / "vite.config.ts").read_text(encoding="utf-8")
    for route in routes:
        assert f"| `/{route}` |" in page, f"docs/http.md: add the route /{route}"
        assert f'"{route}"' in server, f"frontend/vite.config.ts: pass the route /{route} on"


@with_each("workflow", sorted((REPOSITORY / ".github" / "workflows").glob("*.yml")))
def test_a_workflow_runs_what_is_here(workflow: Path) -> None:
    text = re.sub(r" *# .*", "", workflow.read_text(encoding="utf-8"))
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\S+)", re.sub(r"\$\{\{ matrix\.versions \}\}", "oldest", text)):
        assert re.search(rf"^[\w -]*\b{target}\b[\w -]*:", makefile, re.MULTILINE), f"make {target}"
    for path in re.findall(r"(?<![\w/.-])(?:tools|tests|\.ci)/[\w./]+", text.replace("tools/docs/**", "")):
        assert (REPOSITORY / path).exists(), path
    for action in re.findall(r"uses: (?!\./)(\S+)", text):
        assert re.search(r"@[0-9a-f]{40}$", action), f"{action} is not pinned by hash"
    assert "\npermissions:\n  contents: read\n" in text
