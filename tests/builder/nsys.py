"""Write a recording as Nsight Systems exports it: an SQLite file with the same events in its tables.

Python frames, allocations of torch and the GPU's copies of annotations have no place in it.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.builder.recording import DeviceProperties, GpuSpan, HostSpan, Recording

Columns = dict[str, Any]

SESSION_START_NS = 1_765_007_476_905_562_242
PUSH_POP, START_END, DOMAIN = 59, 60, 75
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2}
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")


class Export:
    """An export in the making. `add` makes a table of the columns of its first row."""

    def __init__(self, pid: int = 4242) -> None:
        self.pid = pid
        self.tables: dict[str, list[Columns]] = {}
        self._strings: dict[str, int] = {}

    def string(self, text: str) -> int:
        """Return the id of a text."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    def tid(self, thread: int, pid: int | None = None) -> int:
        """Return the global id of a thread."""
        return self.process(pid) | thread

    def process(self, pid: int | None = None) -> int:
        """Return the global id of a process."""
        return (1 << 48) | (self.pid if pid is None else pid) << 24

    def add(self, table: str, **columns: Any) -> Export:
        """Add a row."""
        self.tables.setdefault(table, []).append(columns)
        return self

    def call(
        self, name: str, start: int, end: int, correlation: int = 0, thread: int = 1, /, **more: Any
    ) -> Export:
        """Add a call of CUDA."""
        return self.add(
            _RUNTIME,
            **{
                "start": start,
                "end": end,
                "eventClass": 0,
                "globalTid": self.tid(thread),
                "correlationId": correlation,
                "nameId": self.string(name),
                "returnValue": 0,
                **more,
            },
        )

    def range(self, text: str, start: int, end: int | None, thread: int = 1, /, **more: Any) -> Export:
        """Add an NVTX range that is pushed and popped."""
        return self.add(
            "NVTX_EVENTS",
            **{
                "start": start,
                "end": end,
                "eventType": PUSH_POP,
                "text": text,
                "globalTid": self.tid(thread),
                "textId": None,
                "domainId": 0,
                **more,
            },
        )

    def kernel(self, name: str, start: int, end: int, correlation: int = 0, /, **more: Any) -> Export:
        """Add a kernel."""
        return self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **{
                **self._place(start, end, correlation),
                "demangledName": self.string(name),
                "shortName": self.string(name),
                "registersPerThread": 32,
                "gridX": 1,
                "gridY": 1,
                "gridZ": 1,
                "blockX": 128,
                "blockY": 1,
                "blockZ": 1,
                "staticSharedMemory": 0,
                "dynamicSharedMemory": 0,
                **more,
            },
        )

    def copy(self, kind: int, start: int, end: int, correlation: int = 0, /, **more: Any) -> Export:
        """Add a copy."""
        return self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **{
                **self._place(start, end, correlation),
                "bytes": 1,
                "copyKind": kind,
                "srcKind": 0,
                "dstKind": 2,
                **more,
            },
        )

    def gpu(self, table: str, start: int, end: int, correlation: int = 0, /, **more: Any) -> Export:
        """Add a row of another of CUPTI's tables."""
        return self.add(f"CUPTI_ACTIVITY_KIND_{table}", **{**self._place(start, end, correlation), **more})

    def _place(self, start: int, end: int, correlation: int) -> Columns:
        return {
            "start": start,
            "end": end,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "correlationId": correlation,
            "globalPid": self.process(),
        }

    def device(self, properties: DeviceProperties, number: int = 0) -> Export:
        """Add a GPU."""
        return self.add(
            "TARGET_INFO_GPU",
            id=number,
            name=properties.name,
            totalMemory=properties.total_bytes,
            smCount=properties.multiprocessors,
            cuDevice=number,
            computeMajor=properties.compute_major,
            computeMinor=properties.compute_minor,
            threadsPerWarp=32,
            maxWarpsPerSm=64,
        )

    def write(self, path: Path) -> Path:
        """Write the file."""
        strings: list[Columns] = [{"id": key, "value": text} for text, key in self._strings.items()]
        fixed: dict[str, list[Columns]] = {
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": SESSION_START_NS}],
            "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2024.6.2.225"}],
            "StringIds": strings,
        }
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            for table, rows in {**fixed, **self.tables}.items():
                _write_table(connection, table, rows)
        return path


def _write_table(connection: sqlite3.Connection, table: str, rows: Sequence[Columns]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    types = ", ".join(
        f'"{name}" {"TEXT" if any(isinstance(row.get(name), str) for row in rows) else "INTEGER"}'
        for name in names
    )
    key = ", PRIMARY KEY (id)" if table == "StringIds" else ""
    connection.execute(f"CREATE TABLE {table} ({types or 'id INTEGER'}{key})")
    marks = ", ".join("?" * len(names))
    connection.executemany(
        f"INSERT INTO {table} VALUES ({marks})", [[row.get(name) for name in names] for row in rows]
    )


def export_of(recording: Recording) -> Export:
    """Return the export of a recording: operators as `emit_nvtx` marks them."""
    export = Export(recording.pid)
    for number, device in enumerate(recording.devices):
        export.device(device, number)
    for span in sorted(recording.host, key=lambda s: (s.start_ns, -s.end_ns)):
        _host(export, span)
    for work in recording.gpu:
        _gpu(export, work)
    for name, start, end in recording.overhead:
        export.add(
            "PROFILER_OVERHEAD", start=start, end=end, globalTid=export.tid(1), nameId=export.string(name)
        )
    for thread, name in recording.threads.items():
        export.add("ThreadNames", nameId=export.string(name), priority=20, globalTid=export.tid(thread))
    return export


def _host(export: Export, span: HostSpan) -> None:
    if span.kind == "op":
        sequence = span.args.get("Sequence number")
        text = span.name + (f", seq = {sequence}" if sequence is not None else "") + ", op_id = 7"
        export.range(text, span.start_ns, span.end_ns, span.thread)
    elif span.kind == "annotation":
        export.range(span.name, span.start_ns, span.end_ns, span.thread)
    elif span.kind != "frame":
        name = span.name if span.kind == "driver" else f"{span.name}_v7000"
        export.call(name, span.start_ns, span.end_ns, span.correlation or 0, span.thread)


def _gpu(export: Export, span: GpuSpan) -> None:
    place = {"deviceId": span.device, "streamId": span.stream}
    times = span.start_ns, span.end_ns, span.correlation or 0
    if span.kind == "kernel":
        grid, block = span.args.get("grid", [1, 1, 1]), span.args.get("block", [128, 1, 1])
        sides = dict(
            zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), [*grid, *block], strict=True)
        )
        more = {"registersPerThread": span.args.get("registers per thread", 32)}
        more |= {"staticSharedMemory": span.args.get("shared memory", 0)}
        export.kernel(span.name, *times, **place, **sides, **more)
    elif span.kind == "memset":
        export.gpu("MEMSET", *times, **place, value=0, bytes=span.bytes or 0, memKind=2)
    elif span.kind == "memcpy":
        found = _COPY.fullmatch(span.name)
        assert found is not None, span.name
        kinds = {"srcKind": _MEMORY_KINDS[found[2]], "dstKind": _MEMORY_KINDS[found[3]]}
        export.copy(_COPY_KINDS[found[1]], *times, **place, **kinds, bytes=span.bytes or 0)
