"""Kineto's names, old and new: the only file that knows them.

Generations of the format write the same thing under different names. Everything here maps those names to what
`events.py` means, so that nothing after it has to ask which torch wrote the file.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tb_gpudiag.trace.events import NONE, Category, Metadata

FIELDS: Final = {
    "phase": ("ph", "VARCHAR"),
    "category": ("cat", "VARCHAR"),
    "name": ("name", "VARCHAR"),
    "pid": ("pid", "VARCHAR"),
    "tid": ("tid", "VARCHAR"),
    # Exact: DuckDB parses a decimal from the digits themselves. 19 digits before the point hold any stamp of
    # 64 bits.
    "start_us": ("ts", "DECIMAL(22,3)"),
    "duration_us": ("dur", "DECIMAL(22,3)"),
}
"""Columns read from an event's own entries: the entry's key and its SQL type."""

ARGUMENTS: Final = {
    "correlation": ("correlation", "BIGINT"),
    "device": ("device", "BIGINT"),
    "stream": ("stream", "BIGINT"),
    "python_id": ("Python id", "BIGINT"),
    "python_parent": ("Python parent id", "BIGINT"),
    "sequence": ("Sequence number", "BIGINT"),
    "forward_thread": ("Fwd thread id", "BIGINT"),
    "blocks_per_sm": ("blocks per SM", "DOUBLE"),
    "warps_per_sm": ("warps per SM", "DOUBLE"),
    "registers": ("registers per thread", "BIGINT"),
    "shared_bytes": ("shared memory", "BIGINT"),
    "call_stack": ("Call stack", "VARCHAR"),
    "input_shapes": ("Input Dims", "VARCHAR"),
    "input_types": ("Input type", "VARCHAR"),
    "memory_bytes": ("Bytes", "BIGINT"),
    "memory_device_type": ("Device Type", "BIGINT"),
    "memory_device": ("Device Id", "BIGINT"),
    "memory_address": ("Addr", "UBIGINT"),
    "memory_allocated": ("Total Allocated", "BIGINT"),
    "memory_reserved": ("Total Reserved", "BIGINT"),
    "thread_name": ("name", "VARCHAR"),
}
"""Columns read from an event's `args`, likewise. No two keys may differ by case alone."""

COPIED_BYTES: Final = "bytes"
"""The entry of a copy's `args` that differs by case alone from one of `[memory]`."""

_STAMP: Final = re.compile(rb'("(?:ts|dur)"[ \t\r\n]*:[ \t\r\n]*)(-?[0-9][0-9.eE+-]*)')

_CATEGORIES: Final = {
    "operator": Category.CPU_OP,
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "python_function": Category.PYTHON_FUNCTION,
    "runtime": Category.RUNTIME,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "hip_driver": Category.DRIVER,
    "xpu_driver": Category.DRIVER,
    "mtia_driver": Category.DRIVER,
    "privateuse1_driver": Category.DRIVER,
    "kernel": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    "memcpy": Category.MEMCPY,
    "gpu_memcpy": Category.MEMCPY,
    "memset": Category.MEMSET,
    "gpu_memset": Category.MEMSET,
    "gpu_user_annotation": Category.GPU_USER_ANNOTATION,
    "overhead": Category.OVERHEAD,
    "cuda_sync": Category.CUDA_SYNC,
    "cpu_instant_event": Category.INSTANT,
}

# Before categories had their own name for them (torch 1.8 to 1.11), marks of the profiler, of the loader
# and of optimizers were `Operator`s. `gpu_user_annotation` repeats ProfilerStep on the GPU and is never a
# host step.
_ANNOTATION_OF_OLD: Final = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.")

_STREAM_TID: Final = re.compile(r"(?:stream\s*)?(-?[0-9]+)", re.IGNORECASE)

MEMORY_NAME: Final = "[memory]"
OUT_OF_MEMORY_NAME: Final = "[OutOfMemory]"
SPAN_PHASE: Final = "X"
BEGIN_PHASE: Final = "B"
END_PHASE: Final = "E"
MEMORY_PHASES: Final = frozenset({"i", "I", "X"})
MATRIX_PRODUCTS: Final = frozenset(
    {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::_scaled_mm"}
)
"""Operators whose `Input Dims` and `Input type` are kept: all of them would be a large part of the trace."""
METADATA_PHASE: Final = "M"
THREAD_NAME: Final = "thread_name"

TRACE_EVENTS: Final = "traceEvents"
METADATA_KEYS: Final = frozenset(
    {
        "schemaVersion",
        "baseTimeNanoseconds",
        "deviceProperties",
        "distributedInfo",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_flops",
        "with_modules",
        "simulated",
    }
)
"""Top-level keys that are kept; every other value is passed over."""


def quoted_stamps(chunk: bytes) -> bytes:
    """The chunk with its stamps as strings."""
    return _STAMP.sub(rb'\1"\2"', chunk)


def category(text: str) -> Category:
    """What a `cat` means."""
    return _CATEGORIES.get(text.lower(), Category.OTHER)


def is_old_operator(text: str) -> bool:
    """Whether this `cat` is of the generation that had no category for annotations."""
    return text == "Operator"


def is_annotation(name: str) -> bool:
    """Whether an old `Operator` of this name is what newer traces call a `user_annotation`."""
    return _ANNOTATION_OF_OLD.match(name) is not None


def number_of(text: str) -> int:
    """The number in a GPU's `pid` or `tid` ("7", "stream 7"), or NONE."""
    match = _STREAM_TID.fullmatch(text.strip())
    if match is None:
        return NONE
    number = int(match[1])
    return number if 0 <= number < 2**31 else NONE


def metadata(values: dict[str, Any]) -> Metadata:
    """Top-level values, wherever in the file they stood, as Metadata; what has another type than expected
    is left out."""
    properties = values.get("deviceProperties")
    distributed = values.get("distributedInfo")
    return Metadata(
        schema_version=_integer(values.get("schemaVersion")),
        base_time_ns=_integer(values.get("baseTimeNanoseconds")),
        device_properties=[p for p in properties if isinstance(p, dict)]
        if isinstance(properties, list)
        else [],
        distributed=distributed if isinstance(distributed, dict) else {},
        record_shapes=bool(values.get("record_shapes")),
        profile_memory=bool(values.get("profile_memory")),
        with_stack=bool(values.get("with_stack")),
        with_flops=bool(values.get("with_flops")),
        with_modules=bool(values.get("with_modules")),
        simulated=values.get("simulated") is True,
    )


def _integer(value: Any) -> int:
    if isinstance(value, (int, float, str)):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            return 0
        return number if abs(number) < 2**63 else 0
    return 0
