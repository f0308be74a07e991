"""The table of docs/how-right-it-is.md: what was right on inputs that nobody had tuned to."""

from __future__ import annotations

import json
import re
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "truth" / "held_out.json"
_PART = re.compile(r"(<!-- held out -->\n).*?(\n<!-- end -->)", re.DOTALL)


def with_table(page: str) -> str:
    """Return the page with the table between its marks written anew."""
    return _PART.sub(lambda found: found[1] + _table() + found[2], page)


def _table() -> str:
    rows = ["| inputs | right |", "| --- | --- |"]
    for one in json.loads(RESULTS.read_text(encoding="utf-8")):
        figures = [f"{judged}: {right} of {of}" for judged, (right, of) in one["figures"].items()]
        rows.append(f"| {one['inputs']} | {'<br>'.join(figures)} |")
    return "\n".join(["", *rows, ""])
