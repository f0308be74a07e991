"""Write a recording as rocprofv3's JSON: the same events in its lists of records.

Python frames, allocations of torch and memsets have no place in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.builder.recording import DeviceProperties, GpuSpan, HostSpan, Recording

CPU_AGENT, FIRST_GPU_AGENT = 100, 101
_COPIES = {"HtoD": "HOST_TO_DEVICE", "DtoH": "DEVICE_TO_HOST", "DtoD": "DEVICE_TO_DEVICE"}
_HIP, _MARKER, _COPY, _DISPATCH, _RCCL = range(1, 6)


class Recorded:
    """A document in the making, of one process."""

    def __init__(self, pid: int = 4242) -> None:
        self.pid = pid
        self.records: dict[str, list[dict[str, Any]]] = {
            kind: [] for kind in ("kernel_dispatch", "hip_api", "memory_copy", "marker_api", "rccl_api")
        }
        self.agents: list[dict[str, Any]] = [{"id": {"handle": CPU_AGENT}, "type": 1, "cu_count": 64}]
        self.messages: list[dict[str, Any]] = []
        self._operations: dict[int, dict[str, int]] = {}
        self._kernels: dict[str, int] = {}

    def operation(self, kind: int, name: str) -> int:
        """Return the id of an operation of this kind."""
        known = self._operations.setdefault(kind, {})
        return known.setdefault(name, len(known))

    def call(self, name: str, start: int, end: int, correlation: int = 0, thread: int = 1) -> Recorded:
        """Add a call of HIP."""
        return self._add("hip_api", _HIP, name, start, end, correlation, thread)

    def collective(self, name: str, start: int, end: int, correlation: int, thread: int = 1) -> Recorded:
        """Add a call of RCCL."""
        return self._add("rccl_api", _RCCL, name, start, end, correlation, thread)

    def marker(
        self, text: str, start: int, end: int, thread: int = 1, operation: str = "roctxThreadRangeA"
    ) -> Recorded:
        """Add a range of ROCTx."""
        correlation = 1_000_000 + len(self.messages)
        self.messages.append({"key": correlation, "value": text})
        return self._add("marker_api", _MARKER, operation, start, end, correlation, thread)

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        correlation: int = 0,
        /,
        gpu: int = 0,
        stream: int = 7,
        **more: Any,
    ) -> Recorded:
        """Add a kernel. more: `grid` in threads, and `block`."""
        sizes = {"grid_size": more.get("grid", (256, 1, 1)), "workgroup_size": more.get("block", (256, 1, 1))}
        info = {
            "agent_id": {"handle": FIRST_GPU_AGENT + gpu},
            "queue_id": {"handle": stream + 10},
            "kernel_id": self._kernels.setdefault(name, len(self._kernels) + 1),
            **{key: dict(zip("xyz", size, strict=True)) for key, size in sizes.items()},
        }
        place = {"dispatch_info": info, "stream_id": {"handle": stream}}
        return self._add(
            "kernel_dispatch", _DISPATCH, "KERNEL_DISPATCH_COMPLETE", start, end, correlation, 1, **place
        )

    def copy(
        self, direction: str, start: int, end: int, correlation: int = 0, /, gpu: int = 0, **more: Any
    ) -> Recorded:
        """Add a copy. direction: such as HtoD. more: `bytes` and `stream`."""
        device, host = {"handle": FIRST_GPU_AGENT + gpu}, {"handle": CPU_AGENT}
        place = {
            "src_agent_id": host if direction[0] == "H" else device,
            "dst_agent_id": host if direction[-1] == "H" else device,
            "stream_id": {"handle": more.get("stream", 7)},
            "bytes": more.get("bytes", 1),
        }
        name = f"MEMORY_COPY_{_COPIES[direction]}"
        return self._add("memory_copy", _COPY, name, start, end, correlation, 1, **place)

    def gpu(self, properties: DeviceProperties) -> Recorded:
        """Add a GPU."""
        self.agents.append(
            {
                "id": {"handle": CPU_AGENT + len(self.agents)},
                "type": 2,
                "product_name": properties.name,
                "cu_count": properties.multiprocessors,
                "wave_front_size": 64,
                "max_waves_per_cu": 32,
                "gfx_target_version": 90402,
            }
        )
        return self

    def document(self) -> dict[str, Any]:
        """Return the document."""
        strings = [
            {"kind": f"KIND {kind}", "operations": list(self._operations.get(kind, {}))} for kind in range(6)
        ]
        symbols = [
            {"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name}
            for name, number in self._kernels.items()
        ]
        process = {
            "metadata": {
                "pid": self.pid,
                "node": {"hostname": "worker-7"},
                "command": ["python", "train.py"],
            },
            "agents": self.agents,
            "strings": {"buffer_records": strings, "marker_api": self.messages},
            "kernel_symbols": symbols,
            "callback_records": {"counter_collection": []},
            "buffer_records": self.records,
        }
        return {"rocprofiler-sdk-tool": [process]}

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.write_text(json.dumps(self.document()), encoding="utf-8")
        return path

    def _add(
        self,
        records: str,
        kind: int,
        operation: str,
        start: int,
        end: int,
        correlation: int,
        thread: int,
        **more: Any,
    ) -> Recorded:
        self.records[records].append(
            {
                "size": 1,
                "kind": kind,
                "operation": self.operation(kind, operation),
                "thread_id": thread,
                "correlation_id": {"internal": correlation, "external": 0},
                "start_timestamp": start,
                "end_timestamp": end,
                **more,
            }
        )
        return self


def recorded_of(recording: Recording) -> Recorded:
    """Return the document of a recording: operators as `emit_nvtx` marks them."""
    made = Recorded(recording.pid)
    for device in recording.devices:
        made.gpu(device)
    for span in sorted(recording.host, key=lambda s: (s.start_ns, -s.end_ns)):
        _host(made, span)
    for work in recording.gpu:
        _gpu(made, work)
    return made


def _host(made: Recorded, span: HostSpan) -> None:
    if span.kind == "op":
        sequence = span.args.get("Sequence number")
        text = span.name + (f", seq = {sequence}" if sequence is not None else "") + ", op_id = 7"
        made.marker(text, span.start_ns, span.end_ns, span.thread)
    elif span.kind == "annotation":
        made.marker(span.name, span.start_ns, span.end_ns, span.thread)
    elif span.kind != "frame":
        made.call(span.name, span.start_ns, span.end_ns, span.correlation or 0, span.thread)


def _gpu(made: Recorded, span: GpuSpan) -> None:
    at = span.start_ns, span.end_ns, span.correlation or 0
    if span.kind == "kernel":
        grid, block = span.args.get("grid", [1, 1, 1]), span.args.get("block", [128, 1, 1])
        threads = [g * b for g, b in zip(grid, block, strict=True)]
        made.kernel(span.name, *at, gpu=span.device, stream=span.stream, grid=threads, block=block)
    elif span.kind == "memcpy":
        direction = span.name.split()[1]
        made.copy(direction, *at, gpu=span.device, stream=span.stream, bytes=span.bytes or 0)
