"""The corpus of the fuzzer, with everything it found, and a few structured mutations of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS
from tests.fuzz.tiny import tiny_recording

pytestmark = pytest.mark.slow

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())
DOCUMENTS = [path for path in FILES if path.parent.name in {"trace", "timeline", "snapshot"}]


@pytest.mark.usefixtures("in_process")  # requests need an analyzed trace
@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_corpus(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


@given(st.sampled_from(DOCUMENTS), st.integers(0, 2**32))
@settings(max_examples=30)
def test_mutations_of_the_corpus(file: Path, seed: int) -> None:
    TARGETS[file.parent.name](mutated(file.read_bytes(), seed))


@given(st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_tiny_recordings(draw: random.Random) -> None:
    TARGETS["trace"](tiny_recording(draw))


def test_every_target_has_a_corpus() -> None:
    assert {path.parent.name for path in FILES} == set(TARGETS)
