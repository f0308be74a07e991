"""Tiny traces in code: a test says what happened and gets Kineto's JSON in any generation of the format.

    from tests.builder import TraceBuilder

    def test_loader_wait(tmp_path):
        trace = TraceBuilder()                     # "C2", one GPU; or "A", "B", "B+", "C1"
        main = trace.thread()
        main.step(0, at=0, us=1000)                # all times are µs from the window's start
        main.frame("train.py(12): train", at=0, us=1000)
        main.loader(at=0, us=700)
        main.op("aten::mm", at=720, us=40)
        main.launch("gemm", at=730, us=10, runs_at=745, runs_us=250)
        path = trace.write(tmp_path / "run")       # or trace.bytes(), or trace.document()

Correlations, operators' ids, frames' parents, flows and memory totals are filled in. `HostThread` has a
method for each thing that a thread can do; `TraceBuilder.raw` writes any event as it is, also a malformed
one. Nothing is checked. Generation A has no Python frames: there `frame` becomes the operators' `Call stack`.

`SnapshotBuilder` builds CUDA memory snapshots in the same way, and `CompileLogBuilder` logs of torch.compile.
"""

from __future__ import annotations

from tests.builder.compile_log import CompileLogBuilder
from tests.builder.forms import BASE_NS, EPOCH_NS, GENERATIONS, Generation
from tests.builder.recording import DeviceProperties, GpuSpan, HostSpan, MemoryEvent, Recording
from tests.builder.snapshot import SnapshotBuilder
from tests.builder.story import HostThread, TraceBuilder, copy_name
from tests.builder.write import TopLevel, document, to_bytes, write_file

__all__ = [
    "BASE_NS",
    "EPOCH_NS",
    "GENERATIONS",
    "CompileLogBuilder",
    "DeviceProperties",
    "Generation",
    "GpuSpan",
    "HostSpan",
    "HostThread",
    "MemoryEvent",
    "Recording",
    "SnapshotBuilder",
    "TopLevel",
    "TraceBuilder",
    "copy_name",
    "document",
    "to_bytes",
    "write_file",
]
