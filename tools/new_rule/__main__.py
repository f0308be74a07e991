"""Start a new rule: `make rule ID=GD… NAME=…`, or `python -m tools.new_rule GD… NAME`.

Write the rule's module, page and tests from the templates next to this file, and list the rule in
tb_gpudiag/rules/all.py and tests/rules/ids.txt. The tests fail until every TODO is written.
"""

from __future__ import annotations

import argparse
import ast
import keyword
import re
from pathlib import Path

from tb_gpudiag.rules.rule import FAMILIES

TEMPLATES = Path(__file__).parent
CHECKOUT = TEMPLATES.parents[1]
LINE_LENGTH = 110


class Refused(Exception):
    """The id or the name cannot be used; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.new_rule", description="Start a new rule.")
    parser.add_argument(
        "id", metavar="ID", help="GD and three digits; the first one is the family: " + families()
    )
    parser.add_argument("name", metavar="NAME", help="what is wrong, such as launch_bound")
    arguments = parser.parse_args()
    try:
        written = write_rule(CHECKOUT, arguments.id, arguments.name)
    except Refused as refusal:
        raise SystemExit(f"rule: {refusal}") from None
    print("\n".join(f"rule: wrote {path.relative_to(CHECKOUT)}" for path in written))
    print(
        f"rule: listed {arguments.id} in tb_gpudiag/rules/all.py and tests/rules/ids.txt\n"
        "rule: check the order there: of two rules that claim the same idle time, the first one gets it\n"
        f"rule: run this until it passes: .venv/bin/pytest tests/rules -k '{arguments.name} or every'\n"
        "rule: then run: make quick"
    )


def families() -> str:
    return ", ".join(f"{digit} {family}" for digit, family in FAMILIES.items())


def write_rule(checkout: Path, id: str, name: str) -> list[Path]:
    """Write and list the rule in `checkout`, and return the new files.

    Raise Refused, before anything is written, if the id or the name cannot be used.
    """
    check_id_and_name(checkout, id, name)
    family = FAMILIES[id[2]]
    folder = checkout / "tb_gpudiag" / "rules" / family
    targets = {
        "rule.py.in": folder / f"{name}.py",
        "rule.md.in": folder / f"{name}.md",
        "test_rule.py.in": checkout / "tests" / "rules" / family / f"test_{name}.py",
    }
    title = name.replace("_", " ").capitalize()
    for template, path in targets.items():
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        for placeholder, value in (("ID", id), ("NAME", name), ("FAMILY", family), ("TITLE", title)):
            text = text.replace(f"@{placeholder}@", value)
        path.write_text(text, encoding="utf-8")
    listing = checkout / "tb_gpudiag" / "rules" / "all.py"
    listing.write_text(listed(listing.read_text(encoding="utf-8"), family, name), encoding="utf-8")
    ids = checkout / "tests" / "rules" / "ids.txt"
    lines = [*ids.read_text(encoding="utf-8").splitlines(), f"{id} {name}"]
    ids.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    return list(targets.values())


def check_id_and_name(checkout: Path, id: str, name: str) -> None:
    """Raise Refused unless both are well-formed and were never used."""
    if not re.fullmatch(r"GD\d{3}", id):
        raise Refused(f"ID={id} is not GD and three digits")
    if id[2] not in FAMILIES:
        raise Refused(f"ID={id} has no family: the first digit is one of {families()}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise Refused(f"NAME={name} is not a module name: use lower case and underscores")
    ids = (checkout / "tests" / "rules" / "ids.txt").read_text(encoding="utf-8")
    used = dict(line.split() for line in ids.splitlines())
    if id in used:
        family = [other for other in used if other[2] == id[2]]
        raise Refused(
            f"{id} is or was {used[id]}, and ids are never reused; the last of its family is {max(family)}"
        )
    if name in used.values():
        raise Refused(f"{name} is or was the name of a rule, and names are never reused")
    for module in (checkout / "tb_gpudiag").rglob(f"{name}.py"):
        raise Refused(f"{module.relative_to(checkout)} has this name: module names are unique in the package")


def listed(text: str, family: str, name: str) -> str:
    """`text` of all.py with the rule imported, and placed behind the last rule of its family."""
    tree = ast.parse(text)
    lines = text.splitlines()
    package = f"tb_gpudiag.rules.{family}"
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    (own,) = (node for node in imports if node.module == package)
    siblings = {alias.name for alias in own.names}
    last = max(
        number
        for number, line in enumerate(lines)
        if re.match(r"    (\w+)\.RULE,", line) and line.split(".")[0].strip() in siblings
    )
    lines.insert(last + 1, f"    {name}.RULE,")
    names = sorted({*siblings, name})
    statement = [f"from {package} import {', '.join(names)}"]
    if len(statement[0]) > LINE_LENGTH or own.end_lineno != own.lineno:
        statement = [f"from {package} import (", *(f"    {one}," for one in names), ")"]
    lines[own.lineno - 1 : own.end_lineno] = statement
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
