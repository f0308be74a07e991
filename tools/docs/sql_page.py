"""The generated parts of docs/sql.md: the columns of every table, and the useful queries."""

from __future__ import annotations

import re
from importlib import resources

from tb_gpudiag.wording.vocabulary import QUESTIONS

_TABLES = resources.files("tb_gpudiag.report.arrow") / "tables.md"
_PART = re.compile(r"(<!-- (queries|tables) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def with_parts(page: str) -> str:
    """Return the page with the parts between its marks written anew."""
    made = {"queries": _queries(), "tables": _TABLES.read_text(encoding="utf-8").strip()}
    return _PART.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def _queries() -> str:
    return "\n\n".join(f"**{each.question}**\n\n```sql\n{each.query}\n```" for each in QUESTIONS)
