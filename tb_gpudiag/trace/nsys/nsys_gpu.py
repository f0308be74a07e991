"""What GPUs did, as Nsight Systems exports it: kernels, copies, graphs, waits, memory and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Float32, Int32, Int64, rows_with
from tb_gpudiag.trace.nsys.nsys_database import MISSING, Database, Processes, Rows, named
from tb_gpudiag.trace.trace_parts import (
    EARLIEST_NS,
    LATEST_NS,
    MOST_BYTES,
    CounterSamples,
    CounterSeries,
    MemoryColumns,
    TracePart,
    counter_part,
    gpu_threads,
    memory_part,
    part,
    small,
    texts_of,
)
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH_NAME
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import Category, DeviceType

GPU_TABLES: Final = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
_MEMORY_TABLE: Final = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_PLACE: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")
_WARP: Final = 32
# Largest products of a grid's sides that are exact.
_MOST_BLOCKS: Final = 2**53

# CUPTI's kinds of copies and of memory, as Kineto writes them into names.
_COPIES: Final = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
_UNIFIED: Final = 11
_MEMORY: Final = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static",
}  # fmt: skip
_UNKNOWN: Final = "Unknown"
_DEVICE_MEMORY: Final = 2

# As Kineto names them.
_SYNCS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_CONTEXT: Final = 4
_NOT_ONE: Final = 2**32 - 1

# GPU metrics: the low byte of a type is the GPU's number.
_GPU_OF_TYPE: Final = 0xFF
# Of some fifty metrics per GPU, those that say how busy which unit was. Others slow reading down.
_SHOWN: Final = lazy_re(
    r"(?i)GPC Clock|SYS Clock|SMs? Active|SM Issue|Tensor Active|SM Instructions/Tensor|DRAM .*Bandwidth|"
    r"PCIe .*(Throughput|Bandwidth)|NVLink .*(Throughput|Bandwidth)|Power|Temperature"
)
_MOST_METRICS: Final = 32
# Ten metrics at 10 kHz for 40 s. Later samples are not read.
_MOST_ROWS: Final = 4_000_000


class Devices:
    """GPUs of the report: what number each has in the trace, and how many multiprocessors."""

    def __init__(self, multiprocessors: Mapping[int, int], of_process: Mapping[tuple[int, int], int]) -> None:
        """of_process: the GPU's number in the machine, by the process and the number that it has there."""
        self._multiprocessors = multiprocessors
        self._of_process = of_process

    def of(self, rows: Rows) -> Int32:
        own = small(rows.numbers["deviceId"])
        if not self._of_process:
            return own
        pid = rows.numbers["globalPid"] >> 24 & 0xFFFFFF
        pairs, code = np.unique(np.stack([pid, own], axis=1), axis=0, return_inverse=True)
        return np.array([self._of_process.get((p, d), d) for p, d in pairs.tolist()], np.int32)[
            code.reshape(-1)
        ]

    def multiprocessors(self, device: Int32) -> Float32:
        """Return how many multiprocessors the device of each row has; NaN where the report does not say."""
        ids, own = np.unique(device, return_inverse=True)
        return np.array([self._multiprocessors.get(i) or np.nan for i in ids.tolist()], np.float32)[own]


def kernels(database: Database, devices: Devices, processes: Processes) -> Iterator[TracePart]:
    """Read the kernels. Those of graphs that were recorded by node are among them."""
    columns = (
        *_PLACE, "demangledName", "shortName", *_GRID, *_BLOCK, "registersPerThread", "staticSharedMemory",
        "dynamicSharedMemory",
    )  # fmt: skip
    for rows in database.chunks("CUPTI_ACTIVITY_KIND_KERNEL", columns):
        at = rows.numbers
        device = devices.of(rows)
        blocks, threads = _product(rows, _GRID), _product(rows, _BLOCK)
        per_sm = blocks / devices.multiprocessors(device)
        warps = np.ceil(threads / _WARP)
        shared = [np.maximum(at[key], 0) for key in ("staticSharedMemory", "dynamicSharedMemory")]
        registers = at["registersPerThread"]
        name = np.where(at["demangledName"] == MISSING, at["shortName"], at["demangledName"])
        sides = np.stack([at[side] for side in (*_GRID, *_BLOCK)], axis=1)
        yield _work(
            rows,
            Category.KERNEL,
            named(database, name),
            device,
            processes,
            {
                "blocks_per_sm": per_sm,
                "blocks": np.where(np.isnan(per_sm), blocks, np.nan),
                "warps_per_block": np.where((warps >= 0) & (warps <= _WARP), warps, 0),
                "registers": np.where((registers >= 0) & (registers < 256), registers, 0),
                "shared_bytes": np.where(
                    at["staticSharedMemory"] == MISSING, NONE, small(shared[0] + shared[1])
                ),
            },
            {"settings": texts_of(sides, lambda each: f"{each[:3]} × {each[3:]}" if min(each) > 0 else "")},
        )


