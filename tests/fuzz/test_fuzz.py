"""The corpus of the fuzzer, with everything it found, and a few inputs of every target.

`python -m tests.fuzz TARGET --blind --seed 1` keeps the input that fails.
"""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from tests.fuzz.inputs import CORPUS, input_of
from tests.fuzz.odd_files import KINDS, file_with
from tests.fuzz.odd_values import Deep, shared
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
    for seed in range(1, 1 + _INPUTS.get(target, _MANY)):
        TARGETS[target](input_of(target, seed))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_nested_or_shared_without_end_in_any_place(kind: str) -> None:
    for seed, value in product(range(6), (Deep(100_000), shared(40))):
        TARGETS[kind](file_with(kind, value, random.Random(seed)))


def test_every_corpus_has_a_target() -> None:
    assert {path.parent.name for path in FILES} <= set(TARGETS)
