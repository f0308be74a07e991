"""The recordings at hand, and a name for each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import REPOSITORY, SHARED_TRACES
from tests.real_traces import FILES


def _named(paths: Iterable[str]) -> dict[str, str]:
    """Return path -> a name without time and machine: the folder, with the file's first word where the words
    differ, and a number where they do not."""
    names: dict[str, str] = {}
    for folder, inside in groupby(sorted(paths), os.path.dirname):
        words = {path: Path(path).name.split(".")[0] for path in inside}
        for path, word in words.items():
            name = folder if len(set(words.values())) == 1 else f"{folder}/{word}"
            same = [other for other in words if words[other] == word]
            names[path] = f"{name} {same.index(path) + 1}" if len(same) > 1 else name
    return names


def _found(root: Path, *folders: str) -> list[str]:
    """Return the files to diagnose in folders of a root, as paths below it."""
    files = [file.path for folder in folders for file in find_traces(str(root / folder)).files]
    return [Path(path).relative_to(root).as_posix() for path in files]


RECORDED = _named(
    _found(REPOSITORY, "demo/recorded", "tb_gpudiag/demo_log/recorded_on_a_cpu", "tests/truth/gpu/recorded")
)
TRACES = _named(FILES)
# Those of `hostile` are about limits, not about what is said.
OTHERS = _named(_found(SHARED_TRACES.parent, "kernels", "nsys", "reports", "snapshots"))
