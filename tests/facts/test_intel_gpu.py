"""Traces of Intel GPUs (XPU): kernels have a SYCL queue instead of a stream, and calls have other names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace

QUEUE = 64


def _span(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    on_device = cat == "kernel"
    thread = {"pid": 0, "tid": QUEUE} if on_device else {"pid": 100, "tid": 100}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **thread, "args": args}


def _facts(folder: Path) -> Facts:
    """Twenty launches of 100 µs; after each, the host waits for the queue, and then allocates for 50 µs."""
    events = []
    for i in range(20):
        at, launched = 1000.0 + 300 * i, {"correlation": i + 1}
        events += [
            _span("cpu_op", "aten::mm", at, 40, **{"External id": i + 1}),
            _span("xpu_runtime", "urEnqueueKernelLaunch", at + 10, 20, **launched),
            _span("kernel", "gemm_kernel", at + 40, 100, device=0, **{"sycl queue": QUEUE}, **launched),
            _span("xpu_runtime", "urQueueFinish", at + 45, 105, correlation=1000 + i),
            _span("xpu_runtime", "urUSMDeviceAlloc", at + 200, 50, correlation=2000 + i),
        ]
    properties = [{"id": 0, "name": "Intel(R) Data Center GPU Max 1550", "totalGlobalMem": 64 << 30}]
    path = folder / "host_1.1.pt.trace.json"
    path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": events}), encoding="utf-8")
    return Facts(read_trace(str(path)))


def test_kernels_of_a_sycl_queue_are_gpu_work_with_launches(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    assert facts.device is not None
    assert not facts.recorded.unread_accelerator
    assert len(facts.work.launch) == 20
    assert (facts.work.launch >= 0).all()
    assert set(facts.events.stream[facts.work.event].tolist()) == {QUEUE}


def test_waiting_and_allocating_on_an_intel_gpu_have_their_causes(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    assert facts.device is not None
    idle = facts.device.ledger.by_cause(facts.window)
    assert idle[Cause.ALLOCATOR] >= 19 * 50_000
    assert idle[Cause.SYNC] > 0
