"""No reader lets a credential through, in whatever text of its file it stands, plain or escaped."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.trace.compile_log.read_log import read_compile_log
from tb_gpudiag.trace.flight_recorder.read_dump import read_dumps
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.step_clocks.clock_state import read_state
from tests.trace.credentials.planted_files import FILES, SECRET

# What reads no texts that are shown: where files are, and how they start.
OPEN_WITHOUT_TEXTS = {
    "trace/files": "finds files",
    "trace/kineto/changed_copy.py": "copies bytes, which its callers filter",
    "trace/credentials/scrubbed_copy.py": "filters bytes",
    "trace/files_beside.py": "reads numbers of processes",
    "trace/nsys/": "is called by read_trace",
    "trace/step_clocks/clock_state.py": "reads numbers",
}


def _read(kind: str, path: str) -> object:
    if kind == "step clock":
        return read_state(path, "", "run")
    if kind == "compile log":
        return read_compile_log(path)
    return read_dumps([path]) if "dump" in kind else read_trace(path)


@pytest.mark.parametrize("kind", FILES)
def test_what_a_reader_returns_has_no_credential(kind: str, tmp_path: Path) -> None:
    found = _read(kind, str(FILES[kind](tmp_path)))
    shown = repr(found)
    assert SECRET not in shown
    assert "[removed]" in shown
    assert SECRET.encode() not in pickle.dumps(found)


def _modules_that_open_files() -> Iterator[tuple[str, set[str]]]:
    """Modules of trace/ that open files, with the names that each of them uses."""
    package = Path(tb_gpudiag.__file__).parent
    for path in sorted((package / "trace").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if names & {"open", "open_local", "first_bytes", "Source"}:
            yield path.relative_to(package).as_posix(), names


def test_every_reader_passes_what_it_returns_through_the_search() -> None:
    for module, names in _modules_that_open_files():
        if not module.startswith(tuple(OPEN_WITHOUT_TEXTS)):
            assert "cleaned" in names, (
                f"{module} opens files: return `cleaned(...)`, and add its file to FILES"
            )
