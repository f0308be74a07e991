"""Traces of a training job that allocates memory."""

from __future__ import annotations

import json

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.trace.support import read_bytes

STEP_US = 1000.0


def only(trace: TraceBuilder) -> DeviceMemory:
    (memory,) = facts_of(trace).memory
    return memory


def without_the_first_memory_event(trace: TraceBuilder) -> Facts:
    """Return the facts of the trace as if the recording had begun after its first memory event."""
    document = trace.document()
    events = document["traceEvents"]
    events.remove(min((e for e in events if e["name"] == "[memory]"), key=lambda e: float(e["ts"])))
    return Facts(read_bytes(json.dumps(document).encode()))


def training(trace: TraceBuilder, steps: int = 4) -> list[int]:
    """Add steps that load a batch of 1,000 bytes, save activations of 300 for backward, allocate gradients of
    40 and, in the first step, optimizer state of 80. Return the steps' starts in ns."""
    main, engine = trace.thread(), trace.thread("autograd")
    gradient = batch = None
    for step in range(steps):
        at = STEP_US * step
        main.step(step, at=at, us=STEP_US)
        main.frame("train.py(3): train", at=at, us=STEP_US)
        main.op("aten::to", at=at + 10, us=40)
        main.copy("HtoD", at=at + 20, us=5, runs_at=at + 26, runs_us=10, bytes=1000)
        loaded = main.alloc(1000, at=at + 12)
        if batch is not None:
            main.free(batch, at=at + 60)
        batch = loaded
        main.frame("nn.Module: Net_0", at=at + 100, us=100)
        main.op("aten::mm", at=at + 110, us=40)
        kept = main.alloc(300, at=at + 120)
        scratch = main.alloc(70, at=at + 125)
        main.free(scratch, at=at + 140)
        if gradient is not None:
            main.annotation("Optimizer.zero_grad#SGD.zero_grad", at=at + 300, us=20)
            main.free(gradient, at=at + 310)
        engine.op("autograd::engine::evaluate_function: MmBackward0", at=at + 400, us=100)
        gradient = engine.alloc(40, at=at + 420)
        partial = engine.alloc(30, at=at + 430)
        engine.free(partial, at=at + 440)
        engine.free(kept, at=at + 450)
        main.annotation("Optimizer.step#Adam.step", at=at + 600, us=50)
        main.op("aten::add", at=at + 610, us=20)
        if step == 0:
            main.alloc(80, at=at + 612)
        update = main.alloc(9, at=at + 615)
        main.free(update, at=at + 625)
    return [round(STEP_US * 1000 * step) for step in range(steps)]


def leak(main: HostThread, steps: int, *, line: int = 9, bytes: int = 512) -> None:
    """Allocate this many bytes in each step and never free them."""
    for step in range(steps):
        at = STEP_US * step + 200
        main.frame(f"keep.py({line}): remember", at=at, us=50).op("aten::clone", at=at + 5, us=20)
        main.op("aten::empty_like", at=at + 6, us=5)
        main.alloc(bytes, at=at + 8)
