"""What does not make another job of a recording does not change what is said of it: see README.md."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_essentials
from tb_gpudiag.trace.files.file_names import TraceFile
from tests.conftest import REPOSITORY, SHARED_TRACES
from tests.golden.recordings import OTHERS, RECORDED, TRACES
from tests.golden.table import Table, answer
from tests.invariance.transformations import TRANSFORMATIONS, Transformation
from tests.trace.support import read_bytes

ALL = bool(os.environ.get("GPUDIAG_ALL_INVARIANCE"))
KNOWN = Path(__file__).with_name("known.tsv")

# Larger files take seconds for each change. What they are about is in smaller ones, too.
MOST_BYTES = 188_000

HOST = {"launch", "python"}
"""Without stacks, what the host does between operators cannot be told from what they do."""

OWN, SHARED = Table("recordings.tsv"), Table("shared_recordings.tsv")


def _json_files(root: Path, named: dict[str, str]) -> dict[str, str]:
    """Return the traces that are not too large: path below the root -> name."""
    return {
        path: name
        for path, name in named.items()
        if path.endswith((".json", ".json.gz")) and (root / path).stat().st_size <= MOST_BYTES
    }


OF_PROJECT = _json_files(REPOSITORY, RECORDED)
OF_OTHERS = {
    **{path: f"traces/{name}" for path, name in _json_files(SHARED_TRACES, TRACES).items()},
    **{f"../{path}": name for path, name in _json_files(SHARED_TRACES.parent, OTHERS).items()},
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", OF_PROJECT)
def test_a_recording_of_the_project(path: str) -> None:
    name = OF_PROJECT[path]
    _check(name, REPOSITORY / path, OWN.gist(name), list(OF_PROJECT).index(path))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", OF_OTHERS)
def test_a_recording_of_others(path: str, shared_traces: Path) -> None:
    name = OF_OTHERS[path]
    _check(name, shared_traces / path, SHARED.gist(name), list(OF_OTHERS).index(path))


def _check(name: str, path: Path, expected: tuple[str, str], number: int) -> None:
    """Compare what is said of a changed file: of each change, or of one, another for each recording."""
    known = _known()
    wrong = []
    chosen = TRANSFORMATIONS if ALL else (TRANSFORMATIONS[number % len(TRANSFORMATIONS)],)
    for transformation in chosen:
        found = _said(path, transformation)
        if found is None:
            continue
        stays = _gist(found, transformation) == _gist(expected, transformation)
        reason = known.get((name, transformation.name))
        if stays != (reason is None):
            wrong.append(f"{name}\t{transformation.name}\t{' '.join(expected)} -> {' '.join(found)}")
    assert not wrong, "see tests/invariance/README.md\n" + "\n".join(wrong)


def _gist(said: tuple[str, str], transformation: Transformation) -> Any:
    if transformation.keeps_first:
        return said
    return "host" if said[0] in HOST else said[0]


def _said(path: Path, transformation: Transformation) -> tuple[str, str] | None:
    """Return the limiter and the rule of the first loud finding; None where the change does not apply."""
    content = path.read_bytes()
    try:
        document = orjson.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except orjson.JSONDecodeError:  # which the reader repairs
        return None
    events = document if isinstance(document, list) else document["traceEvents"]
    changed = transformation.change([event for event in events if isinstance(event, dict)])
    if changed is None:
        return None
    document = changed if isinstance(document, list) else {**document, "traceEvents": changed}
    facts = Facts(read_bytes(orjson.dumps(document)))
    report = build_essentials(facts, TraceFile(path.name, ".", "worker", "", 0, 0, path.name))
    limiter, loud = answer(report).split("\t")
    return limiter, loud.split(" ")[0].strip("!;")


def _known() -> dict[tuple[str, str], str]:
    """Return recording and change -> why something else is said."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {(name, change): why for name, change, why in (line.split("\t") for line in lines)}
