"""The compiled modules: texts of strangers reach them."""

from __future__ import annotations

from tests.conftest import REPOSITORY

MODULES = sorted((REPOSITORY / "tb_gpudiag").rglob("*.pyx"))


def test_all_check_bounds() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "boundscheck=True" in text.splitlines()[0]
        assert "boundscheck(False)" not in text
