"""Bounds on what reading a file may cost."""

from __future__ import annotations

from typing import Final

from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on one file. The defaults are far beyond what torch writes and do not exhaust a machine."""

    # The largest step reported takes more than 1 GB. A recording of such steps has about ten of them.
    max_raw_bytes: int = 16 << 30
    # gzip shrinks traces 12 to 30 times, a trace that repeats itself about 100 times. Its limit is 1032.
    max_gzip_ratio: float = 300.0
    # A file that unpacks to less than this may have any ratio.
    gzip_ratio_floor_bytes: int = 4 << 20
    # About 90 bytes each in memory, and twice that while they are sorted.
    max_events: int = 50_000_000
    # Traces are nested 6 levels deep, `args` of other writers a little deeper. A deeper event in the middle
    # of a large file goes unnoticed, up to Python's limit of recursion. It does no harm.
    max_depth: int = 256
    # The largest event seen takes 60 KB (a long list of shapes).
    max_element_bytes: int = 8 << 20
    # `deviceProperties` of 16 GPUs take 10 KB, process groups of thousands of ranks in `distributedInfo` a
    # few MB.
    max_metadata_bytes: int = 16 << 20
    # torch says that a memory snapshot easily takes gigabytes. It is read as a whole, and takes four times
    # its size in memory, or nine times without the compiled reader.
    max_snapshot_bytes: int = 4 << 30
    # Lists and dicts in a snapshot take about 100 bytes each when empty. An entry of the history has one, or
    # about fifty with C++ frames of its own.
    max_snapshot_entries: int = 50_000_000
    # In real snapshots, each of them takes 35 bytes or more; an entry without frames takes about 25.
    least_bytes_per_container: int = 12
    # Text that is parsed at a time. Measured: with 0.25 MiB, reading takes three times as long; with 1 MiB,
    # 1.5 times as long; with 8 MiB, as long, but more memory.
    chunk_bytes: int = 4 << 20
    # While it is parsed, even an empty event takes about 1 KB. When text is cut into chunks, each
    # event counts as at least this long. Real events have 150 bytes or more.
    least_event_bytes: int = 64


DEFAULT_LIMITS: Final = Limits()
