"""The corpus of the fuzzer, with everything it found, and a few inputs of every target.

`python -m tests.fuzz TARGET --blind --seed 1` keeps the input that fails.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.inputs import CORPUS, inputs
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())

# What takes a tenth of a second each, or some milliseconds.
_SLOW = ("trace", "compile_log", "timeline", "pickled", "snapshot", "request")
_READERS = ("read", "rocprof", "nsys", "pftrace")
_INPUTS = {**dict.fromkeys(_SLOW, 8), **dict.fromkeys(_READERS, 24)}
_MANY = 60


@pytest.mark.usefixtures("in_process")  # requests need an analyzed trace
@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_corpus(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


@pytest.mark.usefixtures("in_process")
@pytest.mark.filterwarnings("error::RuntimeWarning")  # numbers that do not fit
@pytest.mark.parametrize("target", TARGETS)
def test_some_inputs(target: str) -> None:
    for content in islice(inputs(target, first=1), _INPUTS.get(target, _MANY)):
        TARGETS[target](content)


def test_every_corpus_has_a_target() -> None:
    assert {path.parent.name for path in FILES} <= set(TARGETS)
