"""docs/how-right-it-is.md has the figures that are kept beside the jobs."""

from __future__ import annotations

import os

from tests.conftest import REPOSITORY
from tools.docs.held_out import with_table

PAGE = REPOSITORY / "docs" / "how-right-it-is.md"


def test_the_page_has_the_figures_of_held_out_inputs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    current = with_table(text)
    if os.environ.get("GPUDIAG_WRITE_GOLDEN"):
        PAGE.write_text(current, encoding="utf-8")
    assert text == current, "run this test with GPUDIAG_WRITE_GOLDEN=1"
    assert "of 16<br>" in current
