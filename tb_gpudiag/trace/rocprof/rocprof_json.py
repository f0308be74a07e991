"""The fields of rocprofv3's JSON (`--output-format json`) that are read, and how they are read.

Its names are those of ROCm's rocprofiler-sdk: `source/docs/rocprofv3-schema.json` there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tb_gpudiag.arrays import Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.launched import RANK, WORLD_SIZE

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
    return pc.struct_field(struct, list(names))


def numbers(struct: pa.StructArray, *names: str) -> Int64:
    """Return numbers that structs hold; UNKNOWN where they have none."""
    return np.asarray(pc.fill_null(inside(struct, *names), UNKNOWN).to_numpy(), np.int64)


def listed(struct: pa.StructArray, *names: str) -> pa.StructArray:
    """Return the elements of all lists that structs hold; a null among them is dropped."""
    return inside(struct, *names).flatten().drop_null()
