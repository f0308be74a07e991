"""Useful queries, which are in sql_questions.md: for the documentation and `gpudiag sql`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tb_gpudiag.vocabulary.patterns import lazy_re


class SqlQuestion(NamedTuple):
    """A question about a trace, and the query that answers it."""

    question: str
    query: str


_SECTION: Final = lazy_re(r"^## ([^\n]+)\n\n```sql\n(.+?)\n```$", re.MULTILINE | re.DOTALL)
_TEXT: Final = Path(__file__).with_name("sql_questions.md").read_text(encoding="utf-8")

QUESTIONS: Final = tuple(SqlQuestion(*found) for found in _SECTION.findall(_TEXT))
