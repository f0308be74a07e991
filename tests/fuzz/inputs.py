"""What a target is given: files of its corpus, changed, and what is made anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tests.fuzz.mutate import damaged, mutated
from tests.fuzz.odd_events import odd_array, odd_text
from tests.fuzz.odd_files import KINDS, odd_file
from tests.fuzz.tiny import tiny_recording

CORPUS = Path(__file__).with_name("corpus")

TINY_SHARE = 0.6
"""So many of the traces are tiny recordings: these have found more than mutations of larger ones."""

MADE_SHARE = 0.9
"""So many of the inputs of readers and of compiled modules alone are made anew."""

_MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "scan": odd_array,
    "find": odd_text,
    **{kind: partial(odd_file, kind) for kind in KINDS},
}


def input_of(target: str, seed: int) -> bytes:
    """Return the input of a seed."""
    return made(target, random.Random(seed).choice(_corpus(target)), seed)


@cache
def _corpus(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))] or [b""]


def made(target: str, content: bytes, seed: int) -> bytes:
    """Return an input for a target. content: a file of its corpus; empty without one."""
    draw = random.Random(seed)
    if target == "trace" and draw.random() < TINY_SHARE:
        content = tiny_recording(draw)
        return mutated(content, seed) if draw.random() < 0.1 else content
    if target in _MAKERS and (not content or draw.random() < MADE_SHARE):
        return _MAKERS[target](draw)
    changed = mutated(content, seed)
    return changed if changed != content else damaged(content, draw)
