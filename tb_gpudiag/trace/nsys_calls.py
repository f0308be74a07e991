"""Host calls that Nsight Systems recorded: of CUDA, of the system's libraries, and its own overhead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from tb_gpudiag.trace.columns import Part
from tb_gpudiag.trace.events import Category, Int64
from tb_gpudiag.trace.nsys_database import Database, Rows
from tb_gpudiag.trace.nsys_parts import Processes, host_threads, named, part
from tb_gpudiag.trace.nsys_spans import Covered
from tb_gpudiag.trace.nsys_stacks import Stacks

_CALL: Final = ("start", "end", "globalTid", "nameId")
# CUPTI appends the version that brought the call in this form, and says which default stream it uses.
_SUFFIX: Final = re.compile(r"((_ptsz|_ptds)?_v\d{4,5}|_ptsz|_ptds)\Z")
_DRIVER: Final = re.compile(r"cu(?!da)")
# Calls shorter than this are not waits, and the profiler itself makes many of them.
_LEAST_WAIT_NS: Final = 1_000


def api_calls(database: Database, processes: Processes, covered: Covered, stacks: Stacks) -> Iterator[Part]:
    """Read the calls of CUDA's runtime and driver. `covered` learns when each thread was in one."""
    for rows in database.chunks("CUPTI_ACTIVITY_KIND_RUNTIME", (*_CALL, "correlationId", "callchainId")):
        at = rows.numbers
        name = named(database, at["nameId"], lambda text: _SUFFIX.sub("", text))
        drivers = np.array([_DRIVER.match(n) is not None for n in name.dictionary.to_pylist()], np.bool_)
        category = np.where(
            drivers[name.indices.to_numpy()], np.uint8(Category.DRIVER), np.uint8(Category.RUNTIME)
        )
        thread, threads = host_threads(at["globalTid"])
        correlation = processes.correlation(at["globalTid"], at["correlationId"])
        covered.add(at["globalTid"], at["start"], at["end"])
        yield part(
            category,
            name,
            at["start"],
            at["end"],
            thread,
            threads,
            {"correlation": correlation},
            stacks=stacks.of(at["globalTid"], at["start"], at["end"], at["callchainId"]),
        )


def overhead(database: Database) -> Iterator[Part]:
    """Read the profiler's own work, such as allocating its buffers."""
    for rows in database.chunks("PROFILER_OVERHEAD", _CALL):
        yield _calls(rows, database, Category.OVERHEAD)


def _calls(rows: Rows, database: Database, category: Category) -> Part:
    at = rows.numbers
    thread, threads = host_threads(at["globalTid"])
    return part(category, named(database, at["nameId"]), at["start"], at["end"], thread, threads)


def system_calls(database: Database, threads_kept: Int64, covered: Covered) -> Iterator[Part]:
    """Read calls of the system's libraries in which a thread waits, such as `poll (OS)`, as annotations.

    Only those of threads that call CUDA or have ranges (global ids), and outside of CUDA's calls: inside,
    they are how CUDA waits.
    """
    for rows in database.chunks("OSRT_API", _CALL):
        at = rows.numbers
        chosen = np.isin(at["globalTid"], threads_kept) & (at["end"] - at["start"] >= _LEAST_WAIT_NS)
        chosen &= ~covered.contains(at["globalTid"], at["start"], at["end"])
        own = Rows({key: values[chosen] for key, values in at.items()}, {})
        if len(own):
            at = own.numbers
            thread, threads = host_threads(at["globalTid"])
            name = named(database, at["nameId"], lambda text: f"{text} (OS)")
            yield part(Category.USER_ANNOTATION, name, at["start"], at["end"], thread, threads)
