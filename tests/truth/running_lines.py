"""The lines that ran, as in a snapshot's stacks, for a trace's frames, which say where functions begin.

Where a Python function is called is noted while the job runs. Where a built-in one is, its name says.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

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


Call = tuple[str, int, int]
"""The name of a function, the line where it begins, and the line that calls it."""


@contextmanager
def calls_noted(found: list[Call]) -> Iterator[None]:
    """Note each call of a Python function in this thread, in order."""

    def note(frame: FrameType, _event: str, _given: object) -> None:
        if frame.f_back is not None:
            found.append((frame.f_code.co_name, frame.f_code.co_firstlineno, frame.f_back.f_lineno))

    before = sys.gettrace()
    sys.settrace(note)
    try:
        yield
    finally:
        sys.settrace(before)


# In traces, a module's call has the module's name.
_CODE = torch.nn.Module.__call__.__code__
_MODULE = (_CODE.co_name, _CODE.co_firstlineno)

# The profiler itself calls some functions before the first and after the last noted one.
_MOST_SKIPPED = 1000


def calling_lines(names: list[str], calls: list[Call]) -> list[int | None]:
    """Return the line that calls each function of a trace, in order of time; None for those that were not
    noted. names: as the trace has them."""
    found: list[int | None] = []
    at = 0
    for name in names:
        frame = _FRAME.fullmatch(name)
        wanted = (frame[3], int(frame[2])) if frame else _MODULE if name.startswith("nn.Module: ") else None
        ahead = range(at, min(len(calls), at + _MOST_SKIPPED)) if wanted else ()
        if (same := next((i for i in ahead if calls[i][:2] == wanted), None)) is None:
            found.append(None)
        else:
            found.append(calls[same][2])
            at = same + 1
    return found


def running_frames(chain: list[tuple[str, int | None]]) -> list[dict[str, object]]:
    """Return the frames in a chain of a trace's names, outermost first, as torch does: innermost first. Each
    has the line that runs in it, where that is known.

    Elsewhere, it is the first line in the function that calls what comes next; where none does, the
    function's own.
    """
    found = []
    for (name, line), (called, _) in zip(chain, [*chain[1:], ("", None)], strict=True):
        if frame := _FRAME.fullmatch(name):
            file, begins, function = frame[1], int(frame[2]), frame[3]
            runs = line or _lines(file, begins).get(_name_of(called), begins)
            found.append({"filename": file, "line": runs, "name": function})
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
