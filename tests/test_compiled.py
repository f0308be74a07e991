"""The compiled modules: texts of strangers reach them."""

from __future__ import annotations

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "tb_gpudiag"
TYPED = [path for path in PACKAGE.rglob("*.py") if path.with_suffix(".pxd").exists()]
MODULES = sorted([*PACKAGE.rglob("*.pyx"), *TYPED])


def test_all_check_bounds() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "boundscheck=True" in text.splitlines()[0]
        assert "boundscheck(False)" not in text
