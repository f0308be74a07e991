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

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.removing import MOST_COUNTED, CredentialFilter
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.files.source import Limits, Source, is_remote
from tb_gpudiag.trace.nsys.nsys_calls import (
    Covered,
    PythonStacks,
    Ranges,
    api_calls,
    off_cpu,
    overhead,
    system_calls,
)
from tb_gpudiag.trace.nsys.nsys_database import EXPORT_AGAIN, MISSING, Database, Processes
from tb_gpudiag.trace.nsys.nsys_gpu import (
    GPU_TABLES,
    Devices,
    copies,
    gpu_metrics,
    graphs,
    kernels,
    memory,
    memsets,
    syncs,
)
from tb_gpudiag.trace.ranges import distributed
from tb_gpudiag.trace.trace_parts import TracePart, host_threads
from tb_gpudiag.vocabulary.patterns import lazy_re

_GPU: Final = {
    "smCount": "numSms",
    "totalMemory": "totalGlobalMem",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "threadsPerWarp": "warpSize",
    "maxRegistersPerSm": "regsPerMultiprocessor",
    "maxShmemPerSm": "sharedMemPerMultiprocessor",
}
"""Columns of TARGET_INFO_GPU, and what Kineto calls the same."""

_VARIABLE: Final = lazy_re(r'(\w+)="?(.*?)"?\Z', re.DOTALL)
_MOST_NOTES: Final = 5
_WARNING: Final = 2


def properties(database: Database) -> list[dict[str, Any]]:
    """Return what Kineto calls `deviceProperties`."""
    rows = database.whole("TARGET_INFO_GPU", ("id", "cuDevice", "maxWarpsPerSm", *_GPU), ("name",))
    found = []
    for i, name in enumerate(rows.texts["name"].to_pylist()):
        value = {key: int(column[i]) for key, column in rows.numbers.items() if column[i] != MISSING}
        entry: dict[str, Any] = {theirs: value[ours] for ours, theirs in _GPU.items() if ours in value}
        entry |= {"id": value.get("cuDevice", value.get("id", i)), "name": name or ""}
        if "maxWarpsPerSm" in value and "threadsPerWarp" in value:
            entry["maxThreadsPerMultiprocessor"] = value["maxWarpsPerSm"] * value["threadsPerWarp"]
        found.append(entry)
    return found


def devices(database: Database, listed: list[dict[str, Any]], processes: int) -> Devices:
    """Return the GPUs. processes: how many use them; each numbers those that it sees from 0."""
    rows = database.whole("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    gpu, cuda, pid = (rows.numbers[key].tolist() for key in ("gpuId", "cudaId", "pid"))
    of_process = {(p, c): g for g, c, p in zip(gpu, cuda, pid, strict=True) if 0 <= g < 2**31}
    units = {entry["id"]: entry["numSms"] for entry in listed if "numSms" in entry}
    return Devices(units, of_process if processes > 1 else {})


def users_of_gpus(database: Database, tables: tuple[str, ...]) -> int:
    """Return how many processes have GPU work."""
    found = [
        np.unique(rows.numbers["globalPid"])
        for table in tables
        for rows in database.chunks(table, ("globalPid",))
    ]
    return len(np.unique(np.concatenate([np.zeros(0, np.int64), *found])))


def environment(database: Database) -> dict[str, str]:
    """Return the program's environment variables, if the profiler started it."""
    found = {}
    for name, value in _texts(database, "META_DATA_CAPTURE"):
        match = _VARIABLE.match(value) if name.endswith(":ENVIRONMENT_VARIABLE") else None
        if match:
            found[match[1]] = match[2]
    return found


def metadata(database: Database, listed: list[dict[str, Any]], *, shapes: bool) -> Metadata:
    """Return what Kineto writes at the top of a trace. shapes: operators have them."""
    start = database.whole("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)).numbers["utcEpochNs"]
    host = dict(_texts(database, "TARGET_INFO_SYSTEM_ENV")).get("Hostname", "")
    return Metadata(
        base_time_ns=int(start[0]) if len(start) and start[0] > 0 else 0,
        device_properties=listed,
        distributed=distributed(environment(database)),
        record_shapes=shapes,
        host_name=host,
        recorder="nsys",
    )


def credentials(database: Database) -> CredentialFilter:
    """Return a finished search of the environments that Nsight Systems records: of the program, of the
    machine, and of all processes, as blocks among the texts."""
    search = CredentialFilter(bounded=True)
    for table in ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "StringIds"):
        for setting in database.settings(table):
            separator = b";" if table == "TARGET_INFO_SYSTEM_ENV" else b"\0"
            search.search(setting.replace(separator, b"\n") + b"\n")
            if search.found.total() >= MOST_COUNTED:
                break
    search.end()
    return search


def notes(database: Database) -> list[str]:
    """Return who wrote the file, and what the profiler warned of."""
    product = dict(_texts(database, "META_DATA_EXPORT"))
    version = product.get("EXPORT_PRODUCT_VERSION", "")
    found = [f"exported by Nsight Systems {version}".rstrip()]
    rows = database.whole("DIAGNOSTIC_EVENT", ("severity",), ("text",))
    texts = rows.texts["text"].to_pylist()
    warned = [texts[i] or "" for i in np.flatnonzero(rows.numbers["severity"] >= _WARNING).tolist()]
    different = {re.sub(r"\d+", "", text): text for text in reversed(warned)}
    found += [f"Nsight Systems: {text}" for text in list(different.values())[::-1][:_MOST_NOTES]]
    return found


def thread_names(database: Database) -> dict[tuple[str, str], str]:
    """Return the names of threads by (pid, tid)."""
    rows = database.whole("ThreadNames", ("globalTid", "nameId"))
    _, threads = own = host_threads(rows.numbers["globalTid"])
    known = database.strings(rows.numbers["nameId"])
    names = [known.get(i, "") for i in rows.numbers["nameId"].tolist()]
    return {threads[at]: name for at, name in zip(own[0].tolist(), names, strict=True) if name}


def _texts(database: Database, table: str) -> list[tuple[str, str]]:
    """Return names and values of a table of settings."""
    columns = database.whole(table, (), ("name", "value")).texts
    pairs = zip(columns["name"].to_pylist(), columns["value"].to_pylist(), strict=True)
    return [(name or "", value or "") for name, value in pairs]


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
