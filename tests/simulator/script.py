"""Line numbers of train.py, for the names of Python frames."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

SCRIPT = Path(__file__).with_name("train.py")


@lru_cache
def _lines() -> dict[str, int]:
    """Return qualified function name -> the line where it begins."""
    text = SCRIPT.read_text(encoding="utf-8")
    found = {"<module>": len(text.splitlines())}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node.lineno
        elif isinstance(node, ast.ClassDef):
            methods = (method for method in node.body if isinstance(method, ast.FunctionDef))
            found |= {f"{node.name}.{method.name}": method.lineno for method in methods}
    return found


def place(function: str) -> str:
    """Return the frame of a function of train.py as traces name it: `train.py(12): forward` for
    "Block.forward"."""
    return f"train.py({_lines()[function]}): {function.rpartition('.')[2]}"