def copies(database: Database, devices: Devices, processes: Processes) -> Iterator[TracePart]:
    for rows in database.chunks(
        "CUPTI_ACTIVITY_KIND_MEMCPY", (*_PLACE, "bytes", "copyKind", "srcKind", "dstKind")
    ):
        at = rows.numbers
        kinds = np.stack([at["copyKind"], at["srcKind"], at["dstKind"]], axis=1)
        name = texts_of(kinds, lambda kind: _copy_name(*kind))
        yield _work(rows, Category.MEMCPY, name, devices.of(rows), processes, {"bytes": _sizes(at["bytes"])})


def memsets(database: Database, devices: Devices, processes: Processes) -> Iterator[TracePart]:
    for rows in database.chunks("CUPTI_ACTIVITY_KIND_MEMSET", (*_PLACE, "bytes", "memKind")):
        name = texts_of(rows.numbers["memKind"], lambda kind: f"Memset ({_MEMORY.get(kind, _UNKNOWN)})")
        sizes = _sizes(rows.numbers["bytes"])
        yield _work(rows, Category.MEMSET, name, devices.of(rows), processes, {"bytes": sizes})


def graphs(database: Database, devices: Devices, processes: Processes) -> Iterator[TracePart]:
    """Read the graphs that were recorded as one event each, as kernels: what is inside is not known."""
    for rows in database.chunks("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_PLACE, "graphId")):
        name = texts_of(
            rows.numbers["graphId"], lambda i: f"{WHOLE_GRAPH_NAME} {i}" if i >= 0 else WHOLE_GRAPH_NAME
        )
        yield _work(rows, Category.KERNEL, name, devices.of(rows), processes, {})


class _Records:
    """Where and by which call each CUDA event was recorded."""

    def __init__(self, database: Database, processes: Processes) -> None:
        rows = database.whole(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            ("globalPid", "eventId", "eventSyncId", "streamId", "correlationId"),
        ).numbers
        self._correlation = processes.correlation(rows["globalPid"], rows["correlationId"])
        self._stream = small(rows["streamId"])
        # Newer versions say which record a wait is for. Else it is the last one of the event before the wait.
        self._key = "eventSyncId" if (rows["eventSyncId"] > 0).any() else "eventId"
        self._event = rows[self._key]
        order = np.lexsort((self._correlation, self._event))
        self._correlation, self._stream = self._correlation[order], self._stream[order]
        self._event = self._event[order]

    def before(self, waits: Rows, correlation: Int64) -> tuple[Int64, Int32]:
        """Return the correlation and the stream of the record that each wait is for; NONE if not known."""
        found = np.full(len(waits), NONE, np.int64)
        for event in np.unique(waits.numbers[self._key]).tolist():
            left, right = rows_with(self._event, event)
            if event == MISSING or left == right:
                continue
            own = np.flatnonzero(waits.numbers[self._key] == event)
            at = left + np.searchsorted(self._correlation[left:right], correlation[own]) - 1
            found[own] = np.where(at >= left, at, NONE)
        known = found != NONE
        if not len(self._correlation):
            return found, found.astype(np.int32)
        return (
            np.where(known, self._correlation[found], NONE),
            np.where(known, self._stream[found], NONE).astype(np.int32),
        )


def syncs(database: Database, devices: Devices, processes: Processes) -> Iterator[TracePart]:
    """Read CUPTI's records of waits for the GPU. They are not work."""
    records = _Records(database, processes)
    for rows in database.chunks(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (*_PLACE, "syncType", "eventId", "eventSyncId")
    ):
        at = rows.numbers
        # Some versions write 0 for the kind of a wait for the whole device.
        of_device = (at["syncType"] == 0) & (at["streamId"] == _NOT_ONE) & (at["eventId"] == _NOT_ONE)
        kinds = np.where(of_device, _CONTEXT, at["syncType"])
        name = texts_of(kinds, lambda kind: _SYNCS.get(kind, _UNKNOWN))
        device = devices.of(rows)
        stream = small(np.where(at["streamId"] == _NOT_ONE, NONE, at["streamId"]))
        correlation = processes.correlation(at["globalPid"], at["correlationId"])
        record, awaited = records.before(rows, correlation)
        columns: dict[str, npt.NDArray[Any]] = {
            "device": device,
            "stream": stream,
            "correlation": correlation,
            "sequence": record,
            "forward_thread": awaited,
        }
        yield part(Category.CUDA_SYNC, name, at, gpu_threads(device, stream), columns)


def memory(database: Database, devices: Devices) -> Iterator[TracePart]:
    """Read what the driver's allocations on the GPU took and returned, in order of time.

    cudaMalloc and the like make these allocations. torch's caching allocator makes few of them.
    """
    where = f"memKind = {_DEVICE_MEMORY}" if "memKind" in database.tables.get(_MEMORY_TABLE, ()) else ""
    rows = database.whole(
        _MEMORY_TABLE,
        ("start", "globalPid", "deviceId", "address", "bytes", "memoryOperationType"),
        (),
        where,
    )
    at = rows.numbers
    size = at["bytes"]
    good = (at["start"] != MISSING) & (size > 0) & (size < MOST_BYTES)
    order = np.argsort(at["start"], kind="stable")
    order = order[good[order]]
    if not len(order):
        return
    device = devices.of(rows)[order]
    change = np.where(at["memoryOperationType"] == 1, -size, size)[order]
    total = np.zeros(len(order), np.int64)
    for each in np.unique(device):
        own = device == each
        running = np.cumsum(change[own])
        # What was allocated before the recording and freed in it.
        total[own] = running - min(0, int(running.min()))
    yield memory_part(
        MemoryColumns(
            time_ns=at["start"][order],
            bytes=change,
            address=at["address"][order].astype(np.uint64),
            device_type=np.full(len(order), DeviceType.CUDA, np.int32),
            device=device,
            allocated=total,
            reserved=total,
            thread=np.full(len(order), NONE, np.int32),
            failed=np.zeros(len(order), np.bool_),
        ),
        [],
    )


def gpu_metrics(database: Database) -> Iterator[TracePart]:
    """Read the metrics that Nsight Systems sampled (`--gpu-metrics-devices=...`) and that are shown, as
    counters."""
    listed = database.whole("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), ("metricName",))
    names: dict[tuple[int, int], str] = {}
    for kind, metric, name in zip(
        listed.numbers["typeId"].tolist(),
        listed.numbers["metricId"].tolist(),
        listed.texts["metricName"].to_pylist(),
        strict=True,
    ):
        if name and MISSING not in (kind, metric) and _SHOWN.search(name) and len(names) < _MOST_METRICS:
            names.setdefault((kind, metric), name)
    if not names or not database.has("GPU_METRICS", "timestamp", "typeId", "metricId", "value"):
        return
    chosen = ", ".join(map(str, sorted({metric for _, metric in names})))
    where = f"metricId IN ({chosen}) AND rowid <= {_MOST_ROWS}"
    for rows in database.chunks("GPU_METRICS", ("timestamp", "typeId", "metricId", "value"), (), where):
        at = rows.numbers
        keys, code = np.unique(np.stack([at["typeId"], at["metricId"]], axis=1), axis=0, return_inverse=True)
        pairs = [tuple(key) for key in keys.tolist()]
        known = np.array([pair in names for pair in pairs], np.bool_)[code.reshape(-1)]
        known &= (at["timestamp"] >= EARLIEST_NS) & (at["timestamp"] <= LATEST_NS) & (at["value"] != MISSING)
        series = [CounterSeries(names.get(pair, ""), "", pair[0] & _GPU_OF_TYPE) for pair in pairs]
        yield counter_part(
            CounterSamples(
                series,
                code.reshape(-1)[known].astype(np.int32),
                at["timestamp"][known],
                at["value"][known].astype(np.float64),
            )
        )


def _work(
    rows: Rows,
    category: Category,
    name: pa.DictionaryArray,
    device: Int32,
    processes: Processes,
    columns: dict[str, npt.NDArray[Any]],
    texts: dict[str, pa.DictionaryArray] | None = None,
) -> TracePart:
    at = rows.numbers
    stream = small(at["streamId"])
    place: dict[str, npt.NDArray[Any]] = {
        "device": device,
        "stream": stream,
        "correlation": processes.correlation(at["globalPid"], at["correlationId"]),
    }
    return part(category, name, at, gpu_threads(device, stream), {**place, **columns}, texts)


def _product(rows: Rows, sides: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Return the product of the sides; NaN where one is not known."""
    product = np.ones(len(rows), np.float64)
    for side in sides:
        values = rows.numbers[side]
        product *= np.where(values > 0, values, np.nan)
    return np.where(product < _MOST_BLOCKS, product, np.nan)


def _sizes(values: Int64) -> Int64:
    return np.where((values >= 0) & (values < MOST_BYTES), values, NONE)


def _copy_name(kind: int, source: int, target: int) -> str:
    if kind >= _UNIFIED:
        return f"Memcpy {_COPIES.get(kind, _UNKNOWN)} (Managed)"
    from_, to = (_MEMORY.get(memory, _UNKNOWN) for memory in (source, target))
    return f"Memcpy {_COPIES.get(kind, _UNKNOWN)} ({from_} -> {to})"
