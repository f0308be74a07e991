"""Names in traces are spelled out in vocabulary/ and trace/kineto/kineto.py, and nowhere above them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_layers import PACKAGE, modules
from tests.with_each import with_each

FUNCTIONS = frozenset(
    {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}
)

NOT_ABOUT_NAMES = {
    "facts/kernels/peaks.py": "product names of GPUs, with what their makers state",
    "rules/rule.py": "blocks of code on the rules' pages",
}
"""Modules of facts/ and rules/ whose patterns are not about names of calls, operators, frames or kernels."""

SPELLED = re.compile(
    r"(aten|c10d?|autograd|torch)::|Memcpy |nn\.Module: |ProfilerStep|(cuda|hip|cu)[A-Z]\w+$"
)
"""How names in traces begin."""


def uses_of_patterns(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Find calls of `re`'s functions: (line, the call)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in FUNCTIONS:
                yield node.lineno, ast.unparse(node)


def spelled_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Find string constants that spell a name in a trace, docstrings excepted: (line, the string)."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in statements:
            continue
        if isinstance(node.value, str) and SPELLED.match(node.value):
            yield node.lineno, node.value


def modules_of(*layers: str) -> Iterator[tuple[str, ast.Module]]:
    for module, tree in modules():
        if module.split(".")[0] in layers:
            yield f"{module.replace('.', '/')}.py", tree


@pytest.mark.slow
def test_facts_and_rules_have_no_patterns_of_their_own() -> None:
    found = [
        f"tb_gpudiag/{name}:{line} {use}\n  move the pattern to a module of vocabulary/"
        for name, tree in modules_of("facts", "rules")
        if name not in NOT_ABOUT_NAMES
        for line, use in uses_of_patterns(tree)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
def test_facts_spell_no_names() -> None:
    found = [
        f"tb_gpudiag/{name}:{line} {text!r}\n  move the name to a module of vocabulary/"
        for name, tree in modules_of("facts")
        for line, text in spelled_names(tree)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("name", sorted(NOT_ABOUT_NAMES))
def test_exceptions_are_needed(name: str) -> None:
    assert list(uses_of_patterns(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))))


@with_each(
    ("code", "found"),
    [
        ('import re\nX = re.compile(r"aten::mm")', True),
        ('def f(name):\n    return re.search("aten::mm", name)', True),
        ("def f(pattern: re.Pattern[str], name: str): return pattern.fullmatch(name)", False),
    ],
)
def test_a_pattern_is_seen(code: str, found: bool) -> None:
    assert bool(list(uses_of_patterns(ast.parse(code)))) is found


@with_each(
    ("code", "found"),
    [
        ('X = {"aten::mm": 0}', True),
        ('def f(name): return name.removeprefix("nn.Module: ")', True),
        ('def f(names): return "cudaMalloc" in names', True),
        ('def f():\n    """aten::mm and the like."""', False),
        ('X = "cuda"', False),
    ],
)
def test_a_spelled_name_is_seen(code: str, found: bool) -> None:
    assert bool(list(spelled_names(ast.parse(code)))) is found
