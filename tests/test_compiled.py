"""The compiled modules: texts of strangers reach them."""

from __future__ import annotations

import ast

from tests.conftest import REPOSITORY

MODULES = sorted((REPOSITORY / "tb_gpudiag").rglob("*.pyx"))


def test_every_one_is_built() -> None:
    setup = ast.parse((REPOSITORY / "setup.py").read_text(encoding="utf-8"))
    (compiled,) = (
        ast.literal_eval(node.value)
        for node in setup.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED"
    )
    names = [".".join(path.relative_to(REPOSITORY / "tb_gpudiag").with_suffix("").parts) for path in MODULES]
    assert sorted(compiled) == names


def test_all_check_bounds() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "boundscheck=True" in text.splitlines()[0]
        assert "boundscheck(False)" not in text
