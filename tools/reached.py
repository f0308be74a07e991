"""Check that each module of the package is reached from an entry point: `python -m tools.reached`.

Code that only tests reach looks used, and is not. `make lint` runs this.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tb_gpudiag
from tb_gpudiag.cli.main import COMMANDS
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES

ENTRY_POINTS = (
    "tb_gpudiag",  # the public API
    "tb_gpudiag.__main__",
    "tb_gpudiag.cli.main",  # the command, which imports a module by the name of a subcommand
    *(f"tb_gpudiag.cli.{command}" for command in COMMANDS),
    "tb_gpudiag.loader",  # the plugin
    "tb_gpudiag.training.lightning_callback",  # users import these two
    "tb_gpudiag.training.transformers_callback",
    *(f"{rule.package}.{rule.name}" for rule in JOB_RULES),  # imported by name
)


def main() -> None:
    found = unreached(Path(tb_gpudiag.__file__).parent, ENTRY_POINTS)
    if found:
        sys.exit(
            "\n".join(f"{path}: no entry point reaches this module (see tools/reached.py)" for path in found)
        )


def unreached(package: Path, entry_points: Iterable[str]) -> list[Path]:
    """Return the files of a package that neither an entry point nor a module that it reaches names."""
    files = {
        _dotted(path, package): path
        for path in sorted(package.rglob("*.py*"))
        if path.suffix in (".py", ".pyx")
    }
    todo = list(entry_points)
    if missing := [name for name in todo if name not in files]:
        raise ValueError(f"there is no module {', '.join(missing)}")
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name in files and name not in reached:
            reached.add(name)
            todo += [name.rpartition(".")[0], *_named(files[name])]
    return [path for name, path in files.items() if name not in reached]


def _dotted(path: Path, package: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _named(path: Path) -> Iterator[str]:
    """Return what a module names: what it imports anywhere, and texts, which processes import by name."""
    if path.suffix == ".pyx":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (node.value, f"{node.value}.__main__")


if __name__ == "__main__":
    main()
