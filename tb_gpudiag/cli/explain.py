"""`gpudiag explain [RULE]`: a rule's page, or the list of rules."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from tb_gpudiag.errors import UsageError
from tb_gpudiag.rules.all import RULES, find_rule


def run(arguments: Sequence[str]) -> int:
    """Prints the page: rendered on a terminal, as it is written otherwise."""
    parser = argparse.ArgumentParser(
        prog="gpudiag explain", description="Prints what a rule looks for and what to do about it."
    )
    parser.add_argument(
        "rule", metavar="RULE", nargs="?", help="a rule's id or name, such as GD101 or input_pipeline"
    )
    parsed = parser.parse_args(arguments)
    if parsed.rule is None:
        for rule in sorted(RULES, key=lambda rule: rule.id):
            print(f"{rule.id}  {rule.name:22} {rule.title}")
        return 0
    found = find_rule(parsed.rule)
    if found is None:
        raise UsageError("no rule has this id or name", where=parsed.rule, remedy=_close_to(parsed.rule))
    if sys.stdout.isatty():
        Console().print(Markdown(found.page))
    else:
        print(found.page, end="")
    return 0


def _close_to(key: str) -> str:
    known = {name.lower(): f"{rule.id} {rule.name}" for rule in RULES for name in (rule.id, rule.name)}
    close = difflib.get_close_matches(key.lower(), known, n=6, cutoff=0.5)
    matches = list(dict.fromkeys(known[name] for name in close))[:3]
    return f"did you mean {', '.join(matches)}?" if matches else "`gpudiag explain` lists them"
