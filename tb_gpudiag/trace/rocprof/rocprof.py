"""Read JSON that rocprofv3 wrote into a Trace, so that all else works as for torch's traces.

| list of records | becomes |
| --- | --- |
| kernel_dispatch, memory_copy | GPU work, linked by correlation to the call that caused it |
| hip_api | calls of the HIP runtime |
| rccl_api | annotations, such as `RCCL: ncclAllReduce` |
| marker_api | operators (of `emit_nvtx`), annotations and steps |

Calls of HSA, counters, scratch memory and allocations are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tb_gpudiag.arrays import NONE, Float32, Int32, Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.removing import CredentialSearch
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.files.source import whole_file
from tb_gpudiag.trace.ranges import RANK, WORLD_SIZE, StepRanges, distributed, parsed_ranges
from tb_gpudiag.trace.trace_parts import (
    ID_BITS,
    LONGEST_NAME,
    MOST_BYTES,
    TracePart,
    gpu_threads,
    host_part,
    part,
    small,
    texts_of,
)
from tb_gpudiag.vocabulary.recorded import Category

# Arrow's offsets have 32 bits.
_MOST_BYTES: Final = 2**31 - 2
_GPU: Final = 2  # type of an agent
# A GPU's agent has `90500` for gfx950: 9.5.
_MAJOR, _MINOR = 10_000, 100
_MOST_BLOCKS: Final = 2**53
# Directions of copies, as Kineto writes them into names.
_COPIES: Final = {
    "HOST_TO_DEVICE": "Memcpy HtoD (Host -> Device)",
    "DEVICE_TO_HOST": "Memcpy DtoH (Device -> Host)",
    "DEVICE_TO_DEVICE": "Memcpy DtoD (Device -> Device)",
    "HOST_TO_HOST": "Memcpy HtoH (Host -> Host)",
}
_COPY_PREFIX: Final = "MEMORY_COPY_"
# ROCTx's ranges that begin and end anywhere. They do not say what a thread was doing.
_NOT_NESTED: Final = ("RangeStart", "RangeStop", "ProcessRange")
_RECORD_MORE: Final = (
    "record with rocprofv3 --kernel-trace --hip-runtime-trace --memory-copy-trace --marker-trace "
    "--output-format json"
)
_RECORD_LESS: Final = "record fewer steps: --collection-period, or roctxProfilerResume and roctxProfilerPause"


def read_rocprof(blocks: Iterator[bytes], path: str, report: Callable[[float, str], None]) -> Trace:
    """Read the text of a file. Raises NotATrace, TooLarge."""
    with CredentialSearch() as search:
        text = whole_file(search.through(blocks), _MOST_BYTES, path, _RECORD_LESS)
        searched = search.finish()
    report(0.4, "reading")
    found = processes(text, path)
    del text
    if not len(found):
        raise NotATrace("no process is in this file of rocprofv3", where=path, remedy=_RECORD_MORE)
    process = _Process(found.slice(0, 1))
    assembly = Assembly()
    for each in process.parts():
        assembly.add(each)
    if not assembly.events_read:
        raise NotATrace("this file of rocprofv3 has no kernels and no calls", where=path, remedy=_RECORD_MORE)
    report(0.9, "sorting")
    more = [f"the file has {len(found):,} processes: the first is read"] if len(found) > 1 else []
    notes = ["recorded by rocprofv3", *more, *process.notes()]
    trace = assembly.trace(process.metadata(), searched, notes)
    report(1.0, "read")
    return trace


class _Process:
    """What was recorded of one process. document: it alone, shape (1,)."""

    def __init__(self, document: pa.StructArray) -> None:
        self._document = document
        self._steps = StepRanges("ROCTx")
        self._pid = int(_identifiers(numbers(document, "metadata", "pid"))[0])
        agents = listed(document, "agents")
        self._gpus = agents.filter(pa.array(numbers(agents, "type") == _GPU))
        self._operations = listed(document, "strings", "buffer_records").to_pylist()

    def parts(self) -> Iterator[TracePart]:
        """Yield GPU work, then what the host did, then the steps."""
        readers: dict[str, Callable[[pa.StructArray], Iterator[TracePart]]] = {
            "kernel_dispatch": self._kernels,
            "memory_copy": self._copies,
            "hip_api": lambda records: self._calls(records, Category.RUNTIME, ""),
            "rccl_api": lambda records: self._calls(records, Category.USER_ANNOTATION, "RCCL: "),
            "marker_api": self._markers,
        }
        for kind, read in readers.items():
            records = listed(self._document, "buffer_records", kind)
            if len(records):
                yield from read(records)

    def notes(self) -> list[str]:
        """Say which ranges are steps."""
        return [self._steps.note] if self._steps.note else []

    def metadata(self) -> Metadata:
        """Return what Kineto writes at the top of a trace."""
        host = inside(self._document, "metadata", "node", "hostname")[0].as_py() or ""
        found = inside(self._document, "metadata", "environment")[0].as_py() or {}
        variables = {name: text for name, text in found.items() if text}
        return Metadata(
            device_properties=self._properties(),
            distributed=distributed(variables),
            host_name=host,
            recorder="rocprof",
        )

    def _properties(self) -> list[dict[str, Any]]:
        found = []
        for number, gpu in enumerate(self._gpus.to_pylist()):
            threads = (gpu["max_waves_per_cu"] or 0) * (gpu["wave_front_size"] or 0)
            major, minor = divmod((gpu["gfx_target_version"] or 0) // _MINOR, _MAJOR // _MINOR)
            known = {
                "numSms": gpu["cu_count"],
                "warpSize": gpu["wave_front_size"],
                "maxThreadsPerMultiprocessor": threads,
                "computeMajor": major,
            }
            entry = {"id": number, "name": gpu["product_name"] or "", "computeMinor": minor}
            found.append(entry | {key: value for key, value in known.items() if value})
        return found

    def _devices(self, *agents: Int64) -> Int32:
        """Return the number of the first of each row's agents that is a GPU; NONE without one."""
        handles = numbers(self._gpus, "id", "handle")
        order = np.argsort(handles, kind="stable")
        found = np.full(len(agents[0]), NONE, np.int32)
        if not len(handles):
            return found
        for handle in reversed(agents):
            at = order[np.minimum(np.searchsorted(handles[order], handle), len(handles) - 1)]
            found = np.where(handles[at] == handle, at, found).astype(np.int32)
        return found

    def _kernels(self, records: pa.StructArray) -> Iterator[TracePart]:
        info = inside(records, "dispatch_info")
        symbols = listed(self._document, "kernel_symbols")
        long, short = (inside(symbols, f"{key}kernel_name").to_pylist() for key in ("formatted_", ""))
        names = zip(numbers(symbols, "kernel_id").tolist(), zip(long, short, strict=True), strict=True)
        texts = dict(names)

        def shown(number: int) -> str:
            return next(filter(None, texts.get(number, ())), f"kernel {number}")[:LONGEST_NAME]

        device = self._devices(numbers(info, "agent_id", "handle"))
        yield self._work(
            records,
            Category.KERNEL,
            texts_of(numbers(info, "kernel_id"), shown),
            device,
            numbers(info, "queue_id", "handle"),
            {"blocks": _blocks(info)},
        )

    def _copies(self, records: pa.StructArray) -> Iterator[TracePart]:
        def shown(operation: str) -> str:
            return _COPIES.get(operation.removeprefix(_COPY_PREFIX), f"Memcpy ({operation})")

        name = self._named(records, shown)
        device = self._devices(*(numbers(records, key, "handle") for key in ("dst_agent_id", "src_agent_id")))
        sizes = numbers(records, "bytes")
        sizes = np.where((sizes >= 0) & (sizes <= MOST_BYTES), sizes, NONE)
        queue = np.full(len(records), UNKNOWN, np.int64)
        yield self._work(records, Category.MEMCPY, name, device, queue, {"bytes": sizes})

    def _work(
        self,
        records: pa.StructArray,
        category: Category,
        name: pa.DictionaryArray,
        device: Int32,
        queue: Int64,
        columns: dict[str, npt.NDArray[Any]],
    ) -> TracePart:
        """Make a part of GPU work. queue: in place of streams where none were recorded."""
        stream = numbers(records, "stream_id", "handle")
        if not (stream > 0).any():
            stream = queue
        stream = np.where(stream == UNKNOWN, 0, stream)
        columns |= {
            "device": device,
            "stream": small(stream),
            "correlation": numbers(records, "correlation_id", "internal"),
        }
        return part(category, name, _times(records), gpu_threads(device, columns["stream"]), columns)

    def _calls(self, records: pa.StructArray, category: Category, prefix: str) -> Iterator[TracePart]:
        name = self._named(records, lambda operation: prefix + operation)
        correlation = numbers(records, "correlation_id", "internal")
        yield host_part(category, name, self._host(records), {"correlation": correlation})

    def _markers(self, records: pa.StructArray) -> Iterator[TracePart]:
        operation = self._named(records, str)
        said = listed(self._document, "strings", "marker_api")
        texts = dict(zip(numbers(said, "key").tolist(), inside(said, "value").to_pylist(), strict=True))
        ids, own = np.unique(numbers(records, "correlation_id", "internal"), return_inverse=True)
        message = pa.array([(texts.get(i) or "")[:LONGEST_NAME] for i in ids.tolist()], pa.string())
        found = parsed_ranges(message.take(pa.array(own)))
        at = self._host(records)
        kinds = operation.dictionary.to_pylist()
        loose = np.array([any(kind in text for kind in _NOT_NESTED) for text in kinds])
        loose = loose[operation.indices.to_numpy()]
        category = np.where(loose, np.uint8(Category.OTHER), found.category)
        for chosen, suffix in ((~loose, ""), (loose, " ranges")):
            rows = np.flatnonzero(chosen)
            name, mark = found.name.take(pa.array(rows)), found.category[rows] == Category.USER_ANNOTATION
            own_at = {key: column[rows] for key, column in at.items()}
            self._steps.collect(own_at["globalTid"], own_at["start"], own_at["end"], name, mark)
            yield host_part(
                category[rows],
                name,
                own_at,
                {"sequence": found.sequence[rows]},
                {"shapes": found.shapes.take(pa.array(rows))},
                suffix=suffix,
            )
        yield from self._steps.parts()

    def _host(self, records: pa.StructArray) -> dict[str, Int64]:
        thread = _identifiers(numbers(records, "thread_id"))
        return {**_times(records), "globalTid": (self._pid << ID_BITS) | thread}

    def _named(self, records: pa.StructArray, shown: Callable[[str], str]) -> pa.DictionaryArray:
        """Return the name of each record's operation. shown: changes each name."""
        pairs = np.stack([numbers(records, "kind"), numbers(records, "operation")], axis=1)
        return texts_of(pairs, lambda pair: shown(self._operation(*pair)))

    def _operation(self, kind: int, number: int) -> str:
        known = self._operations[kind] if 0 <= kind < len(self._operations) else None
        names = (known and known["operations"]) or []
        found = names[number] if 0 <= number < len(names) else None
        return (found or f"operation {number}")[:LONGEST_NAME]


