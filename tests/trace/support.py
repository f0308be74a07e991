"""Helpers for the tests of trace/: read bytes, and read a trace in a second, slow way."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from unittest import mock

import numpy as np

from tb_gpudiag.arrays import Int32
from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto import settle
from tb_gpudiag.trace.memory import snapshot_tables
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.collective_kinds import BACK_END_MARK
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.shaped_operators import has_cost, has_settings, streamed_times

LONG_AGO_S = 1_000_000_000.0

Row = tuple[Any, ...]

# Written out again on purpose: what the format says, not what the reader does. Every other category is OTHER.
CATEGORY_OF = {
    "Operator": Category.CPU_OP,
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "python_function": Category.PYTHON_FUNCTION,
    "Runtime": Category.RUNTIME,
    "cuda_runtime": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "Kernel": Category.KERNEL,
    "kernel": Category.KERNEL,
    "Memcpy": Category.MEMCPY,
    "gpu_memcpy": Category.MEMCPY,
    "Memset": Category.MEMSET,
    "gpu_memset": Category.MEMSET,
    "gpu_user_annotation": Category.GPU_USER_ANNOTATION,
    "overhead": Category.OVERHEAD,
    "cuda_sync": Category.CUDA_SYNC,
    "cpu_instant_event": Category.INSTANT,
    "mtia_ccp_events": Category.MTIA,
    "enqueue": Category.ASCEND,
    "dequeue": Category.ASCEND,
}
WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
MARKS = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")


def read_bytes(content: bytes, *, age_s: float | None = None, limits: Limits | None = None) -> Trace:
    """Read a file with this content that was modified long ago, or `age_s` ago."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "worker.1.pt.trace.json")
        with open(path, "wb") as file:
            file.write(content)
        if age_s is None:
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))
        return read_trace(path, limits=limits or Limits())


def both_ways(read: Callable[[], Trace]) -> tuple[Trace | TraceError, Trace | TraceError]:
    """Read with the compiled readers, if they are there, and with the plain ones alone."""
    found: list[Trace | TraceError] = []
    for compiled in (settle.available(), False):
        with (
            mock.patch.object(settle, "available", return_value=compiled),
            mock.patch.object(snapshot_tables, "available", return_value=compiled),
        ):
            try:
                found.append(read())
            except TraceError as error:
                found.append(error)
    return found[0], found[1]


