"""Read an SQLite file that `nsys export` wrote into a Trace, so that all else works as for torch's traces.

Versions 2022 to 2026 differ in tables and columns. What a file has is read, by its own schema:

| table | becomes |
| --- | --- |
| CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _GRAPH_TRACE | GPU work |
| CUPTI_ACTIVITY_KIND_RUNTIME, _SYNCHRONIZATION | calls, and CUPTI's records of waits |
| NVTX_EVENTS | operators (`emit_nvtx`), annotations and steps |
| CUDA_CALLCHAINS, COMPOSITE_EVENTS, SAMPLING_CALLCHAINS | Python stacks of calls and operators |
| OSRT_API, SCHED_EVENTS | annotations, such as `poll (OS)` and `preempted (OS)` |
| CUDA_GPU_MEMORY_USAGE_EVENTS | memory that the driver gave |
| GPU_METRICS | counters |
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.files.limits import Limits
from tb_gpudiag.trace.files.source import Source, is_remote
from tb_gpudiag.trace.nsys.nsys_calls import Covered, Ranges, api_calls, off_cpu, overhead, system_calls
from tb_gpudiag.trace.nsys.nsys_database import EXPORT_AGAIN, Database
from tb_gpudiag.trace.nsys.nsys_gpu import (
    GPU_TABLES,
    copies,
    gpu_metrics,
    graphs,
    kernels,
    memory,
    memsets,
    syncs,
)
from tb_gpudiag.trace.nsys.nsys_names import Processes
from tb_gpudiag.trace.nsys.nsys_stacks import PythonStacks
from tb_gpudiag.trace.nsys.nsys_target import (
    credentials,
    devices,
    metadata,
    notes,
    properties,
    thread_names,
    users_of_gpus,
)
from tb_gpudiag.trace.trace_parts import TracePart

_HOST_TABLES: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")


def read_export(
    source: Source, blocks: Iterator[bytes], limits: Limits, report: Callable[[float, str], None]
) -> Trace:
    """Read an export. SQLite needs a file: what is remote or packed is copied to a temporary one."""
    if not is_remote(source.path) and not source.is_packed:
        source.check_path()  # SQLite opens it again
        trace = read_nsys(source.path, limits, report)
        source.check_path()
        return trace
    with tempfile.NamedTemporaryFile(prefix="gpudiag-", suffix=".sqlite") as copy:
        for block in blocks:
            copy.write(block)
        copy.flush()
        return read_nsys(copy.name, limits, report, source.path)


def read_nsys(path: str, limits: Limits, report: Callable[[float, str], None], name: str = "") -> Trace:
    """Read the file. name: what errors call it, if `path` is a copy.

    Raises only TraceError: NotATrace, TooLarge, Unreadable.
    """
    with Database(path, limits, name) as database:
        if not any(database.has(table, "start", "end") for table in (*GPU_TABLES, *_HOST_TABLES)):
            if any(name.startswith("rocpd_") for name in database.tables):
                raise NotATrace(
                    "it is a database of rocprofv3 (rocpd), which is not read",
                    where=name or path,
                    remedy="record with rocprofv3 --output-format json",
                )
            raise NotATrace(
                "it has no activity of GPUs or of the host that can be read",
                where=name or path,
                remedy="record with nsys profile --trace=cuda,nvtx,osrt; " + EXPORT_AGAIN,
            )
        return _read(database, report)


def _read(database: Database, report: Callable[[float, str], None]) -> Trace:
    assembly, processes, covered = Assembly(), Processes(), Covered()
    listed = properties(database)
    gpus = devices(database, listed, users_of_gpus(database, GPU_TABLES))
    ranges, stacks = Ranges(database), PythonStacks(database)
    stages: tuple[Callable[[], Iterator[TracePart]], ...] = (
        lambda: kernels(database, gpus, processes),
        lambda: copies(database, gpus, processes),
        lambda: memsets(database, gpus, processes),
        lambda: graphs(database, gpus, processes),
        lambda: syncs(database, gpus, processes),
        lambda: ranges.parts(covered, stacks),
        lambda: api_calls(database, processes, covered, stacks),
        lambda: system_calls(database, covered.threads, covered),
        lambda: off_cpu(database, covered.threads, covered),
        lambda: overhead(database),
        lambda: memory(database, gpus),
        lambda: gpu_metrics(database),
    )
    for number, stage in enumerate(stages):
        report(number / (len(stages) + 1), "reading")
        for part in stage():
            assembly.add(part)
    report(len(stages) / (len(stages) + 1), "sorting")
    said = [*notes(database), *([ranges.note] if ranges.note else [])]
    trace = assembly.trace(Metadata(), credentials(database), said)
    events, names = trace.events, thread_names(database)
    events.threads[:] = [replace(t, name=names.get((t.pid, t.tid), t.name)) for t in events.threads]
    shapes = bool(np.any(events.shapes >= 0))
    report(1.0, "read")
    return replace(trace, metadata=metadata(database, listed, shapes=shapes))