def _identifiers(values: Int64) -> Int64:
    """Return ids of processes or threads; 0 for those that no system gives."""
    return np.where((values >= 0) & (values < 1 << ID_BITS), values, 0)


def _times(records: pa.StructArray) -> dict[str, Int64]:
    return {key: numbers(records, f"{key}_timestamp") for key in ("start", "end")}


def _blocks(info: pa.StructArray) -> Float32:
    """Blocks of each grid; NaN where it is not known. The grid is in threads."""
    blocks = np.ones(len(info))
    for side in "xyz":
        grid, block = (numbers(info, key, side).astype(float) for key in ("grid_size", "workgroup_size"))
        blocks *= np.where((grid > 0) & (block > 0), np.ceil(grid / np.maximum(block, 1)), np.nan)
    return np.where(blocks <= _MOST_BLOCKS, blocks, np.nan).astype(np.float32)


DOCUMENT: Final = "rocprofiler-sdk-tool"
UNKNOWN: Final = -(2**63)
"""In place of a number that a record does not have."""

_INTEGER, _TEXT = pa.int64(), pa.string()
_HANDLE: Final = pa.struct({"handle": _INTEGER})
_SIZE: Final = pa.struct({"x": _INTEGER, "y": _INTEGER, "z": _INTEGER})
_RECORD: Final = {
    "kind": _INTEGER,
    "operation": _INTEGER,
    "thread_id": _INTEGER,
    "correlation_id": pa.struct({"internal": _INTEGER}),
    "start_timestamp": _INTEGER,
    "end_timestamp": _INTEGER,
}
_DISPATCH: Final = pa.struct(
    {
        "agent_id": _HANDLE,
        "queue_id": _HANDLE,
        "kernel_id": _INTEGER,
        "workgroup_size": _SIZE,
        "grid_size": _SIZE,
    }
)
_RECORDS: Final = {
    "kernel_dispatch": {**_RECORD, "stream_id": _HANDLE, "dispatch_info": _DISPATCH},
    "memory_copy": {
        **_RECORD,
        "stream_id": _HANDLE,
        "dst_agent_id": _HANDLE,
        "src_agent_id": _HANDLE,
        "bytes": _INTEGER,
    },
    "hip_api": _RECORD,
    "rccl_api": _RECORD,
    "marker_api": _RECORD,
}
_OPERATIONS: Final = pa.struct({"kind": _TEXT, "operations": pa.list_(_TEXT)})
_AGENT: Final = pa.struct(
    {
        "id": _HANDLE,
        "type": _INTEGER,
        "product_name": _TEXT,
        "cu_count": _INTEGER,
        "wave_front_size": _INTEGER,
        "max_waves_per_cu": _INTEGER,
        "gfx_target_version": _INTEGER,
    }
)
_KERNEL: Final = pa.struct({"kernel_id": _INTEGER, "kernel_name": _TEXT, "formatted_kernel_name": _TEXT})
_ENVIRONMENT: Final = pa.struct(dict.fromkeys((*RANK, *WORLD_SIZE), _TEXT))
_PROCESS: Final = pa.struct(
    {
        "metadata": pa.struct(
            {"pid": _INTEGER, "node": pa.struct({"hostname": _TEXT}), "environment": _ENVIRONMENT}
        ),
        "agents": pa.list_(_AGENT),
        "kernel_symbols": pa.list_(_KERNEL),
        "strings": pa.struct(
            {
                "buffer_records": pa.list_(_OPERATIONS),
                "marker_api": pa.list_(pa.struct({"key": _INTEGER, "value": _TEXT})),
            }
        ),
        "buffer_records": pa.struct({name: pa.list_(pa.struct(of)) for name, of in _RECORDS.items()}),
    }
)
_SCHEMA: Final = pa.schema({DOCUMENT: pa.list_(_PROCESS)})

_AGAIN: Final = "record again, let the program end by itself, and keep rocprofv3's file whole"


def processes(text: bytes, path: str) -> pa.StructArray:
    """Return one struct for each process in the document. Raises NotATrace."""
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=len(text) + 1, use_threads=False),
            parse_options=pj.ParseOptions(
                explicit_schema=_SCHEMA, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        said = f"it is damaged JSON of rocprofv3: {str(error).splitlines()[0]}"
        raise NotATrace(said, where=path, remedy=_AGAIN) from error
    return table.column(DOCUMENT).combine_chunks().flatten()


def inside(struct: pa.StructArray, *names: str) -> pa.Array:
    """Return what structs hold under these names, one inside the other; null where one of them is missing."""
    for name in names:
        struct = struct.flatten()[struct.type.get_field_index(name)]
    return struct


def numbers(struct: pa.StructArray, *names: str) -> Int64:
    """Return numbers that structs hold; UNKNOWN where they have none."""
    return np.asarray(pc.fill_null(inside(struct, *names), UNKNOWN).to_numpy(), np.int64)


def listed(struct: pa.StructArray, *names: str) -> pa.StructArray:
    """Return the elements of all lists that structs hold; a null among them is dropped."""
    return inside(struct, *names).flatten().drop_null()