def same_trace(one: Any, other: Any, where: str = "trace") -> None:
    """Fail unless two traces are equal in every column; so for their parts."""
    assert type(one) is type(other), where
    if isinstance(one, TraceError):
        assert (one.what, one.remedy) == (other.what, other.remedy)
        return
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), where
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            same_trace(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            same_trace(mine, theirs, f"{where}[{number}]")
    else:
        assert one == other, where


def document(*events: str | dict[str, Any], **top: Any) -> bytes:
    """Make a trace of these events. An event may be text."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    before = "".join(f"{json.dumps(key)}: {json.dumps(value)}, " for key, value in top.items())
    return ("{" + before + '"traceEvents": [' + ", ".join(texts) + "]}").encode()


def span(name: str = "aten::mm", ts: object = 1, dur: object = 1, **fields: Any) -> dict[str, Any]:
    """Make the event of an operator; `fields` add and override."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 8, "ts": ts, "dur": dur, **fields}


def names(trace: Trace) -> list[str]:
    """Return the names of the spans, in order."""
    return [trace.events.names[code] for code in trace.events.name]


def rows(trace: Trace) -> list[Row]:
    """Return the spans as tuples with absolute timestamps, in order."""
    e = trace.events
    threads = [(thread.pid, thread.tid) for thread in e.threads]
    return list(
        zip(
            (e.start_ns + trace.start_ns).tolist(),
            e.duration_ns.tolist(),
            map(Category, e.category.tolist()),
            _texts(e.names, e.name),
            map(threads.__getitem__, e.thread.tolist()),
            *(column.tolist() for column in (e.correlation, e.external_id, e.device, e.stream, e.bytes)),
            *(column.tolist() for column in (e.python_id, e.python_parent, e.sequence, e.forward_thread)),
            _texts(e.call_stacks, e.call_stack),
            np.nan_to_num(e.blocks_per_sm, nan=-1).tolist(),
            zip(e.warps_per_block.tolist(), e.registers.tolist(), e.shared_bytes.tolist(), strict=True),
            _texts(e.input_shapes, e.shapes),
            _texts(e.input_types, e.types),
            _texts(e.input_strides, e.strides),
            strict=True,
        )
    )


def _texts(table: Sequence[str], codes: Int32) -> list[str]:
    """The texts of a column of places in a table; "" where there is none."""
    return [table[code] if code >= 0 else "" for code in codes.tolist()]


def memory_rows(trace: Trace) -> list[Row]:
    """Return the memory events as tuples with absolute timestamps, in order."""
    m = trace.memory
    threads = trace.events.threads
    return [
        (
            int(m.time_ns[i]) + trace.start_ns,
            int(m.bytes[i]),
            int(m.address[i]),
            int(m.device_type[i]),
            int(m.device[i]),
            int(m.allocated[i]),
            int(m.reserved[i]),
            (threads[m.thread[i]].pid, threads[m.thread[i]].tid),
        )
        for i in range(len(m))
    ]


def nanoseconds(us: object) -> int:
    """Round a number of µs, as the file has it, to the nearest nanosecond."""
    return int((Decimal(str(us)) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def slow_read(text: str) -> tuple[list[Row], list[Row], int]:
    """Read with Python's json, one event at a time. Return rows, memory rows and the number of elements."""
    loaded = json.loads(text, parse_float=Decimal)
    events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
    spans: list[Row] = []
    memory: list[Row] = []
    for event in events:
        args = event.get("args") or {}
        thread = (str(event.get("pid", "")), str(event.get("tid", "")))
        if event.get("name") == "[memory]" and event["ph"] in "iIX":
            keys = ("Device Type", "Device Id", "Total Allocated", "Total Reserved")
            numbers = [args.get(key, -1) for key in keys]
            memory.append((nanoseconds(event["ts"]), args["Bytes"], args.get("Addr", 0), *numbers, thread))
        elif event["ph"] == "X":
            spans.append(_slow_span(event, args, thread))
    # Python's sort is stable, too.
    return sorted(spans, key=lambda row: row[0]), sorted(memory, key=lambda row: row[0]), len(events)


def _slow_span(event: dict[str, Any], args: dict[str, Any], thread: tuple[str, str]) -> Row:
    category = CATEGORY_OF.get(event.get("cat", ""), Category.OTHER)
    if event.get("cat") == "Operator" and event["name"].startswith(MARKS):
        category = Category.USER_ANNOTATION
    device = stream = -1
    sequence, other = (args.get(key, -1) for key in ("Sequence number", "Fwd thread id"))
    if category == Category.KERNEL:
        sequence = args.get("graph node id", -1)
    if category == Category.CUDA_SYNC:
        sequence = args.get("wait_on_cuda_event_record_corr_id", -1)
        other = args.get("wait_on_stream", -1)
        device, stream = args.get("device", -1), args.get("stream", -1)
        stream = stream if stream < 2**31 else -1
    if category in WORK:
        device = args.get("device", event["pid"])
        tid = str(event["tid"]).removeprefix("stream ")
        stream = args.get("stream", int(tid) if tid.isdigit() else -1)
    return (
        nanoseconds(event["ts"]),
        max(nanoseconds(event.get("dur", 0)), 0),
        category,
        event.get("name", ""),
        thread,
        *(args.get("correlation", -1), args.get("External id", -1), device, stream),
        args.get("bytes", -1) if category in (Category.MEMCPY, Category.MEMSET) else -1,
        *(-1 if args.get(key) is None else args[key] for key in ("Python id", "Python parent id")),
        *(sequence, other),
        args.get("Call stack", ""),
        float(np.float32(args.get("blocks per SM", -1))) if category == Category.KERNEL else -1.0,
        _launched_as(args) if category == Category.KERNEL else (0, 0, -1),
        *(_inputs(args, key, event.get("name", "")) for key in ("Input Dims", "Input type", "Input Strides")),
    )


def _inputs(args: dict[str, Any], key: str, name: str) -> str:
    """Return the shapes of an operator's inputs if they are short, or the types or strides if they matter."""
    text = json.dumps(args[key], separators=(",", ":")) if key in args else ""
    wanted = {
        "Input Dims": len(text) <= 400,
        "Input type": has_cost(name) or has_settings(name) or BACK_END_MARK.fullmatch(name) is not None,
        "Input Strides": streamed_times(name) is not None,
    }
    return text if wanted[key] else ""


def _launched_as(args: dict[str, Any]) -> tuple[int, int, int]:
    """Return warps per block, registers per thread and shared memory per block."""
    blocks, warps = float(args.get("blocks per SM", 0)), float(args.get("warps per SM", 0))
    per_block = round(warps / blocks) if blocks > 0 else 0
    return (
        per_block if per_block <= 32 else 0,
        args.get("registers per thread", 0),
        args.get("shared memory", -1),
    )
