"""The lines that ran, as in a snapshot's stacks, for a trace's frames, which say where functions begin."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import torch

_FRAME = re.compile(r"([^<].*)\((\d+)\): (.*)", re.S)
_CALLED = re.compile(r"<built-in (?:method|function) (\w+)|.*\(\d+\): (\w+)|aten::(\w+)", re.S)
_ROOTS = (Path(), Path(torch.__file__).parents[1])
_SIGNS = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "pow": ast.Pow,
    "matmul": ast.MatMult,
}


def running_frames(chain: list[str]) -> list[dict[str, object]]:
    """Return the frames in a chain of a trace's names, outermost first, as torch does: innermost first.

    The line is the first one in the function that calls what comes next; where none does, the function's own.
    """
    found = []
    for name, called in zip(chain, [*chain[1:], ""], strict=True):
        if frame := _FRAME.fullmatch(name):
            file, begins, function = frame[1], int(frame[2]), frame[3]
            line = _lines(file, begins).get(_name_of(called), begins)
            found.append({"filename": file, "line": line, "name": function})
    return found[::-1]


def _name_of(called: str) -> str:
    found = _CALLED.match(called)
    return next(filter(None, found.groups())) if found else ""


@cache
def _lines(file: str, begins: int) -> dict[str, int]:
    """Return where in a function others are called, by their name."""
    found: dict[str, int] = {}
    for node in ast.walk(_functions(file).get(begins, ast.Pass())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            line = node.func.end_lineno or node.lineno
        elif isinstance(node, ast.BinOp):
            name = next((name for name, sign in _SIGNS.items() if isinstance(node.op, sign)), "")
            line = node.lineno
        else:
            continue
        found[name] = min(line, found.get(name, line))
    return found


@cache
def _functions(file: str) -> dict[int, ast.AST]:
    """Return the functions of a file by the line at which the interpreter says that they begin."""
    path = next((root / file for root in _ROOTS if (root / file).is_file()), None)
    tree = ast.parse(path.read_text() if path else "")
    kinds = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return {
        min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]): node for node in nodes
    }
