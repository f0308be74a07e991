"""`gpudiag explain [NAME]`: the page of a rule, a term of the glossary, or the list of both."""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markdown import Markdown

from tb_gpudiag.errors import UsageError
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule
from tb_gpudiag.wording import vocabulary

LIST_WIDTH = 100


def run(arguments: Sequence[str]) -> int:
    """Print a page: rendered on a terminal, as Markdown otherwise."""
    parsed = parser().parse_args(arguments)
    if parsed.name is None:
        print("\n".join(_list()))
        return 0
    page = _page(parsed.name)
    if page is None:
        raise UsageError("no rule or term has this name", where=parsed.name, remedy=_close_to(parsed.name))
    if sys.stdout.isatty():
        Console().print(Markdown(page))
    else:
        print(page, end="")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag explain",
        description="Prints what a rule looks for and what to do about it, or what a term means.",
    )
    made.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a rule's id or name, such as GD101 or input_pipeline, or a term, such as 'step window'",
    )
    return made


def _page(name: str) -> str | None:
    """The page of a rule, else of all terms with this name: one id can be a cause and a limiter."""
    rule = find_any_rule(name)
    if rule is not None:
        return rule.page
    entries = vocabulary.find(name)
    return "\n".join(entry.page for entry in entries) if entries else None


def _list() -> Iterator[str]:
    for rule in sorted(EVERY_RULE, key=lambda rule: rule.id):
        yield f"{rule.id}  {rule.name:22} {rule.title}"
    names = ", ".join(entry.name for entry in vocabulary.concepts())
    yield from ["", *textwrap.wrap(f"Terms: {names}", LIST_WIDTH)]


def _close_to(key: str) -> str:
    known = {name.lower(): f"{rule.id} {rule.name}" for rule in EVERY_RULE for name in (rule.id, rule.name)}
    for entry in vocabulary.entries():
        known |= {name.lower(): entry.name for name in (entry.id, entry.name) if name}
    close = difflib.get_close_matches(key.lower(), known, n=6, cutoff=0.5)
    matches = list(dict.fromkeys(known[name] for name in close))[:3]
    return f"did you mean {', '.join(matches)}?" if matches else "`gpudiag explain` lists them"
