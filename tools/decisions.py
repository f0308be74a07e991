"""Count the decisions and fractions of the rules and of what they stand on: `python -m tools.decisions`.

A wrong answer is mended where its mechanism is wrong: a branch or a threshold that mends one recording fails
the next. So `make lint` runs this, which refuses more than there were. Lower `MOST`, `MOST_FRACTIONS` and
`MOST_NUMBERS` when there are fewer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import tb_gpudiag

MOST = 2_693
MOST_FRACTIONS = 53
MOST_NUMBERS = 180
FOLDERS = ("rules", "facts", "jobs/rules")
LISTED = 10


def main() -> None:
    """Exit with a message if there are more decisions or fractions than allowed."""
    sources = {path: path.read_text(encoding="utf-8") for path in _files()}
    found = {path: count(source) for path, source in sources.items()}
    total = sum(found.values())
    if total > MOST:
        most = sorted(found.items(), key=lambda item: -item[1])[:LISTED]
        sys.exit(
            f"{total:,} decisions (if, and, or, filters) in {', '.join(FOLDERS)}, {total - MOST} more than "
            "tools/decisions.py allows: mend the mechanism, or take others away. Most are in\n"
            + "\n".join(f"{count:5} {path}" for path, count in most)
        )
    own = [f"{path}: {name}" for path, source in sources.items() for name in fractions(source)]
    if len(own) > MOST_FRACTIONS:
        sys.exit(
            f"{len(own)} named fractions, and tools/decisions.py allows {MOST_FRACTIONS}: take a level of "
            "tb_gpudiag/vocabulary/levels.py, or do without.\n" + "\n".join(own)
        )
    print(f"{total:,} decisions of at most {MOST:,}" + (": lower MOST" if total < MOST else ""))
    print(f"{len(own)} named fractions of at most {MOST_FRACTIONS}")
    limits = [name for path, source in sources.items() if "facts" in path.parts for name in numbers(source)]
    if len(limits) > MOST_NUMBERS:
        sys.exit(
            f"{len(limits)} named numbers in facts, and tools/decisions.py allows {MOST_NUMBERS}: a fact is "
            "a figure, and the rule that reads it has the threshold."
        )
    print(f"{len(limits)} named numbers in facts of at most {MOST_NUMBERS}")


def _files() -> Iterable[Path]:
    root = Path(tb_gpudiag.__file__).parent
    return (path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py")))


def count(source: str) -> int:
    """Count the decisions of a module: each `if`, `elif`, conditional expression, `while` and `assert`, each
    `and` and `or`, and each filter of a comprehension."""
    return sum(_decides(node) for node in ast.walk(ast.parse(source)))


def fractions(source: str) -> list[str]:
    """Return the names of a module's constants that are numbers of their own between 0 and 1."""
    return [name for name, value in _constants(source) if _is_fraction(value)]


def numbers(source: str) -> list[str]:
    """Return the names of a module's constants that are numbers or levels."""
    return [name for name, value in _constants(source) if _is_number(value)]


def _constants(source: str) -> Iterable[tuple[str, ast.expr]]:
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            yield (ast.get_source_segment(source, node) or "").split(" = ")[0], node.value


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=int() | float()) | ast.Attribute(value=ast.Name(id="levels")):
            return True
    return False


def _is_fraction(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=float(number)):
            return 0 < number < 1
        case ast.Tuple():
            return any(map(_is_fraction, value.elts))
    return False


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
