"""Kineto's names, old and new: the only file that knows them.

Generations of the format write the same thing under different names. Everything here maps those names to what
`events.py` means, so that nothing after it has to ask which torch wrote the file.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tb_gpudiag.trace.events import NONE, Category, Metadata

FIELDS: Final = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    # Exact: DuckDB parses a decimal from the digits themselves. 19 digits before the point hold any stamp
    # of 64 bits.
    "ts": "DECIMAL(22,3)",
    "dur": "DECIMAL(22,3)",
}
"""Fields of an event that are read, with their SQL types."""

ARGUMENTS: Final = {
    "correlation": "BIGINT",
    "device": "BIGINT",
    "stream": "BIGINT",
    "bytes": "BIGINT",
    "Python id": "BIGINT",
    "Python parent id": "BIGINT",
    "Sequence number": "BIGINT",
    "Fwd thread id": "BIGINT",
    "Call stack": "VARCHAR",
    "Device Type": "BIGINT",
    "Device Id": "BIGINT",
    "Addr": "UBIGINT",
    "Total Allocated": "BIGINT",
    "Total Reserved": "BIGINT",
    "name": "VARCHAR",
}
"""Entries of an event's `args` that are read, with their SQL types. No two may differ by case alone."""

_BYTES_KEY: Final = re.compile(rb'"Bytes"(?=[ \t\r\n]*:)')

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

_MEMORY_NAME: Final = "[memory]"
_SPAN_PHASE: Final = "X"
_INSTANT_PHASES: Final = frozenset({"i", "I"})
_STREAM_TID: Final = re.compile(r"(?:stream\s*)?(-?\d+)", re.IGNORECASE)

MEMORY_NAME: Final = _MEMORY_NAME
SPAN_PHASE: Final = _SPAN_PHASE
BEGIN_PHASE: Final = "B"
END_PHASE: Final = "E"
MEMORY_PHASES: Final = _INSTANT_PHASES | {_SPAN_PHASE}
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


def one_spelling(chunk: bytes) -> bytes:
    """The chunk with `Bytes` of `[memory]` spelt `bytes`, as copies do: SQL struct keys know no case."""
    if b'"Bytes"' in chunk:
        chunk = chunk.replace(b'"Bytes":', b'"bytes":')  # as all writers have it, and much faster
    return _BYTES_KEY.sub(b'"bytes"', chunk) if b'"Bytes"' in chunk else chunk


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
