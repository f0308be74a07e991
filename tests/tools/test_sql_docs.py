"""docs/sql.md describes the tables and queries that there are."""

from __future__ import annotations

import os
from pathlib import Path

from tb_gpudiag.report.arrow.sql_query import TABLES
from tools.docs.sql_page import with_parts

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def test_the_page_describes_every_table_and_query() -> None:
    text = PAGE.read_text(encoding="utf-8")
    current = with_parts(text)
    if os.environ.get("GPUDIAG_WRITE_GOLDEN"):
        PAGE.write_text(current, encoding="utf-8")
    assert text == current, "run this test with GPUDIAG_WRITE_GOLDEN=1"
    for name in TABLES:
        assert f"### `{name}`" in text
