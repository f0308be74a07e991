"""Offer lines of the user's functions that can be meant, where their source is at hand.

A trace since torch 1.12 names the function, not the line that ran. The command line runs where the source
often is; TensorBoard shows pages to others, so its user names the folder whose files may be read. A path in a
trace is not trusted: only a regular `.py` file of bounded size is read, and only if the function really is
defined at the line that the trace names. Nothing but a line that calls what took the time is shown.
"""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from functools import lru_cache

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import say_where
from tb_gpudiag.wording.format import one_line

# The largest modules of large projects have a few hundred KB.
MOST_BYTES = 1 << 20
# More lines than this that call the same function do not help to choose.
MOST_LINES = 3
# A line of code is shorter.
LONGEST_LINE = 160

_SIGNS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("add",),
    ast.Sub: ("sub",),
    ast.Mult: ("mul",),
    ast.Div: ("div",),
    ast.Pow: ("pow",),
    ast.MatMult: ("matmul", "mm", "bmm", "mv"),
}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def add_source_lines(report: pb.Report, root: str = "") -> None:
    """Add the candidates to the places of the findings, and to the verdict's.

    root: only files below this folder are read, wherever links lead; "" for any file, below the working
        directory if its path is relative.
    """
    for finding in report.findings:
        for place in finding.places:
            if place.HasField("caller"):
                _add(place.caller, place.function, root)
            elif place.operator:
                # How code calls an operator: `aten::index_put_` is `index_put_`.
                name = place.operator.rpartition("::")[2]
                _add(place, {"_local_scalar_dense": "item", "_to_copy": "to"}.get(name, name), root)
    say_where(report)


def _add(place: pb.Place, called: str, root: str) -> None:
    if place.line_kind != pb.Place.LineKind.DEFINITION or not place.line or not called:
        return
    # Windows would log in to the machine that such a path names, which a trace must not choose.
    if place.file.replace("\\", "/").startswith("//"):
        return
    file = _below(root, place.file) if root else place.file
    lines = _source(file)
    for number in _calls(file, place.function, place.line, called)[:MOST_LINES]:
        place.candidates.add(line=number, text=one_line(lines[number - 1].strip(), LONGEST_LINE))


def _below(root: str, file: str) -> str:
    """Return the file in the folder; "" if it is somewhere else."""
    if "\0" in file:
        return ""
    folder = os.path.join(os.path.realpath(root), "")
    path = os.path.realpath(os.path.join(folder, file))
    return path if path.startswith(folder) else ""


@lru_cache(maxsize=256)
def _calls(file: str, function: str, line: int, called: str) -> tuple[int, ...]:
    """Lines of a function that call something of this name."""
    tree = _tree(file)
    if tree is None:
        return ()
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name == function and line in _first_lines(node):
            return tuple(sorted({inner.lineno for inner in _own(node) if _is_call(inner, called)}))
    return ()


def _first_lines(node: _Function) -> set[int]:
    """Lines at which Python may say that a function begins: its `def`, or its first decorator."""
    return {node.lineno, *(decorator.lineno for decorator in node.decorator_list[:1])}


def _own(node: _Function) -> Iterator[ast.expr | ast.stmt]:
    """Expressions and statements of a function, without those of functions inside of it."""
    todo: list[ast.AST] = list(node.body)
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(inner, (ast.expr, ast.stmt)):
            yield inner
        todo += ast.iter_child_nodes(inner)


def _is_call(node: ast.expr | ast.stmt, called: str) -> bool:
    """Return whether this is a call of that name, or the sign for it: `a + b` is `add`."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return called.rstrip("_") in _SIGNS.get(type(node.op), ())
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return called == (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""))


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("\n".join(_source(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=64)
def _source(file: str) -> tuple[str, ...]:
    """Lines of a file; none if it is not a Python file to read."""
    if not file.endswith(".py") or "\0" in file:
        return ()
    try:
        # Not blocking: opening a pipe would wait for a writer.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return ()
            return tuple(opened.read(MOST_BYTES).decode("utf-8").split("\n"))
    except (OSError, ValueError):
        return ()
