"""What reading a file may cost at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Limits:
    """Bounds on one file. Each default is far beyond what torch writes, and small enough not to exhaust a
    machine."""

    # A step of more than 1 GB is the largest reported; a whole window of such is some ten of them.
    max_raw_bytes: int = 16 << 30
    # Traces pack 12 to 30 times; a trace that repeats itself, some 100 times. deflate's own limit is 1032.
    max_gzip_ratio: float = 300.0
    # A small file may have any ratio: what it unpacks to is no burden.
    gzip_ratio_floor_bytes: int = 64 << 20
    # About 90 bytes each in memory: twice this while they are sorted.
    max_events: int = 50_000_000
    # Traces nest to 6; `args` of other writers somewhat deeper. Within one event amid a large file more goes
    # unseen: the parser does not recurse, and what is not read costs nothing.
    max_depth: int = 256
    # The largest event seen has 60 KB (a long list of shapes).
    max_element_bytes: int = 8 << 20
    # `deviceProperties` of 16 GPUs take 10 KB; process groups of thousands of ranks in `distributedInfo`
    # take some MB.
    max_metadata_bytes: int = 16 << 20
    # Of a memory snapshot, of which torch says that it can easily have gigabytes. All of it is held while it
    # is read, and becomes some six times as large.
    max_snapshot_bytes: int = 4 << 30
    # Lists and dicts of a snapshot, about 100 bytes each with nothing in them. An entry of the history is
    # one, and with C++ frames of its own some fifty.
    max_snapshot_entries: int = 50_000_000
    # Text handed to the parser at a time. Measured: with 0.25 MiB reading takes three times as long, with 1
    # MiB half as long again, with 8 MiB as long and more memory.
    chunk_bytes: int = 4 << 20


DEFAULT_LIMITS: Final = Limits()
