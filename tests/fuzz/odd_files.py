"""Files of each kind as attackers and broken writers leave them: whole ones, changed in a few places."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tests.fuzz import whole_files, writers
from tests.fuzz.mutate import EVERY, IN_ROWS, TYPED, change, damaged, put

DAMAGED_SHARE: Final = 0.15
"""So many are changed byte by byte as well, or cut off."""

_PARTS: Final = (1, 1, 1, 2, 2, 2, 3, 3, 4, 1_000)
"""So many parts a file has: one of ten is whole. A few parts are read in a third of the time, and more of the
changes are in what is read."""

_OF_TABLES: Final = ("rocprof", "nsys")
_CROWD_SHARE: Final = 0.3
_CROWD: Final = 24
"""So many files of tables have each row so often, and as many more changes: readers take columns, and hardly
longer for 24 rows than for one."""

_KINDS: Final[dict[str, tuple[tuple[Callable[[], Any], ...], tuple[writers.Writer, ...]]]] = {
    "dumps": ((whole_files.dump,), (writers.as_pickle, writers.as_json)),
    "snapshots": ((whole_files.snapshot, whole_files.segments), (writers.as_pickle,)),
    "rocprof": ((whole_files.rocprof, whole_files.rocprof_of_kernels), (writers.as_json,)),
    "nsys": ((whole_files.export, whole_files.export_of_kernels), (writers.as_database,)),
    "pftrace": ((whole_files.packets,), (writers.as_wire,)),
    "clocks": ((whole_files.clock_lines,), (writers.as_events,)),
    "clock_states": ((whole_files.clock_now, whole_files.clock_recordings), (writers.as_json,)),
    "compile_logs": ((whole_files.compile_log,), (writers.as_log,)),
}
"""What a whole file says, and the forms that it is written in."""

KINDS: Final = tuple(_KINDS)


def odd_file(kind: str, draw: random.Random) -> bytes:
    """Return a file of a kind, changed."""
    document = pickle.loads(draw.choice(_documents(kind)))
    parts = whole_files.parts(document)
    kept = min(len(parts), draw.choice(_PARTS))
    is_crowd = kind in _OF_TABLES and kept < len(parts) and draw.random() < _CROWD_SHARE
    left_out = set(draw.sample(range(len(parts)), len(parts) - kept))
    for number in reversed(range(len(parts))):  # the places of earlier ones stay
        container, part = parts[number]
        if number in left_out:
            del container[part]
        elif is_crowd:
            rows = pickle.dumps(container[part])
            container[part] = [row for _ in range(_CROWD) for row in pickle.loads(rows)]
    if is_crowd:
        change(document, draw, IN_ROWS, _CROWD)
    else:
        change(document, draw, TYPED if draw.random() < 0.5 else EVERY)
    written = draw.choice(_KINDS[kind][1])(document, draw)
    return damaged(written, draw) if draw.random() < DAMAGED_SHARE else written


def file_with(kind: str, value: Any, draw: random.Random) -> bytes:
    """Return a file of a kind that has this value somewhere."""
    document = pickle.loads(draw.choice(_documents(kind)))
    put(value, document, draw)
    return draw.choice(_KINDS[kind][1])(document, draw)


@cache
def whole_file(kind: str) -> bytes:
    """Return a file of a kind that has nothing odd."""
    documents, forms = _KINDS[kind]
    return forms[0](documents[0](), random.Random(0))


@cache
def _documents(kind: str) -> tuple[bytes, ...]:
    """Copies are made from a pickle: that is ten times as fast as to build or to copy them."""
    return tuple(pickle.dumps(document()) for document in _KINDS[kind][0])
