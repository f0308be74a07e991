"""A tiny job for the rules about memory: each step allocates memory, frees most of it and keeps the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tb_gpudiag.rules.answer import CannotTell, Finding, RuleAnswer
from tests.builder import HostThread, TraceBuilder

MIB = 2**20
STEP_US = 100.0
KEEPER = "train.py(7): keep"


def job(
    kept: Sequence[int],
    *,
    start: int = 8 * MIB,
    taken: int = 4 * MIB,
    reserved: int | None = None,
    device: int | None = 0,
    mark_steps: bool = True,
    operator: str = "aten::clone",
    **options: Any,
) -> TraceBuilder:
    """Build a job whose step i keeps `kept[i]` bytes, allocated by an operator in KEEPER.

    start: bytes allocated before the recording. taken: bytes that each step allocates and frees. reserved:
    the allocator's total, constant over the job.
    """
    trace = TraceBuilder(**options)
    trace.recording.memory_start[device] = start
    trace.recording.reserved_start = reserved or 0
    main = trace.thread()
    for number, size in enumerate(kept):
        at = number * STEP_US
        if mark_steps:
            main.step(number, at=at, us=STEP_US - 2)
        main.frame("train.py(3): train", at=at + 1, us=STEP_US - 4)
        main.launch("gemm", at=at + 2, us=3, runs_at=at + 6, runs_us=80)
        main.op("aten::mm", at=at + 10, us=20)
        address = main.alloc(taken, at=at + 15, device=device, reserved=reserved)
        if size:
            main.frame(KEEPER, at=at + 40, us=20).op(operator, at=at + 42, us=10)
            main.alloc(size, at=at + 45, device=device, reserved=reserved)
        main.free(address, at=at + 70)
    return trace


def fail_allocation(trace: TraceBuilder, requested: int, *, at: float, reserved: int) -> None:
    """Let an allocation fail, this many µs after the first step began."""
    first = next(e for e in trace.document()["traceEvents"] if e["name"] == "ProfilerStep#0")
    args = {"Device Type": 1, "Device Id": 0, "Bytes": requested, "Total Allocated": 8 * MIB}
    event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[OutOfMemory]", "pid": 4242}
    trace.raw(
        event | {"tid": 4242, "ts": float(first["ts"]) + at, "args": args | {"Total Reserved": reserved}}
    )


def build_model(trace: TraceBuilder, *, device: int | None = None) -> None:
    """Show in the trace how the model is built: then no memory of the job is older than the recording."""
    thread = trace.thread("builder")
    thread.frame("/opt/python3.11/site-packages/torch/nn/modules/linear.py(98): __init__", at=0, us=1)
    thread.alloc(512, at=0.5, device=device)


def steps_of(
    trace: TraceBuilder, count: int = 8, *, first: int = 0, built: bool = True
) -> Iterator[tuple[HostThread, float]]:
    """Record steps, and yield the main thread and when each begins. built: the model is built before them."""
    main = trace.thread()
    if built:
        build_model(trace)
    for number in range(count):
        at = number * STEP_US
        main.step(first + number, at=at, us=STEP_US - 2)
        yield main, at


def only(answer: RuleAnswer) -> Finding:
    """Return the only finding of an answer."""
    assert isinstance(answer, list), answer
    (found,) = answer
    return found


def unsure(answer: RuleAnswer) -> CannotTell:
    """Return the answer, which says that it cannot tell."""
    assert isinstance(answer, CannotTell), answer
    return answer
