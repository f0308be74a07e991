"""Count the decisions of the rules and of what they stand on: `python -m tools.decisions`.

A wrong answer is mended where its mechanism is wrong: a branch that mends one recording fails the next.
So `make lint` runs this, which refuses more decisions than there were. Lower `MOST` when there are fewer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import tb_gpudiag

MOST = 3_949
FOLDERS = ("rules", "facts", "jobs/rules")
LISTED = 10


def main() -> None:
    """Exit with a message if there are more decisions than `MOST`."""
    found = decisions(Path(tb_gpudiag.__file__).parent / folder for folder in FOLDERS)
    total = sum(found.values())
    if total > MOST:
        most = sorted(found.items(), key=lambda item: -item[1])[:LISTED]
        sys.exit(
            f"{total:,} decisions (if, and, or, filters) in {', '.join(FOLDERS)}, {total - MOST} more than "
            "tools/decisions.py allows: mend the mechanism, or take others away. Most are in\n"
            + "\n".join(f"{count:5} {path}" for path, count in most)
        )
    print(f"{total:,} decisions of at most {MOST:,}" + (": lower MOST" if total < MOST else ""))


def decisions(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the number of decisions of each Python file below the folders."""
    files = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    return {path: count(path.read_text(encoding="utf-8")) for path in files}


def count(source: str) -> int:
    """Count the decisions of a module: each `if`, `elif`, conditional expression, `while` and `assert`, each
    `and` and `or`, and each filter of a comprehension."""
    return sum(_decides(node) for node in ast.walk(ast.parse(source)))


def _decides(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
            return 1
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return len(node.ifs)
    return 0


if __name__ == "__main__":
    main()
